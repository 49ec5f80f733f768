"""Allocators of devices: the shared pooled one, and `NaiveAllocator`, the baseline for pools."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

from loopwright.errors import ArgumentError, OutOfMemoryError, UsageError, did_you_mean
from loopwright.runtime.caches import watch_pool
from loopwright.runtime.devices.interface import HOST, Memory, Stream, device_api
from loopwright.runtime.memory.pool import DeviceLike, MemoryPool, PoolStatistics, device_pair
from loopwright.runtime.memory.pooled import PooledAllocator


class NaiveAllocator(MemoryPool):
    """Asks the device each time, caches nothing, and counts.

    Example:
        >>> from loopwright.runtime.memory import NaiveAllocator
        >>> from loopwright.testing.simulated_device import SimulatedDevice
        >>> with SimulatedDevice():
        ...     pool = NaiveAllocator((12, 0))
        ...     memory = pool.alloc(1000)
        ...     print(pool.statistics().reserved_bytes)
        ...     pool.free(memory)
        1000
    """

    def __init__(self, device: DeviceLike) -> None:
        super().__init__(device)
        self._held: set[Memory] = set()
        self._live = self._peak = self._allocations = self._frees = 0
        self._lock = threading.RLock()

    def alloc(
        self, nbytes: int, alignment: int | None = None, stream: Stream | None = None
    ) -> Memory:
        aligned_to = self._checked(nbytes, alignment)
        try:
            memory = self._from_device(nbytes, aligned_to)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"{self.device_name}: {nbytes} bytes were asked; {self._live} are live, none are "
                "cached; free arrays, or use a smaller problem"
            ) from error
        with self._lock:
            self._held.add(memory)
            self._allocations += 1
            self._live += nbytes
            self._peak = max(self._peak, self._live)
        return memory

    def free(self, memory: Memory, stream: Stream | None = None) -> None:
        """Give memory back to the device, which waits for work that uses it."""
        with self._lock:
            if memory not in self._held:
                raise ArgumentError(f"free: {memory} is not live memory of this allocator")
            self._held.remove(memory)
            self._frees += 1
            self._live -= memory.nbytes
        self.api.free(memory)

    def statistics(self) -> PoolStatistics:
        """Sizes and counts; nothing is ever cached."""
        with self._lock:
            return PoolStatistics(
                requested_bytes=self._live,
                live_bytes=self._live,
                peak_bytes=self._peak,
                reserved_bytes=self._live,
                cached_bytes=0,
                largest_free=0,
                allocations=self._allocations,
                frees=self._frees,
                device_allocations=self._allocations,
                device_frees=self._frees,
            )

    def release_cached(self) -> int:
        """Nothing is cached: 0."""
        return 0

    def forget_stream(self, stream: Stream) -> None:
        """Nothing to do: streams are not remembered."""

    def _from_device(self, nbytes: int, alignment: int) -> Memory:
        try:
            return self.api.allocate(self.device_id, nbytes, alignment)
        except OutOfMemoryError:
            if not self._ask_holders():
                raise
        return self.api.allocate(self.device_id, nbytes, alignment)


KINDS: dict[str, Callable[[DeviceLike], MemoryPool]] = {
    "naive": NaiveAllocator,
    "pooled": PooledAllocator,
}

_lock = threading.Lock()
_of_devices: dict[tuple[int, int], MemoryPool] = {}


def allocator(kind: Literal["naive", "pooled"], device: DeviceLike) -> MemoryPool:
    """A new allocator of a device.

    ``pooled`` caches freed memory; ``naive`` asks the device each time. UsageError where there is
    no such kind, or nothing drives such a device.

    Example:
        >>> from loopwright.runtime.memory import allocator
        >>> from loopwright.testing.simulated_device import SimulatedDevice
        >>> with SimulatedDevice():
        ...     print(type(allocator("naive", (12, 0))).__name__)
        NaiveAllocator
    """
    if kind not in KINDS:
        raise UsageError(
            f"there is no allocator {kind!r}{did_you_mean(kind, KINDS)}; choose from "
            f"{', '.join(KINDS)}"
        )
    return KINDS[kind](device)


def device_allocator(device: DeviceLike) -> MemoryPool:
    """The shared allocator of a device: a pooled one; UsageError where nothing drives it.

    Example:
        >>> from loopwright.runtime.memory import device_allocator
        >>> from loopwright.testing.simulated_device import SimulatedDevice
        >>> with SimulatedDevice():
        ...     print(device_allocator((12, 0)) is device_allocator((12, 0)))
        True
    """
    pair = device_pair(device)
    with _lock:
        pool = _of_devices.get(pair)
        # A kind of devices may have been taken away and registered anew.
        if pool is None or pool.api is not device_api(pair[0]):
            pool = _of_devices[pair] = PooledAllocator(pair)
            if pair[0] != HOST:
                watch_pool(pool, lambda own: own.statistics().reserved_bytes)
        return pool

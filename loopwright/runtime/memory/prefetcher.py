"""`MemoryPrefetcher`: copies data to a device before it is needed."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Self

from loopwright.errors import ArgumentError, UsageError
from loopwright.runtime.devices.interface import HOST, Event, Memory
from loopwright.runtime.memory.allocators import device_allocator, free_stream
from loopwright.runtime.memory.host import HostOrDevice, as_memory
from loopwright.runtime.memory.pool import DeviceLike, MemoryPool, note_use


@dataclass(frozen=True, slots=True, eq=False)
class Prefetch:
    """Data on its way to a device; `MemoryPrefetcher.wait` gives the memory.

    Attributes:
        memory: target on the device.
        source: origin of the data; it must not change until `MemoryPrefetcher.wait` returns.
        arrived: event at the end of the copy.
    """

    memory: Memory
    source: Memory
    arrived: Event


class MemoryPrefetcher:
    """Allocates on a device and copies there, beside other work; a context manager closes it.

    Args:
        device: a `Device`, or the pair of its type and number.
        pool: source of memory; default the device's allocator.

    Raises:
        UsageError: nothing drives such a device.

    Example:
        >>> from loopwright.runtime.memory import MemoryPrefetcher, PooledAllocator
        >>> from loopwright.testing.simulated_device import SimulatedDevice
        >>> with SimulatedDevice():
        ...     pool = PooledAllocator((12, 0), first_chunk=4096)
        ...     with MemoryPrefetcher((12, 0), pool) as prefetcher:
        ...         prefetch = prefetcher.prefetch(np.arange(4, dtype="float32"))
        ...         memory = prefetcher.wait(prefetch)
        ...     print(memory.nbytes)
        ...     pool.free(memory)
        ...     print(pool.release_cached())
        16
        4096
    """

    def __init__(self, device: DeviceLike, pool: MemoryPool | None = None) -> None:
        self._pool = pool or device_allocator(device)
        self._device_id = self._pool.device_id
        self._api = self._pool.api
        self._stream = self._api.create_stream(self._device_id)
        self._open: set[Prefetch] = set()
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prefetch(self, source: HostOrDevice) -> Prefetch:
        """Allocate memory on the device, start the copy, and return.

        Args:
            source: a contiguous NumPy array, an NDArray or memory; kept alive until `wait`. Unless
                it is host memory, the copy waits for the present work of the current stream.

        Raises:
            OutOfMemoryError: the device has less memory.
            ArgumentError: the array is not contiguous.
            UsageError: the prefetcher is closed.
        """
        here = as_memory(source)
        with self._lock:
            if self._closed:
                raise UsageError("prefetch: the prefetcher is closed; make another one")
            memory = self._pool.alloc(here.nbytes, stream=self._stream)
            try:
                prefetch = self._start(here, memory)
            except BaseException:
                self._pool.free(memory, self._stream)
                raise
            self._open.add(prefetch)
        return prefetch

    def _start(self, source: Memory, memory: Memory) -> Prefetch:
        """Queue the copy."""
        if source.device_type != HOST:
            current = self._api.current_stream(self._device_id)
            self._api.sync_stream_from_to(self._device_id, current, self._stream)
        self._api.copy(source, 0, memory, 0, source.nbytes, self._stream)
        note_use(source, self._stream)
        return Prefetch(memory, source, self._api.record_event(self._device_id, self._stream))

    def wait(self, prefetch: Prefetch) -> Memory:
        """Wait until data has arrived; returns the memory, which the caller frees.

        Raises:
            ArgumentError: it was waited for before, or is of another prefetcher.
            RunError: the copy failed; `close` frees the memory.
        """
        if prefetch not in self._open:
            raise ArgumentError("wait: this prefetch was waited for before, or is of another")
        self._api.wait_event(prefetch.arrived)
        with self._lock:
            self._open.discard(prefetch)
        return prefetch.memory

    def close(self) -> None:
        """Wait for copies in progress, and free memory that no call of `wait` returned."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        free_stream(self._stream)
        for prefetch in self._open:
            self._pool.free(prefetch.memory)
        self._open.clear()

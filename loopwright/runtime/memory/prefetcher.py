"""`MemoryPrefetcher`: data that is brought to a device before it is needed."""

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
        memory: where it goes.
        source: where it comes from; it must stay as it is until it was waited for.
        arrived: happens when all of it is there.
    """

    memory: Memory
    source: Memory
    arrived: Event


class MemoryPrefetcher:
    """Allocates on a device and copies there, beside other work; closed by ``with``.

    Args:
        device: a `Device`, or the pair of its type and number.
        pool: where memory comes from; default the device's allocator.

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
        """Take memory on the device, start to copy, and return.

        Args:
            source: a contiguous NumPy array, an NDArray or memory; kept alive until it was waited
                for. What is in the current stream now is waited for where the source is no memory
                of the host.

        Raises:
            OutOfMemoryError: the device has not so much.
            ArgumentError: the array is not contiguous.
            UsageError: the prefetcher is closed.

        Example:
            >>> from loopwright.runtime.memory import MemoryPrefetcher, PooledAllocator
            >>> from loopwright.testing.simulated_device import SimulatedDevice
            >>> with SimulatedDevice():
            ...     pool = PooledAllocator((12, 0), first_chunk=4096)
            ...     with MemoryPrefetcher((12, 0), pool) as prefetcher:
            ...         print(prefetcher.prefetch(np.zeros(4, "float32")).memory.nbytes)
            ...     print(pool.release_cached())
            16
            4096
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
        """Wait until data has arrived; the memory, which the caller frees.

        Raises:
            ArgumentError: it was waited for before, or is of another prefetcher.
            RunError: the copy failed; `close` frees the memory.

        Example:
            >>> from loopwright.runtime.memory import MemoryPrefetcher, PooledAllocator
            >>> from loopwright.testing.simulated_device import SimulatedDevice
            >>> with SimulatedDevice():
            ...     pool = PooledAllocator((12, 0), first_chunk=4096)
            ...     with MemoryPrefetcher((12, 0), pool) as prefetcher:
            ...         memory = prefetcher.wait(prefetcher.prefetch(np.zeros(4, "float32")))
            ...     pool.free(memory)
            ...     print(pool.release_cached())
            4096
        """
        if prefetch not in self._open:
            raise ArgumentError("wait: this prefetch was waited for before, or is of another")
        self._api.wait_event(prefetch.arrived)
        with self._lock:
            self._open.discard(prefetch)
        return prefetch.memory

    def close(self) -> None:
        """Wait for what is on its way, and free what nobody waited for.

        Example:
            >>> from loopwright.runtime.memory import MemoryPrefetcher
            >>> from loopwright.testing.simulated_device import SimulatedDevice
            >>> with SimulatedDevice():
            ...     MemoryPrefetcher((12, 0)).close()
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        free_stream(self._stream)
        for prefetch in self._open:
            self._pool.free(prefetch.memory)
        self._open.clear()

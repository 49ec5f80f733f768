"""`AsyncMemoryCopier`: copies that run beside other work, in a stream of their own."""

from __future__ import annotations

import threading
from typing import Self

from loopwright.errors import ArgumentError, UsageError
from loopwright.runtime.devices.interface import Event, Memory, Stream
from loopwright.runtime.devices.registry import device_api
from loopwright.runtime.memory.allocators import free_stream
from loopwright.runtime.memory.host import HostOrDevice, as_memory, same_size
from loopwright.runtime.memory.pool import DeviceLike, device_pair, note_use


class AsyncMemoryCopier:
    """Copies from and to a device beside the work of other streams; a context manager closes it.

    A copy runs some time after it was requested. Arrays and memory that take part are kept alive
    until `sync` returns; until then sources must not be changed, and targets not be read.

    Args:
        device: a `Device`, or the pair of its type and number.

    Attributes:
        stream: the copier's own.

    Raises:
        UsageError: nothing drives such a device.

    Example:
        >>> from loopwright.runtime.memory import AsyncMemoryCopier, device_allocator
        >>> from loopwright.testing.simulated_device import SimulatedDevice
        >>> source, back = np.arange(4), np.zeros(4, "int64")
        >>> with SimulatedDevice():
        ...     pool = device_allocator((12, 0))
        ...     memory = pool.alloc(source.nbytes)
        ...     with AsyncMemoryCopier((12, 0)) as copier:
        ...         copier.copy_async(source, memory)
        ...         copier.copy_async(memory, back)
        ...         copier.sync()
        ...     pool.free(memory)
        ...     print(back, pool.release_cached())
        [0 1 2 3] 67108864
    """

    def __init__(self, device: DeviceLike) -> None:
        self.device_type, self.device_id = device_pair(device)
        self.api = device_api(self.device_type)
        self.stream: Stream = self.api.create_stream(self.device_id)
        self._held: list[Memory] = []
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def copy_async(
        self,
        source: HostOrDevice,
        target: HostOrDevice,
        nbytes: int | None = None,
        source_offset: int = 0,
        target_offset: int = 0,
        after_current: bool = True,
    ) -> None:
        """Queue a copy behind the earlier ones, and return.

        Args:
            source: memory, an NDArray, or a contiguous NumPy array.
            target: the same, to be written.
            nbytes: bytes to copy; default all, where both have the same size.
            source_offset: bytes to leave out at the source's beginning.
            target_offset: bytes to leave out at the target's beginning.
            after_current: whether it waits for the present work of the calling thread's current
                stream, which may write the source or use the target.

        Raises:
            ArgumentError: bytes are outside, neither side is on the device, or an array is not
                contiguous or read-only.
            UsageError: the copier is closed.
        """
        here, there = as_memory(source), as_memory(target, written=True)
        count = same_size(here, there, nbytes)
        if not any(self._is_ours(memory) for memory in (here, there)):
            raise ArgumentError(
                f"copy_async: neither {here} nor {there} is on {self.api.name}({self.device_id})"
            )
        with self._lock:
            self._require_open("copy_async")
            self._held += (here, there)
            if after_current:
                current = self.api.current_stream(self.device_id)
                self.api.sync_stream_from_to(self.device_id, current, self.stream)
            self.api.copy(here, source_offset, there, target_offset, count, self.stream)
            for memory in (here, there):
                if self._is_ours(memory):
                    note_use(memory, self.stream)

    def record(self) -> Event:
        """An event behind the copies requested so far.

        Raises:
            UsageError: the copier is closed.
        """
        self._require_open("record")
        return self.api.record_event(self.device_id, self.stream)

    def make_wait(self, stream: Stream | None = None) -> None:
        """Let a stream wait for the copies requested so far.

        The host does not wait, and arrays stay held until `sync`.

        Args:
            stream: of the same device; default the calling thread's current one.

        Raises:
            UsageError: the copier is closed.
        """
        self._require_open("make_wait")
        then = stream or self.api.current_stream(self.device_id)
        self.api.sync_stream_from_to(self.device_id, self.stream, then)

    def sync(self) -> None:
        """Wait until all copies requested before are done.

        Raises:
            RunError: one of them failed.
            UsageError: the copier is closed.
        """
        with self._lock:
            self._require_open("sync")
            held, self._held = self._held, []
        self.api.synchronize(self.device_id, self.stream)
        held.clear()  # they had to live until here

    def close(self) -> None:
        """Wait for all copies and give the stream back; nothing happens the second time."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        free_stream(self.stream)
        self._held.clear()

    def _is_ours(self, memory: Memory) -> bool:
        ours = (self.device_type, self.device_id)
        return (memory.device_type, memory.device_id) == ours

    def _require_open(self, what: str) -> None:
        if self._closed:
            raise UsageError(f"{what}: the copier is closed; make another one")

"""Copies beside other work: to and from a device, ahead of time, and between devices.

All three copy in streams of their own (`CopyStream`) and tell by events when data has arrived.
"""

from __future__ import annotations

import ctypes
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt

from loopwright.errors import ArgumentError, UsageError
from loopwright.runtime.devices.interface import (
    HOST,
    Event,
    Memory,
    Stream,
    device_api,
    free_stream,
)
from loopwright.runtime.memory.pool import DeviceLike, MemoryPool, device_pair, note_use
from loopwright.runtime.memory.pooled import device_allocator

#: Path of a copy: within a device or by peer access, from or to the host, or through the host.
Route = Literal["direct", "host", "staged"]
Pair = tuple[int, int]
_CHUNK = 4 << 20


class HasMemory(Protocol):
    """An array that knows its memory, as `loopwright.runtime.NDArray`."""

    @property
    def memory(self) -> Memory: ...


#: Source or target of copies: memory, a contiguous NumPy array, or an NDArray on any device.
HostOrDevice = Memory | npt.NDArray[Any] | HasMemory


def as_memory(x: HostOrDevice, written: bool = False) -> Memory:
    """Memory as it is, or the bytes of a contiguous array, which live as long as the result.

    `written`: somebody will write into it, so that a read-only array is an ArgumentError.
    """
    if isinstance(x, Memory):
        return x
    memory = getattr(x, "memory", None)
    if isinstance(memory, Memory) and memory.device_type != HOST:
        return memory
    if isinstance(memory, Memory):
        x = np.asarray(x)  # a view of the same bytes, which says whether it may be written
    if not isinstance(x, np.ndarray):
        raise ArgumentError(
            f"expected an array of NumPy, an NDArray or memory, got a {type(x).__name__}; "
            "numpy.asarray makes an array of a list"
        )
    if not x.flags.c_contiguous:
        raise ArgumentError(
            f"an array of shape {x.shape} is not contiguous; copy it with numpy.ascontiguousarray"
        )
    if written and not x.flags.writeable:
        raise ArgumentError(f"an array of shape {x.shape} is read-only; pass one to write into")
    return Memory(HOST, 0, x.ctypes.data, x.nbytes, owner=x)


def two_sides(
    source: HostOrDevice, target: HostOrDevice, nbytes: int | None
) -> tuple[Memory, Memory, int]:
    """Source and target of a copy, and its bytes: all where both sides have the same size."""
    here, there = as_memory(source), as_memory(target, written=True)
    if nbytes is None and here.nbytes != there.nbytes:
        raise ArgumentError(
            f"a copy of {here.nbytes} bytes into {there.nbytes}; say how many by nbytes"
        )
    return here, there, here.nbytes if nbytes is None else nbytes


def pair_of(memory: Memory) -> Pair:
    """Type and number of the device that holds memory."""
    return memory.device_type, memory.device_id


class CopyStream:
    """A stream of one device in which copies run beside the work of other streams."""

    def __init__(self, device: Pair) -> None:
        self.device, self.api = device, device_api(device[0])
        self.stream: Stream = self.api.create_stream(device[1])

    def follow_current(self) -> None:
        """Let later copies wait for the present work of the calling thread's current stream."""
        current = self.api.current_stream(self.device[1])
        self.api.sync_stream_from_to(self.device[1], current, self.stream)

    def copy(
        self, source: Memory, target: Memory, nbytes: int, source_at: int = 0, target_at: int = 0
    ) -> None:
        """Queue a copy; memory of an allocator is not given to another stream before."""
        self.api.copy(source, source_at, target, target_at, nbytes, self.stream)
        for memory in (source, target):
            if pair_of(memory) == self.device:
                note_use(memory, self.stream)

    def record(self) -> Event:
        """An event behind the copies so far."""
        return self.api.record_event(self.device[1], self.stream)

    def wait(self) -> None:
        """Wait until all copies so far are done."""
        self.api.synchronize(self.device[1], self.stream)


class _Closing(ABC):
    """A context manager that is closed at its end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...


class AsyncMemoryCopier(_Closing):
    """Copies from and to a device beside the work of other streams; a context manager closes it.

    A copy runs some time after it was requested, in the copier's own `stream`. Arrays and memory
    that take part are kept alive until `sync` returns; until then sources must not be changed, and
    targets not be read. UsageError where nothing drives such a device, or the copier is closed.

    Example:
        >>> source, back = np.arange(4), np.zeros(4, "int64")
        >>> with lw.runtime.memory.AsyncMemoryCopier(lw.cpu()) as copier:
        ...     copier.copy_async(source, back)
        ...     copier.sync()
        ...     print(back)
        [0 1 2 3]
    """

    def __init__(self, device: DeviceLike) -> None:
        self._copies = CopyStream(device_pair(device))
        self.stream = self._copies.stream
        self._held: list[Memory] = []
        self._lock = threading.Lock()
        self._closed = False

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
            nbytes: bytes to copy; default all, where both have the same size.
            source_offset, target_offset: bytes to leave out at the beginning of each.
            after_current: whether it waits for the present work of the calling thread's current
                stream, which may write the source or use the target.

        Raises:
            ArgumentError: bytes are outside, neither side is on the device, or an array is not
                contiguous or read-only.
        """
        here, there, count = two_sides(source, target, nbytes)
        if self._copies.device not in (pair_of(here), pair_of(there)):
            home = f"{self._copies.api.name}({self._copies.device[1]})"
            raise ArgumentError(f"copy_async: neither {here} nor {there} is on {home}")
        with self._lock:
            self._require_open("copy_async")
            self._held += (here, there)
            if after_current:
                self._copies.follow_current()
            self._copies.copy(here, there, count, source_offset, target_offset)

    def record(self) -> Event:
        """An event behind the copies requested so far."""
        self._require_open("record")
        return self._copies.record()

    def make_wait(self, stream: Stream | None = None) -> None:
        """Let a stream of the device, default the current one, wait for copies requested so far.

        The host does not wait, and arrays stay held until `sync`.
        """
        self._require_open("make_wait")
        api, device_id = self._copies.api, self._copies.device[1]
        api.sync_stream_from_to(device_id, self.stream, stream or api.current_stream(device_id))

    def sync(self) -> None:
        """Wait until all copies requested before are done; RunError where one of them failed."""
        with self._lock:
            self._require_open("sync")
            held, self._held = self._held, []
        self._copies.wait()
        held.clear()  # they had to live until here

    def close(self) -> None:
        """Wait for all copies and give the stream back; nothing happens the second time."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        free_stream(self.stream)
        self._held.clear()

    def _require_open(self, what: str) -> None:
        if self._closed:
            raise UsageError(f"{what}: the copier is closed; make another one")


@dataclass(frozen=True, slots=True, eq=False)
class Prefetch:
    """Data on its way to the memory of a device, which `MemoryPrefetcher.wait` gives.

    ``arrived`` is the event at the end of the copy. The source must not change until `wait`
    returns.
    """

    memory: Memory
    source: Memory
    arrived: Event


class MemoryPrefetcher(_Closing):
    """Allocates on a device and copies there, beside other work; a context manager closes it.

    The memory is the pool's, default that of the device's allocator. UsageError where nothing
    drives such a device, or the prefetcher is closed.

    Example:
        >>> pool = lw.runtime.memory.PooledAllocator(lw.cpu(), first_chunk=4096)
        >>> with lw.runtime.memory.MemoryPrefetcher(lw.cpu(), pool) as prefetcher:
        ...     prefetch = prefetcher.prefetch(np.arange(4, dtype="float32"))
        ...     memory = prefetcher.wait(prefetch)
        ...     print(memory.nbytes)
        16
        >>> pool.free(memory)
    """

    def __init__(self, device: DeviceLike, pool: MemoryPool | None = None) -> None:
        self._pool = pool or device_allocator(device)
        self._copies = CopyStream((self._pool.device_type, self._pool.device_id))
        self._open: set[Prefetch] = set()
        self._lock = threading.Lock()
        self._closed = False

    def prefetch(self, source: HostOrDevice) -> Prefetch:
        """Allocate memory on the device, start the copy, and return.

        The source is kept alive until `wait`. Unless it is host memory, the copy waits for the
        present work of the current stream. OutOfMemoryError where the device has less memory,
        ArgumentError where an array is not contiguous.
        """
        here = as_memory(source)
        with self._lock:
            if self._closed:
                raise UsageError("prefetch: the prefetcher is closed; make another one")
            stream = self._copies.stream
            memory = self._pool.alloc(here.nbytes, stream=stream)
            try:
                if here.device_type != HOST:
                    self._copies.follow_current()
                self._copies.copy(here, memory, here.nbytes)
                prefetch = Prefetch(memory, here, self._copies.record())
            except BaseException:
                self._pool.free(memory, stream)
                raise
            self._open.add(prefetch)
        return prefetch

    def wait(self, prefetch: Prefetch) -> Memory:
        """Wait until data has arrived; returns the memory, which the caller frees.

        ArgumentError where it was waited for before, or is of another prefetcher; RunError where
        the copy failed: `close` frees the memory.
        """
        if prefetch not in self._open:
            raise ArgumentError("wait: this prefetch was waited for before, or is of another")
        self._copies.api.wait_event(prefetch.arrived)
        with self._lock:
            self._open.discard(prefetch)
        return prefetch.memory

    def close(self) -> None:
        """Wait for copies in progress, and free memory that no call of `wait` returned."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        free_stream(self._copies.stream)
        for prefetch in self._open:
            self._pool.free(prefetch.memory)
        self._open.clear()


class DeviceCommunicator(_Closing):
    """Copies between devices of one kind or several; a context manager closes it.

    A copy runs in streams of the communicator's own, behind the work in the current streams of both
    devices, and is done when `copy` returns. May be used from any thread, one copy at a time.

    ``chunk_bytes``, default 4 MiB, is the size of a piece that is staged in host memory, where that
    is necessary. Two such buffers alternate, so that one is filled while the other is written.
    UsageError where nothing drives a device, ArgumentError where chunks would be empty.

    Example:
        >>> from loopwright.runtime.memory import DeviceCommunicator
        >>> from loopwright.testing.simulated_device import SimulatedDevice
        >>> with SimulatedDevice() as api, DeviceCommunicator([(12, 0), (12, 1)]) as communicator:
        ...     source, target = api.allocate(0, 100), api.allocate(1, 100)
        ...     print(communicator.copy(source, target))
        ...     api.free(source)
        ...     api.free(target)
        staged
    """

    def __init__(self, devices: Sequence[DeviceLike], chunk_bytes: int = _CHUNK) -> None:
        if chunk_bytes < 1:
            raise ArgumentError(f"chunks of {chunk_bytes} bytes move nothing; choose 1 or more")
        self.devices = list(dict.fromkeys(device_pair(device) for device in devices))
        self._chunk_bytes = chunk_bytes
        self._copies: dict[Pair, CopyStream] = {}
        self._buffers: dict[Pair, list[Memory]] = {}
        self._lock = threading.Lock()

    def peer_access(self) -> list[list[bool]]:
        """Matrix of devices that can read each other's memory: a row for each reader."""
        return [[self._reaches(a, b) for b in self.devices] for a in self.devices]

    def route(self, source: Memory, target: Memory) -> Route:
        """Path of a copy, without copying; UsageError for memory of a device that is not here."""
        here, there = self._home(source), self._home(target)
        if here[0] == there[0] == HOST:
            return "direct"
        if HOST in (here[0], there[0]):
            return "host"
        return "direct" if self._reaches(there, here) else "staged"

    def copy(
        self,
        source: HostOrDevice,
        target: HostOrDevice,
        nbytes: int | None = None,
        source_offset: int = 0,
        target_offset: int = 0,
    ) -> Route:
        """Copy bytes, wait until they have arrived, and return the path that they took.

        Source and target, which must not overlap, are memory, an NDArray or a contiguous NumPy
        array; by default all bytes are copied, where both have the same size. UsageError for a
        device that is not here; ArgumentError for bytes outside, or an array that is not contiguous
        or read-only; RunError where a device refuses, or is lost.
        """
        first, last, count = two_sides(source, target, nbytes)
        # Parts of memory are checked to be inside.
        try:
            here, there = first.part(source_offset, count), last.part(target_offset, count)
        except ArgumentError as error:
            raise ArgumentError(f"copy: {error}") from None
        route = self.route(here, there)
        with self._lock:
            if route == "staged":
                self._copy_staged(here, there)
            elif here.device_type == there.device_type == HOST:
                ctypes.memmove(there.address, here.address, count)
            else:
                self._copy_directly(here, there)
        return route

    def close(self) -> None:
        """Give streams and buffers back; a later copy makes new ones."""
        with self._lock:
            while self._copies:
                free_stream(self._copies.popitem()[1].stream)
            self._buffers.clear()

    def _copy_directly(self, source: Memory, target: Memory) -> None:
        mine = pair_of(target if source.device_type == HOST else source)
        other = pair_of(target)
        if other != mine and other[0] != HOST:
            # Streams of two devices cannot wait for each other everywhere.
            api = device_api(other[0])
            api.wait_event(api.record_event(other[1]))
        copies = self._after_current(mine)
        copies.copy(source, target, target.nbytes)
        copies.wait()

    def _copy_staged(self, source: Memory, target: Memory) -> None:
        """Copy through the host: one buffer is filled while the other is written to the target."""
        first = pair_of(source)
        reading, writing = self._after_current(first), self._after_current(pair_of(target))
        if first not in self._buffers:  # pinned where the device allows it, so that copies overlap
            pair = [reading.api.allocate_host(first[1], self._chunk_bytes) for _ in range(2)]
            self._buffers[first] = pair
        buffers = self._buffers[first]
        written: list[Event | None] = [None, None]
        for turn, start in enumerate(range(0, target.nbytes, self._chunk_bytes)):
            mine, count = turn % 2, min(self._chunk_bytes, target.nbytes - start)
            before = written[mine]
            if before is not None:
                writing.api.wait_event(before)
            reading.copy(source, buffers[mine], count, source_at=start)
            reading.api.wait_event(reading.record())
            writing.copy(buffers[mine], target, count, target_at=start)
            written[mine] = writing.record()
        writing.wait()

    def _after_current(self, device: Pair) -> CopyStream:
        if device not in self._copies:
            self._copies[device] = CopyStream(device)
        self._copies[device].follow_current()
        return self._copies[device]

    def _home(self, memory: Memory) -> Pair:
        pair = pair_of(memory)
        if pair[0] != HOST and pair not in self.devices:
            raise UsageError(
                f"memory of device {pair} cannot be copied; this communicator has "
                f"{', '.join(map(str, self.devices))}"
            )
        return pair

    def _reaches(self, reader: Pair, owner: Pair) -> bool:
        if reader == owner:
            return True
        if reader[0] != owner[0] or reader[0] == HOST:
            return False
        return device_api(reader[0]).can_access_peer(reader[1], owner[1])

"""`DeviceAPI`: the operations that the runtime needs of a kind of device, and their values.

Everything above it (arrays, pools, copiers, functions) is written once against this interface,
which is TVM's ``DeviceAPI`` with events and programs added. `register_device_api` enters another
kind. A backend is made at its first use, so that nothing is imported or probed before.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from numbers import Integral

from loopwright.errors import ArgumentError, OutOfMemoryError, UsageError

#: DLPack's code of host memory.
HOST = 1
#: Default alignment of device memory in bytes.
DEVICE_ALIGNMENT = 256

#: Size in bytes of the host buffer from which device memory is filled, piece by piece.
_FILL_BYTES = 1 << 20
#: Value of a device's attribute; None where the device lacks or does not report it.
AttributeValue = int | str | tuple[int, ...] | bool | None
#: Extents of a grid or of a block, x first.
Extents = tuple[int, int, int]

_lock = threading.RLock()
_makers: dict[int, Callable[[], DeviceAPI]] = {}
_made: dict[int, DeviceAPI] = {}
_counting: ContextVar[CopiedBytes | None] = ContextVar("copied bytes", default=None)
_stream_users: weakref.WeakSet[StreamUser] = weakref.WeakSet()


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """A piece of memory that a device, or the host, holds; equal only to itself.

    Attributes:
        device_type, device_id: DLPack code of the device's kind, `HOST` for the host, and number.
        handle: the address of the first byte, or the number by which the backend knows the memory.
        nbytes: bytes that may be touched, from ``offset`` on.
        offset: bytes between ``handle`` and the first byte of this piece.
        scope: memory scope, such as ``global``.
        owner: object that must live as long as the memory is used.
    """

    device_type: int
    device_id: int
    handle: int
    nbytes: int
    offset: int = 0
    scope: str = "global"
    owner: object = field(default=None, repr=False)

    @property
    def address(self) -> int:
        """Address of the first byte, where ``handle`` is an address."""
        return self.handle + self.offset

    def part(self, offset: int, nbytes: int) -> Memory:
        """Bytes of this memory as a piece of their own, which keeps all of it alive.

        ArgumentError where they are not inside.
        """
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ArgumentError(
                f"bytes {offset} to {offset + nbytes} are not inside memory of {self.nbytes} bytes"
            )
        return Memory(
            self.device_type, self.device_id, self.handle, nbytes, self.offset + offset,
            self.scope, self,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Stream:
    """A queue of work on one device, done in order; equal only to itself.

    The backend knows it by the number ``handle``, 0 for the default stream, and keeps ``owner``
    alive.
    """

    device_type: int
    device_id: int
    handle: int
    owner: object = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """A point in a stream, to wait for and to take times between; equal only to itself.

    ``owner`` is the backend's own object.
    """

    device_type: int
    device_id: int
    owner: object = field(default=None, repr=False)


#: Argument of a kernel: memory, or an integer that is passed as int64.
KernelArgument = Memory | int


def _is_whole(number: object) -> bool:
    return isinstance(number, Integral)


def why_missing(api: DeviceAPI, name: str, device_id: int) -> str | None:
    """The reason why there is no device of a number, as a sentence; None where there is."""
    count = api.count()
    if isinstance(device_id, int) and 0 <= device_id < count:
        return None
    if not count:
        return api.why_absent()
    there = f"{name}(0)" if count == 1 else f"{name}(0) to {name}({count - 1})"
    return f"there is no such device; there is {there}"


def check_device(api: DeviceAPI, device_id: int) -> None:
    """Raise UsageError for a device number that does not exist; the message lists those that do."""
    why = why_missing(api, api.name, device_id)
    if why is not None:
        raise UsageError(f"{api.name}({device_id}) cannot be used: {why}")


def check_request(device: str, nbytes: int, alignment: int) -> None:
    """Raise ArgumentError for a size that is no number of bytes, or an alignment no power of 2."""
    if not (_is_whole(nbytes) and _is_whole(alignment)):
        raise ArgumentError(
            f"{device}: cannot allocate {nbytes!r} bytes with alignment {alignment!r}; pass "
            "a whole number for each"
        )
    if nbytes < 0:
        raise ArgumentError(f"{device}: cannot allocate {nbytes} bytes; the number is negative")
    if alignment < 1 or alignment & (alignment - 1):
        raise ArgumentError(f"{device}: the alignment {alignment} is not a power of two")


def check_copy(
    source: Memory, source_offset: int, target: Memory, target_offset: int, nbytes: int
) -> None:
    """Raise ArgumentError where a copy is outside a piece of memory, which the message names."""
    for number in (source_offset, target_offset, nbytes):
        if not _is_whole(number):
            raise ArgumentError(f"copy: {number!r} bytes; offsets and sizes are whole numbers")
    for what, memory, offset in (
        ("source", source, source_offset),
        ("target", target, target_offset),
    ):
        if not isinstance(memory, Memory):
            raise ArgumentError(f"copy: the {what} is a {type(memory).__name__}, expected Memory")
        if offset < 0 or nbytes < 0 or offset + nbytes > memory.nbytes:
            raise ArgumentError(
                f"copy: bytes {offset} to {offset + nbytes} are outside the {what}, which has "
                f"{memory.nbytes} bytes"
            )


class Program(ABC):
    """Kernels that were loaded onto one device."""

    @abstractmethod
    def launch(
        self,
        kernel: str,
        grid: Extents,
        block: Extents,
        arguments: Sequence[KernelArgument],
        shared_bytes: int = 0,
        stream: Stream | None = None,
    ) -> None:
        """Put one launch of a kernel into a stream; returns before it has run.

        ``grid`` has blocks and ``block`` threads of each axis, x first; ``shared_bytes`` is shared
        memory beyond that which the kernel declares; the stream is by default the device's current
        one. RunError where the device refuses it (too many threads or resources), or is lost.
        """


class DeviceAPI(ABC):
    """One kind of devices. Methods take a device's number; all may be called from any thread.

    Attributes:
        device_type: DLPack code, which memory, streams and events carry.
        name: as in ``opencl(0)``.
        unified: whether the host may read and write the memory by its address.
        has_addresses: whether a handle of memory is an address, so that parts have one too.
        has_graphs: whether `record_graph` records launches.
    """

    device_type: int
    name: str
    unified: bool = False
    has_addresses: bool = True
    has_graphs: bool = False

    @abstractmethod
    def count(self) -> int:
        """Number of devices; 0 where a driver or package is missing. Never raises."""

    @abstractmethod
    def why_absent(self) -> str:
        """The reason why `count` is 0 and the remedy, as a sentence; else empty."""

    @abstractmethod
    def attribute(self, device_id: int, name: str) -> AttributeValue:
        """A property by its name in `loopwright.runtime.Device` or the backend's own, or None."""

    @abstractmethod
    def allocate(
        self, device_id: int, nbytes: int, alignment: int = DEVICE_ALIGNMENT, scope: str = "global"
    ) -> Memory:
        """Uninitialised memory of at least ``nbytes`` (0 gives a piece that must not be touched).

        OutOfMemoryError where the device has less, ArgumentError for a negative number, or a scope
        of which the device has no memory.
        """

    def allocate_host(self, device_id: int, nbytes: int) -> Memory:
        """Uninitialised memory of the host with which copies of a device run fastest.

        It is freed with the last reference to it. Where a driver can pin memory, so that copies run
        beside other work and not by way of the driver's own buffers, it is pinned.
        OutOfMemoryError where the host has less, ArgumentError for a negative number.
        """
        check_request("the host", nbytes, 1)
        try:
            block = (ctypes.c_uint8 * max(nbytes, 1))()
        except (MemoryError, OverflowError):
            raise OutOfMemoryError(f"the host has no memory for {nbytes} bytes") from None
        return Memory(HOST, 0, ctypes.addressof(block), nbytes, owner=block)

    @abstractmethod
    def free(self, memory: Memory) -> None:
        """Give back what `allocate` gave, once no earlier work uses it."""

    @abstractmethod
    def copy(
        self,
        source: Memory,
        source_offset: int,
        target: Memory,
        target_offset: int,
        nbytes: int,
        stream: Stream | None = None,
    ) -> None:
        """Queue a copy between two pieces, at least one of this kind of devices.

        The other is of the same device, of another one of its kind, or of the host. Memory of the
        host must stay as it is until the stream has come that far. ArgumentError for bytes outside
        of a piece, RunError where the device refuses, or is lost.
        """

    def alignment(self, device_id: int) -> int:
        """Alignment in bytes that kernels need of parts of memory: a power of two."""
        return DEVICE_ALIGNMENT

    def fill(self, memory: Memory, value: int, stream: Stream | None = None) -> None:
        """Queue writing a byte to all of a piece of memory."""
        piece = min(memory.nbytes, _FILL_BYTES)
        block = (ctypes.c_uint8 * piece)()
        ctypes.memset(block, value, piece)
        host = Memory(HOST, 0, ctypes.addressof(block), piece, owner=block)
        for start in range(0, memory.nbytes, _FILL_BYTES):
            self.copy(host, 0, memory, start, min(piece, memory.nbytes - start), stream)
        self.synchronize(memory.device_id, stream)

    @abstractmethod
    def create_stream(self, device_id: int) -> Stream:
        """A new stream."""

    @abstractmethod
    def free_stream(self, stream: Stream) -> None:
        """Wait for a stream and give it back."""

    @abstractmethod
    def set_stream(self, device_id: int, stream: Stream | None) -> None:
        """Make a stream the calling thread's current one of a device; None: the default one."""

    @abstractmethod
    def current_stream(self, device_id: int) -> Stream:
        """The calling thread's current stream of a device."""

    @abstractmethod
    def synchronize(self, device_id: int, stream: Stream | None = None) -> None:
        """Wait for all work in a stream, None: in every one; RunError where some of it failed."""

    @abstractmethod
    def sync_stream_from_to(self, device_id: int, first: Stream, then: Stream) -> None:
        """Let ``then`` go on only when ``first`` has come as far as it is filled now."""

    @abstractmethod
    def record_event(self, device_id: int, stream: Stream | None = None) -> Event:
        """An event at the end of a stream's present work."""

    @abstractmethod
    def wait_event(self, event: Event) -> None:
        """Wait until the event has happened."""

    @abstractmethod
    def elapsed(self, first: Event, then: Event) -> float:
        """Seconds on the device between two events that have both happened (it waits for them)."""

    @abstractmethod
    def load(self, device_id: int, image: bytes, kernels: Sequence[str]) -> Program:
        """Load code, source text or machine code, with kernels of these names onto a device.

        RunError, with their message, where the device's compiler or driver refuses it; TargetError
        where it was made for another architecture, with both.
        """

    def record_graph(
        self, device_id: int, work: Callable[[Stream], None]
    ) -> Callable[[Stream | None], None] | None:
        """Record the launches that ``work`` puts into a stream; the result replays them at once.

        None where a kind of devices has no such thing.
        """
        return None

    def uuid(self, device_id: int) -> str:
        """Identifier of a physical device, unique on the machine, and the same in all processes."""
        return f"{self.name}{device_id}"

    def exchange_stream(self, device_id: int) -> int | None:
        """Stream number to pass as ``stream`` to a library that exports an array by DLPack.

        The library waits for the stream in which the array will be used; None where DLPack has no
        such number.
        """
        return None

    def let_follow(self, device_id: int, streams: Sequence[Stream], number: int | None) -> bool:
        """Let a stream of another library wait for work in some of ours; the host does not wait.

        ``number`` is the other stream's by DLPack's numbering, None: the default stream;
        ArgumentError where there is no such number. False: a kind of devices has no such numbers,
        and nothing was done.
        """
        return False

    def adopt(self, device_id: int, handle: int, offset: int, nbytes: int, owner: object) -> Memory:
        """Memory of another library, which is neither copied nor given back.

        ``handle`` is its address, or the device's number of it; ``offset`` the bytes from there to
        the first one that is meant. ArgumentError where the device cannot use it.
        """
        return Memory(self.device_type, device_id, handle, nbytes, offset, owner=owner)

    def can_access_peer(self, device_id: int, other: int) -> bool:
        """Whether a device can read the memory of another one of its kind without the host."""
        return device_id == other


def register_device_api(device_type: int, make: Callable[[], DeviceAPI]) -> None:
    """Enter a kind of devices by its DLPack code, or by a code of its own from 1.

    Under a code of its own the backend's ``name`` names its devices. ``make`` returns the backend
    and is called once, at the first use of such a device. UsageError where the code has a backend
    already, or is not an integer from 1.
    """
    if isinstance(device_type, bool) or not isinstance(device_type, int) or device_type < 1:
        raise UsageError(f"the device type {device_type!r} is no whole number from 1")
    with _lock:
        if device_type in _makers:
            raise UsageError(f"the device type {device_type} has a backend already")
        _makers[device_type] = make


def unregister_device_api(device_type: int) -> None:
    """Remove a kind of devices; nothing happens where there is none."""
    with _lock:
        _makers.pop(device_type, None)
        _made.pop(device_type, None)


def find_device_api(device_type: int) -> DeviceAPI | None:
    """The backend of a kind of devices; None where there is none."""
    with _lock:
        if device_type not in _made and device_type in _makers:
            _made[device_type] = _makers[device_type]()
        return _made.get(device_type)


def device_api_types() -> list[int]:
    """DLPack codes of all kinds of devices that have a backend, in order."""
    with _lock:
        return sorted(_makers)


def device_api(device_type: int) -> DeviceAPI:
    api = find_device_api(device_type)
    if api is None:
        raise UsageError(f"no backend drives devices of type {device_type} in this version")
    return api


@dataclass(slots=True)
class CopiedBytes:
    """Bytes of one thread's copies: to devices, from them to the host, between pieces on devices.

    ``copies`` is the number of copies, all together.
    """

    to_device: int = 0
    to_host: int = 0
    on_devices: int = 0
    copies: int = 0


@contextmanager
def counted_copies() -> Iterator[CopiedBytes]:
    """Count the bytes that this thread has copied from, to and on devices inside the block."""
    counts = CopiedBytes()
    token = _counting.set(counts)
    try:
        yield counts
    finally:
        _counting.reset(token)


def note_copy(source: Memory, target: Memory, nbytes: int) -> None:
    """Count a copy, where this thread counts them; backends call it for each that they queue."""
    counts = _counting.get()
    if counts is None or HOST == source.device_type == target.device_type:
        return
    counts.copies += 1
    if source.device_type == HOST:
        counts.to_device += nbytes
    elif target.device_type == HOST:
        counts.to_host += nbytes
    else:
        counts.on_devices += nbytes


class StreamUser(ABC):
    """An allocator, which remembers in which streams its memory was used."""

    device_type: int
    device_id: int

    def __init__(self) -> None:
        with _lock:
            _stream_users.add(self)

    @abstractmethod
    def forget_stream(self, stream: Stream) -> None:
        """Remember a stream no more: all its work is done, and it will be given back."""


def forget_stream(stream: Stream) -> None:
    """Tell all allocators that a stream will be given back; all work in it must be done."""
    with _lock:
        users = list(_stream_users)
    for user in users:
        if (user.device_type, user.device_id) == (stream.device_type, stream.device_id):
            user.forget_stream(stream)


def free_stream(stream: Stream) -> None:
    """Wait for a stream, tell all allocators, and give it back.

    Use this, and not `DeviceAPI.free_stream` alone, for streams that were used with memory of an
    allocator: it would wait for a stream that is gone. RunError where something in it failed.
    """
    api = device_api(stream.device_type)
    api.synchronize(stream.device_id, stream)
    forget_stream(stream)
    api.free_stream(stream)

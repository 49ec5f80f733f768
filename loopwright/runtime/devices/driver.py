"""`DriverAPI`: the checks and the streams that our kinds of devices share.

Everything is checked before a driver is called, which would crash, or do something else. All checks
of arguments raise ArgumentError.
"""

from __future__ import annotations

import threading
import weakref
from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import Any

from loopwright.errors import ArgumentError, did_you_mean
from loopwright.runtime.devices.interface import (
    HOST,
    DeviceAPI,
    Event,
    Extents,
    KernelArgument,
    Memory,
    Stream,
    check_copy,
    check_device,
    check_request,
    note_copy,
)

#: Streams that were given back; their numbers may be those of others by now.
RETIRED: weakref.WeakSet[Stream] = weakref.WeakSet()


class DriverAllocation:
    """A driver's allocation: the owner of the memory that a backend hands out.

    ``raw`` is the driver's address or object. After ``freed`` the bytes may belong to someone else.
    ``lender`` is another library's object whose memory it is, which must live as long; None: ours.
    """

    __slots__ = ("freed", "lender", "raw")

    def __init__(self, raw: Any, lender: object = None) -> None:
        self.raw, self.freed, self.lender = raw, False, lender


def owner_of(memory: Memory) -> object:
    """The object that keeps memory, or the whole of which it is a part, alive."""
    owner: object = memory
    while isinstance(owner, Memory):
        owner = owner.owner
    return owner


class _Streams(threading.local):
    """The streams that a thread has made current, by number of the device; else the default one."""

    def __init__(self) -> None:
        self.by_device: dict[int, Stream | None] = {}


class DriverAPI(DeviceAPI):
    """A kind of devices whose memory is a `DriverAllocation`, and whose streams have owners."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._current = _Streams()

    def where(self, device_id: int) -> str:
        return f"{self.name}({device_id})"

    # ------------------------------------------------------------ memory

    @abstractmethod
    def _allocate(self, device_id: int, nbytes: int, alignment: int) -> Memory: ...

    def allocate(
        self, device_id: int, nbytes: int, alignment: int | None = None, scope: str = "global"
    ) -> Memory:
        check_device(self, device_id)
        alignment = self.alignment(device_id) if alignment is None else alignment
        check_request(self.where(device_id), nbytes, alignment)
        if scope != "global":
            raise ArgumentError(
                f"{self.where(device_id)} has no memory of scope {scope!r}; it has: global"
            )
        return self._allocate(device_id, nbytes, alignment)

    def release(self, memory: Memory) -> Any:
        """Mark memory as freed and return the driver's handle of it; parts cannot be freed."""
        self.check_memory("free", memory)
        block = memory.owner
        if not isinstance(block, DriverAllocation) or block.lender is not None:
            raise ArgumentError(
                "free: this is a part of other memory, or of another library; free that"
            )
        with self._lock:
            self.check_memory("free", memory)  # by another thread, meanwhile
            block.freed = True
        return block.raw

    def check_memory(self, what: str, memory: Memory) -> None:
        """Refuse memory that is of another kind of devices, or was freed."""
        if not isinstance(memory, Memory):
            raise ArgumentError(
                f"{what}: expected memory of {self.name}, got a {type(memory).__name__}"
            )
        if memory.device_type != self.device_type:
            raise ArgumentError(
                f"{what}: {memory} is not of a device of {self.name}; copy it there first"
            )
        block = owner_of(memory)
        if isinstance(block, DriverAllocation) and block.freed:
            raise ArgumentError(
                f"{what}: the memory of {self.where(memory.device_id)} is freed already; allocate "
                "it again"
            )

    @abstractmethod
    def _copy(self, device_id: int, source: Memory, target: Memory, stream: Stream | None) -> None:
        """Copy all of a piece into another one, of the same size; one is of that device."""

    def copy(
        self,
        source: Memory,
        source_offset: int,
        target: Memory,
        target_offset: int,
        nbytes: int,
        stream: Stream | None = None,
    ) -> None:
        check_copy(source, source_offset, target, target_offset, nbytes)
        for memory in (source, target):
            if memory.device_type != HOST or self.device_type == HOST:
                self.check_memory("copy", memory)
        if HOST == source.device_type == target.device_type != self.device_type:
            raise ArgumentError(
                f"copy: neither side is on a device of {self.name}; NumPy copies there"
            )
        if not nbytes:
            return
        note_copy(source, target, nbytes)
        device_id = target.device_id if source.device_type == HOST else source.device_id
        at = source if nbytes == source.nbytes else source.part(source_offset, nbytes)
        to = target if nbytes == target.nbytes else target.part(target_offset, nbytes)
        self._copy(device_id, at, to, stream)

    @abstractmethod
    def _fill(self, memory: Memory, value: int, stream: Stream | None) -> None: ...

    def fill(self, memory: Memory, value: int, stream: Stream | None = None) -> None:
        self.check_memory("fill", memory)
        if not isinstance(value, int) or not 0 <= value <= 255:
            raise ArgumentError(f"fill: {value!r} is no byte; pass a whole number from 0 to 255")
        if memory.nbytes:
            self._fill(memory, value, stream)

    # ------------------------------------------------------------ streams and events

    @abstractmethod
    def _default_stream(self, device_id: int) -> Stream: ...

    def current_stream(self, device_id: int) -> Stream:
        return self._current.by_device.get(device_id) or self._default_stream(device_id)

    def set_stream(self, device_id: int, stream: Stream | None) -> None:
        if stream is not None:
            self.check_stream("set_stream", stream, device_id)
        self._current.by_device[device_id] = stream

    def free_stream(self, stream: Stream) -> None:
        device_id = getattr(stream, "device_id", 0)
        self.check_stream("free_stream", stream, device_id)
        if not stream.handle:
            raise ArgumentError(
                f"free_stream: this is the default stream of {self.where(device_id)}, which "
                "stays; free those that create_stream gave"
            )
        self.synchronize(device_id, stream)
        if self.current_stream(device_id) is stream:
            self.set_stream(device_id, None)
        with self._lock:
            self.check_stream("free_stream", stream, device_id)  # by another thread, meanwhile
            RETIRED.add(stream)
        self._drop_stream(stream)

    def _drop_stream(self, stream: Stream) -> None:
        """Give a stream, whose work is done, back to the driver."""

    def queue_of(self, device_id: int, stream: Stream | None, what: str = "queueing work") -> Any:
        """The driver's object of a stream, default the current one."""
        used = stream or self.current_stream(device_id)
        self.check_stream(what, used, device_id)
        return used.owner

    def check_stream(self, what: str, stream: Stream, device_id: int) -> None:
        """Refuse a stream of another device, or one that was freed."""
        if not isinstance(stream, Stream):
            raise ArgumentError(
                f"{what}: expected a stream of {self.where(device_id)}, got a "
                f"{type(stream).__name__}"
            )
        if (stream.device_type, stream.device_id) != (self.device_type, device_id):
            raise ArgumentError(
                f"{what}: the stream is of device {stream.device_id} of type "
                f"{stream.device_type}, expected one of {self.where(device_id)}"
            )
        if stream in RETIRED:
            raise ArgumentError(
                f"{what}: the stream of {self.where(device_id)} is freed already; make another one"
            )

    def check_event(self, what: str, event: Event) -> None:
        """Refuse an event of another kind of devices."""
        if not isinstance(event, Event) or event.device_type != self.device_type:
            raise ArgumentError(f"{what}: expected an event of {self.name}, got {event!r}")

    # ------------------------------------------------------------ kernels

    def check_launch(
        self,
        kernels: Collection[str],
        kernel: str,
        grid: Extents,
        block: Extents,
        arguments: Sequence[KernelArgument],
    ) -> None:
        """Refuse an unknown kernel, an extent that is not positive, or a wrong argument.

        Arguments are memory of this kind of devices, or integers of 64 bits.
        """
        if kernel not in kernels:
            near = did_you_mean(kernel, kernels)
            raise ArgumentError(
                f"there is no kernel {kernel!r}{near}; there is {', '.join(kernels)}"
            )
        if min(*grid, *block) < 1:
            raise ArgumentError(
                f"{kernel} would be launched on {grid} blocks of {block} threads; every extent is "
                "at least 1"
            )
        for k, argument in enumerate(arguments):
            if not isinstance(argument, int):
                self.check_memory(f"{kernel}: argument {k}", argument)
            elif not -(1 << 63) <= argument < 1 << 63:
                raise ArgumentError(f"{kernel}: argument {k}: {argument} does not fit into 64 bits")

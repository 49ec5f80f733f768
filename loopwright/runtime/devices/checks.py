"""Checks of backends before a driver is called: a driver would crash, or do something else.

The checks of sizes and offsets, `check_request` and `check_copy`, are beside the interface. All
checks of arguments raise ArgumentError.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Sequence
from typing import Any

from loopwright.errors import ArgumentError, UsageError, did_you_mean
from loopwright.runtime.devices.interface import (
    HOST,
    DeviceAPI,
    Event,
    Extents,
    KernelArgument,
    Memory,
    Stream,
)

_lock = threading.Lock()
#: Streams that were given back; their numbers may be those of others by now.
_retired: weakref.WeakSet[Stream] = weakref.WeakSet()


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


def release(memory: Memory, api: DeviceAPI) -> Any:
    """Mark memory as freed and return the driver's handle of it; parts cannot be freed."""
    check_memory("free", memory, api)
    block = memory.owner
    if not isinstance(block, DriverAllocation) or block.lender is not None:
        raise ArgumentError(
            "free: this is a part of other memory, or of another library; free that"
        )
    with _lock:
        if block.freed:  # by another thread, meanwhile
            raise ArgumentError(_freed("free", memory, api))
        block.freed = True
    return block.raw


def check_device(api: DeviceAPI, device_id: int) -> None:
    """Raise UsageError for a device number that does not exist; the message lists those that do."""
    count = api.count()
    if isinstance(device_id, int) and 0 <= device_id < count:
        return
    there = f"{api.name}(0)" if count == 1 else f"{api.name}(0) to {api.name}({count - 1})"
    why = f"there is no such device; there is {there}" if count else api.why_absent()
    raise UsageError(f"{api.name}({device_id}) cannot be used: {why}")


def check_memory(what: str, memory: Memory, api: DeviceAPI) -> None:
    """Refuse memory that is of another kind of devices, or was freed."""
    if not isinstance(memory, Memory):
        raise ArgumentError(f"{what}: expected memory of {api.name}, got a {type(memory).__name__}")
    if memory.device_type != api.device_type:
        raise ArgumentError(
            f"{what}: {memory} is not of a device of {api.name}; copy it there first"
        )
    block = owner_of(memory)
    if isinstance(block, DriverAllocation) and block.freed:
        raise ArgumentError(_freed(what, memory, api))


def _freed(what: str, memory: Memory, api: DeviceAPI) -> str:
    where = f"{api.name}({memory.device_id})"
    return f"{what}: the memory of {where} is freed already; allocate it again"


def check_sides(source: Memory, target: Memory, api: DeviceAPI) -> None:
    """Refuse a copy unless one side is of this kind of devices, and the other too or the host's."""
    for memory in (source, target):
        if memory.device_type != HOST:
            check_memory("copy", memory, api)
    if HOST == source.device_type == target.device_type != api.device_type:
        raise ArgumentError(f"copy: neither side is on a device of {api.name}; NumPy copies there")


def check_stream(what: str, stream: Stream, api: DeviceAPI, device_id: int) -> None:
    """Refuse a stream of another device, or one that was freed."""
    if not isinstance(stream, Stream):
        raise ArgumentError(
            f"{what}: expected a stream of {api.name}({device_id}), got a {type(stream).__name__}"
        )
    if (stream.device_type, stream.device_id) != (api.device_type, device_id):
        raise ArgumentError(
            f"{what}: the stream is of device {stream.device_id} of type {stream.device_type}, "
            f"expected one of {api.name}({device_id})"
        )
    if stream in _retired:
        raise ArgumentError(
            f"{what}: the stream of {api.name}({device_id}) is freed already; make another one"
        )


def check_may_go(stream: Stream, api: DeviceAPI) -> None:
    """Refuse to free a device's default stream, one of another device, or one twice."""
    check_stream("free_stream", stream, api, getattr(stream, "device_id", 0))
    if not stream.handle:
        raise ArgumentError(
            f"free_stream: this is the default stream of {api.name}({stream.device_id}), which "
            "stays; free those that create_stream gave"
        )


def check_event(what: str, event: Event, api: DeviceAPI) -> None:
    """Refuse an event of another kind of devices."""
    if not isinstance(event, Event) or event.device_type != api.device_type:
        raise ArgumentError(f"{what}: expected an event of {api.name}, got {event!r}")


def check_byte(value: int) -> None:
    """Refuse to fill memory with a value that is not an integer from 0 to 255."""
    if not isinstance(value, int) or not 0 <= value <= 255:
        raise ArgumentError(f"fill: {value!r} is no byte; pass a whole number from 0 to 255")


def check_launch(
    api: DeviceAPI,
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
        raise ArgumentError(f"there is no kernel {kernel!r}{near}; there is {', '.join(kernels)}")
    if min(*grid, *block) < 1:
        raise ArgumentError(
            f"{kernel} would be launched on {grid} blocks of {block} threads; every extent is at "
            "least 1"
        )
    for k, argument in enumerate(arguments):
        if not isinstance(argument, int):
            check_memory(f"{kernel}: argument {k}", argument, api)
        elif not -(1 << 63) <= argument < 1 << 63:
            raise ArgumentError(f"{kernel}: argument {k}: {argument} does not fit into 64 bits")


def is_retired(stream: Stream) -> bool:
    """Whether a stream was given back, so that all its work is done."""
    return stream in _retired


def retire(stream: Stream, api: DeviceAPI) -> None:
    """Mark a stream as given back; ArgumentError where another thread has done so meanwhile."""
    with _lock:
        check_stream("free_stream", stream, api, stream.device_id)
        _retired.add(stream)

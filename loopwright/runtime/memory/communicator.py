"""`DeviceCommunicator`: copies between any two of several devices, by the shortest path."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Literal, Self

from loopwright.errors import ArgumentError, UsageError
from loopwright.runtime.devices.interface import HOST, DeviceAPI, Event, Memory, Stream
from loopwright.runtime.devices.registry import device_api
from loopwright.runtime.memory.allocators import free_stream
from loopwright.runtime.memory.host import HostOrDevice, as_memory, same_size
from loopwright.runtime.memory.pool import DeviceLike, device_pair

#: Path of a copy: within a device or by peer access, from or to the host, or through the host.
Route = Literal["direct", "host", "staged"]
Pair = tuple[int, int]
_CHUNK = 4 << 20


class DeviceCommunicator:
    """Copies between devices of one kind or several; a context manager closes it.

    A copy runs in streams of the communicator's own, behind the work in the current streams of both
    devices, and is done when `copy` returns. May be used from any thread, one copy at a time.

    Args:
        devices: each a `Device`, or the pair of its type and number.
        chunk_bytes: size of a piece that is staged in host memory, where that is necessary; default
            4 MiB. Two such buffers alternate, so that one is filled while the other is written.

    Attributes:
        devices: their pairs.

    Raises:
        UsageError: nothing drives one of them.
        ArgumentError: chunks would be empty.

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
        self._apis: dict[Pair, DeviceAPI] = {
            pair: device_api(pair[0]) for pair in self.devices if pair[0] != HOST
        }
        self._streams: dict[Pair, Stream] = {}
        self._buffers: dict[Pair, list[Memory]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def peer_access(self) -> list[list[bool]]:
        """Matrix of devices that can read each other's memory: a row for each reader."""
        return [[self._reaches(a, b) for b in self.devices] for a in self.devices]

    def route(self, source: Memory, target: Memory) -> Route:
        """Path of a copy, without copying.

        Raises:
            UsageError: one of them is on a device that is not here.
        """
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

        Args:
            source: memory of a device or the host, an NDArray, or a contiguous NumPy array.
            target: the same, to be written; it must not overlap the source.
            nbytes: bytes to copy; default all, where both have the same size.
            source_offset: bytes to leave out at the source's beginning.
            target_offset: bytes to leave out at the target's beginning.

        Raises:
            UsageError: one of them is on a device that is not here.
            ArgumentError: bytes are outside, or an array is not contiguous or read-only.
            RunError: a device refuses, or is lost.
        """
        first, last = as_memory(source), as_memory(target, written=True)
        count = same_size(first, last, nbytes)
        # Parts of memory are checked to be inside.
        here, there = _part(first, source_offset, count), _part(last, target_offset, count)
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
            while self._streams:
                free_stream(self._streams.popitem()[1])
            self._buffers.clear()

    def _copy_directly(self, source: Memory, target: Memory) -> None:
        """Copy by one device, the source's where that is not the host."""
        mine = _pair(target if source.device_type == HOST else source)
        other = _pair(target)
        if other != mine and other[0] != HOST:
            # Streams of two devices cannot wait for each other everywhere.
            self._apis[other].wait_event(self._apis[other].record_event(other[1]))
        stream = self._stream_after_current(mine)
        self._apis[mine].copy(source, 0, target, 0, target.nbytes, stream)
        self._apis[mine].synchronize(mine[1], stream)

    def _copy_staged(self, source: Memory, target: Memory) -> None:
        """Copy through the host: one buffer is filled while the other is written to the target."""
        first, last = _pair(source), _pair(target)
        reader, writer = self._apis[first], self._apis[last]
        reading, writing = self._stream_after_current(first), self._stream_after_current(last)
        buffers = self._two_buffers(first)
        written: list[Event | None] = [None, None]
        for turn, start in enumerate(range(0, target.nbytes, self._chunk_bytes)):
            mine, count = turn % 2, min(self._chunk_bytes, target.nbytes - start)
            before = written[mine]
            if before is not None:
                writer.wait_event(before)
            reader.copy(source, start, buffers[mine], 0, count, reading)
            reader.wait_event(reader.record_event(first[1], reading))
            writer.copy(buffers[mine], 0, target, start, count, writing)
            written[mine] = writer.record_event(last[1], writing)
        writer.synchronize(last[1], writing)

    def _stream_after_current(self, device: Pair) -> Stream:
        """The communicator's stream of a device, which waits for the current one."""
        api = self._apis[device]
        if device not in self._streams:
            self._streams[device] = api.create_stream(device[1])
        stream = self._streams[device]
        api.sync_stream_from_to(device[1], api.current_stream(device[1]), stream)
        return stream

    def _two_buffers(self, device: Pair) -> list[Memory]:
        """Host memory, pinned where the device allows it, so that copies overlap."""
        if device not in self._buffers:
            api = self._apis[device]
            pair = [api.allocate_host(device[1], self._chunk_bytes) for _ in range(2)]
            self._buffers[device] = pair
        return self._buffers[device]

    def _home(self, memory: Memory) -> Pair:
        """The device of memory, which must be the host or one of ours."""
        pair = _pair(memory)
        if pair[0] != HOST and pair not in self._apis:
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
        return self._apis[reader].can_access_peer(reader[1], owner[1])


def _pair(memory: Memory) -> Pair:
    return memory.device_type, memory.device_id


def _part(memory: Memory, offset: int, nbytes: int) -> Memory:
    try:
        return memory.part(offset, nbytes)
    except ArgumentError as error:
        raise ArgumentError(f"copy: {error}") from None

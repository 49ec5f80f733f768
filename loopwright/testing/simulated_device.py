"""`SimulatedDevice`: a `DeviceAPI` over memory of its own that counts and checks every call.

It is stricter than hardware: streams do nothing until somebody waits for them, the default stream
waits for no other, and addresses are never reused and aligned no more than requested.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Concatenate, ParamSpec, Self, TypeVar

from loopwright.errors import ArgumentError, OutOfMemoryError, RunError
from loopwright.runtime import (
    DEVICE_ALIGNMENT,
    AttributeValue,
    DeviceAPI,
    Event,
    KernelArgument,
    Memory,
    Program,
    Stream,
    check_request,
    note_copy,
    register_device_api,
    unregister_device_api,
)
from loopwright.testing.simulation import (
    Access,
    CurrentStreams,
    HostAccess,
    Kernel,
    Mark,
    MemoryBook,
    Queue,
    QueuedWork,
    SimulatedProgram,
    Values,
    Wait,
)

#: DLPack's code of devices that are an extension.
EXT_DEV = 12
#: Bytes that a copy, or a kernel, moves in a second of simulated time.
BANDWIDTH = 1e9
_THREADS_PER_BLOCK = 1024

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _counted(
    method: Callable[Concatenate[SimulatedDevice, _P], _R],
) -> Callable[Concatenate[SimulatedDevice, _P], _R]:
    """Count a call, and fail it where the device is lost; one call at a time."""

    @functools.wraps(method)
    def run(self: SimulatedDevice, *args: _P.args, **options: _P.kwargs) -> _R:
        name = method.__name__
        with self._lock:
            self.calls[name] += 1
            if self.lost_at is not None and self.calls.total() >= self.lost_at:
                raise RunError(f"{self.name}: the device is lost, {name} was not done; start again")
            return method(self, *args, **options)

    return run


class SimulatedDevice(DeviceAPI):
    """Devices that exist in this process only.

    As a context manager it is registered under its code while the block runs, and errors of
    `verify` are raised at the end of a block that raised nothing itself.

    Args:
        devices: number of devices.
        memory_limit: bytes of memory of each.
        device_type: their DLPack code.
        peers: pairs ``(reader, owner)`` of devices of which one reaches the other's memory; copies
            between other devices work, too.
        kernels: kernels for `load`, by name; an image is the names of its kernels, one a line.
        attributes: properties of every device.

    Attributes:
        calls: number of calls of each method; queries about the devices are not counted.
        lost_at: number, from 1, of the first call that fails, as all later ones do, as on a device
            that is lost in the middle of a run; None: never.

    Example:
        >>> from loopwright.testing.simulated_device import SimulatedDevice
        >>> with SimulatedDevice(memory_limit=4096) as device:
        ...     memory = device.allocate(0, 1000)
        ...     print(device.used_bytes(0), device.calls["allocate"])
        ...     device.free(memory)
        1000 1
    """

    name = "simulated"

    def __init__(
        self,
        devices: int = 2,
        memory_limit: int = 1 << 30,
        device_type: int = EXT_DEV,
        peers: Collection[tuple[int, int]] = (),
        kernels: Mapping[str, Kernel] | None = None,
        attributes: Mapping[str, AttributeValue] | None = None,
    ) -> None:
        self.device_type = device_type
        self.devices = devices
        self.memory_limit = memory_limit
        self.peers = frozenset(peers)
        self.kernels = dict(kernels or {})
        self.attributes = {
            "device_name": "a device that is simulated",
            "max_threads_per_block": _THREADS_PER_BLOCK,
            "warp_size": 32,
            "total_global_memory": memory_limit,
            **(attributes or {}),
        }
        self.calls: Counter[str] = Counter()
        self.lost_at: int | None = None
        self._lock = threading.RLock()
        self._current = CurrentStreams()
        self._book = MemoryBook(self.name, device_type, devices)
        self._next_stream = 1
        self._defaults = [Stream(device_type, number, 0, Queue()) for number in range(devices)]
        self._streams: dict[int, Stream] = {}

    def __enter__(self) -> Self:
        register_device_api(self.device_type, lambda: self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        unregister_device_api(self.device_type)
        if kind is None:
            self.verify()

    # Queries of tests.

    @property
    def faults(self) -> list[str]:
        """Misuses of the interface, also those whose error was caught."""
        return self._book.faults

    def used_bytes(self, device_id: int) -> int:
        """Bytes of a device that are taken, or freed and still in use by queued work."""
        return self._book.used_bytes(device_id)

    def queued(self, device_id: int) -> int:
        """Number of pieces of work, marks and waits that nobody has waited for."""
        return sum(len(queue.work) for queue in self._queues(device_id))

    def verify(self) -> None:
        """Check that the interface was not misused, and that everything was freed.

        Raises:
            AssertionError: with all faults.
        """
        wrong = [
            *self.faults,
            *(f"{x.data.size} bytes at {at:#x} were never freed" for at, x in self._book.live()),
            *(f"{stream} was never freed" for stream in self._streams.values()),
        ]
        if wrong:
            raise AssertionError("; ".join(wrong))

    # Devices and their properties.

    def count(self) -> int:
        return self.devices

    def why_absent(self) -> str:
        return "" if self.devices else "the simulation was made without devices"

    def attribute(self, device_id: int, name: str) -> AttributeValue:
        self._check_device(device_id)
        if name == "available_global_memory":
            return self.memory_limit - self.used_bytes(device_id)
        return self.attributes.get(name)

    def can_access_peer(self, device_id: int, other: int) -> bool:
        return device_id == other or (device_id, other) in self.peers

    # Memory.

    @_counted
    def allocate(
        self,
        device_id: int,
        nbytes: int,
        alignment: int = DEVICE_ALIGNMENT,
        scope: str = "global",
    ) -> Memory:
        """Memory full of ``POISON``, aligned as requested and no more."""
        self._check_device(device_id)
        check_request(f"{self.name}({device_id})", nbytes, alignment)
        if scope != "global":
            raise ArgumentError(f"{self.name} has no memory of scope {scope!r}, only 'global'")
        if self.used_bytes(device_id) + nbytes > self.memory_limit:
            self._run_all(device_id)  # memory that was freed is in use until then
        free = self.memory_limit - self.used_bytes(device_id)
        if nbytes > free:
            raise OutOfMemoryError(
                f"{self.name}({device_id}): {nbytes} bytes were asked, {free} of "
                f"{self.memory_limit} are free; free some, or use a smaller problem"
            )
        return self._book.enter(device_id, nbytes, alignment, scope)

    @_counted
    def free(self, memory: Memory) -> None:
        """Free memory for the caller; queued work may still use it."""
        self._book.free(memory)

    @_counted
    def copy(
        self,
        source: Memory,
        source_offset: int,
        target: Memory,
        target_offset: int,
        nbytes: int,
        stream: Stream | None = None,
    ) -> None:
        """Queue a copy, by default in a stream of the source's device, or of the only one.

        Memory of the host is read or written when the stream reaches the copy.
        """
        read = self._book.access("copy", source, source_offset, nbytes)
        write = self._book.access("copy", target, target_offset, nbytes)
        owners = [x.allocation.device_id for x in (write, read) if isinstance(x, Access)]
        if not owners:
            raise self._book.fault(f"copy: neither {source} nor {target} is on a device")
        queue = self._queue("copy", stream or self._current_stream(owners[-1]), *owners)
        note_copy(source, target, nbytes)

        def run() -> None:
            write.take()[:] = read.take()

        self._put(queue, run, nbytes / BANDWIDTH, (read, write))

    # Streams and events.

    @_counted
    def create_stream(self, device_id: int) -> Stream:
        self._check_device(device_id)
        stream = Stream(self.device_type, device_id, self._next_stream, Queue())
        self._streams[stream.handle] = stream
        self._next_stream += 1
        return stream

    @_counted
    def free_stream(self, stream: Stream) -> None:
        """Run the work of a stream and free it."""
        if stream.handle == 0:
            raise self._book.fault(f"free_stream: {stream} is the default one")
        self._queue("free_stream", stream, stream.device_id).run()
        del self._streams[stream.handle]

    @_counted
    def set_stream(self, device_id: int, stream: Stream | None) -> None:
        self._check_device(device_id)
        if stream is not None:
            self._queue("set_stream", stream, device_id)
        self._current.streams[device_id] = stream

    @_counted
    def current_stream(self, device_id: int) -> Stream:
        self._check_device(device_id)
        return self._current_stream(device_id)

    @_counted
    def synchronize(self, device_id: int, stream: Stream | None = None) -> None:
        """Run the work of a stream, or of all."""
        self._check_device(device_id)
        if stream is None:
            self._run_all(device_id)
        else:
            self._queue("synchronize", stream, device_id).run()

    @_counted
    def sync_stream_from_to(self, device_id: int, first: Stream, then: Stream) -> None:
        """Make ``then`` wait for the work that is now in ``first``."""
        self._check_device(device_id)
        waiting = self._queue("sync_stream_from_to", then, device_id)
        mark = self._queue("sync_stream_from_to", first, device_id).mark()
        waiting.work.append(Wait(mark))

    @_counted
    def record_event(self, device_id: int, stream: Stream | None = None) -> Event:
        """An event behind the work that is now in a stream."""
        self._check_device(device_id)
        queue = self._queue("record_event", stream or self._current_stream(device_id), device_id)
        return Event(self.device_type, device_id, queue.mark())

    @_counted
    def wait_event(self, event: Event) -> None:
        """Run the event's stream up to the event."""
        self._reach(event)

    @_counted
    def elapsed(self, first: Event, then: Event) -> float:
        """Simulated seconds between two events."""
        return self._reach(then) - self._reach(first)

    # Kernels.

    @_counted
    def load(self, device_id: int, image: bytes, kernels: Sequence[str]) -> Program:
        """The kernels that an image names, which must be among those of the device."""
        self._check_device(device_id)
        there = set(image.decode().split()) & self.kernels.keys()
        missing = [name for name in kernels if name not in there]
        if missing:
            raise RunError(
                f"{self.name}({device_id}) does not know the kernels {', '.join(missing)}; pass "
                "them to SimulatedDevice(kernels=...) and name them in the image"
            )
        known = {name: self.kernels[name] for name in kernels}
        enqueue = functools.partial(self.launch, device_id)
        return SimulatedProgram(known, _THREADS_PER_BLOCK, enqueue)

    @_counted
    def launch(
        self,
        device_id: int,
        name: str,
        run: Callable[[Values], None],
        arguments: Sequence[KernelArgument],
        stream: Stream | None,
    ) -> None:
        """Queue the call of a kernel, whose memory must be on the device. Its simulated time is
        that of moving each byte of that memory once.
        """
        queue = self._queue(name, stream or self._current_stream(device_id), device_id)
        values: list[Access | int] = []
        for x in arguments:
            if isinstance(x, int):
                values.append(x)
                continue
            access = self._book.access(name, x, 0, x.nbytes)
            if isinstance(access, HostAccess) or access.allocation.device_id != device_id:
                raise self._book.fault(f"{name}: {x} is not on device {device_id}")
            values.append(access)

        def work() -> None:
            try:
                run([x if isinstance(x, int) else x.take() for x in values])
            except Exception as error:
                raise RunError(f"{name} failed on {self.name}({device_id}): {error}") from error

        touched = [x for x in values if isinstance(x, Access)]
        moved = sum(x.nbytes for x in arguments if isinstance(x, Memory))
        self._put(queue, work, moved / BANDWIDTH, touched)

    # Internals.

    def _check_device(self, device_id: int) -> None:
        if not 0 <= device_id < self.devices:
            raise self._book.fault(f"there is no device {device_id}, only {self.devices}")

    def _current_stream(self, device_id: int) -> Stream:
        return self._current.streams.get(device_id) or self._defaults[device_id]

    def _queue(self, what: str, stream: Stream, *device_ids: int) -> Queue:
        """The queue of a stream, which must be alive and of one of the devices."""
        mine = stream.device_type == self.device_type and stream.device_id in device_ids
        if not mine or not isinstance(stream.owner, Queue):
            raise self._book.fault(f"{what}: {stream} is not of device {device_ids[0]}")
        if stream.handle and self._streams.get(stream.handle) is not stream:
            raise self._book.fault(f"{what}: {stream} was freed before")
        return stream.owner

    def _queues(self, device_id: int) -> list[Queue]:
        """Queues of a device, the newest first."""
        streams = [*self._defaults, *self._streams.values()]
        mine = [x.owner for x in reversed(streams) if x.device_id == device_id]
        return [queue for queue in mine if isinstance(queue, Queue)]

    def _run_all(self, device_id: int) -> None:
        for queue in self._queues(device_id):
            queue.run()

    def _reach(self, event: Event) -> float:
        """Run until an event has happened, and return its time."""
        mark = event.owner
        if event.device_type != self.device_type or not isinstance(mark, Mark):
            raise self._book.fault(f"{event} is not of {self.name}")
        mark.queue.run(mark)
        assert mark.time is not None, "a queue that ran up to a mark has reached it"
        return mark.time

    def _put(
        self,
        queue: Queue,
        run: Callable[[], None],
        seconds: float,
        touched: Sequence[Access | HostAccess],
    ) -> None:
        """Queue work, which keeps the memory that it touches until it has run."""
        used = [x.allocation for x in touched if isinstance(x, Access)]
        for allocation in used:
            allocation.users += 1

        def finish() -> None:
            for allocation in used:
                allocation.finish_use()

        queue.work.append(QueuedWork(run, seconds, finish))

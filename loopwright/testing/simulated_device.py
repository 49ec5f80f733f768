"""`SimulatedDevice`: a `DeviceAPI` over memory of its own that counts and checks every call.

It is stricter than hardware: streams do nothing until somebody waits for them, in the order least
expected; the default stream waits for no other, and addresses are never reused and aligned no more
than requested. Time is counted and not measured.
"""

from __future__ import annotations

import ctypes
import functools
import math
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, Self, TypeVar

import numpy as np
import numpy.typing as npt

from loopwright.errors import ArgumentError, OutOfMemoryError, RunError
from loopwright.runtime import (
    DEVICE_ALIGNMENT,
    HOST,
    AttributeValue,
    DeviceAPI,
    Event,
    Extents,
    KernelArgument,
    Memory,
    Program,
    Stream,
    check_request,
    note_copy,
    register_device_api,
    unregister_device_api,
)

__all__ = ["SimulatedDevice"]

LATENCY = 1e-6  # seconds that each piece of work takes beside the seconds of its own


@dataclass(slots=True, eq=False)
class QueuedWork:
    run: Callable[[], None]
    seconds: float  # on the device
    finish: Callable[[], None]  # called afterwards, also when `run` raised


@dataclass(slots=True, eq=False)
class Mark:
    """A point in a queue; ``time`` is None until the queue has come that far."""

    queue: Queue
    time: float | None = None


@dataclass(slots=True, eq=False)
class Wait:
    """A queue goes on only when another one has reached a mark."""

    mark: Mark


@dataclass(slots=True, eq=False)
class Queue:
    work: deque[QueuedWork | Mark | Wait] = field(default_factory=deque, repr=False)
    time: float = 0.0  # seconds on the device at the end of the work so far

    def mark(self) -> Mark:
        mark = Mark(self)
        self.work.append(mark)
        return mark

    def run(self, until: Mark | None = None) -> None:
        """Do all work, or that up to a mark, and before it the work of queues it waits for."""
        goals: list[tuple[Queue, Mark | None]] = [(self, until)]
        while goals:
            queue, goal = goals[-1]
            other = queue._step(goal)
            if other is not None:
                goals.append((other.queue, other))
            elif not queue.work or (goal is not None and goal.time is not None):
                goals.pop()

    def _step(self, goal: Mark | None) -> Mark | None:
        """Do one piece of work before the goal; returns the mark that must be reached first."""
        if not self.work or (goal is not None and goal.time is not None):
            return None
        task = self.work[0]
        if isinstance(task, Wait) and task.mark.time is None:
            return task.mark
        self.work.popleft()
        match task:
            case Mark():
                task.time = self.time
            case Wait(Mark(time=float(reached))):
                self.time = max(self.time, reached)
            case QueuedWork():
                self.time += task.seconds + LATENCY
                try:
                    task.run()
                finally:
                    task.finish()
        return None


class CurrentStreams(threading.local):
    """The calling thread's current stream of each device; None: the default one."""

    def __init__(self) -> None:
        self.streams: dict[int, Stream | None] = {}


POISON = 0xCD  # contents of uninitialised and freed memory

Bytes = npt.NDArray[np.uint8]


@dataclass(slots=True, eq=False)
class Allocation:
    device_id: int
    data: Bytes
    users: int = 0  # pieces of queued work that touch it
    freed: bool = False  # by the caller

    def finish_use(self) -> None:
        """End the use by one piece of work; the last one lets freed memory go."""
        self.users -= 1
        self.wipe()

    def wipe(self) -> None:
        """Destroy the contents of freed memory, as soon as no queued work needs it."""
        if self.freed and not self.users:
            self.data.fill(POISON)


@dataclass(slots=True, eq=False)
class Access:
    """Bytes that queued work will touch, checked when it is queued and again when it runs."""

    allocation: Allocation
    first: int
    end: int

    def take(self) -> Bytes:
        return self.allocation.data[self.first : self.end]


@dataclass(slots=True, eq=False)
class HostAccess:
    """Bytes of the host, whose owner must live until the work has run."""

    book: MemoryBook
    address: int
    nbytes: int
    owner: weakref.ref[object] | None

    def take(self) -> Bytes:
        """The bytes, to read or to write; a missing owner is an error."""
        if self.owner is not None and self.owner() is None:
            raise self.book.fault(f"host memory of {self.nbytes} bytes went before its copy ran")
        if not self.nbytes:
            return np.empty(0, np.uint8)
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.nbytes).from_address(self.address))


class MemoryBook:
    """The allocations of the devices of one kind, named in messages."""

    def __init__(self, name: str, device_type: int, devices: int) -> None:
        self.name = name
        self.device_type = device_type
        #: Texts of all misuses.
        self.faults: list[str] = []
        self._allocations: dict[int, Allocation] = {}
        self._next_address = [(number + 1) << 40 for number in range(devices)]

    def fault(self, text: str) -> ArgumentError:
        """Note a misuse of the interface, and return the error to raise."""
        self.faults.append(f"{self.name}: {text}")
        return ArgumentError(self.faults[-1])

    def used_bytes(self, device_id: int) -> int:
        return sum(
            x.data.size
            for x in self._allocations.values()
            if x.device_id == device_id and (x.users or not x.freed)
        )

    def live(self) -> Iterable[tuple[int, Allocation]]:
        return [(at, x) for at, x in self._allocations.items() if not x.freed]

    def enter(self, device_id: int, nbytes: int, alignment: int, scope: str) -> Memory:
        """New memory, at an address that is no multiple of twice the alignment."""
        multiple = -(-self._next_address[device_id] // alignment) | 1
        address = multiple * alignment
        self._next_address[device_id] = address + max(nbytes, 1)
        self._allocations[address] = Allocation(device_id, np.full(nbytes, POISON, np.uint8))
        return Memory(self.device_type, device_id, address, nbytes, scope=scope)

    def free(self, memory: Memory) -> None:
        """Free memory of `enter`; freed memory, parts of it and other memory are faults."""
        allocation = self._find("free", memory)
        if memory.offset or memory.nbytes != allocation.data.size:
            raise self.fault(f"free: {memory} is a part of what allocate gave")
        allocation.freed = True
        allocation.wipe()

    def access(self, what: str, memory: Memory, offset: int, nbytes: int) -> Access | HostAccess:
        """Bytes of memory for queued work; bytes outside, freed, or of other devices are faults."""
        if offset < 0 or nbytes < 0 or offset + nbytes > memory.nbytes:
            raise self.fault(
                f"{what}: bytes {offset} to {offset + nbytes} are not inside {memory.nbytes} bytes"
            )
        if memory.device_type == HOST:
            owner: object = memory
            while isinstance(owner, Memory):
                owner = owner.owner
            # None where the owner cannot be found.
            weak = weakref.ref(owner) if type(owner).__weakrefoffset__ else None
            return HostAccess(self, memory.address + offset, nbytes, weak)
        allocation = self._find(what, memory)
        first = memory.offset + offset
        if first + nbytes > allocation.data.size:
            raise self.fault(f"{what}: {memory} is larger than what allocate gave")
        return Access(allocation, first, first + nbytes)

    def _find(self, what: str, memory: Memory) -> Allocation:
        if memory.device_type != self.device_type or memory.handle not in self._allocations:
            raise self.fault(f"{what}: {memory} was not allocated here")
        allocation = self._allocations[memory.handle]
        if allocation.device_id != memory.device_id:
            raise self.fault(f"{what}: {memory} is memory of device {allocation.device_id}")
        if allocation.freed:
            raise self.fault(f"{what}: {memory} was freed before")
        return allocation


Values = Sequence[Bytes | int]  # arguments of a kernel: memory as its bytes, integers as they are
#: A kernel of a simulated device, which is called with the grid, the block and its arguments.
Kernel = Callable[[Extents, Extents, Values], None]
#: Queues the call of a kernel: its name, the call, its arguments and the stream.
Enqueue = Callable[[str, Callable[[Values], None], Sequence[KernelArgument], Stream | None], None]


@dataclass(frozen=True, eq=False)
class SimulatedProgram(Program):
    """Kernels by name that were loaded onto a simulated device, whose calls ``enqueue`` queues."""

    kernels: Mapping[str, Kernel]
    threads_per_block: int
    enqueue: Enqueue

    def launch(
        self,
        kernel: str,
        grid: Extents,
        block: Extents,
        arguments: Sequence[KernelArgument],
        shared_bytes: int = 0,
        stream: Stream | None = None,
    ) -> None:
        threads = math.prod(block)
        if threads > self.threads_per_block:
            raise RunError(
                f"{kernel} asks {threads} threads a block, the device has "
                f"{self.threads_per_block}; choose smaller extents"
            )
        call = functools.partial(self.kernels[kernel], grid, block)
        self.enqueue(kernel, call, arguments, stream)


EXT_DEV = 12  # DLPack's code of devices that are an extension
BANDWIDTH = 1e9  # bytes that a copy, or a kernel, moves in a second of simulated time
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
        devices, memory_limit: number of devices, and bytes of memory of each.
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
        """Raise an AssertionError where the interface was misused, or something was not freed."""
        wrong = [
            *self.faults,
            *(f"{x.data.size} bytes at {at:#x} were never freed" for at, x in self._book.live()),
            *(f"{stream} was never freed" for stream in self._streams.values()),
        ]
        if wrong:
            raise AssertionError("; ".join(wrong))

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

    @_counted
    def allocate(
        self, device_id: int, nbytes: int, alignment: int = DEVICE_ALIGNMENT, scope: str = "global"
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
        """Queue a copy, by default in a stream of the source's device, or of the only one; memory
        of the host is read or written when the stream reaches it.
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
        functions = {name: self.kernels[name] for name in kernels}
        enqueue = functools.partial(self.launch, device_id)
        return SimulatedProgram(functions, _THREADS_PER_BLOCK, enqueue)

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

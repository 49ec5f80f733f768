"""The streams of a simulated device: queues whose work runs when somebody waits, and never before,
in the least expected order, so that a test finds a missing wait. Time is counted and not measured.
"""

from __future__ import annotations

import ctypes
import functools
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from loopwright.errors import ArgumentError, RunError
from loopwright.runtime import HOST, Extents, KernelArgument, Memory, Program, Stream

#: Seconds that each piece of work takes beside the seconds of its own.
LATENCY = 1e-6


@dataclass(slots=True, eq=False)
class QueuedWork:
    run: Callable[[], None]
    #: Time on the device.
    seconds: float
    #: Called afterwards, also when `run` raised.
    finish: Callable[[], None]


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
    #: Remaining work, in order.
    work: deque[QueuedWork | Mark | Wait] = field(default_factory=deque, repr=False)
    #: Seconds on the device at the end of the work so far.
    time: float = 0.0

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


#: Contents of uninitialised and freed memory.
POISON = 0xCD

Bytes = npt.NDArray[np.uint8]


@dataclass(slots=True, eq=False)
class Allocation:
    device_id: int
    data: Bytes
    #: Pieces of queued work that touch it.
    users: int = 0
    #: Whether the caller freed it.
    freed: bool = False

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


#: Arguments of a kernel: memory as its bytes, integers as they are.
Values = Sequence[Bytes | int]
#: A kernel of a simulated device, which is called with the grid, the block and its arguments.
Kernel = Callable[[Extents, Extents, Values], None]
#: Queues the call of a kernel: its name, the call, its arguments and the stream.
Enqueue = Callable[
    [str, Callable[[Values], None], Sequence[KernelArgument], Stream | None],
    None,
]


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

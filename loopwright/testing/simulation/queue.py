"""The streams of a simulated device: queues whose work runs when somebody waits, and never before,
in the least expected order, so that a test finds a missing wait. Time is counted and not measured.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from loopwright.runtime.devices.interface import Stream

#: Seconds that each piece of work takes beside the seconds of its own.
LATENCY = 1e-6


@dataclass(slots=True, eq=False)
class Work:
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
    """The work of one stream."""

    #: Remaining work, in order.
    work: deque[Work | Mark | Wait] = field(default_factory=deque, repr=False)
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
            case Work():
                self._do(task)
        return None

    def _do(self, work: Work) -> None:
        self.time += work.seconds + LATENCY
        try:
            work.run()
        finally:
            work.finish()


class CurrentStreams(threading.local):
    """The calling thread's current stream of each device; None: the default one."""

    def __init__(self) -> None:
        self.streams: dict[int, Stream | None] = {}

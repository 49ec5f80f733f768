"""One run of steps on worker threads: a step begins when all its predecessors have ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from loopwright.runtime.executors.dependencies import Dependencies
from loopwright.runtime.threads.thread_pool import ThreadPool


class Run:
    """One run: the steps that still wait, and their numbers of unfinished predecessors."""

    def __init__(
        self, calls: Sequence[Callable[[], object]], order: Dependencies, workers: ThreadPool
    ) -> None:
        self._calls, self._order, self._workers = list(calls), order, workers
        self._lock = threading.Lock()
        self._waits = list(order.waits)
        self._under_way = 0
        self._failure: BaseException | None = None
        self._future: Future[None] = Future()

    def begin(self) -> Future[None]:
        """Begin the steps without predecessors."""
        ready = [n for n, count in enumerate(self._waits) if count == 0]
        if not ready:
            self._future.set_result(None)
        self._under_way = len(ready)
        for n in ready:
            self._workers.submit(self._work, n)
        return self._future

    def _work(self, step: int) -> None:
        """Run a step, then one of those that waited for it alone; the others go to the workers."""
        following: int | None = step
        while following is not None:
            following = self._after(following, self._failure_of(following))

    def _failure_of(self, step: int) -> BaseException | None:
        try:
            self._calls[step]()
        except BaseException as error:  # it is raised again by the future
            return error
        return None

    def _after(self, step: int, failure: BaseException | None) -> int | None:
        """Note the end of a step and begin its ready successors; returns the one to run here.

        After a failure nothing begins; the run ends when all that has begun has ended.
        """
        with self._lock:
            self._failure = self._failure or failure
            ready = [] if self._failure else self._ready_after(step)
            self._under_way += len(ready) - 1
            ended = not self._under_way
        for n in ready[1:]:
            self._workers.submit(self._work, n)
        if ended:
            self._end()
        return ready[0] if ready else None

    def _ready_after(self, step: int) -> list[int]:
        ready = []
        for n in self._order.after[step]:
            self._waits[n] -= 1
            if not self._waits[n]:
                ready.append(n)
        return ready

    def _end(self) -> None:
        if self._failure is not None:
            self._future.set_exception(self._failure)
        else:
            self._future.set_result(None)

"""Several equal devices side by side: each has a runner, and a thread that waits for it.

A device times one kernel at a time, and candidates are handed out in order. Builders, references
and the clock of the run stay with the thread of the measurer: whatever a lane needs of them is
ready before it begins.
"""

from __future__ import annotations

import copy
import queue
import threading
from collections.abc import Callable, Container, Sequence
from concurrent.futures import CancelledError, Future, wait
from dataclasses import replace

from loopwright.errors import RunError
from loopwright.measure.building import Build, code_of, resources_of
from loopwright.measure.candidate import Candidate
from loopwright.measure.result import MeasureError, MeasureResult, faster
from loopwright.measure.runner import RunSession
from loopwright.measure.session import Clock, Equipment
from loopwright.measure.workers.process import Worker, wait_any
from loopwright.runtime import Artifact

#: Seconds after which a thread that waits for its runner sees that it is to stop.
_LOOK_S = 0.1

#: Races, samples and checks a candidate with some equipment, beside an incumbent.
MeasureOne = Callable[[Equipment, Candidate, Artifact, float | None], MeasureResult]


class _Stopped(Exception):
    """The measurement was given up; no thread waits for its result."""


class _Job:
    def __init__(self, candidate: Candidate, artifact: Artifact) -> None:
        self.candidate, self.artifact = candidate, artifact
        self.result: Future[MeasureResult] = Future()


class Lanes:
    """Measures candidates of one task on several devices; ``sessions`` has a runner for each."""

    def __init__(
        self, equipment: Equipment, sessions: Sequence[RunSession], measure: MeasureOne
    ) -> None:
        self._equipment, self._measure = equipment, measure
        self._sessions = [session.another(self._pump) for session in sessions]
        self._waiting: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._handed_out: list[Future[MeasureResult]] = []
        self._ahead: dict[Build, Future[MeasureResult]] = {}
        self._incumbent: float | None = None

    def hand_out(
        self,
        builds: Sequence[Build | MeasureError],
        incumbent: float | None,
        known: Container[str],
    ) -> None:
        """Let the devices begin with the builds that are done, in order; `take` gives the results.

        ``incumbent`` is the best time so far in seconds, ``known`` has hashes of object code that
        need not run.
        """
        self.rest()
        unique = dict.fromkeys(b for b in builds if isinstance(b, Build))
        built = [(b, b.outcome) for b in unique if isinstance(b.outcome, Artifact)]
        ready = [(build, artifact) for build, artifact in built if code_of(artifact) not in known]
        for build, artifact in ready:
            self._prepare(build.candidate, artifact)
        if ready:
            self._equipment.take_device()
        futures = self.measure([(b.candidate, artifact) for b, artifact in ready], incumbent)
        self._ahead = {build: f for (build, _), f in zip(ready, futures, strict=True)}

    def take(self, build: Build) -> MeasureResult | None:
        """The result of a build that was handed out; None for another, once the devices are idle.

        Raises a RunError where its device is lost, or its measurement was given up.
        """
        artifact = build.outcome
        if build not in self._ahead or not isinstance(artifact, Artifact):
            self.rest()
            return None
        return replace(
            result_of(self._ahead.pop(build)),
            code=code_of(artifact),
            resources=resources_of(artifact),
        )

    def measure(
        self, work: Sequence[tuple[Candidate, Artifact]], incumbent: float | None
    ) -> list[Future[MeasureResult]]:
        """Hand out candidates with known right answers; returns futures of results in order."""
        with self._lock:
            self._incumbent = incumbent
        jobs = [_Job(candidate, artifact) for candidate, artifact in work]
        for job in jobs:
            self._waiting.put(job)
        if not self._threads:
            self._start()
        self._handed_out += [job.result for job in jobs]
        return [job.result for job in jobs]

    def rest(self) -> None:
        """Wait until all devices are idle, so that the measurer may use their runners."""
        wait(self._handed_out)
        self._handed_out.clear()

    def _prepare(self, candidate: Candidate, artifact: Artifact) -> None:
        """Compute the right answers for a candidate, which needs builders and an idle runner."""
        if self._equipment.option.runner.check:
            with self._equipment.clock.phase("reference"):
                self._equipment.references.get(candidate, artifact)

    def stop(self) -> None:
        """End the threads; current measurements are given up."""
        self._stop.set()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._handed_out.clear()
        self._ahead.clear()
        self._waiting = queue.SimpleQueue()
        for session in self._sessions:
            session.reset()
        self._stop.clear()

    def _start(self) -> None:
        self._threads = [
            threading.Thread(target=self._work, args=(session,), name="measure", daemon=True)
            for session in self._sessions
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, session: RunSession) -> None:
        """Measure candidate after candidate on one device, until there is None."""
        own = copy.copy(self._equipment)
        own.runs, own.clock = session, Clock()
        while (job := self._waiting.get()) is not None:
            if self._stop.is_set():
                job.result.cancel()
                continue
            self._do(job, own)
            self._stop.wait(own.option.runner.cooldown_interval)

    def _do(self, job: _Job, own: Equipment) -> None:
        """Measure one candidate; an error, such as a lost device, goes to the waiting thread."""
        with self._lock:
            incumbent = self._incumbent
        try:
            result = own.runs.undisturbed(
                lambda: self._measure(own, job.candidate, job.artifact, incumbent)
            )
        except _Stopped:
            job.result.cancel()
        except BaseException as error:
            job.result.set_exception(error)
        else:
            with self._lock:
                self._incumbent = faster(self._incumbent, result)
                self._equipment.clock.counts["checked"] += own.clock.counts["checked"]
            own.clock.counts["checked"] = 0
            job.result.set_result(result)

    def _pump(self, workers: Sequence[Worker]) -> None:
        """Wait a moment for the runner of this thread."""
        if self._stop.is_set():
            raise _Stopped
        wait_any(workers, _LOOK_S)


def result_of(waiting: Future[MeasureResult]) -> MeasureResult:
    """The result of a candidate; raises a RunError where its device is lost, or it was given up."""
    try:
        return waiting.result()
    except CancelledError:
        raise RunError("the measuring of a candidate was given up; run the command again") from None

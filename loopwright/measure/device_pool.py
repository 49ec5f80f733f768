"""The devices of a session, equal ones side by side, a runner for each.

Each of several has a thread that waits for its runner. A device times one kernel at a time, and
candidates are measured in the order of their submission. Builders, references and the clock of the
run stay with the thread of the measurer: whatever a device needs of them is ready before it begins.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Container, Sequence
from concurrent.futures import CancelledError, Future, wait
from typing import NamedTuple

from loopwright.errors import RunError
from loopwright.measure.building import Build, code_of
from loopwright.measure.result import MeasureError, MeasureResult, faster
from loopwright.measure.runner import Runner
from loopwright.measure.session import MeasureSession
from loopwright.measure.workers.process import Worker, wait_any
from loopwright.runtime import Artifact

#: Seconds after which a thread that waits for its runner sees that it is to stop.
_LOOK_S = 0.1


class _Stopped(Exception):
    """The measurement was given up; no thread waits for its result."""


class _Job(NamedTuple):
    build: Build
    result: Future[MeasureResult]


class DevicePool:
    """Measures candidates of a session on several devices, a runner for each."""

    def __init__(self, session: MeasureSession, runners: Sequence[Runner]) -> None:
        self._session = session
        self._runners = [runner.another(self._pump) for runner in runners]
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._pending: list[Future[MeasureResult]] = []
        self._submitted: dict[Build, Future[MeasureResult]] = {}
        self._incumbent: float | None = None
        self._measured_any = False

    def submit(
        self,
        builds: Sequence[Build | MeasureError],
        incumbent: float | None,
        known: Container[str],
    ) -> None:
        """Let several devices begin with the builds that are done, in order, but not with those
        whose object code ``known`` has; ``incumbent`` is the best time so far in seconds.
        """
        if len(self._runners) < 2:
            return
        self.rest()
        unique = dict.fromkeys(b for b in builds if isinstance(b, Build))
        built = [build for build in unique if isinstance(build.outcome, Artifact)]
        ready = [build for build in built if code_of(build.artifact) not in known]
        if self._session.option.runner.check:
            # Right answers need builders and an idle runner.
            with self._session.clock.phase("reference"):
                for build in ready:
                    self._session.references.get(build.candidate, build.artifact)
        if ready:
            self._session.take_devices()
        self._submitted = dict(zip(ready, self.measure(ready, incumbent), strict=True))

    def result(self, build: Build, incumbent: float | None) -> MeasureResult:
        """The result of a build; one that was not submitted is run now, on the first device.

        Raises a RunError where a device is lost, or the measurement was given up.
        """
        session = self._session
        if build in self._submitted:
            with session.clock.phase("run"):
                return result_of(self._submitted.pop(build))
        if self._pending:
            with session.clock.phase("run"):
                self.rest()

        def run() -> MeasureResult:
            session.take_devices()
            pause = session.option.runner.cooldown_interval
            if pause and self._measured_any:
                with session.clock.phase("cooldown"):
                    time.sleep(pause)
            self._measured_any = True
            return session.measure(build, incumbent)

        return session.runner.undisturbed(run)

    def measure(
        self, builds: Sequence[Build], incumbent: float | None
    ) -> list[Future[MeasureResult]]:
        """Queue builds whose right answers are known; returns futures of results in order."""
        with self._lock:
            self._incumbent = incumbent
        jobs = [_Job(build, Future()) for build in builds]
        for job in jobs:
            self._jobs.put(job)
        if not self._threads:
            self._threads = [
                threading.Thread(target=self._work, args=(runner,), name="measure", daemon=True)
                for runner in self._runners
            ]
            for thread in self._threads:
                thread.start()
        self._pending += [job.result for job in jobs]
        return [job.result for job in jobs]

    def rest(self) -> None:
        """Wait until all devices are idle, so that the measurer may use their runners."""
        wait(self._pending)
        self._pending.clear()

    def stop(self) -> None:
        """End the threads; current measurements are given up."""
        self._stop.set()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._pending.clear()
        self._submitted.clear()
        self._jobs = queue.SimpleQueue()
        for runner in self._runners:
            runner.reset()
        self._stop.clear()

    def _work(self, runner: Runner) -> None:
        """Measure candidate after candidate on one device, until there is None."""
        session = self._session.on_thread(runner)
        while (job := self._jobs.get()) is not None:
            if self._stop.is_set():
                job.result.cancel()
                continue
            self._do(job, session)
            self._stop.wait(session.option.runner.cooldown_interval)

    def _do(self, job: _Job, session: MeasureSession) -> None:
        """Measure one candidate; an error, such as a lost device, goes to the waiting thread."""
        with self._lock:
            incumbent = self._incumbent
        try:
            result = session.runner.undisturbed(lambda: session.measure(job.build, incumbent))
        except _Stopped:
            job.result.cancel()
        except BaseException as error:
            job.result.set_exception(error)
        else:
            with self._lock:
                self._incumbent = faster(self._incumbent, result)
                self._session.clock.counts["checked"] += session.clock.counts["checked"]
            session.clock.counts["checked"] = 0
            job.result.set_result(result)

    def _pump(self, workers: Sequence[Worker]) -> None:
        """Wait a moment for the runner of this thread."""
        if self._stop.is_set():
            raise _Stopped
        wait_any(workers, _LOOK_S)


def result_of(future: Future[MeasureResult]) -> MeasureResult:
    """The result of a candidate; raises a RunError where its device is lost, or it was given up."""
    try:
        return future.result()
    except CancelledError:
        raise RunError("the measuring of a candidate was given up; run the command again") from None

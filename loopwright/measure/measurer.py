"""`Measurer`: build, run, time and check candidates of one task, one typed result per trial.

It owns the processes: builders and one runner, started at entry and kept warm. The template runs
here, in the caller's process; what builders get is a DAG and a trace. Candidates of a batch are all
built before they are timed where both together would need more cores than there are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from loopwright.env import usable_cpus
from loopwright.errors import UsageError
from loopwright.measure.building import BuildJob, BuildPool, Built, instantiate
from loopwright.measure.lock import DeviceLock
from loopwright.measure.options import MeasureOption, measure_option
from loopwright.measure.playoff import playoff
from loopwright.measure.reference import InputData, References
from loopwright.measure.result import MeasureError, MeasureInput, MeasureResult
from loopwright.measure.running import Checked, RunSession

#: Candidates that are built before the first of them is timed, at most.
_CHUNK = 64

_log = logging.getLogger("loopwright.measure")


class Clock:
    """Where the time went: seconds by phase, and counts of events."""

    def __init__(self) -> None:
        phases = ("instantiate", "build", "run", "check", "reference", "wait", "cooldown")
        self.seconds = dict.fromkeys(phases, 0.0)
        self.counts = dict.fromkeys(
            ("trials", "built", "reused", "dropped", "failed", "checked"), 0
        )
        self.total = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the block to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start

    def report(self) -> dict[str, float | int]:
        """Seconds by phase, ``overhead`` (what no phase accounts for), ``total``, the counts."""
        known = sum(self.seconds.values())
        rest = {"overhead": max(0.0, self.total - known), "total": self.total}
        return {**self.seconds, **rest, **self.counts}


class Measurer:
    """Measures candidates of one task; a context manager that owns the worker processes.

    Args:
        task: has ``name``, ``target``, ``instantiate(config)``, and perhaps
            ``reference(*inputs)``, a NumPy reference, or a ``template`` that has one.
        option: see `measure_option`; None: its defaults.
        announce: called with one line about what a person should know (waiting for the device,
            no reference); None: a warning of the logger ``loopwright.measure``.
        beside: a measurer of another task with an equal option, which stays open for longer; its
            processes are used, so that many tasks need no more of them than one.

    Candidates are lowered in the `PassContext` in which `measure` or `playoff` is called.

    Raises:
        RunError: (at the first measurement) a worker process cannot be started.
    """

    builds: BuildPool
    runs: RunSession

    def __init__(
        self,
        task: Any,
        option: MeasureOption | None = None,
        announce: Callable[[str], None] | None = None,
        beside: Measurer | None = None,
    ) -> None:
        self.task = task
        self.option = option if option is not None else measure_option()
        self._announce = announce or _log.warning
        canonical = task.target.canonical
        if beside is not None and beside.option != self.option:
            raise UsageError("measurers that share their processes have one measure_option")
        builders = None if beside is None else beside.builds.workers
        runner = None if beside is None else beside.runs.worker
        self._borrowed = beside is not None
        self.builds = BuildPool(self.option.builder, canonical, builders)
        data = InputData(task)
        self.runs = RunSession(self.option.runner, self.builds.pump, data, runner, data.owner)
        self.references = References(task, self.builds, self.runs, self._announce)
        self.lock = DeviceLock("cpu0", self._announce)
        self.clock = Clock()
        cores = len(usable_cpus())
        threads = canonical.get("num_threads") or cores
        self.overlap = cores >= self.option.builder.processes + threads
        self._entered = False
        self._measured_any = False
        self._passes: dict[str, Any] = {}

    def __enter__(self) -> Measurer:
        self._entered = True
        self.builds.start()
        self.runs.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all worker processes that are its own; nothing of them is left."""
        self._entered = False
        self.lock.release()
        if self._borrowed:
            self.builds.reset()
            self.runs.reset()
            return
        self.builds.close()
        self.runs.close()

    @property
    def timing(self) -> dict[str, float | int]:
        """Where the time went so far.

        Seconds in ``instantiate``, ``build`` (waiting for builders), ``run``, ``check``,
        ``reference`` (computing right answers), ``wait`` (for the device), ``cooldown``,
        ``overhead`` (all else) and ``total``; counts of ``trials``, ``built``, ``reused``
        (equal to another of the batch), ``dropped``, ``failed``, ``checked``.
        """
        return self.clock.report()

    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: float | None = None
    ) -> Iterator[MeasureResult]:
        """Measure candidates; yields one result per input, in order, each as soon as it is there.

        The device is locked from the first run until the iterator ends or is closed.

        Args:
            inputs: what to measure; the task of each is this measurer's.
            incumbent: best time so far in seconds per call; it sets the limits of the race and
                decides what is checked. Better results of this batch take its place.

        Raises:
            UsageError: outside of ``with``, an input of another task, or a `PassContext` that
                cannot reach other processes.
            RunError: a worker process cannot be started.
        """
        if not self._entered:
            raise UsageError("a Measurer is used inside `with Measurer(task, option) as m:`")
        if any(i.task is not self.task for i in inputs):
            raise UsageError(f"this Measurer measures {self.task.name}; an input has another task")
        self._passes = _pass_settings()
        return self._measure(list(inputs), incumbent)

    def _measure(
        self, inputs: list[MeasureInput], incumbent: float | None
    ) -> Iterator[MeasureResult]:
        start = time.perf_counter()
        size = max(1, len(inputs)) if self.overlap else _CHUNK
        try:
            for at in range(0, len(inputs), size):
                jobs = self._submit(inputs[at : at + size])
                if not self.overlap:
                    self.wait_for([j for j in jobs if isinstance(j, BuildJob)])
                for job in jobs:
                    result = self._finish(job, incumbent)
                    incumbent = _better(incumbent, result)
                    self.clock.total += time.perf_counter() - start
                    yield result
                    start = time.perf_counter()
                self.lock.release()
        finally:
            self.clock.total += time.perf_counter() - start
            self.lock.release()
            self.builds.reset()
            self.runs.reset()

    def playoff(self, configs: Sequence[Any], rounds: int = 5) -> list[tuple[Any, list[float]]]:
        """Measure finalists again, interleaved: one sample of each per round.

        Those whose answer is wrong, or that fail, come back with no times (announced).

        Args:
            configs: the finalists.
            rounds: samples of each.

        Returns:
            ``(config, seconds per call of each round)``, lowest median first.

        Raises:
            UsageError: outside of ``with``, or as `measure`.
        """
        if not self._entered:
            raise UsageError("a Measurer is used inside `with Measurer(task, option) as m:`")
        self._passes = _pass_settings()
        start = time.perf_counter()
        try:
            return playoff(self, configs, rounds)
        finally:
            self.clock.total += time.perf_counter() - start
            self.lock.release()
            self.builds.reset()
            self.runs.reset()

    # -- parts shared with the playoff -----------------------------------------------------------

    def announce(self, text: str) -> None:
        """Tell a person one line."""
        self._announce(text)

    def instantiate(self, config: Any) -> Any:
        """Run the template: a `Candidate`, or a `MeasureError`."""
        with self.clock.phase("instantiate"):
            return instantiate(self.task, config, passes=self._passes)

    def wait_for(self, jobs: Sequence[BuildJob]) -> None:
        """Return when these builds are done."""
        with self.clock.phase("build"):
            self.builds.wait(jobs)

    def take_device(self) -> None:
        """Hold the device; waits while another process times on it."""
        if not self.lock.held:
            with self.clock.phase("wait"):
                self.lock.acquire()

    def check(self, built: Built, *, slot: int = 0) -> Checked:
        """Compare what is in the runner's slot with the reference, if there can be one."""
        start = time.perf_counter()
        with self.clock.phase("reference"):
            reference = self.references.get(built)
        if reference is None:
            return Checked(None, None, time.perf_counter() - start)
        self.clock.counts["checked"] += 1
        with self.clock.phase("check"):
            return self.runs.check(
                self.references.key(built),
                reference,
                self.references.length(built),
                self.option.runner.timeout,
                slot=slot,
            )

    # -- one batch -------------------------------------------------------------------------------

    def _submit(self, inputs: Sequence[MeasureInput]) -> list[BuildJob | MeasureError]:
        """Instantiate all and queue their builds; equal candidates share one."""
        jobs: list[BuildJob | MeasureError] = []
        by_key: dict[str, BuildJob] = {}
        for item in inputs:
            found = self.instantiate(item.config)
            if isinstance(found, MeasureError):
                jobs.append(found)
                continue
            if found.key in by_key:
                self.clock.counts["reused"] += 1
            else:
                by_key[found.key] = self.builds.add(found)
            jobs.append(by_key[found.key])
        return jobs

    def _finish(self, job: BuildJob | MeasureError, incumbent: float | None) -> MeasureResult:
        self.clock.counts["trials"] += 1
        if isinstance(job, MeasureError):
            return self._failed(job, 0.0, 0.0)
        if job.outcome is None:
            self.wait_for([job])
        self.clock.counts["built"] = self.builds.built
        if not isinstance(job.outcome, Built):
            assert job.outcome is not None
            return self._failed(job.outcome, job.seconds, 0.0)
        return self._run(job.outcome, job.seconds, incumbent)

    def _run(self, built: Built, build_s: float, incumbent: float | None) -> MeasureResult:
        option = self.option.runner
        self.take_device()
        if option.cooldown_interval and self._measured_any:
            with self.clock.phase("cooldown"):
                time.sleep(option.cooldown_interval)
        self._measured_any = True
        start = time.perf_counter()

        def spent() -> float:
            return time.perf_counter() - start

        with self.clock.phase("run"):
            race = self.runs.load_and_race(built, incumbent, race=option.racing)
            if isinstance(race, MeasureError):
                return self._failed(race, build_s, spent())
            if race.dropped:
                self.clock.counts["dropped"] += 1
                times = (race.first,)
                return MeasureResult(times, True, None, build_s, spent(), time.time())
            rival = incumbent if option.racing else None
            samples = self.runs.sample(race, incumbent=rival, spent=race.warm + race.first)
        if isinstance(samples, MeasureError):
            return self._failed(samples, build_s, spent())
        result = MeasureResult(samples.times, False, None, build_s, spent(), time.time())
        best = result.median
        assert best is not None
        if not option.check or (incumbent is not None and best >= incumbent):
            return result
        checked = self.check(built)
        if checked.error is not None:
            return self._failed(checked.error, build_s, spent(), checked.max_error)
        return MeasureResult(
            samples.times, False, None, build_s, spent(), time.time(), checked.max_error
        )

    def _failed(
        self, error: MeasureError, build_s: float, run_s: float, max_error: float | None = None
    ) -> MeasureResult:
        self.clock.counts["failed"] += 1
        return MeasureResult((), False, error, build_s, run_s, time.time(), max_error)


def _pass_settings() -> dict[str, Any]:
    """Settings of the context that candidates are lowered in."""
    from loopwright.transform import PassContext  # not at the top: runners import no compiler

    return PassContext.current().to_json()


def _better(incumbent: float | None, result: MeasureResult) -> float | None:
    """The best time after one more result."""
    if not result.usable or result.median is None:
        return incumbent
    return result.median if incumbent is None else min(incumbent, result.median)

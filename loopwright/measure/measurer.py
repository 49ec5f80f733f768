"""`Measurer`: build, run, time and check candidates of one task, one typed result per trial.

It owns the processes: builders and one runner, started at entry and kept warm. The template runs in
the caller's process; builders get a DAG and a trace. Candidates of a batch are all built before
they are timed where both together would need more cores than there are.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from loopwright.env import usable_cpus
from loopwright.errors import UsageError
from loopwright.measure.building import Build, Programs, code_of
from loopwright.measure.candidate import Descriptions
from loopwright.measure.device_pool import DevicePool
from loopwright.measure.interfaces import PlayoffPlan, PlayoffResult
from loopwright.measure.options import WINDOWS, MeasureOption, measure_option
from loopwright.measure.playoff import Playoff
from loopwright.measure.result import (
    MeasureError,
    MeasureInput,
    MeasureResult,
    TaskLike,
    faster,
)
from loopwright.measure.session import MeasureSession

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity

#: Candidates that are built before the first of them is timed, at most.
_CHUNK = 64

_log = logging.getLogger("loopwright.measure")


class Measurer:
    """Measures candidates of one task; a context manager that owns the worker processes.

    Candidates are lowered in the `PassContext` in which `measure` or `playoff` is called.
    ``overlap`` tells whether they are built while others are timed, since there are cores for both.

    Args:
        task: a `Task`, or any `TaskLike`.
        option: see `measure_option`; None: its defaults.
        announce: called with one line for a person to read (waiting for the device, no reference);
        None: a warning of the logger ``loopwright.measure``.
        beside: a measurer of another task with an equal option, which stays open for longer; its
        processes are shared, so that many tasks need no more of them than one.
        cores: CPUs that builders and kernels share; None: all usable ones.

    Raises:
        TargetError: (at entry) this machine lacks instructions that the target's code may use.
        RunError: (at the first measurement) a worker process cannot be started.

    Example:
        >>> task = lw.create_task("matmul", (16, 16, 16), "llvm")
        >>> option = lw.measure_option(runner=lw.LocalRunner(number=1, repeat=1))
        >>> with lw.measure.Measurer(task, option) as measurer:
        ...     [result] = measurer.measure([lw.MeasureInput(task, task.config(0))])
        ...
        >>> print(result.error, result.checked, measurer.timing["trials"])
        None yes 1
    """

    session: MeasureSession

    def __init__(
        self,
        task: TaskLike,
        option: MeasureOption | None = None,
        announce: Callable[[str], None] | None = None,
        beside: Measurer | None = None,
        cores: int | None = None,
    ) -> None:
        self.task = task
        self.option = option if option is not None else measure_option()
        shared = None if beside is None else beside.session
        self.session = MeasureSession(task, self.option, announce or _log.warning, shared)
        devices, cores = self.session.devices, cores or len(usable_cpus())
        # Cores that a kernel needs while it is timed; one launches them for a separate device.
        threads = cores if devices[0].attribute("is_host_processor") else 1
        if self.session.on_cpu:
            threads = int(task.target.canonical.get("num_threads") or cores)
        self.overlap = len(devices) == 1 and cores >= self.option.builder.processes + threads
        self._pool = DevicePool(self.session, self.session.runners)
        self._entered = False
        self._known_code: dict[str, MeasureResult] = {}
        self._descriptions = Descriptions(task, self.option.runner.seed)

    def __enter__(self) -> Measurer:
        self.task.target.check_machine()
        self._entered = True
        self.session.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes that are its own."""
        self._entered = False
        self._pool.stop()
        self.session.close()

    @property
    def timing(self) -> dict[str, float | int]:
        """Seconds by phase, and counts of events, so far.

        Phases are ``instantiate``, ``build`` (waiting for builders), ``run``, ``check``,
        ``reference`` (computing right answers), ``wait`` (for the device), ``cooldown``,
        ``overhead`` (all else) and ``total``; counts are ``trials``, ``built``,
        ``duplicates`` (candidates of a program that was measured already, which are no trials),
        ``dropped``, ``failed``, ``checked``.
        """
        self.session.clock.counts["built"] = self.session.builds.built
        return self.session.clock.report()

    @property
    def answered(self) -> int:
        """Number of requests that its processes have answered: a sign of progress."""
        return self.session.answered

    @property
    def waiting_for(self) -> str:
        """Current activity in words, for people who wait; may be read on any thread."""
        return self.session.waiting_for

    def on_phase(self, listen: Callable[[str], object]) -> None:
        """Call ``listen`` with the innermost running phase of `timing` whenever that changes; with
        the empty name where none runs.
        """
        self.session.clock.listen = listen

    def know(self, results: Mapping[str, MeasureResult]) -> None:
        """Use results, by `MeasureResult.code`, of this hardware for candidates compiled to the
        same code; each names in ``times_of`` the record that it is from.
        """
        self._known_code |= results

    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: float | None = None
    ) -> Iterator[MeasureResult]:
        """Measure candidates; yields one result per input, in order, each as soon as it is known.

        The device is locked from the first run until the iterator ends or is closed. Of several
        candidates that are one program the first is measured; the others share its result, as their
        ``same_as`` shows. ``incumbent``, the best time so far in seconds per call, sets the limits
        of the race and decides what is checked; better results of this batch take its place.

        Raises:
            UsageError: outside of ``with``, an input of another task, or a `PassContext` that
            cannot reach other processes.
            RunError: a worker process cannot be started.
        """
        return self.measure_new(inputs, incumbent, {})

    def measure_new(
        self,
        inputs: Sequence[MeasureInput],
        incumbent: float | None,
        known: Mapping[str, MeasureResult],
    ) -> Iterator[MeasureResult]:
        """As `measure`; a candidate whose `MeasureResult.program` is ``known`` costs neither
        compiling nor running and shares the result.
        """
        self._check_entered()
        if any(i.task is not self.task for i in inputs):
            raise UsageError(f"this Measurer measures {self.task.name}; an input has another task")
        self.session.lower_as_here()
        return self._measure(list(inputs), incumbent, Programs(known))

    def _measure(
        self, inputs: list[MeasureInput], incumbent: float | None, programs: Programs
    ) -> Iterator[MeasureResult]:
        clock = self.session.clock
        results = self._results(inputs, incumbent, programs)
        try:
            while True:
                with clock.counting():
                    result = next(results, None)
                if result is None:
                    return
                yield result
        finally:
            self._pool.stop()
            self.session.reset()

    def _results(
        self, inputs: list[MeasureInput], incumbent: float | None, programs: Programs
    ) -> Iterator[MeasureResult]:
        size = max(1, len(inputs)) if self.overlap else _CHUNK
        for at in range(0, len(inputs), size):
            builds = self.session.enqueue(inputs[at : at + size], programs)
            if not self.overlap:
                self.session.wait_for(builds)
            self._pool.submit(builds, incumbent, self._known_code)
            for build in builds:
                result = self._finish(build, incumbent, programs)
                programs.note(result)
                incumbent = faster(incumbent, result)
                yield result
            self.session.release_devices()

    def playoff(self, candidates: Sequence[ConfigEntity], plan: PlayoffPlan) -> PlayoffResult:
        """Check and measure the fastest candidates again, interleaved with the default.

        One that repeats a program, or is wrong, is replaced by the next. Returns the finalists, the
        best first, and the samples that show how much better it is than the default; those whose
        answer is wrong, or that fail, have an error (announced too). Raises as `measure`.
        """
        with self._counted():
            return Playoff(self.session, plan).hold(candidates)

    def measure_again(
        self, configs: Sequence[ConfigEntity], windows: int = WINDOWS
    ) -> list[MeasureResult]:
        """Measure configurations once more, without a race, in the present state of the machine.

        Nothing is checked, and equal programs are each measured, ``windows`` samples of each. The
        build of the first is kept for the next call. Raises as `measure`.
        """
        with self._counted():
            return self.session.measure_again(configs, windows)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the block into the total time, and leave no work under way after it."""
        self._check_entered()
        self.session.lower_as_here()
        try:
            with self.session.clock.counting():
                yield
        finally:
            self.session.reset()

    def _check_entered(self) -> None:
        if not self._entered:
            raise UsageError("a Measurer is used inside `with Measurer(task, option) as m:`")

    # -- one batch -------------------------------------------------------------------------------

    def _finish(
        self, build: Build | MeasureError, incumbent: float | None, programs: Programs
    ) -> MeasureResult:
        if isinstance(build, MeasureError):
            result = MeasureResult(error=build, ts=time.time())
        else:
            source = self.session.compiled(build, programs)
            result = self._measured(build, source, incumbent, programs)
        self.session.clock.count(result)
        return result

    def _measured(
        self, build: Build, source: Build, incumbent: float | None, programs: Programs
    ) -> MeasureResult:
        """The result of a candidate, which shares that of its program; ``source`` has the code."""
        candidate = build.candidate
        result, same_as, run_s = programs.result(build.program), build.program, 0.0
        if result is None:
            result, run_s = self._run(source, incumbent)
            same_as = ""
        return replace(
            result,
            build_s=build.seconds,
            run_s=run_s,
            ts=result.ts if result.times_of else time.time(),
            dag=candidate.dag.hash,
            trace=json.dumps(candidate.trace, separators=(",", ":")),
            same_as=same_as,
            expression=self._descriptions.of(candidate),
        )

    def _run(self, build: Build, incumbent: float | None) -> tuple[MeasureResult, float]:
        """Run a build, unless the times of its object code are known; with the seconds spent."""
        outcome = build.compiled
        if isinstance(outcome, MeasureError):
            return MeasureResult(error=outcome, program=build.program), 0.0
        begun = time.perf_counter()
        # Hashing code takes as long as the rest of this, so it is not done for nothing.
        recorded = self._known_code.get(code_of(outcome)) if self._known_code else None
        if recorded is not None:
            result = replace(recorded, program=build.program)
        else:
            result = self._pool.result(build, incumbent)
        return result, time.perf_counter() - begun

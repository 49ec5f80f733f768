"""`Measurer`: build, run, time and check candidates of one task, one typed result per trial.

It owns the processes: builders and one runner, started at entry and kept warm. The template runs in
the caller's process; builders get a DAG and a trace. Candidates of a batch are all built before
they are timed where both together would need more cores than there are.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy.typing as npt

from loopwright.env import usable_cpus
from loopwright.errors import UsageError
from loopwright.measure.building import Build, code_of
from loopwright.measure.candidate import describe
from loopwright.measure.interfaces import PlayoffPlan, PlayoffResult
from loopwright.measure.options import WINDOWS, MeasureOption, measure_option
from loopwright.measure.playoff import Playoff
from loopwright.measure.result import (
    MeasureError,
    MeasureInput,
    MeasureResult,
    TaskLike,
    faster,
    is_reusable,
)
from loopwright.measure.session import DevicePool, MeasureSession
from loopwright.records import Expression, Json, Record, build_hash, new_run
from loopwright.runtime import Artifact, Module, SizeFormula
from loopwright.target import Target

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity, Scheduled, Task


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
        #: One object for all candidates of an expression.
        self._expressions: dict[tuple[object, ...], Expression] = {}

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
        ``reference``, ``wait`` (for the device), ``cooldown``, ``overhead`` (all else) and
        ``total``; counts are ``trials``, ``built``, ``duplicates`` (of a program that was measured
        already, which are no trials), ``dropped``, ``failed``, ``checked``.
        """
        self.session.clock.counts["built"] = self.session.builds.built
        return self.session.clock.report()

    @property
    def answered(self) -> int:
        """Number of requests that its processes have answered: a sign of progress."""
        return sum(worker.answered for worker in self.session.workers)

    @property
    def waiting_for(self) -> str:
        """Current activity in words, for people who wait; may be read on any thread."""
        session = self.session
        parts = [worker.doing for worker in session.workers if worker.doing]
        match session.clock.running[-1:]:
            case ["wait"]:
                holders = [lock.holder for lock in session.locks if lock.holder]
                parts.append(f"the device, on which {', '.join(holders) or 'nobody'} is timing")
            case ["instantiate"]:
                parts.append(f"the template of {self.task.name}")
            case ["reference"] if not parts:
                parts.append(f"the reference of {self.task.name}")
            case ["cooldown"]:
                parts.append("the rest between two candidates")
        return ", ".join(parts) or "the measurer"

    def on_phase(self, listen: Callable[[str], object]) -> None:
        """Call ``listen`` with the innermost running phase, empty for none, on each change."""
        self.session.clock.listen = listen

    def know(self, results: Mapping[str, MeasureResult]) -> None:
        """Use results, by `MeasureResult.code`, measured on this hardware, for equal code;
        ``times_of`` names the record.
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
        results: Mapping[str, MeasureResult],
    ) -> Iterator[MeasureResult]:
        """As `measure`, errors too; programs in ``results`` are neither compiled nor run."""
        self._begin()
        if any(i.task is not self.task for i in inputs):
            raise UsageError(f"this Measurer measures {self.task.name}; an input has another task")
        return self._results(list(inputs), incumbent, {**results})

    def _results(
        self,
        inputs: list[MeasureInput],
        incumbent: float | None,
        programs: dict[str, MeasureResult | Build],
    ) -> Iterator[MeasureResult]:
        """Results of inputs; ``programs`` has the result of each program, or its first build."""
        clock, size = self.session.clock, max(1, len(inputs)) if self.overlap else _CHUNK
        try:
            for at in range(0, len(inputs), size):
                with clock.counting():
                    chunk = inputs[at : at + size]
                    labels = (f"trial {item.trial}" for item in chunk)
                    configs = (item.config for item in chunk)
                    builds = self.session.enqueue(configs, programs, labels)
                    if not self.overlap:
                        self.session.wait_for(builds)
                    self._pool.submit(builds, incumbent, self._known_code)
                for build in builds:
                    with clock.counting():
                        result = self._finish(build, incumbent, programs)
                    incumbent = faster(incumbent, result)
                    yield result
                self.session.release_devices()
        finally:
            self._pool.stop()
            self.session.reset()
            programs.clear()  # builds refer to it: their code is freed now

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
        """Take ``windows`` samples of each, also of equal programs, without a race or checks; the
        first build is kept for the next call. Raises as `measure`.
        """
        with self._counted():
            return self.session.measure_again(configs, windows)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the block into the total time, and leave no work under way after it."""
        self._begin()
        try:
            with self.session.clock.counting():
                yield
        finally:
            self.session.reset()

    def _begin(self) -> None:
        if not self._entered:
            raise UsageError("a Measurer is used inside `with Measurer(task, option) as m:`")
        self.session.lower_as_here()

    # -- one batch -------------------------------------------------------------------------------

    def _finish(
        self,
        build: Build | MeasureError,
        incumbent: float | None,
        programs: dict[str, MeasureResult | Build],
    ) -> MeasureResult:
        """The result of one candidate, which shares that of its program."""
        if isinstance(build, MeasureError):
            failed = MeasureResult(error=build, ts=time.time())
            self.session.clock.count(failed)
            return failed
        self.session.wait_for([build])
        candidate, shared, run_s = build.candidate, programs.get(build.program), 0.0
        if isinstance(shared, MeasureResult):
            result = shared
        else:
            source = self.session.compiled(build)
            begun = time.perf_counter()
            result = self._run(source, incumbent)
            if isinstance(source.outcome, Artifact):
                run_s = time.perf_counter() - begun
        key = (candidate.dag.hash, candidate.arg_ids, str(candidate.passes))
        if key not in self._expressions:
            self._expressions[key] = describe(self.task, candidate, self.option.runner.seed)
        result = replace(
            result,
            build_s=build.seconds,
            run_s=run_s,
            ts=result.ts if result.times_of else time.time(),
            dag=candidate.dag.hash,
            trace=json.dumps(candidate.trace, separators=(",", ":")),
            same_as=build.program if result is shared else "",
            expression=self._expressions[key],
        )
        if is_reusable(result):
            programs[result.program] = result
        self.session.clock.count(result)
        return result

    def _run(self, build: Build, incumbent: float | None) -> MeasureResult:
        """Run a build, unless the times of its object code are known."""
        code = build.compiled
        if isinstance(code, MeasureError):
            return MeasureResult(error=code, program=build.program)
        # Hashing code takes as long as the rest of this, so it is not done for nothing.
        recorded = self._known_code.get(code_of(code)) if self._known_code else None
        if recorded is not None:
            return replace(recorded, program=build.program)
        return self._pool.result(build, incumbent)


@dataclass(eq=False)
class ScheduledTask:
    """A task that makes one schedule whatever the configuration is; see `TaskLike`."""

    name: str
    args: tuple[Json, ...]
    key: str
    target: Target
    reference: Callable[..., Any] | None
    make_inputs: Callable[[], Sequence[npt.ArrayLike]] | None
    scheduled: Scheduled  # the schedule with its tensors in calling order

    def instantiate(self, config: ConfigEntity) -> Scheduled:
        return self.scheduled


def recheck(
    task: Task,
    record: Record,
    scheduled: Scheduled,
    option: MeasureOption | None = None,
    announce: Callable[[str], None] | None = None,
) -> Record:
    """Build the candidate of a record, run it once in a process of its own, and compare the answer.

    For records without a check: old ones, AutoTVM's, and those of ``check=False``. Returns a record
    of the phase ``check`` for the same candidate, without times: checked, or with the error. Where
    there can be no reference, not checked, with the reason.

    Args:
        task: the task of the candidate.
        record: the record.
        scheduled: its schedule and arguments, as returned by ``ApplyHistoryBest.choose``.
        option: see `measure_option`; None: its defaults.
        announce: called with one line for a person to read, such as on waiting for the device.

    Raises:
        RunError: a worker process cannot be started.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> choice, scheduled = lw.apply_history_best("matmul.jsonl").choose(task)
        >>> outcome = lw.measure.recheck(task, choice.record, scheduled)
        >>> print(outcome.phase, outcome.checked, outcome.times)
        check yes ()
    """
    recorded = ScheduledTask(
        *(task.name, task.args, task.key, task.target, task.reference, task.make_inputs), scheduled
    )
    session = MeasureSession(recorded, option or measure_option(), announce or (lambda text: None))
    try:
        session.start()
        session.lower_as_here()
        result = _checked(session, task.fallback())
    finally:
        session.close()
    error, worst = result.error, result.max_error
    return replace(
        record,
        times=(),
        dropped=False,
        error=None if error is None else {"kind": error.kind, "text": error.text},
        build=build_hash(task.target.canonical, session.passes),
        run=new_run(),
        ts=time.time(),
        max_error=worst if worst is not None and math.isfinite(worst) else None,
        checked=result.checked,
        check_reason=result.check_reason,
        phase="check",
        program="",
        code="",
        same_as="",
        verdict=None,
        extra={},
    )


def _checked(session: MeasureSession, config: ConfigEntity) -> MeasureResult:
    (build,) = session.enqueue([config])
    if isinstance(build, MeasureError):
        return MeasureResult(check_reason="it cannot be scheduled", error=build)
    session.wait_for([build])
    artifact = build.compiled
    if isinstance(artifact, MeasureError):
        return MeasureResult(check_reason="it cannot be built", error=artifact)
    session.take_devices()
    race = session.runner.load_and_race(artifact, None, race=False)
    if isinstance(race, MeasureError):
        return MeasureResult(check_reason="it cannot be run", error=race)
    result = session.check(build.candidate, artifact)
    return result if result.error is None else replace(result, check_reason="its answer is wrong")


@dataclass(frozen=True)
class BuildResult:
    """Result of building one candidate."""

    #: The file of the kernel, which ``loopwright.load_module`` reads; empty on failure. It is
    #: removed when the `MeasureBatch` is closed.
    filename: str
    #: Shape and dtype of each argument in calling order; empty on failure.
    arg_info: tuple[tuple[tuple[SizeFormula, ...], str], ...]
    error: MeasureError | None
    time_cost: float  #: seconds that building took


class MeasureBatch:
    """Measures batches of inputs of one task; made by `create_measure_batch`.

    Its processes start with the first batch and end with ``close``, at the end of a ``with`` block,
    or when it is garbage-collected. Every candidate is measured to the end: there is no race.
    ``n_parallel`` is the number of builder processes.
    """

    def __init__(self, task: Task, option: MeasureOption) -> None:
        self.task = task
        self.n_parallel = option.builder.processes
        unraced = dataclasses.replace(option.runner, racing=False)
        self._option = MeasureOption(option.builder, unraced)
        self._open = ExitStack()
        self._measurer: Measurer | None = None
        self._folder: Path | None = None
        self._built = 0
        self._finalizer = weakref.finalize(self, self._open.close)

    def __call__(self, measure_inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        """Build, run, and check each input, of this batch's task; one result each, in order."""
        return list(self._started().measure(self._own(measure_inputs)))

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[BuildResult]:
        """Build inputs, equal ones once, without running them; one result each, in order."""
        inputs, measurer = self._own(measure_inputs), self._started()
        with measurer._counted():
            builds = measurer.session.enqueue(item.config for item in inputs)
            measurer.session.wait_for(builds)
        return [self._result(build) for build in builds]

    def close(self) -> None:
        """End its processes and remove the files of its builds."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _started(self) -> Measurer:
        if not self._finalizer.alive:
            raise UsageError("this measure_batch is closed; make another by create_measure_batch")
        if self._measurer is None:
            self._measurer = self._open.enter_context(Measurer(self.task, self._option))
        return self._measurer

    def _own(self, inputs: Sequence[MeasureInput]) -> list[MeasureInput]:
        """The inputs with this task in place of an equal one, as a log gives it."""
        for item in inputs:
            if (item.task.key, item.target) != (self.task.key, self.task.target):
                raise UsageError(
                    f"this measure_batch measures {self.task} for {self.task.target}; an input is "
                    f"of {item.task} for {item.target}"
                )
        return [MeasureInput(self.task, self.task.config(i.config), i.trial) for i in inputs]

    def _result(self, build: Build | MeasureError) -> BuildResult:
        if isinstance(build, MeasureError):
            return BuildResult("", (), build, 0.0)
        artifact = build.compiled
        if isinstance(artifact, MeasureError):
            return BuildResult("", (), artifact, build.seconds)
        if self._folder is None:
            self._folder = Path(self._open.enter_context(tempfile.TemporaryDirectory()))
        self._built += 1
        path = artifact.save(self._folder / f"kernel{self._built}.{Module(artifact).format}")
        args = artifact.contents.functions[0].args
        info = tuple((tuple(arg.shape), arg.dtype) for arg in args)
        return BuildResult(str(path), info, None, build.seconds)


def create_measure_batch(task: Task, option: MeasureOption) -> MeasureBatch:
    """Make a function that measures lists of inputs of one task, as AutoTVM does.

    It takes a list of `MeasureInput`, returns a list of `MeasureResult`, and owns processes: close
    it, or use it in a ``with`` block.

    Raises:
        UsageError: ``option`` is no result of ``measure_option``.

    Example:
        >>> import loopwright as lw
        >>> task = lw.create_task("matmul", (16, 16, 16), "llvm")
        >>> option = lw.measure_option(runner=lw.LocalRunner(number=1, repeat=1))
        >>> with lw.measure.create_measure_batch(task, option) as measure_batch:
        ...     inputs = [lw.MeasureInput(task, task.config_space.get(i)) for i in (0, 1)]
        ...     results = measure_batch(inputs)
        >>> [result.error_no == 0 for result in results]
        [True, True]
    """
    if not isinstance(option, MeasureOption):
        raise UsageError(
            "create_measure_batch: option is what measure_option(builder=..., runner=...) returns; "
            f"it is a {type(option).__name__}"
        )
    return MeasureBatch(task, option)

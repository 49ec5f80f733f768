"""Resources of measuring: builders, a runner, right answers, the device's lock, a clock.

`Measurer` uses them for the candidates of a batch, `playoff` for finalists.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from loopwright.errors import UsageError
from loopwright.measure.building import Build, BuildPool
from loopwright.measure.candidate import Candidate, instantiate, make_candidate
from loopwright.measure.comparison import Closeness, computed_in, reduction_length
from loopwright.measure.devices import DeviceLock, lock_names, measured_on
from loopwright.measure.options import MeasureOption
from loopwright.measure.reference import References
from loopwright.measure.result import MeasureError, MeasureResult, TaskLike
from loopwright.measure.runner import Answers, RunSession, runner
from loopwright.measure.task_inputs import InputData
from loopwright.measure.workers.process import Worker
from loopwright.measure.workers.protocol import CheckReply
from loopwright.records import Checked, ErrorKind, Json
from loopwright.runtime import Artifact, cpu

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity
    from loopwright.te.dag import ArgId


def _unheard(name: str) -> None:
    """Default listener, outside of a run."""


class Clock:
    """Seconds by phase, and counts of events."""

    def __init__(self) -> None:
        phases = ("instantiate", "build", "run", "check", "reference", "wait", "cooldown")
        self.seconds = dict.fromkeys(phases, 0.0)
        self.counts = dict.fromkeys(
            ("trials", "built", "duplicates", "dropped", "failed", "checked"), 0
        )
        self.total = 0.0
        #: Phases that are going on, the innermost last.
        self.running: list[str] = []
        #: Is called with the innermost phase, or the empty name, whenever that changes.
        self.listen: Callable[[str], object] = _unheard
        self._charged_until = 0.0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Add the time of the block to the total."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.total += time.perf_counter() - start

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the block to a phase, without inner phases, so that phases add up to the total."""
        self._charge()
        self.running.append(name)
        self.listen(name)
        try:
            yield
        finally:
            self._charge()
            self.running.pop()
            self.listen(self.running[-1] if self.running else "")

    def _charge(self) -> None:
        """Charge the time since the last change of phase to the innermost running phase."""
        now = time.perf_counter()
        if self.running:
            self.seconds[self.running[-1]] += now - self._charged_until
        self._charged_until = now

    def count(self, result: MeasureResult) -> None:
        """Count one result; a result that is shared with another is no trial."""
        if result.same_as:
            self.counts["duplicates"] += 1
            return
        self.counts["trials"] += 1
        self.counts["failed"] += result.error is not None
        self.counts["dropped"] += result.dropped

    def report(self) -> dict[str, float | int]:
        """Seconds by phase, ``overhead`` (time in no phase), ``total``, and the counts."""
        by_phase = sum(self.seconds.values())
        rest = {"overhead": max(0.0, self.total - by_phase), "total": self.total}
        return {**self.seconds, **rest, **self.counts}


class Equipment:
    """The processes that measure candidates of one task, and the steps for one candidate.

    ``announce`` is called with one line for a person to read. ``beside`` is the equipment of
    another task with an equal option, which is closed later; its processes are used, the runner
    where kernels run on the same devices. Raises a UsageError where a device cannot be used, or is
    none of the target's.
    """

    option: MeasureOption
    builds: BuildPool
    runs: RunSession  # the runner of the first device
    runners: list[RunSession]  # one for each device, the first one's among them

    def __init__(
        self,
        task: TaskLike,
        option: MeasureOption,
        announce: Callable[[str], None],
        beside: Equipment | None = None,
    ) -> None:
        if beside is not None and beside.option != option:
            raise UsageError("measurers that share their processes have one measure_option")
        self.task = task
        self.option = option
        self.announce = announce
        self.passes: Mapping[str, Json] = {}
        self.devices = measured_on(task.target, option.runner.devices)
        self._borrows_builders = beside is not None
        self._borrows_runner = beside is not None and beside.devices == self.devices
        self._learned: set[tuple[str, tuple[ArgId, ...]]] = set()
        self._why_unchecked = ""
        builders = beside.builds.workers if beside is not None else None
        lent = beside.runners if beside is not None and self._borrows_runner else []
        data = InputData(task)
        self.builds = BuildPool(option.builder, task.target.canonical, builders)
        workers = [
            lent[number].worker if lent else runner(option.runner, self._device_name(number))
            for number in range(len(self.devices))
        ]
        self.runs = RunSession(
            *(option.runner, self.builds.pump, data, workers[0], data.owner, self._device_name(0))
        )
        others = [self.runs.another(self.builds.pump, worker) for worker in workers[1:]]
        self.runners = [self.runs, *others]
        self.references = References(task, self.builds, self.runs, announce)
        # They are taken in order, so that nobody waits for a device whose holder waits for ours.
        self.locks = [DeviceLock(name, announce) for name in lock_names(self.devices)]
        self.clock = Clock()

    @property
    def on_cpu(self) -> bool:
        """Whether kernels run on the CPU, whose cores builders need too."""
        return self.devices[0] == cpu()

    def _device_name(self, number: int) -> str:
        """The name of a device for its runner; empty for the CPU."""
        one = self.devices[number]
        return "" if self.on_cpu else f"{one.name}:{one.device_id}"

    @property
    def answered(self) -> int:
        """Number of requests that the processes have answered so far."""
        return sum(worker.answered for worker in self._workers)

    @property
    def _workers(self) -> list[Worker]:
        return [*self.builds.workers, *(session.worker for session in self.runners)]

    @property
    def waiting_for(self) -> str:
        """Current activity, in words, for people who wait; may be read on any thread."""
        parts = [worker.doing for worker in self._workers if worker.doing]
        match self.clock.running[-1:]:
            case ["wait"]:
                holders = [lock.holder for lock in self.locks if lock.holder]
                parts.append(f"the device, on which {', '.join(holders) or 'nobody'} is timing")
            case ["instantiate"]:
                parts.append(f"the template of {self.task.name}")
            case ["reference"] if not parts:
                parts.append(f"the reference of {self.task.name}")
            case ["cooldown"]:
                parts.append("the rest between two candidates")
        return ", ".join(parts) or "the measurer"

    def start(self) -> None:
        self.builds.start()
        for session in self.runners:
            session.start()

    def reset(self) -> None:
        """Give the device back and drop all work under way."""
        self.release_device()
        self.builds.reset()
        for session in self.runners:
            session.reset()

    def close(self) -> None:
        """End the processes that are its own."""
        self.reset()
        if not self._borrows_builders:
            self.builds.close()
        for session in [] if self._borrows_runner else self.runners:
            session.close()

    def lower_as_here(self) -> None:
        """Lower candidates in the `PassContext` of the caller from now on."""
        from loopwright.transform import PassContext  # not at the top: runners import no compiler

        self.passes = PassContext.current().to_json()

    def instantiate(self, config: ConfigEntity) -> Candidate | MeasureError:
        """Run the template; raises a UsageError where an index operand has no known safe range."""
        with self.clock.phase("instantiate"):
            seconds = self.option.builder.timeout
            candidate = instantiate(self.task, config, passes=self.passes, seconds=seconds)
            if isinstance(candidate, Candidate):
                self._learn(candidate)
            return candidate

    def wait_for(self, builds: Sequence[Build]) -> None:
        """Return when these builds are done."""
        with self.clock.phase("build"):
            self.builds.wait(builds)

    def feed(self) -> None:
        """Serve the builders while the queue is longer than they can begin."""
        with self.clock.phase("build"):
            self.builds.feed()

    def take_device(self) -> None:
        """Hold the devices; waits while another process times on one of them."""
        if not all(lock.held for lock in self.locks):
            with self.clock.phase("wait"):
                for lock in self.locks:
                    lock.acquire()

    def release_device(self) -> None:
        """Give the devices back, where they are held."""
        for lock in self.locks:
            lock.release()

    def check(
        self,
        candidate: Candidate,
        artifact: Artifact,
        *,
        slot: int = 0,
        seconds: float | None = None,
    ) -> CheckReply | MeasureError | None:
        """Compare the kernel in the runner's slot with the reference, on all sets of inputs.

        Where accesses depend on data, the candidate is first built once more and run with checks of
        all bounds. ``seconds`` is the measured time of a call, or None; where the check shows that
        such calls skipped their work, the reply has other times. Returns an error when the kernel
        failed, and None when it could not be checked, for the reason in `why_unchecked`.
        """
        self._why_unchecked = ""
        with self.clock.phase("reference"):
            answers = self.references.get(candidate, artifact)
        if answers is None:
            self._why_unchecked = self.references.why_not()
            return None
        self.clock.counts["checked"] += 1
        with self.clock.phase("check"):
            reply: CheckReply | MeasureError | None = self._bounds_checked(candidate)
            if reply is None and not self._why_unchecked:
                reply = self._compared(candidate, artifact, answers, slot, seconds)
        if isinstance(reply, MeasureError) and reply.kind == ErrorKind.MEMORY:
            self._why_unchecked = f"there was no memory for its check ({reply.text})"
            return None
        return reply

    @property
    def why_unchecked(self) -> str:
        """The reason why the last `check` could not be made; empty when it was."""
        return self._why_unchecked

    def _compared(
        self,
        candidate: Candidate,
        artifact: Artifact,
        answers: Answers,
        slot: int,
        seconds: float | None,
    ) -> CheckReply | MeasureError:
        dag = candidate.dag
        return self.runs.check(
            self.references.key(candidate, artifact),
            answers,
            Closeness(reduction_length(dag), computed_in(dag)),
            self.option.runner.timeout,
            slot=slot,
            seconds=seconds,
        )

    def _bounds_checked(self, candidate: Candidate) -> MeasureError | None:
        """Run a candidate with bounds checks, where accesses depend on data; an error if one fails.

        Code for devices has no such checks: there guard zones reveal writes outside.
        """
        from loopwright.te.index_ranges import is_data_dependent

        if not self.on_cpu or not is_data_dependent(candidate.dag):
            return None
        build = self.builds.add(_with_bound_checks(candidate), first=True)
        self.builds.wait([build])
        outcome = build.compiled
        if isinstance(outcome, MeasureError):
            self._why_unchecked = f"it could not be built with bound checks ({outcome})"
            return None
        ran = self.runs.outputs_of(outcome)
        if not isinstance(ran, MeasureError):
            return None
        if "access outside" in ran.text:
            return MeasureError(ErrorKind.WRONG_ANSWER, ran.text)
        self._why_unchecked = f"it could not be run with bound checks ({ran})"
        return None

    def _learn(self, candidate: Candidate) -> None:
        """Find the data that kernels of a candidate's expression need, once for each expression."""
        expression = (candidate.dag.hash, candidate.arg_ids)
        if expression in self._learned:
            return
        from loopwright.measure.task_inputs import plan_of

        args, plan = plan_of(candidate, given=self.task.make_inputs is not None)
        self.runs.learn(args, plan)
        self._learned.add(expression)


def _with_bound_checks(candidate: Candidate) -> Candidate:
    """A candidate whose code checks the indices of every access."""
    config = {**candidate.passes.get("config", {}), "instrument_bound_checkers": True}
    c, passes = candidate, {**candidate.passes, "config": config}
    return make_candidate(c.dag, c.trace, c.arg_ids, c.name, passes)


class Again:
    """Measures configurations again; keeps the build of the first one, the reference."""

    def __init__(self, equipment: Equipment) -> None:
        self.equipment = equipment
        self._kept: dict[str, Build] = {}

    def measure(self, configs: Sequence[ConfigEntity], windows: int) -> list[MeasureResult]:
        builds = [self._build(config) for config in configs]
        self.equipment.wait_for([b for b in builds if isinstance(b, Build) and b.outcome is None])
        self._kept = {b.candidate.key: b for b in builds[:1] if isinstance(b, Build)}
        self.equipment.take_device()
        return [self._run(build, windows) for build in builds]

    def _build(self, config: ConfigEntity) -> Build | MeasureError:
        candidate = self.equipment.instantiate(config)
        if isinstance(candidate, MeasureError):
            return candidate
        return self._kept.get(candidate.key) or self.equipment.builds.add(candidate)

    def _run(self, build: Build | MeasureError, windows: int) -> MeasureResult:
        artifact = build if isinstance(build, MeasureError) else build.compiled
        if isinstance(artifact, MeasureError):
            return MeasureResult(error=artifact, ts=time.time())
        runs = self.equipment.runs
        with self.equipment.clock.phase("run"):
            race = runs.load_and_race(artifact, None, race=False)
            if isinstance(race, MeasureError):
                return MeasureResult(error=race, ts=time.time())
            times = runs.sample(race.first, windows=windows, spent=race.warm + race.first)
        if isinstance(times, MeasureError):
            return MeasureResult(error=times, ts=time.time())
        return MeasureResult(times, ts=time.time())


def checked_result(
    equipment: Equipment, candidate: Candidate, artifact: Artifact, result: MeasureResult
) -> MeasureResult:
    """Check a candidate that would become the best; the runner holds it in slot 0.

    Returns the result with the outcome: a wrong answer, other times where the calls that were timed
    had skipped their work, or the reason why it could not be checked.
    """
    reply = equipment.check(candidate, artifact, seconds=result.median)
    if isinstance(reply, MeasureError):
        return MeasureResult(error=reply)
    if reply is None:
        return replace(result, checked=Checked.NO, check_reason=equipment.why_unchecked)
    if reply.problem is not None:
        error = MeasureError(ErrorKind.WRONG_ANSWER, reply.problem)
        return MeasureResult(error=error, max_error=reply.max_error)
    times = reply.times or result.times
    return replace(result, times=times, max_error=reply.max_error, checked=Checked.YES)

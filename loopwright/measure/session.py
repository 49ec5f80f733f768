"""`MeasureSession`: builders, runners, right answers, locks and a clock of one task.

`Measurer` uses it for the candidates of a batch, `Playoff` for finalists.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from loopwright.errors import UsageError
from loopwright.measure.building import Build, BuildPool, Programs, code_of, resources_of
from loopwright.measure.candidate import Candidate, instantiate, make_candidate
from loopwright.measure.comparison import Closeness, computed_in, reduction_length
from loopwright.measure.devices import DeviceLock, lock_names, measured_on
from loopwright.measure.input_data import InputData, plan_of
from loopwright.measure.interfaces import ignore
from loopwright.measure.machine_limit import time_out_of_reach
from loopwright.measure.options import MeasureOption
from loopwright.measure.reference import References
from loopwright.measure.result import (
    ErrorKind,
    MeasureError,
    MeasureInput,
    MeasureResult,
    TaskLike,
    is_reusable,
)
from loopwright.measure.runner import Runner, runner_process, wrong_answer
from loopwright.measure.workers.process import Worker
from loopwright.measure.workers.protocol import CheckReply
from loopwright.records import Checked, Json
from loopwright.runtime import Artifact, cpu

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity
    from loopwright.te import ArgId


_NOT_BEST = "it would not have become the best"


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
        self.listen: Callable[[str], object] = ignore
        self._charged_until = 0.0

    @contextmanager
    def counting(self) -> Iterator[None]:
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


class MeasureSession:
    """The processes that measure candidates of one task, and the steps for one candidate.

    ``beside`` is the session of another task with an equal option, which is closed later; its
    processes are used, the runner where kernels run on the same devices. Raises a UsageError where
    a device cannot be used, or is none of the target's.
    """

    option: MeasureOption
    builds: BuildPool
    runner: Runner  # of the first device
    runners: list[Runner]  # one for each device, the first one's among them

    def __init__(
        self,
        task: TaskLike,
        option: MeasureOption,
        announce: Callable[[str], None],
        beside: MeasureSession | None = None,
    ) -> None:
        if beside is not None and beside.option != option:
            raise UsageError("measurers that share their processes have one measure_option")
        self.task, self.option, self.announce = task, option, announce
        self.passes: Mapping[str, Json] = {}
        self.devices = measured_on(task.target, option.runner.devices)
        self._borrows_builders = beside is not None
        self._borrows_runners = beside is not None and beside.devices == self.devices
        self._planned: set[tuple[str, tuple[ArgId, ...]]] = set()
        #: The reason why the last `check` could not be made; empty when it was.
        self.why_unchecked = ""
        self._reference_builds: dict[str, Build] = {}
        builders = None if beside is None else beside.builds.workers
        self.builds = BuildPool(option.builder, task.target.canonical, builders)
        names = ["" if self.on_cpu else f"{one.name}:{one.device_id}" for one in self.devices]
        if beside is not None and self._borrows_runners:
            workers = [runner.worker for runner in beside.runners]
        else:
            workers = [runner_process(option.runner, name) for name in names]
        data, pump = InputData(task), self.builds.pump
        self.runner = Runner(option.runner, pump, data, workers[0], data.owner, names[0])
        self.runners = [self.runner, *(self.runner.another(pump, w) for w in workers[1:])]
        self.references = References(task, self.builds, self.runner, announce)
        # They are taken in order, so that nobody waits for a device whose holder waits for ours.
        self.locks = [DeviceLock(name, announce) for name in lock_names(self.devices)]
        self.clock = Clock()

    def on_thread(self, runner: Runner) -> MeasureSession:
        """The same session with another runner and a clock of its own, for one more thread."""
        other = copy.copy(self)
        other.runner, other.clock = runner, Clock()
        return other

    @property
    def on_cpu(self) -> bool:
        """Whether kernels run on the CPU, whose cores builders need too."""
        return self.devices[0] == cpu()

    @property
    def answered(self) -> int:
        return sum(worker.answered for worker in self._workers)

    @property
    def _workers(self) -> list[Worker]:
        return [*self.builds.workers, *(runner.worker for runner in self.runners)]

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
        for worker in self._workers:
            worker.start()

    def reset(self) -> None:
        self.release_devices()
        self.builds.reset()
        for runner in self.runners:
            runner.reset()

    def close(self) -> None:
        self.reset()
        if not self._borrows_builders:
            self.builds.close()
        for runner in [] if self._borrows_runners else self.runners:
            runner.worker.close()

    def lower_as_here(self) -> None:
        from loopwright.transform import PassContext  # not at the top: runners import no compiler

        self.passes = PassContext.current().to_json()

    def instantiate(self, config: ConfigEntity) -> Candidate | MeasureError:
        """Run the template, and plan the data of its kernels, once for each expression.

        Raises a UsageError where an index operand has no known safe range.
        """
        with self.clock.phase("instantiate"):
            seconds = self.option.builder.timeout
            candidate = instantiate(self.task, config, passes=self.passes, seconds=seconds)
            if isinstance(candidate, MeasureError):
                return candidate
            expression = (candidate.dag.hash, candidate.arg_ids)
            if expression not in self._planned:
                given = self.task.make_inputs is not None
                self.runner.learn(*plan_of(candidate, given=given))
                self._planned.add(expression)
            return candidate

    def enqueue(
        self, inputs: Sequence[MeasureInput], programs: Programs
    ) -> list[Build | MeasureError]:
        """Instantiate all and queue their builds; equal candidates share one."""
        builds: list[Build | MeasureError] = []
        by_key: dict[str, Build] = {}
        for item in inputs:
            candidate = self.instantiate(item.config)
            if isinstance(candidate, MeasureError):
                builds.append(candidate)
                continue
            if candidate.key not in by_key:
                build = self.builds.add(
                    candidate, wanted=programs.claim, label=f"trial {item.trial}"
                )
                by_key[candidate.key] = build
                self.feed()
            builds.append(by_key[candidate.key])
        return builds

    def compiled(self, build: Build, programs: Programs) -> Build:
        """Wait for a build; returns the one that has the code of its program, it or another.

        Where its program has a result, that is the build itself. Where another's failed by chance,
        it is built once more.
        """
        self.wait_for([build])
        source = build if programs.result(build.program) else programs.compiled(build)
        self.wait_for([source])
        if source is build or not isinstance(source.outcome, MeasureError):
            return source
        if is_reusable(MeasureResult(error=source.outcome, program=source.program)):
            return source
        second = self.builds.add(build.candidate, first=True)
        self.wait_for([second])
        return second

    def wait_for(self, builds: Iterable[Build | MeasureError]) -> None:
        waiting = [b for b in builds if isinstance(b, Build) and b.outcome is None]
        if waiting:
            with self.clock.phase("build"):
                self.builds.wait(waiting)

    def feed(self) -> None:
        with self.clock.phase("build"):
            self.builds.feed()

    def take_devices(self) -> None:
        """Hold the devices; waits while another process times on one of them."""
        if not all(lock.held for lock in self.locks):
            with self.clock.phase("wait"):
                for lock in self.locks:
                    lock.acquire()

    def release_devices(self) -> None:
        for lock in self.locks:
            lock.release()

    def measure(self, build: Build, incumbent: float | None) -> MeasureResult:
        """Race a candidate, take its samples, and check it where it would become the best."""
        option, runner, artifact = self.option.runner, self.runner, build.artifact
        result = partial(
            MeasureResult,
            program=build.program,
            code=code_of(artifact),
            resources=resources_of(artifact),
        )
        with self.clock.phase("run"):
            race = runner.load_and_race(artifact, incumbent, race=option.racing)
            if isinstance(race, MeasureError):
                return result(error=race)
            prepare_s = race.prepare
            if race.dropped:
                return result((race.first,), True, check_reason=_NOT_BEST, prepare_s=prepare_s)
            rival = incumbent if option.racing else None
            times = runner.sample(race.first, incumbent=rival, spent=race.warm + race.first)
        if isinstance(times, MeasureError):
            return result(error=times)
        median = statistics.median(times)
        leads = incumbent is None or median < incumbent
        checked, reason, max_error = Checked.NO, _NOT_BEST, None
        if not option.check:
            checked, reason = Checked.OFF, "checking is switched off"
        elif leads:
            reply = self.check(build.candidate, artifact, seconds=median)
            if error := wrong_answer(reply):
                worst = reply.max_error if isinstance(reply, CheckReply) else None
                return result(error=error, max_error=worst)
            reason = self.why_unchecked
            if isinstance(reply, CheckReply):
                checked, max_error, times = Checked.YES, reply.max_error, reply.times or times
        if leads and self.on_cpu:
            error = time_out_of_reach(self.task.target, build.candidate, times)
            if error is not None:
                return result(error=error)
        return result(
            times,
            checked=checked,
            check_reason=reason,
            max_error=max_error,
            prepare_s=prepare_s,
        )

    def measure_again(self, configs: Sequence[ConfigEntity], windows: int) -> list[MeasureResult]:
        """Measure configurations without a race and without a check; the build of the first, the
        reference kernel, is kept for the next call.
        """
        kept = self._reference_builds
        builds: list[Build | MeasureError] = []
        for config in configs:
            candidate = self.instantiate(config)
            if isinstance(candidate, Candidate):
                builds.append(kept.get(candidate.key) or self.builds.add(candidate))
            else:
                builds.append(candidate)
        self.wait_for(builds)
        self._reference_builds = {b.candidate.key: b for b in builds[:1] if isinstance(b, Build)}
        self.take_devices()
        return [self._remeasured(build, windows) for build in builds]

    def _remeasured(self, build: Build | MeasureError, windows: int) -> MeasureResult:
        artifact = build if isinstance(build, MeasureError) else build.compiled
        if isinstance(artifact, MeasureError):
            return MeasureResult(error=artifact, ts=time.time())
        with self.clock.phase("run"):
            race = self.runner.load_and_race(artifact, None, race=False)
            if isinstance(race, MeasureError):
                return MeasureResult(error=race, ts=time.time())
            spent = race.warm + race.first
            times = self.runner.sample(race.first, windows=windows, spent=spent)
        if isinstance(times, MeasureError):
            return MeasureResult(error=times, ts=time.time())
        return MeasureResult(times, ts=time.time())

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
        self.why_unchecked = ""
        with self.clock.phase("reference"):
            answers = self.references.get(candidate, artifact)
        if answers is None:
            self.why_unchecked = "there is no reference"
            return None
        self.clock.counts["checked"] += 1
        with self.clock.phase("check"):
            reply: CheckReply | MeasureError | None = self._bounds_checked(candidate)
            if reply is None and not self.why_unchecked:
                dag = candidate.dag
                reply = self.runner.check(
                    self.references.key(candidate, artifact),
                    answers,
                    Closeness(reduction_length(dag), computed_in(dag)),
                    self.option.runner.timeout,
                    slot=slot,
                    seconds=seconds,
                )
        if isinstance(reply, MeasureError) and reply.kind == ErrorKind.MEMORY:
            self.why_unchecked = f"there was no memory for its check ({reply.text})"
            return None
        return reply

    def _bounds_checked(self, candidate: Candidate) -> MeasureError | None:
        """An error where a candidate whose accesses depend on data fails bounds checks.

        Code for devices has no such checks: there guard zones reveal writes outside.
        """
        from loopwright.te import is_data_dependent

        if not self.on_cpu or not is_data_dependent(candidate.dag):
            return None
        config = {**candidate.passes.get("config", {}), "instrument_bound_checkers": True}
        c, passes = candidate, {**candidate.passes, "config": config}
        checking = make_candidate(c.dag, c.trace, c.arg_ids, c.name, passes)
        build = self.builds.add(checking, first=True)
        self.builds.wait([build])
        outcome = build.compiled
        if isinstance(outcome, MeasureError):
            self.why_unchecked = f"it could not be built with bound checks ({outcome})"
            return None
        ran = self.runner.outputs_of(outcome)
        if not isinstance(ran, MeasureError):
            return None
        if "access outside" in ran.text:
            return MeasureError(ErrorKind.WRONG_ANSWER, ran.text)
        self.why_unchecked = f"it could not be run with bound checks ({ran})"
        return None

"""`MeasureSession`: builders, runners, right answers, locks and a clock of one task.

`Measurer` uses it for the candidates of a batch, `Playoff` for finalists.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import repeat
from queue import SimpleQueue
from types import MappingProxyType
from typing import TYPE_CHECKING

from loopwright.errors import RunError, UsageError
from loopwright.measure.building import Build, BuildPool, code_of, resources_of
from loopwright.measure.candidate import Candidate, instantiate, plan_of, template_inputs
from loopwright.measure.comparison import Closeness, computed_in, reduction_length
from loopwright.measure.devices import DeviceLock, check_can_measure, lock_names, measured_on
from loopwright.measure.interfaces import ignore
from loopwright.measure.machine_limit import time_out_of_reach
from loopwright.measure.options import MeasureOption
from loopwright.measure.reference import References
from loopwright.measure.result import (
    ErrorKind,
    MeasureError,
    MeasureResult,
    TaskLike,
    faster,
    is_reusable,
    would_lead,
)
from loopwright.measure.runner import Runner, runner_process
from loopwright.measure.workers.process import Worker, wait_any
from loopwright.records import Checked, Json
from loopwright.runtime import Artifact, cpu

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity
    from loopwright.te import ArgId


_NOT_BEST = MeasureResult(check_reason="it would not have become the best")
NOT_CHECKED = MeasureResult(checked=Checked.OFF, check_reason="checking is switched off")


class Clock:
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
        check_can_measure()
        self.devices = measured_on(task.target, option.runner.devices)
        self._borrows_builders = beside is not None
        self._borrows_runners = beside is not None and beside.devices == self.devices
        self._planned: set[tuple[str, tuple[ArgId, ...]]] = set()
        self._reference_builds: dict[str, Build] = {}
        builders = None if beside is None else beside.builds.workers
        self.builds = BuildPool(option.builder, task.target.canonical, builders)
        names = ["" if self.on_cpu else f"{one.name}:{one.device_id}" for one in self.devices]
        if beside is not None and self._borrows_runners:
            workers = [runner.worker for runner in beside.runners]
        else:
            workers = [runner_process(option.runner, name) for name in names]
        owner = "" if task.make_inputs is None else repr((task.name, task.args))
        inputs, pump = partial(template_inputs, task), self.builds.pump
        self.runner = Runner(option.runner, pump, inputs, workers[0], owner, names[0])
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
    def workers(self) -> list[Worker]:
        return [*self.builds.workers, *(runner.worker for runner in self.runners)]

    def start(self) -> None:
        for worker in self.workers:
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
        """Run the template, and plan the data once for each expression."""
        with self.clock.phase("instantiate"):
            seconds = self.option.builder.timeout
            candidate = instantiate(self.task, config, passes=self.passes, seconds=seconds)
            if isinstance(candidate, MeasureError):
                return candidate
            expression = (candidate.dag.hash, candidate.arg_ids)
            if expression not in self._planned:
                given = self.task.make_inputs is not None
                self.runner.learn(*plan_of(candidate, from_template=given))
                self._planned.add(expression)
            return candidate

    def enqueue(
        self,
        configs: Iterable[ConfigEntity],
        programs: dict[str, MeasureResult | Build] | None = None,
        labels: Iterable[str] = repeat(""),
        kept: Mapping[str, Build] = MappingProxyType({}),
    ) -> list[Build | MeasureError]:
        """Instantiate all and queue builds; equal candidates share one, ``kept`` or new."""
        builds: list[Build | MeasureError] = []
        by_key = dict(kept)
        for config, label in zip(configs, labels, strict=False):
            candidate = self.instantiate(config)
            if isinstance(candidate, MeasureError):
                builds.append(candidate)
                continue
            if candidate.key not in by_key:
                by_key[candidate.key] = self.builds.add(candidate, programs=programs, label=label)
                with self.clock.phase("build"):
                    self.builds.feed()
            builds.append(by_key[candidate.key])
        return builds

    def compiled(self, build: Build) -> Build:
        """The build that has the code of the program; what failed by chance is built again."""
        first = build.outcome
        if not isinstance(first, Build):
            return build
        self.wait_for([first])
        if not isinstance(first.outcome, MeasureError):
            return first
        if is_reusable(MeasureResult(error=first.outcome, program=first.program)):
            return first
        second = self.builds.add(build.candidate, first=True)
        self.wait_for([second])
        return second

    def wait_for(self, builds: Iterable[Build | MeasureError]) -> None:
        waiting = [b for b in builds if isinstance(b, Build) and b.outcome is None]
        if waiting:
            with self.clock.phase("build"):
                self.builds.wait(waiting)

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
        option, artifact = self.option.runner, build.artifact
        with self.clock.phase("run"):
            timed = self.runner.time(artifact, incumbent, race=option.racing)
        leads, check = would_lead(incumbent, timed), _NOT_BEST
        if timed.usable and not option.check:
            check = NOT_CHECKED
        elif leads:
            check = self.check(build.candidate, artifact, seconds=timed.median)
        times = check.times or timed.times
        if leads and check.error is None and self.on_cpu:
            error = time_out_of_reach(self.task.target, build.candidate, times)
            check = check if error is None else MeasureResult(error=error)
        result = partial(
            MeasureResult,
            max_error=check.max_error,
            program=build.program,
            code=code_of(artifact),
            resources=resources_of(artifact),
        )
        error = timed.error or check.error
        if error is not None:
            return result(error=error)
        return result(
            times,
            timed.dropped,
            checked=check.checked,
            check_reason=check.check_reason,
            prepare_s=timed.prepare_s,
        )

    def measure_again(self, configs: Sequence[ConfigEntity], windows: int) -> list[MeasureResult]:
        """Measure without race and check; keep the first build, the reference kernel."""
        builds = self.enqueue(configs, kept=self._reference_builds)
        self.wait_for(builds)
        self._reference_builds = {b.candidate.key: b for b in builds[:1] if isinstance(b, Build)}
        self.take_devices()
        results = []
        for build in builds:
            artifact = build if isinstance(build, MeasureError) else build.compiled
            if isinstance(artifact, MeasureError):
                results.append(MeasureResult(error=artifact, ts=time.time()))
                continue
            with self.clock.phase("run"):
                timed = self.runner.time(artifact, None, race=False, windows=windows)
            results.append(MeasureResult(timed.times, error=timed.error, ts=time.time()))
        return results

    def check(
        self,
        candidate: Candidate,
        artifact: Artifact,
        *,
        slot: int = 0,
        seconds: float | None = None,
    ) -> MeasureResult:
        """Compare the kernel in the runner's slot with the reference, on all sets of inputs.

        Where accesses depend on data, the candidate is first built once more and run with checks of
        all bounds. ``seconds`` is the measured time of a call, or None; where the check shows that
        such calls skipped their work, the result has other times; else it has none.
        """
        with self.clock.phase("reference"):
            answers = self.references.get(candidate, artifact)
        if answers is None:
            return MeasureResult(check_reason="there is no reference")
        self.clock.counts["checked"] += 1
        with self.clock.phase("check"):
            out_of_bounds = self._check_bounds(candidate)
            if out_of_bounds is not None:
                return out_of_bounds
            dag = candidate.dag
            reply = self.runner.check(
                answers,
                Closeness(reduction_length(dag), computed_in(dag)),
                self.option.runner.timeout,
                slot=slot,
                seconds=seconds,
            )
        if isinstance(reply, MeasureError):
            if reply.kind == ErrorKind.MEMORY:
                return MeasureResult(
                    check_reason=f"there was no memory for its check ({reply.text})"
                )
            return MeasureResult(error=reply)
        if reply.problem is not None:
            error = MeasureError(ErrorKind.WRONG_ANSWER, reply.problem)
            return MeasureResult(error=error, max_error=reply.max_error)
        return MeasureResult(reply.times, max_error=reply.max_error, checked=Checked.YES)

    def _check_bounds(self, c: Candidate) -> MeasureResult | None:
        """Bounds checks of data-dependent accesses; devices have guard zones instead."""
        from loopwright.te import is_data_dependent

        if not self.on_cpu or not is_data_dependent(c.dag):
            return None
        config = {**c.passes.get("config", {}), "instrument_bound_checkers": True}
        checking = replace(c, passes={**c.passes, "config": config})
        build = self.builds.add(checking, first=True)
        self.builds.wait([build])
        outcome = build.compiled
        if isinstance(outcome, MeasureError):
            return MeasureResult(
                check_reason=f"it could not be built with bound checks ({outcome})"
            )
        ran = self.runner.outputs_of(outcome)
        if not isinstance(ran, MeasureError):
            return None
        if "access outside" in ran.text:
            return MeasureResult(error=MeasureError(ErrorKind.WRONG_ANSWER, ran.text))
        return MeasureResult(check_reason=f"it could not be run with bound checks ({ran})")


#: Seconds after which a thread that waits for its runner sees that it is to stop.
_LOOK_S = 0.1


class _Stopped(CancelledError):
    """The measurement was given up; no thread waits for its result."""


class DevicePool:
    """Measures candidates of a session on several equal devices, a thread and a runner for each.

    A device times one kernel at a time, and candidates are measured in the order of their
    submission. Builders, references and the clock of the run stay with the thread of the measurer:
    whatever a device needs of them is ready before it begins.
    """

    def __init__(self, session: MeasureSession, runners: Sequence[Runner]) -> None:
        self._session = session
        self._runners = [runner.another(self._pump) for runner in runners]
        # Threads of its own, as daemons: those of an executor end with the main thread, and a
        # kernel that hangs would keep the process from ending.
        self._jobs: SimpleQueue[tuple[Build, Future[MeasureResult]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._pending: list[Future[MeasureResult]] = []
        self._submitted: dict[Build, Future[MeasureResult]] = {}
        self._incumbent: float | None = None
        self._measured_any = False

    def submit(
        self,
        builds: Sequence[Build | MeasureError],
        incumbent: float | None,
        codes: Container[str],
    ) -> None:
        """Let several devices begin with builds whose object code is not in ``codes``."""
        if len(self._runners) < 2:
            return
        self.rest()
        unique = dict.fromkeys(b for b in builds if isinstance(b, Build))
        built = {b: b.outcome for b in unique if isinstance(b.outcome, Artifact)}
        ready = [build for build, artifact in built.items() if code_of(artifact) not in codes]
        if self._session.option.runner.check:
            # Right answers need builders and an idle runner.
            with self._session.clock.phase("reference"):
                for build in ready:
                    self._session.references.get(build.candidate, built[build])
        if ready:
            self._session.take_devices()
        self._submitted = dict(zip(ready, self.measure(ready, incumbent), strict=True))

    def result(self, build: Build, incumbent: float | None) -> MeasureResult:
        """The result of a build; one that was not submitted is run now, on the first device."""
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
        futures: list[Future[MeasureResult]] = [Future() for _ in builds]
        for job in zip(builds, futures, strict=True):
            self._jobs.put(job)
        for one in () if self._threads else self._runners:
            thread = threading.Thread(target=self._work, args=(one,), name="measure", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._pending += futures
        return futures

    def rest(self) -> None:
        """Wait until all devices are idle, so that the measurer may use their runners."""
        wait(self._pending)
        self._pending.clear()

    def stop(self) -> None:
        self._stop.set()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._pending.clear()
        self._submitted.clear()
        self._jobs = SimpleQueue()
        for runner in self._runners:
            runner.reset()
        self._stop.clear()

    def _work(self, runner: Runner) -> None:
        """Measure candidate after candidate on one device, until there is None."""
        session = self._session.on_thread(runner)
        while (job := self._jobs.get()) is not None:
            build, future = job
            try:
                future.set_result(self._measure(session, build))
            except BaseException as error:  # such as a lost device; the waiting thread raises it
                future.set_exception(error)
            self._stop.wait(session.option.runner.cooldown_interval)

    def _measure(self, session: MeasureSession, build: Build) -> MeasureResult:
        if self._stop.is_set():
            raise _Stopped
        with self._lock:
            incumbent = self._incumbent
        result = session.runner.undisturbed(lambda: session.measure(build, incumbent))
        with self._lock:
            self._incumbent = faster(self._incumbent, result)
            self._session.clock.counts["checked"] += session.clock.counts["checked"]
        session.clock.counts["checked"] = 0
        return result

    def _pump(self, workers: Sequence[Worker]) -> None:
        if self._stop.is_set():
            raise _Stopped
        wait_any(workers, _LOOK_S)


def result_of(future: Future[MeasureResult]) -> MeasureResult:
    """The result of a candidate; raises a RunError where its device is lost, or it was given up."""
    try:
        return future.result()
    except CancelledError:
        raise RunError("the measuring of a candidate was given up; run the command again") from None

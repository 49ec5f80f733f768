"""Tuning several tasks at once: choice of the next, one log, one table.

Each task has a run of its own, whose rounds are handed out one at a time. The choice of the next
task follows from the recorded rounds alone, so a call that was cut off goes on from its log.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from loopwright.errors import RecordError, TuneError, UsageError, plain_interrupts
from loopwright.measure import MeasureOption, Measurer, MeasurerLike
from loopwright.tuner.registry import find_tuner
from loopwright.tuner.run.callbacks import LogToFile
from loopwright.tuner.run.interfaces import Callback, Monitor
from loopwright.tuner.run.loop import TuningInterrupted, check_arguments, open_run
from loopwright.tuner.run.run import Run
from loopwright.tuner.run.state import RunState, Trial, flop_of
from loopwright.tuner.run.summary import NothingRan
from loopwright.tuner.tasks.scheduler import (
    ALPHA,
    BACKWARD_WINDOW,
    BETA,
    GradientScheduler,
    TaskProgress,
    equal_together,
    weighted_sum,
)
from loopwright.tuner.tasks.shared_budget import TaskBudget, TotalBudget, verdict_seconds
from loopwright.tuner.tasks.summary import TaskRow, TasksMonitor, TasksSummary

if TYPE_CHECKING:
    from loopwright.task import Task
    from loopwright.tuner.base import Tuner


_log = logging.getLogger("loopwright.tuner")


#: Way of measuring one task: an option, a ready measurer, or None for the default.
Measuring = MeasureOption | MeasurerLike | None


class TaskSettings(NamedTuple):
    weight: float
    group: object
    alternative: object
    measuring: Measuring


class TaskRun:
    run: Run

    def __init__(self, tuner: Tuner, settings: TaskSettings, budget: TaskBudget) -> None:
        self.tuner, self.settings, self.budget = tuner, settings, budget
        self.progress = TaskProgress(flop_of(tuner.task), settings.group)

    @property
    def state(self) -> RunState:
        return self.run.state

    @property
    def cost(self) -> float:
        """Seconds of all its calls at its best; 0 while nothing ran."""
        return self.settings.weight * (self.state.best_seconds or 0.0)

    def resume(self) -> None:
        with self.budget.turn.running():
            self.run.resume()
        rounds = self.run.journal.rounds()
        complete = rounds[:-1] if self.run.unfinished else rounds
        for _, trials in complete:
            self._note(trials)

    def step(self) -> None:
        """Measure a round, or the missing part of one; done when there is none to measure."""
        with self.budget.turn.running():
            plan = self.run.current_round()
            if plan is not None:
                self.run.measure(plan)
                self.run.tell(plan)
        if plan is not None and not self.run.unfinished:
            self._note(list(plan.done.values()))
        self.progress.done = self.run.stop is not None

    def row(self) -> TaskRow:
        state, default, best = self.state, self.state.default, self.run.chosen
        seconds = None if best is None else state.seconds(best)
        stop = self.run.stop or ("", "")
        stopped = stop if stop != self.budget.total.stopped else ("", "")
        return TaskRow(
            task=str(self.run.task),
            trials=state.valid,
            failures=dict(state.failures),
            best_seconds=seconds,
            default_seconds=None if default is None else state.seconds(default),
            gflops=state.gflops(seconds),
            weight=self.settings.weight,
            stopped=stopped[0],
            reason=stopped[1],
            verdict=self.run.verdict,
            alternative=self.settings.alternative,
        )

    def _note(self, trials: Sequence[Trial]) -> None:
        """Add a round to the history, by its first medians: a playoff comes after the search."""
        times = [t.result.median for t in trials if t.usable]
        latencies = [seconds for seconds in (*times, self.progress.latency) if seconds is not None]
        self.progress.history.append(min(latencies, default=None))


class AllRuns:
    def __init__(
        self,
        runs: Sequence[TaskRun],
        scheduler: GradientScheduler,
        total: TotalBudget,
        monitors: Sequence[TasksMonitor],
    ) -> None:
        self.runs, self.scheduler, self.total, self.monitors = runs, scheduler, total, monitors
        total.states = [run.state for run in runs]
        total.playing = lambda: [run.state for run in self._counting()]

    @property
    def recorded(self) -> int:
        return sum(run.run.recorded for run in self.runs)

    def resume(self) -> None:
        for run in self.runs:
            run.resume()
        self.total.resumed()
        shortage = self.total.shortage
        for monitor in self.monitors if shortage else ():
            monitor.note(shortage)
        for monitor in self.monitors:
            monitor.started(self.summary())

    def search(self) -> None:
        """Hand out rounds until a budget is spent or every task is done; a round that was cut off
        comes first."""
        while self.total.spent() is None:
            cut_off = (r.run.unfinished and not r.progress.done for r in self.runs)
            position = next((i for i, unfinished in enumerate(cut_off) if unfinished), None)
            if position is None:
                position = self.scheduler.next([run.progress for run in self.runs])
            if position is None:
                return
            self.runs[position].step()
            for monitor in self.monitors:
                monitor.round(self.summary(), position)

    def playoffs(self) -> None:
        """Hold a playoff of each task, the costliest first; of alternatives only of the fastest.

        Each gets the time that a verdict needs, and of what is left a share by the time of its
        calls; what it does not use is for those after it.
        """
        waiting = sorted(self._counting(), key=lambda run: -run.cost)
        while waiting and not self.total.out_of_time:
            left = None if self.total.left is None else self._part(self.total.left, waiting)
            run = waiting.pop(0)
            with run.budget.turn.running():
                run.run.playoff(left)

    def _part(self, left: float, waiting: Sequence[TaskRun]) -> float:
        """Seconds for the playoff of the first waiting run, of those left to all."""
        least = [verdict_seconds(run.state) for run in waiting]
        total = sum(run.cost for run in waiting)
        share = waiting[0].cost / total if total else 1 / len(waiting)
        spare = left - sum(least)
        return least[0] + spare * share if spare > 0 else left * least[0] / sum(least)

    def _counting(self) -> list[TaskRun]:
        groups = equal_together([run.settings.alternative for run in self.runs])
        ran = ([i for i in group if self.runs[i].cost] or group[:1] for group in groups)
        fastest = {min(group, key=lambda i: self.runs[i].cost) for group in ran}
        return [run for i, run in enumerate(self.runs) if i in fastest]

    def finish(self) -> TasksSummary:
        errors: list[NothingRan] = []
        timing: dict[str, float] = {}
        for run in self.runs:
            run.run.stop = run.run.stop or self.total.stopped
            try:
                summary = run.run.finish()
            except NothingRan as exc:
                errors.append(exc)
                summary = exc.summary
            for what, seconds in summary.timing.items():
                timing[what] = timing.get(what, 0.0) + seconds
        if len(errors) == len(self.runs):
            raise errors[0]
        self.total.stopped = self.total.stopped or ("tasks", "every task came to its end")
        rest = max(0.0, self.total.elapsed - sum(timing.values()))
        timing["other"] = timing.get("other", 0.0) + rest
        table = self.summary(timing)
        for monitor in self.monitors:
            monitor.finished(table)
        return table

    def summary(self, timing: Mapping[str, float] | None = None) -> TasksSummary:
        stopped, reason = self.total.stopped or ("", "")
        states = [run.state for run in self.runs]
        return TasksSummary(
            rows=tuple(run.row() for run in self.runs),
            cost=self.scheduler.value([state.best_seconds or 0.0 for state in states]),
            measured=sum(state.measured for state in states),
            from_log=sum(state.from_log for state in states),
            stopped=stopped,
            reason=reason,
            wall_s=self.total.elapsed,
            log=self.runs[0].run.journal.path,
            total=self.total.trials,
            eta=self.total.eta,
            most_trials=self.total.most_trials,
            timing=dict(timing or {}),
        )


class Relay(Monitor):
    def __init__(self, task: Task, total: TotalBudget, monitors: Sequence[TasksMonitor]) -> None:
        self.task, self.total, self.monitors = task, total, monitors
        self.shows_result = bool(monitors)

    def trial(self, state: RunState, trial: Trial) -> None:
        self.total.note(state, trial)

    def phase(self, text: str, quiet: bool) -> None:
        for monitor in self.monitors:
            monitor.phase(f"{text} ({self.task})" if text else "", quiet)

    def note(self, text: str) -> None:
        for monitor in self.monitors:
            monitor.note(f"{self.task}: {text}")
        if not self.monitors:
            _log.warning("%s: %s", self.task, text)


#: Tasks whose operations differ by less than about this factor may be alike.
_ALIKE = 1.618


def tune_tasks(
    tasks: Sequence[Task],
    n_trial: int | None = None,
    measure_option: Measuring | Sequence[Measuring] = None,
    early_stopping: int | None = None,
    callbacks: Sequence[Callback | TasksMonitor] = (),
    *,
    timeout: float | str | None = None,
    tuner: str | Callable[..., Tuner] = "xgb",
    tuner_options: Mapping[str, object] | None = None,
    seed: int = 0,
    weights: Sequence[float] | None = None,
    objective: Callable[[Sequence[float]], float] | None = None,
    strategy: str = "gradient",
    per_task_early_stopping: int | None = None,
    min_gain: float | str | None = None,
    groups: Sequence[object] | None = None,
    alternatives: Sequence[object] | None = None,
    alpha: float = ALPHA,
    beta: float = BETA,
    backward_window: int = BACKWARD_WINDOW,
) -> TasksSummary:
    """Tune several tasks, giving each round of trials to the task that promises most.

    Every task gets one round, then the gradient scheduler of Ansor (OSDI 2020) decides, see
    `loopwright.tuner.tasks.scheduler`. A task gets no further round when its space is exhausted,
    when its own limits are spent, or when its configurations only fail; the others go on.

    Args:
        n_trial: valid records of all tasks together that the log shall hold, at least one a task;
            None for no limit. Below 16 a task rounds are shorter, so that each task has one.
        measure_option: as for ``Tuner.tune``, as is ``timeout``; a sequence has one for each task.
        early_stopping: stop after this many trials, of all tasks, in a row without a better one
            for any task.
        callbacks: ``log_to_file(path)`` names the one log of all tasks; ``task_table()`` shows the
            table; any other is called ``f(tuner, inputs, results)`` after every round.
        tuner: name of a tuner, or a function ``(task, seed=..., **tuner_options) -> Tuner``.
        tuner_options: further options of every tuner.
        seed: of every tuner, and of the choice between equal tasks.
        weights: number of calls of each task; None: once each.
        objective: gives the cost of the best times in seconds, one per task in order (0 where
            nothing ran); it must not fall when a time rises. None: the sum of weight x time.
        strategy: ``"gradient"`` or ``"round-robin"``.
        per_task_early_stopping, min_gain: limits of each task by its own trials and time, as for
            ``Tuner.tune``.
        groups: tasks of equal groups are expected to come near the speed of the fastest; None in it
            for a task like no other. By default tasks of one template whose operations are of a
            magnitude have equal groups.
        alternatives: tasks of equal entries compute the same: only the fastest of them counts, and
            after its first round a slower one gets none; None, also in it, for no alternative.
        alpha: weight of the gain of past rounds against the expected one, 0 to 1.
        beta: factor within which a task is expected to come to the fastest of its group.
        backward_window: number of past rounds whose gain is looked at.

    Raises:
        UsageError: no tasks, one twice, fewer trials than tasks, or a malformed argument.
        NothingRan: no task has a single valid trial.
        TuneError: the log cannot be written, or another process tunes into it.
        TuningInterrupted: Ctrl-C; the log is synced and the summary is in ``.summary``.

    Example:
        >>> tasks = [lw.create_task("reduce", (n, 64), "llvm") for n in (64, 128)]
        >>> option = lw.measure_option(runner=lw.LocalRunner(number=1, repeat=1))
        >>> summary = lw.tune_tasks(tasks, n_trial=4, tuner="grid", measure_option=option)
        >>> print(len(summary.rows), summary.measured)
        2 4
    """
    tasks = _checked(tasks, n_trial, callbacks)
    settings = _settings(tasks, weights, groups, alternatives, measure_option, objective)
    if objective is None:
        objective = weighted_sum([s.weight for s in settings], [s.alternative for s in settings])
    scheduler = GradientScheduler(
        objective,
        strategy=strategy,
        alpha=alpha,
        beta=beta,
        backward_window=backward_window,
        seed=seed,
    )
    total = TotalBudget(n_trial, timeout, early_stopping)
    make: Callable[..., Tuner] = find_tuner(tuner) if isinstance(tuner, str) else tuner
    options = {**(tuner_options or {}), "seed": seed}
    runs = [
        TaskRun(make(task, **options), own, TaskBudget(total, per_task_early_stopping, min_gain))
        for task, own in zip(tasks, settings, strict=True)
    ]
    with _open(runs, scheduler, total, callbacks) as all_runs:
        try:
            with plain_interrupts():
                all_runs.resume()
                all_runs.search()
                all_runs.playoffs()
        except KeyboardInterrupt:
            total.stopped = ("interrupted", "interrupted")
            raise TuningInterrupted(all_runs.finish()) from None
        except RecordError as exc:
            raise TuneError(f"{exc}; the {all_runs.recorded} trials before it are safe") from exc
        return all_runs.finish()


@contextmanager
def _open(
    runs: Sequence[TaskRun],
    scheduler: GradientScheduler,
    total: TotalBudget,
    callbacks: Sequence[Callback | TasksMonitor],
) -> Iterator[AllRuns]:
    """Open the run of each task; those that measure alike share the processes of the first."""
    monitors = [c for c in callbacks if isinstance(c, TasksMonitor)]
    others: list[Callback] = [c for c in callbacks if not isinstance(c, TasksMonitor)]
    # Even a small budget reaches every task.
    fair = sys.maxsize if total.n_trial is None else total.n_trial // len(runs)
    measurers: list[tuple[Measuring, Measurer]] = []
    with ExitStack() as stack:
        for monitor in monitors:
            stack.callback(monitor.close)
        for run in runs:
            option = run.settings.measuring
            shareable = option is None or isinstance(option, MeasureOption)
            beside = next((m for o, m in measurers if shareable and o == option), None)
            relay = Relay(run.tuner.task, total, monitors)
            plan_size = min(run.tuner.plan_size, fair)
            opened = open_run(run.tuner, run.budget, option, [*others, relay], plan_size, beside)
            run.run = stack.enter_context(opened)
            measurers += [(option, m) for m in [run.run.measurer] if isinstance(m, Measurer)]
        yield AllRuns(runs, scheduler, total, monitors)


def _checked(
    tasks: Sequence[Task], n_trial: int | None, callbacks: Sequence[Callback | TasksMonitor]
) -> list[Task]:
    tasks = list(tasks)
    if not tasks:
        raise UsageError("there are no tasks to tune; give at least one")
    for i, task in enumerate(tasks):
        if any(task.alias == other.alias for other in tasks[:i]):
            raise UsageError(f"{task} is given twice; give it once, with a weight of 2")
    if n_trial is not None and isinstance(n_trial, int) and 0 < n_trial < len(tasks):
        raise UsageError(
            f"n_trial={n_trial} is less than one trial for each of the {len(tasks)} tasks; "
            f"give at least {len(tasks)}"
        )
    check_arguments(None, callbacks)
    if sum(isinstance(one, LogToFile) for one in callbacks) > 1:
        raise UsageError("tasks that are tuned together have one log; give log_to_file once")
    return tasks


def _settings(
    tasks: Sequence[Task],
    weights: Sequence[float] | None,
    groups: Sequence[object] | None,
    alternatives: Sequence[object] | None,
    measuring: Measuring | Sequence[Measuring],
    objective: object,
) -> list[TaskSettings]:
    if objective is not None and weights is not None:
        raise UsageError("give weights or an objective, not both: an objective weighs by itself")
    if objective is not None and alternatives is not None:
        raise UsageError(
            "give alternatives or an objective, not both: an objective takes the fastest itself"
        )
    options = measuring if isinstance(measuring, Sequence) else [measuring] * len(tasks)
    weights = [1.0] * len(tasks) if weights is None else weights
    columns = {
        "weights": weights,
        "groups": [_group(task) for task in tasks] if groups is None else groups,
        "alternatives": [None] * len(tasks) if alternatives is None else alternatives,
        "measure_option": options,
    }
    for name, values in columns.items():
        if len(values) != len(tasks):
            raise UsageError(f"{len(values)} {name} for {len(tasks)} tasks; give one for each")
    for weight in weights:
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not number or not 0 < weight < math.inf:
            raise UsageError(f"a weight is a number above zero, got {weight!r}")
    return [TaskSettings(*row) for row in zip(*columns.values(), strict=True)]


def _group(task: Task) -> object:
    flop = flop_of(task)
    return (task.name, round(math.log(flop, _ALIKE))) if flop else None

"""Several tasks at once: which one next, one log, one table.

Each task has a run of its own, as `loopwright.tuner.run.loop` makes it; here its rounds are handed
out one at a time. Runs share the processes that build and time. Whoever's turn is next follows from
the recorded rounds alone, so a call that was cut off goes on from its log as if it had not been.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from loopwright.errors import RecordError, TuneError, UsageError
from loopwright.measure import MeasureOption
from loopwright.tuner.run.callbacks import LogToFile, Monitor
from loopwright.tuner.run.loop import TuningInterrupted, open_run
from loopwright.tuner.run.run import NothingRan, Run
from loopwright.tuner.run.state import RunState, Trial, flop_of
from loopwright.tuner.tasks.scheduler import (
    ALPHA,
    BACKWARD_WINDOW,
    BETA,
    Scheduler,
    Standing,
    weighted_sum,
)
from loopwright.tuner.tasks.shared_budget import Share, Whole
from loopwright.tuner.tasks.summary import TaskRow, TasksSummary
from loopwright.tuner.tasks.table import TasksMonitor

if TYPE_CHECKING:
    from loopwright.task import Task
    from loopwright.tuner.base import Tuner

#: Tasks whose operations differ by less than about this factor may be alike.
_ALIKE = 1.618

_log = logging.getLogger("loopwright.tuner")


def tune_tasks(
    tasks: Sequence[Task],
    n_trial: int | None = None,
    measure_option: Any = None,
    early_stopping: int | None = None,
    callbacks: Sequence[Any] = (),
    *,
    timeout: float | str | None = None,
    tuner: str | Callable[..., Tuner] = "xgb",
    tuner_options: Mapping[str, Any] | None = None,
    seed: int = 0,
    weights: Sequence[float] | None = None,
    objective: Callable[[Sequence[float]], float] | None = None,
    strategy: str = "gradient",
    per_task_early_stopping: int | None = None,
    min_gain: float | str | None = None,
    groups: Sequence[object] | None = None,
    alpha: float = ALPHA,
    beta: float = BETA,
    backward_window: int = BACKWARD_WINDOW,
) -> TasksSummary:
    """Tune several tasks, giving each round of trials to the task that promises most.

    Every task gets one round, then the gradient scheduler of Ansor (OSDI 2020) decides, see
    `loopwright.tuner.tasks.scheduler`. A task gets no further round when its space is exhausted,
    when its own limits are spent, or when its configurations only fail; the others go on.

    Args:
        tasks: the tasks, none twice.
        n_trial: valid records of all tasks together that the log shall hold, at least one a task;
            None for no limit. Below 16 a task rounds are shorter, so that each task has one.
        measure_option: as for ``Tuner.tune``; a sequence gives one for each task.
        early_stopping: stop after this many trials, of all tasks, in a row without a better one
            for any task.
        callbacks: ``log_to_file(path)`` names the one log of all tasks; ``task_table()`` shows the
            table; any other is called ``f(tuner, inputs, results)`` after every round.
        timeout: wall-clock budget of this call: seconds, or ``"90s"``, ``"30m"``, ``"8h"``.
        tuner: name of a tuner, or a function ``(task, seed=..., **tuner_options) -> Tuner``.
        tuner_options: further options of every tuner.
        seed: of every tuner, and of the choice between equal tasks.
        weights: how often each task is called; None: once each.
        objective: gives the cost of the best times in seconds, one per task in order (0 where
            nothing ran); it must not fall when a time rises. None: the sum of weight x time.
        strategy: ``"gradient"`` or ``"round-robin"``.
        per_task_early_stopping: a task is done after this many trials of its own without a better
            one.
        min_gain: a task is done when its best is expected to become faster by less than this share
            within a minute of its own time, see ``Tuner.tune``.
        groups: tasks of equal groups are alike: one is expected to come near the speed of the
            fastest; None in it for a task like no other. By default tasks of one template are
            alike when their operations are of a magnitude.
        alpha: weight of what past rounds gained against what is to come, 0 to 1.
        beta: how near a task is expected to come to the fastest of its group: a factor.
        backward_window: past rounds that are looked at.

    Returns:
        The table of tasks, the cost, and which budget ended the call.

    Raises:
        UsageError: no tasks, one twice, fewer trials than tasks, or a malformed argument.
        NothingRan: no task has a single valid trial.
        TuneError: the log cannot be written, or another process tunes into it.
        TuningInterrupted: Ctrl-C; the log is synced and the summary is in ``.summary``.
    """
    tasks = _checked(tasks, n_trial, callbacks)
    factors = _weights(weights, objective, len(tasks))
    scheduler = Scheduler(
        objective or weighted_sum(factors),
        strategy=strategy,
        alpha=alpha,
        beta=beta,
        backward_window=backward_window,
        seed=seed,
    )
    whole = Whole(n_trial, timeout, early_stopping)
    options = _per_task("measure_option", measure_option, len(tasks))
    alike = [_group(t) for t in tasks] if groups is None else _all("groups", groups, len(tasks))
    made = _tuners(tasks, tuner, {**(tuner_options or {}), "seed": seed})
    members = [
        Member(t, w, Share(whole, per_task_early_stopping, min_gain), Standing(flop_of(t.task), g))
        for t, w, g in zip(made, factors, alike, strict=True)
    ]
    with _open(members, options, callbacks, whole) as team:
        try:
            team.resume(scheduler)
            team.search(scheduler)
            team.playoffs()
        except KeyboardInterrupt:
            whole.stopped = ("interrupted", "interrupted")
            raise TuningInterrupted(team.finish(scheduler)) from None
        except RecordError as exc:
            raise TuneError(f"{exc}; the {team.recorded} trials before it are safe") from exc
        return team.finish(scheduler)


class Member:
    """One task among others: its run, where it stands, and its share of the budget."""

    run: Run

    def __init__(self, tuner: Tuner, weight: float, share: Share, standing: Standing) -> None:
        self.tuner, self.weight, self.share, self.standing = tuner, weight, share, standing

    @property
    def state(self) -> RunState:
        """The score of its run."""
        return self.run.state

    def resume(self) -> None:
        """Take in what the log holds of this task."""
        with self.share.turn.running():
            self.run.resume()
        rounds = self.run.journal.rounds()
        told = rounds[:-1] if self.run.unfinished else rounds
        for _, trials in told:
            self._note(trials)

    def step(self) -> None:
        """Measure a round, or what is missing of one; done when there is none to measure."""
        with self.share.turn.running():
            plan = self.run.current_round()
            if plan is not None:
                self.run.measure(plan)
                self.run.tell(plan)
        if plan is not None and not self.run.unfinished:
            self._note(list(plan.done.values()))
        self.standing.done = self.run.stop is not None

    def row(self) -> TaskRow:
        """Its row in the table."""
        state, default = self.state, self.state.default
        stop = self.run.stop or ("", "")
        own = stop if stop != self.share.whole.stopped else ("", "")
        return TaskRow(
            task=str(self.run.task),
            trials=state.valid,
            failures=dict(state.failures),
            best_seconds=state.best_seconds,
            default_seconds=None if default is None else state.seconds(default),
            gflops=state.gflops(state.best_seconds),
            weight=self.weight,
            stopped=own[0],
            reason=own[1],
        )

    def _note(self, trials: Sequence[Trial]) -> None:
        """Add a round to the history, by its first medians: a playoff comes after the search."""
        times = [t.result.median for t in trials if t.usable]
        found = [seconds for seconds in (*times, self.standing.latency) if seconds is not None]
        self.standing.history.append(min(found, default=None))


class Team:
    """All members, and the steps of tuning them."""

    def __init__(
        self, members: Sequence[Member], whole: Whole, monitors: Sequence[TasksMonitor]
    ) -> None:
        self.members, self.whole, self.monitors = members, whole, monitors
        self.standings = [member.standing for member in members]
        whole.states = [member.state for member in members]

    @property
    def recorded(self) -> int:
        """Trials that the journals hold."""
        return sum(member.run.recorded for member in self.members)

    def resume(self, scheduler: Scheduler) -> None:
        """Bring every task to where the log ends."""
        for member in self.members:
            member.resume()
        self.whole.resumed()
        for monitor in self.monitors:
            monitor.started(self.summary(scheduler))

    def search(self, scheduler: Scheduler) -> None:
        """Hand out rounds until a budget is spent or every task is done."""
        while self.whole.spent() is None:
            position = self._next(scheduler)
            if position is None:
                return
            self.members[position].step()
            for monitor in self.monitors:
                monitor.round(self.summary(scheduler), position)

    def playoffs(self) -> None:
        """Measure the finalists of each task again."""
        for member in self.members:
            if self.whole.out_of_time:
                return
            with member.share.turn.running():
                member.run.playoff()

    def finish(self, scheduler: Scheduler) -> TasksSummary:
        """Say what it came to.

        Raises:
            NothingRan: no task has a valid trial, and the call was not interrupted.
        """
        nothing: list[NothingRan] = []
        for member in self.members:
            member.run.stop = member.run.stop or self.whole.stopped
            try:
                member.run.finish()
            except NothingRan as exc:
                nothing.append(exc)
        if len(nothing) == len(self.members):
            raise nothing[0]
        self.whole.stopped = self.whole.stopped or ("tasks", "every task came to its end")
        summary = self.summary(scheduler)
        for monitor in self.monitors:
            monitor.finished(summary)
        return summary

    def summary(self, scheduler: Scheduler) -> TasksSummary:
        """Where all stand."""
        stopped, reason = self.whole.stopped or ("", "")
        states = [member.state for member in self.members]
        return TasksSummary(
            rows=tuple(member.row() for member in self.members),
            cost=scheduler.value([state.best_seconds or 0.0 for state in states]),
            measured=sum(state.measured for state in states),
            from_log=sum(state.from_log for state in states),
            stopped=stopped,
            reason=reason,
            wall_s=self.whole.elapsed,
            log=self.members[0].run.journal.path,
        )

    def _next(self, scheduler: Scheduler) -> int | None:
        """A task whose round was cut off, else the one that promises most."""
        for i, member in enumerate(self.members):
            if member.run.unfinished and not member.standing.done:
                return i
        return scheduler.next(self.standings)


class _Relay(Monitor):
    """Tells the budget of every trial of one task, and those who watch of every note."""

    def __init__(self, task: Task, whole: Whole, monitors: Sequence[TasksMonitor]) -> None:
        self.task, self.whole, self.monitors = task, whole, monitors

    def trial(self, state: RunState, trial: Trial) -> None:
        self.whole.note(state, trial)

    def note(self, text: str) -> None:
        for monitor in self.monitors:
            monitor.note(f"{self.task}: {text}")
        if not self.monitors:
            _log.warning("%s: %s", self.task, text)


@contextmanager
def _open(
    members: Sequence[Member], options: Sequence[Any], callbacks: Sequence[Any], whole: Whole
) -> Iterator[Team]:
    """Open the run of each task; those that measure alike share the processes of the first."""
    monitors = [c for c in callbacks if isinstance(c, TasksMonitor)]
    others = [c for c in callbacks if not isinstance(c, TasksMonitor)]
    open_with: list[tuple[Any, Any]] = []
    with ExitStack() as stack:
        for member, option in zip(members, options, strict=True):
            shareable = option is None or isinstance(option, MeasureOption)
            beside = next((m for o, m in open_with if shareable and o == option), None)
            relay = _Relay(member.tuner.task, whole, monitors)
            # Even a small budget reaches every task.
            fair = sys.maxsize if whole.n_trial is None else whole.n_trial // len(members)
            plan_size = min(member.tuner.plan_size, fair)
            run = open_run(member.tuner, member.share, option, [*others, relay], plan_size, beside)
            member.run = stack.enter_context(run)
            if beside is None:
                open_with.append((option, member.run.measurer))
        yield Team(members, whole, monitors)


def _checked(tasks: Sequence[Task], n_trial: int | None, callbacks: Sequence[Any]) -> list[Task]:
    tasks = list(tasks)
    if not tasks:
        raise UsageError("there are no tasks to tune; give at least one")
    for i, task in enumerate(tasks):
        if any(task.key == other.key for other in tasks[:i]):
            raise UsageError(f"{task} is given twice; give it once, with a weight of 2")
    if n_trial is not None and isinstance(n_trial, int) and 0 < n_trial < len(tasks):
        raise UsageError(
            f"n_trial={n_trial} is less than one trial for each of the {len(tasks)} tasks; "
            f"give at least {len(tasks)}"
        )
    for one in callbacks:
        if not callable(one):
            raise TuneError(
                f"a callback is called with (tuner, inputs, results); {one!r} cannot be"
            )
    if sum(isinstance(one, LogToFile) for one in callbacks) > 1:
        raise UsageError("tasks that are tuned together have one log; give log_to_file once")
    return tasks


def _weights(weights: Sequence[float] | None, objective: object, count: int) -> list[float]:
    if weights is None:
        return [1.0] * count
    if objective is not None:
        raise UsageError("give weights or an objective, not both: an objective weighs by itself")
    factors = _all("weights", weights, count)
    for weight in factors:
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not number or not 0 < weight < math.inf:
            raise UsageError(f"a weight is a number above zero, got {weight!r}")
    return factors


def _all(name: str, values: Sequence[Any], count: int) -> list[Any]:
    if len(values) != count:
        raise UsageError(f"{len(values)} {name} for {count} tasks; give one for each")
    return list(values)


def _per_task(name: str, value: Any, count: int) -> list[Any]:
    return _all(name, value, count) if isinstance(value, list | tuple) else [value] * count


def _group(task: Task) -> object:
    """Tasks of one template whose operations are of a magnitude."""
    flop = flop_of(task)
    return (task.name, round(math.log(flop, _ALIKE))) if flop else None


def _tuners(
    tasks: Sequence[Task], tuner: str | Callable[..., Tuner], options: Mapping[str, Any]
) -> list[Tuner]:
    from loopwright.tuner import find_tuner

    make = find_tuner(tuner) if isinstance(tuner, str) else tuner
    return [make(task, **options) for task in tasks]

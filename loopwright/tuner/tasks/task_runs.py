"""The runs of several tasks: rounds are handed out one at a time, and results are summed up."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from loopwright.measure import MeasureOption, MeasurerLike
from loopwright.tuner.run.interfaces import Monitor
from loopwright.tuner.run.run import Run
from loopwright.tuner.run.state import RunState, Trial, flop_of
from loopwright.tuner.run.summary import NothingRan
from loopwright.tuner.tasks.scheduler import GradientScheduler, TaskProgress
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
        fastest: dict[object, TaskRun] = {}
        for run in self.runs:
            group = run.settings.alternative
            other = fastest.get(group, run)
            both = [one for one in (other, run) if one.cost] or [other]
            fastest[group] = min(both, key=lambda one: one.cost)
        groups = [(run, run.settings.alternative) for run in self.runs]
        return [run for run, group in groups if group is None or fastest[group] is run]

    def finish(self) -> TasksSummary:
        """End every run and sum up; an error where no task has a valid trial."""
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
        """The table of all tasks as it is now, with seconds by step where they are known."""
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
    """Passes trials of one task on to the total budget, and notes to the monitors of all tasks."""

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

"""Tuning several tasks at once: choice of the next, one log, one table.

Each task has a run of its own, whose rounds are handed out one at a time. The choice of the next
task follows from the recorded rounds alone, so a call that was cut off goes on from its log.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from loopwright.errors import RecordError, TuneError, UsageError
from loopwright.measure import MeasureOption, Measurer
from loopwright.tuner.registry import find_tuner
from loopwright.tuner.run.callbacks import LogToFile
from loopwright.tuner.run.interfaces import Callback
from loopwright.tuner.run.loop import TuningInterrupted, check_arguments, open_run
from loopwright.tuner.run.state import flop_of
from loopwright.tuner.tasks.scheduler import (
    ALPHA,
    BACKWARD_WINDOW,
    BETA,
    GradientScheduler,
    weighted_sum,
)
from loopwright.tuner.tasks.shared_budget import TaskBudget, TotalBudget
from loopwright.tuner.tasks.summary import TasksMonitor, TasksSummary
from loopwright.tuner.tasks.task_runs import AllRuns, Measuring, Relay, TaskRun, TaskSettings

if TYPE_CHECKING:
    from loopwright.task import Task
    from loopwright.tuner.base import Tuner

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
        weights: number of calls of each task; None: once each.
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
        alternatives: tasks of equal entries compute the same in different ways: only the fastest of
            them counts in the sum, so that after its first round a slower one gets none; None, also
            in it: the task has no alternative.
        alpha: weight of the gain of past rounds against the expected one, 0 to 1.
        beta: factor within which a task is expected to come to the fastest of its group.
        backward_window: number of past rounds that are looked at.

    Returns:
        The table of tasks, the cost, and which budget ended the call.

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

"""Ansor's tuning of several tasks, and the tasks of a network."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from loopwright.compat.autotvm import bound_module, with_host
from loopwright.compat.measuring import TuningOptions
from loopwright.compat.search_tasks import HardwareParams, SearchTask
from loopwright.compat.searching import (
    PreloadMeasuredStates,
    RandomModel,
    SearchPolicy,
    SketchPolicy,
    XGBModel,
)
from loopwright.compat.states import ComputeDAG
from loopwright.errors import UsageError
from loopwright.files import FileKind, Output, marked, write
from loopwright.space import AutomaticTask
from loopwright.task import TargetLike, resolve_target
from loopwright.tuner import (
    ALPHA,
    BACKWARD_WINDOW,
    BETA,
    TasksMonitor,
    TasksSummary,
    Tuner,
    task_table,
    tune_tasks,
)

if TYPE_CHECKING:
    from loopwright.graph import Function, ModelLike

_COLUMNS = "ElapsedTime(s)\tEstimatedLatency(ms)\tTrials\n"
_LATENCIES = FileKind("a table of latencies", marked(_COLUMNS.encode()))
#: Cost models of searches by their names.
_MODELS = {"default": XGBModel, "sketch.xgb": XGBModel, "sketch.random": RandomModel}


class TaskSchedulerCallback:
    """The base of callbacks of a `TaskScheduler`.

    Example:
        >>> class Tell(lw.auto_scheduler.task_scheduler.TaskSchedulerCallback):
        ...     def post_tune(self, task_scheduler, task_id):
        ...         print(task_id, task_scheduler.best_costs[task_id])
    """

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """Called before anything is measured, for every task."""

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """Called after each round of a task."""


class PrintTableInfo(TaskSchedulerCallback):
    """Prints the table of all tasks, see `loopwright.tuner.task_table`.

    Example:
        >>> callbacks = [lw.auto_scheduler.task_scheduler.PrintTableInfo()]
    """


class LogEstimatedLatency(TaskSchedulerCallback):
    """Writes seconds, the sum of the best times in milliseconds and the trials after each round.

    Its ``log_file`` has tab-separated columns; each search overwrites it.

    Example:
        >>> print(lw.auto_scheduler.task_scheduler.LogEstimatedLatency("latency.tsv").log_file)
        latency.tsv
    """

    def __init__(self, log_file: str) -> None:
        self.log_file, self._text = log_file, ""

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        self._text = ""
        self._add(_COLUMNS)

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """Write a line, once every task has a time."""
        summary = task_scheduler.summary
        if summary is None or any(row.best_seconds is None for row in summary.rows):
            return
        self._add(f"{summary.wall_s:.2f}\t{1e3 * summary.cost:.4f}\t{summary.trials}\n")

    def _add(self, line: str) -> None:
        self._text += line
        write(Output(Path(self.log_file), self._text.encode(), _LATENCIES), force=None)


class TaskScheduler:
    """Tunes several tasks; each round of trials goes to the most promising one: Ansor's arguments
    of `loopwright.tune_tasks`, whose ``weights`` are ``task_weights``, whose ``objective`` is
    ``objective_func`` and whose ``backward_window`` is ``backward_window_size``. UsageError
    where there are no tasks, or the file of a model is given.

    Args:
        tasks, task_weights, objective_func, strategy, alpha, beta, backward_window_size: as there.
        load_model_file: accepted only as None: models are trained from records.
        load_log_file: a log to continue; the log that is written is continued anyway.
        gamma: accepted.
        callbacks: see `TaskSchedulerCallback`; None: `PrintTableInfo` where options are not silent.

    Attributes:
        best_costs: the best time of each task in seconds; 1e10 before the first.
        task_cts: rounds of each task in this search.
        cur_score, summary: the current cost, and the table of the current or last search.

    Example:
        >>> def doubled(n):
        ...     X = te.placeholder((n,), name="X")
        ...     return lw.auto_scheduler.ComputeDAG(te.compute((n,), lambda i: X[i] * 2, name="Y"))
        >>> make = lw.auto_scheduler.SearchTask
        >>> tasks = [make(compute_dag=doubled(n), target="llvm") for n in (64, 96)]
        >>> scheduler = lw.auto_scheduler.TaskScheduler(tasks, [1, 2], callbacks=[])
        >>> runner = lw.auto_scheduler.LocalRunner(number=1, repeat=1)
        >>> options = lw.auto_scheduler.TuningOptions(2, runner=runner, verbose=0)
        >>> print(scheduler.tune(options).measured, max(scheduler.best_costs) < 1)
        2 True
    """

    def __init__(
        self,
        tasks: Sequence[SearchTask],
        task_weights: Sequence[float] | None = None,
        objective_func: Callable[[Sequence[float]], float] | None = None,
        strategy: str = "gradient",
        load_model_file: str | None = None,
        load_log_file: str | None = None,
        alpha: float = ALPHA,
        beta: float = BETA,
        gamma: float = 0.5,
        backward_window_size: int = BACKWARD_WINDOW,
        callbacks: Sequence[TaskSchedulerCallback] | None = None,
    ) -> None:
        if not tasks:
            raise UsageError("TaskScheduler: there are no tasks; give at least one")
        if load_model_file is not None:
            raise UsageError(
                "TaskScheduler: models are trained from records and kept in no file; give the log "
                "as load_log_file"
            )
        self.tasks = list(tasks)
        self.task_weights, self.objective_func = task_weights, objective_func
        self.strategy, self.load_log_file = strategy, load_log_file
        self.alpha, self.beta, self.backward_window_size = alpha, beta, backward_window_size
        self.callbacks = None if callbacks is None else list(callbacks)
        self.best_costs = [1e10] * len(self.tasks)
        self.task_cts = [0] * len(self.tasks)
        self.cur_score = 0.0
        self.summary: TasksSummary | None = None

    def tune(
        self,
        tune_option: TuningOptions,
        search_policy: str | Sequence[SearchPolicy] = "default",
        search_policy_params: dict[str, Any] | None = None,
        adaptive_training: bool = False,
        per_task_early_stopping: int | None = None,
    ) -> TasksSummary:
        """Tune all tasks; returns their table.

        Args:
            tune_option: the trials of all tasks together, beyond those in the log, and the settings
                of measuring.
            search_policy: ``"default"`` or ``"sketch.xgb"``, ``"sketch.random"``, or a policy for
                each task.
            search_policy_params: ``params`` of `SketchPolicy`.
            adaptive_training: accepted.
            per_task_early_stopping: number of trials without a better one that ends a task.

        UsageError where the policy is unknown, policies are more or fewer than tasks, or trials
        fewer; others as of `loopwright.tune_tasks`.
        """
        policies = self._policies(search_policy, search_policy_params)
        before = sum(policy.prepare(tune_option) for policy in policies)
        tuners: dict[str, Tuner] = {p.automatic_task.key: p.tuner for p in policies}
        called = self.callbacks if self.callbacks is not None else [PrintTableInfo()]
        for number in range(len(self.tasks)):
            for one in called:
                one.pre_tune(self, number)
        monitors: list[TasksMonitor] = [_Relay(self, called)]
        if tune_option.verbose and any(isinstance(one, PrintTableInfo) for one in called):
            monitors.append(task_table())
        self.summary = tune_tasks(
            [policy.automatic_task for policy in policies],
            n_trial=before + tune_option.num_measure_trials,
            measure_option=tune_option.measure_option,
            early_stopping=tune_option.early_stopping,
            callbacks=[*tune_option.callbacks(policies), *monitors],
            tuner=lambda task, **options: tuners[task.key],
            weights=self.task_weights,
            objective=self.objective_func,
            strategy=self.strategy,
            per_task_early_stopping=per_task_early_stopping,
            alpha=self.alpha,
            beta=self.beta,
            backward_window=self.backward_window_size,
        )
        self.take(self.summary)
        return self.summary

    def take(self, summary: TasksSummary) -> None:
        self.summary, self.cur_score = summary, summary.cost
        self.best_costs = [row.best_seconds or 1e10 for row in summary.rows]

    def _policies(
        self, search_policy: str | Sequence[SearchPolicy], params: dict[str, Any] | None
    ) -> list[SearchPolicy]:
        if not isinstance(search_policy, str):
            policies = list(search_policy)
            if len(policies) != len(self.tasks):
                raise UsageError(
                    f"{len(policies)} policies for {len(self.tasks)} tasks; one for each"
                )
            return policies
        if search_policy not in _MODELS:
            raise UsageError(
                f"there is no search policy {search_policy!r}; there are {', '.join(_MODELS)}"
            )
        model = _MODELS[search_policy]()
        log = self.load_log_file
        if log is not None and isinstance(model, XGBModel):
            model.update_from_file(log)
        begin = [] if log is None else [PreloadMeasuredStates(log)]
        return [
            SketchPolicy(task, model, params, init_search_callbacks=begin) for task in self.tasks
        ]


class _Relay(TasksMonitor):
    def __init__(
        self, scheduler: TaskScheduler, callbacks: Sequence[TaskSchedulerCallback]
    ) -> None:
        self._scheduler, self._callbacks = scheduler, callbacks

    def round(self, summary: TasksSummary, latest: int) -> None:
        self._scheduler.task_cts[latest] += 1
        self._scheduler.take(summary)
        for one in self._callbacks:
            one.post_tune(self._scheduler, latest)


_EXPRESSIONS = FileKind("a file of expressions", marked(b" = te.placeholder("))


def extract_tasks(
    mod: ModelLike | Function,
    params: Mapping[str, npt.ArrayLike] | None = None,
    target: TargetLike = None,
    target_host: TargetLike = None,
    hardware_params: HardwareParams | None = None,
    include_simple_tasks: bool = False,
    dump_workload_to_dag_log: str | None = None,
    opt_level: int = 3,
    other_targets: object = None,
) -> tuple[list[SearchTask], list[int]]:
    """The tasks of a network in the order in which it first needs them, and their number of calls
    in a run of it.

    They belong to the kernels that `loopwright.compile` builds for the same target. If a kernel has
    several implementations, such as a convolution by Winograd's algorithm, the task is that of the
    one that is built without records; `loopwright.tune` compares them. Errors are those of
    ``autotvm.task.extract_from_program``.

    Args:
        include_simple_tasks: also tasks that only move and map elements.
        dump_workload_to_dag_log: a file of JSON with the expression of each key; None: none.
        opt_level: accepted: the passes are those of `loopwright.compile`.
        other_targets: accepted only as None; UsageError for others.

    Example:
        >>> x, w = lw.graph.var("x", (1, 64)), lw.graph.var("w", (64, 64))
        >>> y = lw.graph.op.nn.dense(lw.graph.op.nn.dense(x, w), w)
        >>> weights = {"w": np.ones((64, 64), "float32")}
        >>> module = lw.graph.IRModule.from_expr(y)["main"]
        >>> print(*lw.auto_scheduler.extract_tasks(module, weights, "llvm"))
        [SearchTask(graph/dense((1, 64), (64, 64)), llvm)] [2]
    """
    from loopwright.graph import extract_tasks as tasks_of

    if other_targets is not None:
        raise UsageError("extract_tasks: tasks are of one target; leave other_targets out")
    resolved = resolve_target(with_host(target, target_host))
    if hardware_params is not None:
        resolved = hardware_params.applied_to(resolved)
    module = bound_module(mod, params)
    kernels = tasks_of(module, resolved, include_simple_tasks=include_simple_tasks)
    first = [one for one in kernels if one.rank == 0]
    tasks = []
    for task in (one.task for one in first):
        assert isinstance(task, AutomaticTask)
        dag = ComputeDAG(list(task.program.args))
        own = SearchTask(None, None, dag, None, task.target, None, hardware_params, desc=str(task))
        tasks.append(own)
    if dump_workload_to_dag_log is not None:
        text = json.dumps({task.workload_key: str(task.compute_dag) for task in tasks})
        write(Output(Path(dump_workload_to_dag_log), text.encode(), _EXPRESSIONS), force=None)
    return tasks, [one.weight for one in first]

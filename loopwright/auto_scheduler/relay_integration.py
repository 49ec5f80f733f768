"""``auto_scheduler.relay_integration``: the tasks of a network, for a `TaskScheduler`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy.typing as npt

from loopwright.auto_scheduler.compute_dag import ComputeDAG
from loopwright.auto_scheduler.hardware_params import HardwareParams
from loopwright.auto_scheduler.search_task import SearchTask
from loopwright.errors import UsageError
from loopwright.files import Kind, Output, marked, write
from loopwright.space import AutomaticTask
from loopwright.target import Target
from loopwright.task import Task
from loopwright.task.task import TargetLike, resolve_target

if TYPE_CHECKING:
    from loopwright.graph import Function
    from loopwright.graph.frontend.source import ModelLike

__all__ = ["extract_tasks"]

_EXPRESSIONS = Kind("a file of expressions", marked(b" = te.placeholder("))


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
    """The tasks of a network, and their number of calls in a run of it.

    They belong to the kernels that `loopwright.compile` builds for the same target. If a kernel has
    several implementations, such as a convolution by Winograd's algorithm, the task is that of the
    one that is built without records; `loopwright.tune` compares them.

    Args:
        mod: a module of `loopwright.graph`, a function of it, or an ONNX model.
        params: arrays by the names of the parameters that are weights; None: none are.
        target: such as ``"llvm"`` or a ``Target``; None: the current or the default one.
        target_host: None, or the target of the code that calls the kernels, a CPU.
        hardware_params: facts of the hardware that override those of the target.
        include_simple_tasks: also tasks that only move and map elements.
        dump_workload_to_dag_log: a file of JSON with the expression of each key; None: none.
        opt_level: accepted: the passes are those of `loopwright.compile`.
        other_targets: accepted only as None.

    Returns:
        Tasks, in the order in which the network first needs them, and their weights.

    Raises:
        GraphError: the model is invalid, or a parameter has another name, shape or dtype.
        TargetError: a target is not understood.
        UsageError: other targets are given.

    Example:
        >>> from loopwright import auto_scheduler
        >>> x, w = lw.graph.var("x", (1, 64)), lw.graph.var("w", (64, 64))
        >>> y = lw.graph.op.nn.dense(lw.graph.op.nn.dense(x, w), w)
        >>> module = lw.graph.IRModule.from_expr(y)
        >>> weights = {"w": np.ones((64, 64), "float32")}
        >>> tasks, calls = auto_scheduler.extract_tasks(module["main"], weights, "llvm")
        >>> print(tasks, calls)
        [SearchTask(graph/dense((1, 64), (64, 64)), llvm)] [2]
    """
    from loopwright.graph import Function, IRModule, bind_params_by_name
    from loopwright.graph import extract_tasks as tasks_of
    from loopwright.graph.frontend.source import module_of

    if other_targets is not None:
        raise UsageError("extract_tasks: tasks are of one target; leave other_targets out")
    resolved = resolve_target(target)
    if target_host is not None:
        resolved = Target(resolved, target_host)
    if hardware_params is not None:
        resolved = hardware_params.applied_to(resolved)
    module = IRModule.from_expr(mod) if isinstance(mod, Function) else module_of(mod)
    module = bind_params_by_name(module, params or {})
    found = tasks_of(module, resolved, include_simple_tasks=include_simple_tasks)
    first = [one for one in found if one.rank == 0]
    tasks = [_search_task(one.task, hardware_params) for one in first]
    if dump_workload_to_dag_log is not None:
        text = json.dumps({task.workload_key: str(task.compute_dag) for task in tasks})
        write(Output(Path(dump_workload_to_dag_log), text.encode(), _EXPRESSIONS), force=None)
    return tasks, [one.weight for one in first]


def _search_task(task: Task, hardware_params: HardwareParams | None) -> SearchTask:
    assert isinstance(task, AutomaticTask)
    return SearchTask(
        compute_dag=ComputeDAG(list(task.program.args)),
        target=task.target,
        hardware_params=hardware_params,
        desc=str(task),
    )

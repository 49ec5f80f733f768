"""Ansor's names over loopwright, so that a script of auto_scheduler changes only its imports.

``import loopwright as tvm; from loopwright import auto_scheduler, te`` runs such a script.
``docs/from-autotvm.md`` has a table of names and the differences; the most important ones:

* a sketch is a structure: a schedule whose sizes are knobs, made by rules that look at the whole
  expression (`loopwright.space`), which pack operands inside the kernel where that pays;
* logs are those of loopwright, records are checked, and a search continues its own log;
* failed trials do not count as ``num_measure_trials``; a round has 16 trials.
"""

from __future__ import annotations

from typing import NoReturn

from loopwright.auto_scheduler import (
    compute_dag,
    cost_model,
    dispatcher,
    loop_state,
    measure,
    measure_record,
    relay_integration,
    search_policy,
    search_task,
    task_scheduler,
    workload_registry,
)
from loopwright.auto_scheduler.compute_dag import ComputeDAG, LayoutRewriteOption
from loopwright.auto_scheduler.cost_model import RandomModel, XGBModel
from loopwright.auto_scheduler.dispatcher import (
    ApplyHistoryBest,
    ApplyHistoryBestOrSample,
    DispatchContext,
)
from loopwright.auto_scheduler.loop_state import State
from loopwright.auto_scheduler.measure import (
    INSTEAD,
    LocalBuilder,
    LocalRPCMeasureContext,
    LocalRunner,
    MeasureInput,
    MeasureResult,
)
from loopwright.auto_scheduler.measure_record import (
    RecordReader,
    RecordToFile,
    load_best_record,
    load_records,
    save_records,
)
from loopwright.auto_scheduler.relay_integration import extract_tasks
from loopwright.auto_scheduler.search_policy import (
    EmptyPolicy,
    PreloadCustomSketchRule,
    PreloadMeasuredStates,
    SketchPolicy,
)
from loopwright.auto_scheduler.search_task import (
    HardwareParams,
    SearchTask,
    TuningOptions,
    auto_schedule,
    create_task,
)
from loopwright.auto_scheduler.task_scheduler import TaskScheduler
from loopwright.auto_scheduler.workload_registry import (
    make_workload_key,
    register_workload,
    register_workload_tensors,
)
from loopwright.errors import no_such_name

__all__ = [
    "ApplyHistoryBest",
    "ApplyHistoryBestOrSample",
    "ComputeDAG",
    "DispatchContext",
    "EmptyPolicy",
    "HardwareParams",
    "LayoutRewriteOption",
    "LocalBuilder",
    "LocalRPCMeasureContext",
    "LocalRunner",
    "MeasureInput",
    "MeasureResult",
    "PreloadCustomSketchRule",
    "PreloadMeasuredStates",
    "RandomModel",
    "RecordReader",
    "RecordToFile",
    "SearchTask",
    "SketchPolicy",
    "State",
    "TaskScheduler",
    "TuningOptions",
    "XGBModel",
    "auto_schedule",
    "compute_dag",
    "cost_model",
    "create_task",
    "dispatcher",
    "extract_tasks",
    "is_auto_scheduler_enabled",
    "load_best_record",
    "load_records",
    "loop_state",
    "make_workload_key",
    "measure",
    "measure_record",
    "register_workload",
    "register_workload_tensors",
    "relay_integration",
    "save_records",
    "search_policy",
    "search_task",
    "task_scheduler",
    "workload_registry",
]

_INDICES = "indices are checked where a schedule has to: nothing of it is left in most kernels"
#: Names of Ansor that cannot be had, and what takes their place.
_INSTEAD = {
    **{name: text for name, text in INSTEAD.items() if name not in ("ProgramMeasurer",)},
    "feature": "loopwright explain tells what a model sees of a record",
    "get_shape_from_rewritten_layout": "operands have the layout in which they are declared",
    "remove_index_check": _INDICES,
    "rewrite_compute_body": "operands have the layout in which they are declared",
    "rewrite_tensor_shape": "operands have the layout in which they are declared",
    "utils": "Python and NumPy have what it holds",
}


def is_auto_scheduler_enabled() -> bool:
    """Whether expressions without a schedule get an automatic one: always, by `loopwright.build`.

    Example:
        >>> from loopwright import auto_scheduler
        >>> print(auto_scheduler.is_auto_scheduler_enabled())
        True
    """
    return True


def __getattr__(name: str) -> NoReturn:
    raise no_such_name("loopwright.auto_scheduler", name, _INSTEAD)

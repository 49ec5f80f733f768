"""Ansor's names over loopwright, so that a script of auto_scheduler changes only its imports.

``import loopwright as tvm; from loopwright import auto_scheduler, te`` runs such a script.
``docs/from-autotvm.md`` has a table of names and the differences: a sketch is a structure of
`loopwright.space`, a search continues its own log, and failed trials do not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopwright.compat.facade import Table, install

_STATES = "loopwright.compat.states"
_MEASURING = "loopwright.compat.measuring"
_SEARCHING = "loopwright.compat.searching"
_TASKS = "loopwright.compat.search_tasks"
_SCHEDULER = "loopwright.compat.task_scheduler"

_PROCESSES = (
    "builders and runners are processes of loopwright's own (docs/adr/019); give LocalBuilder and "
    "LocalRunner"
)
_DECLARED = "operands have the layout in which they are declared"
#: Names of Ansor's measuring that loopwright lacks, and their replacements.
_NO_MEASURING = {
    "ProgramBuilder": _PROCESSES,
    "ProgramRunner": _PROCESSES,
    "RPCRunner": "tune on the machine itself with LocalRunner, and merge the logs",
    "register_task_input_check_func": "give SearchTask its task_inputs, arrays by names of inputs",
}

#: Names of each module.
_DAGS = "ComputeDAG LayoutRewriteOption"
_KEYS = "make_workload_key register_workload register_workload_tensors"
_MEASURED = "LocalRPCMeasureContext MeasureInput MeasureResult"
_LOGS = "RecordReader RecordToFile load_best_record load_records save_records"
_POLICIES = "EmptyPolicy PreloadCustomSketchRule PreloadMeasuredStates SketchPolicy"
_SEARCHES = "HardwareParams SearchTask auto_schedule create_task"
_APPLYING = "ApplyHistoryBest ApplyHistoryBestOrSample"

_TABLES = {
    "": Table(
        "",
        {
            _STATES: f"{_DAGS} {_KEYS} State",
            _MEASURING: f"{_MEASURED} {_LOGS} TuningOptions",
            _SEARCHING: f"{_POLICIES} RandomModel XGBModel",
            _TASKS: f"{_SEARCHES} {_APPLYING} is_auto_scheduler_enabled",
            _SCHEDULER: "TaskScheduler extract_tasks",
            "loopwright.measure": "LocalBuilder LocalRunner",
            "loopwright.task": "DispatchContext",
        },
        {
            **_NO_MEASURING,
            "feature": "loopwright explain tells what a model sees of a record",
            "get_shape_from_rewritten_layout": _DECLARED,
            "remove_index_check": "indices are checked where a schedule has to: nothing of it is "
            "left in most kernels",
            "rewrite_compute_body": _DECLARED,
            "rewrite_tensor_shape": _DECLARED,
            "utils": "Python and NumPy have what it holds",
        },
    ),
    "compute_dag": Table("Expressions, and schedules of them from states.", {_STATES: _DAGS}),
    "cost_model": Table(
        "Models that predict which programs are fast.",
        {_SEARCHING: "CostModel RandomModel XGBModel"},
    ),
    "dispatcher": Table(
        "Contexts in which the best records are applied.",
        {_TASKS: _APPLYING, "loopwright.task": "DispatchContext"},
    ),
    "hardware_params": Table("Facts of the hardware.", {_TASKS: "HardwareParams"}),
    "loop_state": Table("Unfinished schedules.", {_STATES: "State StateStage"}),
    "measure": Table(
        "Inputs, results and settings of a measurement.",
        {
            _MEASURING: f"{_MEASURED} MeasuredTask",
            "loopwright.measure": "LocalBuilder LocalRunner MeasureErrorNo",
        },
        {**_NO_MEASURING, "ProgramMeasurer": "give builder and runner to TuningOptions"},
    ),
    "measure_record": Table("Logs as pairs of inputs and results.", {_MEASURING: _LOGS}),
    "relay_integration": Table("The tasks of a network.", {_SCHEDULER: "extract_tasks"}),
    "search_callbacks": Table(
        "Callbacks at the beginning of a search.",
        {_SEARCHING: "PreloadCustomSketchRule PreloadMeasuredStates SearchCallback"},
    ),
    "search_policy": Table(
        "Strategies of a search, and its callbacks at the beginning.",
        {_SEARCHING: f"{_POLICIES} SearchCallback SearchPolicy"},
    ),
    "search_task": Table(
        "The expression, target and hardware of a search.",
        {_TASKS: _SEARCHES, _MEASURING: "TuningOptions"},
    ),
    "task_scheduler": Table(
        "Tuning of several tasks, the most promising first.",
        {_SCHEDULER: "LogEstimatedLatency PrintTableInfo TaskScheduler TaskSchedulerCallback"},
    ),
    "tuning_options": Table(
        "Limits of a search and settings of measuring.", {_MEASURING: "TuningOptions"}
    ),
    "workload_registry": Table(
        "Functions that return tensors, by their names.",
        {_STATES: f"{_KEYS} workload_key_to_tensors"},
    ),
}

install(__name__, _TABLES)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

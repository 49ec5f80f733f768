"""AutoTVM's names over loopwright, so that a script changes only its imports.

``import loopwright as tvm; from loopwright import te, autotvm`` runs an AutoTVM script for CPUs;
``from loopwright.autotvm.tuner import XGBTuner`` works as well. ``docs/from-autotvm.md`` has a
table of names and all differences: failed trials carry a kind and a text instead of a cost of 1e9,
some defaults differ, a tuner never measures a configuration twice, and continues its own log.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from loopwright.compat.facade import Table, install

_OWN = "loopwright.compat.autotvm"
_CONTEXTS = "ApplyConfig ApplyFixedConfig ApplyGraphBest ApplyHistoryBest"
_DISPATCH = "DispatchContext FallbackContext clear_fallback_cache"
_RUNNERS = "BuildResult LocalBuilder LocalRunner MeasureErrorNo create_measure_batch measure_option"

_REMOTE = "tune on the machine itself with LocalRunner, and merge the logs"
_OPERATOR = "decorate a function that returns (schedule, [tensors]) with @autotvm.template(name)"
_NETWORK = "extract_from_program gives the tasks of a network"
_ARGUMENTS = "arguments of templates are numbers, texts and tuples of these: task.args, as they are"
_PROCESSES = (
    "builders and runners are processes of loopwright's own (docs/adr/019); a measurer of your own "
    "is anything with the methods of loopwright.measure.MeasurerLike, given as measure_option"
)

_TABLES = {
    "": Table(
        "",
        {
            "loopwright.compat.autotvm": "GLOBAL_SCOPE MeasureInput MeasureResult",
            "loopwright.history": f"{_CONTEXTS} apply_graph_best=ApplyGraphBest apply_history_best",
            "loopwright.measure": _RUNNERS,
            "loopwright.task": "ConfigEntity ConfigSpace DispatchContext FallbackContext "
            "get_config template",
            "loopwright.tuner.run.callbacks": "callback=",
            "loopwright.autotvm.utils": "util=",  # its name in older versions
        },
        {
            "RPCRunner": _REMOTE,
            "feature": "loopwright.tuner explains features: loopwright explain",
            "register_topi_compute": _OPERATOR,
            "register_topi_schedule": _OPERATOR,
            "rpc": _REMOTE,
            "tophub": "there are no ready logs; tune, and apply the log by "
            "autotvm.apply_history_best(log)",
            "use_rpc": _REMOTE,
        },
    ),
    "task": Table(
        "``autotvm.task``: ``create(name, args, target)`` and the parts of a task.",
        {
            _OWN: "create extract_from_multiple_program extract_from_program",
            "loopwright.history": _CONTEXTS,
            "loopwright.task": f"TASK_TABLE=TASKS ConfigEntity ConfigSpace Task {_DISPATCH} "
            "get_config template",
            "loopwright.tuner": "ApplyHistoryBestOrSample",
        },
        {
            "TaskExtractEnv": _NETWORK,
            "args_to_workload": _ARGUMENTS,
            "compute_flop": "task.flop counts the operations",
            "deserialize_args": _ARGUMENTS,
            "get_workload": "task.workload is the name with the arguments",
            "register_topi_compute": _OPERATOR,
            "register_topi_schedule": _OPERATOR,
            "serialize_args": _ARGUMENTS,
        },
    ),
    "task.dispatcher": Table(
        "``autotvm.task.dispatcher``: the contexts that choose the configuration of a template.",
        {"loopwright.history": _CONTEXTS, "loopwright.task": _DISPATCH},
    ),
    "task.space": Table(
        "``autotvm.task.space``: spaces, configurations, and the choices of knobs in them.",
        {
            "loopwright.errors": "InstantiationError",
            "loopwright.task": "AnnotateEntity ConfigEntity ConfigSpace OtherOptionEntity "
            "FallbackConfigEntity=FallbackConfig ReorderEntity SplitEntity",
        },
    ),
    "task.relay_integration": Table(
        "``autotvm.task.relay_integration``: the tasks of networks.",
        {_OWN: "extract_from_multiple_program extract_from_program"},
    ),
    "measure": Table(
        "``autotvm.measure``: inputs and results of a measurement.",
        {_OWN: "MeasureInput MeasureResult", "loopwright.measure": _RUNNERS},
        {
            "Builder": _PROCESSES,
            "Runner": _PROCESSES,
            "RPCRunner": _REMOTE,
            "request_remote": _REMOTE,
        },
    ),
    "measure.measure_methods": Table(
        "``autotvm.measure.measure_methods``: builders and runners under AutoTVM's path.",
        {"loopwright.measure": "LocalBuilder LocalRunner"},
        {
            "RPCRunner": _REMOTE,
            "check_remote": _REMOTE,
            "request_remote": _REMOTE,
            "set_cuda_target_arch": "name the architecture in the target: "
            "Target('cuda -arch=sm_90')",
        },
    ),
    "record": Table(
        "``autotvm.record``: logs as pairs of ``MeasureInput`` and ``MeasureResult``.",
        {
            _OWN: "Pair decode encode load_from_buffer load_from_file measure_str_key "
            "split_workload",
            "loopwright.records": "pick_best",
        },
        script=True,
    ),
    "tuner": Table(
        "``autotvm.tuner``: the tuners, and the base class of custom ones in AutoTVM's scripts.",
        {
            _OWN: "Tuner",
            "loopwright.tuner": "DropletTuner GATuner GridSearchTuner RandomTuner XGBTuner",
            "loopwright.tuner.run.callbacks": "callback=",
        },
    ),
    "graph_tuner": Table(
        "``autotvm.graph_tuner``: tuners of the layouts of a whole network.",
        {"loopwright.compat.graph_tuner": "BaseGraphTuner DPTuner PBQPTuner"},
    ),
    "database": Table(
        "``autotvm.database``: stores of results by their inputs, for "
        "``callback.log_to_database``.",
        {_OWN: "Database DummyDatabase filter_inputs"},
        {"RedisDatabase": "write a log by callback.log_to_file, or derive a class from Database"},
    ),
    "env": Table(
        "``autotvm.env``: AutoTVM's global scope, which tells templates whether they are tuned.",
        {_OWN: "GLOBAL_SCOPE GlobalScope"},
    ),
    "utils": Table(
        "``autotvm.utils``: integers from shapes, as AutoTVM's templates ask for them.",
        {_OWN: "get_const_int get_const_tuple"},
        {
            "get_func_name": "write function.__name__",
            "get_rank": "numpy.argsort twice gives ranks",
            "pool_map": "concurrent.futures of Python has it",
            "sample_ints": "task.config_space.sample_ints(m, seed) draws valid indices",
        },
    ),
}

install(__name__, _TABLES)
importlib.import_module("loopwright.ops")  # scripts expect its templates to be registered

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

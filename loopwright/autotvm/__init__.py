"""AutoTVM's names over loopwright, so that a script changes only its imports.

``import loopwright as tvm; from loopwright import te, autotvm`` runs an AutoTVM script for CPUs;
``from loopwright.autotvm.tuner import XGBTuner`` works as well. ``docs/from-autotvm.md`` has a
table of names and all differences; the most important ones:

* illegal schedules are refused when the step is applied;
* failed trials carry a kind and a text instead of a cost of 1e9;
* the defaults of ``cooldown_interval`` (0), ``plan_size``, ``pop_size`` (16) and ``optimizer``
  (``"evolution"``) differ, to find fast configurations sooner; AutoTVM's can be given;
* a tuner never measures a configuration twice, and continues its own log.

Accepted, and without effect: ``log_interval`` of XGBTuner, ``min_seed_records`` of
``load_history``, ``si_prefix`` of ``tune``.
"""

from __future__ import annotations

import importlib
from typing import Any

from loopwright.autotvm import database, env, measure, record, task, tuner, utils
from loopwright.autotvm.env import GLOBAL_SCOPE
from loopwright.autotvm.measure import (
    BuildResult,
    LocalBuilder,
    LocalRunner,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    create_measure_batch,
    measure_option,
)
from loopwright.errors import no_such_name
from loopwright.history import (
    ApplyConfig,
    ApplyFixedConfig,
    ApplyGraphBest,
    ApplyHistoryBest,
    apply_history_best,
)
from loopwright.task import (
    ConfigEntity,
    ConfigSpace,
    DispatchContext,
    FallbackContext,
    get_config,
    template,
)
from loopwright.tuner.run import callbacks as callback

apply_graph_best = ApplyGraphBest
#: The name of `utils` in older versions.
util = utils

__all__ = [
    "GLOBAL_SCOPE",
    "ApplyConfig",
    "ApplyFixedConfig",
    "ApplyGraphBest",
    "ApplyHistoryBest",
    "BuildResult",
    "ConfigEntity",
    "ConfigSpace",
    "DispatchContext",
    "FallbackContext",
    "LocalBuilder",
    "LocalRunner",
    "MeasureErrorNo",
    "MeasureInput",
    "MeasureResult",
    "apply_graph_best",
    "apply_history_best",
    "callback",
    "create_measure_batch",
    "database",
    "env",
    "get_config",
    "graph_tuner",
    "measure",
    "measure_option",
    "record",
    "task",
    "template",
    "tuner",
    "util",
    "utils",
]

_REMOTE = "tune on the machine itself with LocalRunner, and merge the logs"
_OPERATOR = "decorate a function that returns (schedule, [tensors]) with @autotvm.template(name)"
#: Names of AutoTVM that cannot be had, and what takes their place.
_INSTEAD = {
    "RPCRunner": _REMOTE,
    "feature": "loopwright.tuner explains features: loopwright explain",
    "register_topi_compute": _OPERATOR,
    "register_topi_schedule": _OPERATOR,
    "rpc": _REMOTE,
    "tophub": "there are no ready logs; tune, and apply the log by autotvm.apply_history_best(log)",
    "use_rpc": _REMOTE,
}


def __getattr__(name: str) -> Any:
    if name == "graph_tuner":  # it needs whole models, which take long to import
        return importlib.import_module("loopwright.autotvm.graph_tuner")
    raise no_such_name("loopwright.autotvm", name, _INSTEAD)

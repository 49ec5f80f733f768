"""AutoTVM's own names over loopwright, so that a script changes only its imports.

``import loopwright as tvm; from loopwright import te, autotvm`` runs an AutoTVM script for CPUs;
``from loopwright.autotvm.tuner import XGBTuner`` works as well. ``docs/from-autotvm.md`` has a
table of names and all differences; the most important ones:

* illegal schedules are refused when the step is applied;
* failed trials carry a kind and a text instead of a cost of 1e9;
* the defaults of ``cooldown_interval`` (0), ``plan_size``, ``pop_size`` (16) and ``optimizer``
  (``"evolution"``) are others, to find fast configurations sooner; AutoTVM's can be given;
* a tuner never measures a configuration twice, and goes on from the log that it writes.

Accepted, and without effect: ``log_interval`` of XGBTuner, ``min_seed_records`` of
``load_history``, ``si_prefix`` of ``tune``.
"""

from __future__ import annotations

from typing import NoReturn

from loopwright.autotvm import database, measure, record, task, tuner
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
from loopwright.task import (
    ApplyConfig,
    ApplyFixedConfig,
    ApplyGraphBest,
    ApplyHistoryBest,
    ConfigEntity,
    ConfigSpace,
    DispatchContext,
    FallbackContext,
    apply_history_best,
    get_config,
    template,
)
from loopwright.tuner.run import callbacks as callback

apply_graph_best = ApplyGraphBest

__all__ = [
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
    "get_config",
    "measure",
    "measure_option",
    "record",
    "task",
    "template",
    "tuner",
]

#: Names of AutoTVM that cannot be had, and what takes their place.
_REFUSED = {
    "RPCRunner": "tune on the machine itself with LocalRunner, and merge the logs",
    "feature": "loopwright.tuner explains features: loopwright explain",
    "graph_tuner": "ApplyGraphBest applies a log of one record for each call",
}


def __getattr__(name: str) -> NoReturn:
    why = f": {_REFUSED[name]}" if name in _REFUSED else ""
    raise AttributeError(f"module 'loopwright.autotvm' has no attribute {name!r}{why}")

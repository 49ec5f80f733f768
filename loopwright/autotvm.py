"""AutoTVM's own names over loopwright, so that a script changes only its imports.

``import loopwright as tvm; from loopwright import te, autotvm`` runs an AutoTVM script for CPUs.
Differences on purpose: illegal schedules are refused when the step is applied; the default
``cooldown_interval`` is 0; failed trials carry a kind and a text instead of a cost of 1e9.
"""

from __future__ import annotations

from types import SimpleNamespace

from loopwright import measure as _measure
from loopwright import ops as _ops
from loopwright import records as _records
from loopwright import task as _task
from loopwright import tuner as _tuner
from loopwright.measure import LocalBuilder, LocalRunner, measure_option
from loopwright.task import ConfigEntity, ConfigSpace, apply_history_best, get_config, template
from loopwright.tuner import callbacks as callback

#: ``autotvm.task.create(name, args, target)`` and what a task is made of.
task = SimpleNamespace(
    create=_ops.create_task,
    Task=_task.Task,
    ApplyConfig=_task.ApplyConfig,
    ApplyHistoryBest=_task.ApplyHistoryBest,
    DispatchContext=_task.DispatchContext,
    ConfigSpace=ConfigSpace,
    ConfigEntity=ConfigEntity,
    get_config=get_config,
    template=template,
    TASK_TABLE=_task.TASKS,
)
#: ``autotvm.tuner.RandomTuner`` and the others.
tuner = _tuner
#: ``autotvm.record.load_from_file(path)`` and ``pick_best(path, out)``.
record = SimpleNamespace(load_from_file=_records.load, pick_best=_records.pick_best)
#: ``autotvm.measure.MeasureInput`` and the others.
measure = _measure

__all__ = [
    "ConfigEntity",
    "ConfigSpace",
    "LocalBuilder",
    "LocalRunner",
    "apply_history_best",
    "callback",
    "get_config",
    "measure",
    "measure_option",
    "record",
    "task",
    "template",
    "tuner",
]

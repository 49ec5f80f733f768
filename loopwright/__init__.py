"""loopwright: an auto-tuning framework for tensor programs.

Names are loaded when they are first used, so that ``import loopwright`` is cheap and a deployed
kernel needs nothing but `loopwright.runtime`.
"""

from __future__ import annotations

import importlib
from typing import Any

from loopwright.version import __version__

#: Public name -> (module, attribute); an empty attribute is the module itself.
_NAMES: dict[str, tuple[str, str]] = {
    "ConfigEntity": ("loopwright.task", "ConfigEntity"),
    "ConfigSpace": ("loopwright.task", "ConfigSpace"),
    "LocalBuilder": ("loopwright.measure", "LocalBuilder"),
    "LocalRunner": ("loopwright.measure", "LocalRunner"),
    "LoopwrightError": ("loopwright.errors", "LoopwrightError"),
    "MeasureInput": ("loopwright.measure", "MeasureInput"),
    "MeasureResult": ("loopwright.measure", "MeasureResult"),
    "PassContext": ("loopwright.transform", "PassContext"),
    "TVMError": ("loopwright.errors", "LoopwrightError"),
    "Target": ("loopwright.target", "Target"),
    "Task": ("loopwright.task", "Task"),
    "apply_history_best": ("loopwright.task", "apply_history_best"),
    "autotvm": ("loopwright.autotvm", ""),
    "build": ("loopwright.driver", "build"),
    "callback": ("loopwright.tuner.run.callbacks", ""),
    "context": ("loopwright.runtime", "device"),
    "cpu": ("loopwright.runtime", "cpu"),
    "create_schedule": ("loopwright.schedule", "create_schedule"),
    "create_task": ("loopwright.ops", "create_task"),
    "device": ("loopwright.runtime", "device"),
    "driver": ("loopwright.driver", ""),
    "get_config": ("loopwright.task", "get_config"),
    "in_context": ("loopwright.task", "in_context"),
    "load_module": ("loopwright.runtime", "load_module"),
    "inspection": ("loopwright.inspection", ""),
    "lower": ("loopwright.lowering", "lower"),
    "measure": ("loopwright.measure", ""),
    "measure_option": ("loopwright.measure", "measure_option"),
    "nd": ("loopwright.runtime.ndarray", ""),
    "ops": ("loopwright.ops", ""),
    "records": ("loopwright.records", ""),
    "runtime": ("loopwright.runtime", ""),
    "target": ("loopwright.target", ""),
    "task": ("loopwright.task", ""),
    "te": ("loopwright.te", ""),
    "template": ("loopwright.task", "template"),
    "testing": ("loopwright.testing", ""),
    "tir": ("loopwright.tir", ""),
    "transform": ("loopwright.transform", ""),
    "tune_tasks": ("loopwright.tuner", "tune_tasks"),
    "tuner": ("loopwright.tuner", ""),
}

__all__ = ["__version__", *_NAMES]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'loopwright' has no attribute {name!r}")
    module, attribute = _NAMES[name]
    loaded = importlib.import_module(module)
    found = getattr(loaded, attribute) if attribute else loaded
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)

"""Tasks: templates, the spaces that they span, and the choice of the configuration for a build.

What applies records is in `loopwright.history`, and has its names here as well.
"""

import importlib
from typing import Any

from loopwright.task.dispatch import (
    DispatchContext,
    FallbackContext,
    clear_fallback_cache,
    in_context,
    template,
)
from loopwright.task.entities import AnnotateEntity, OtherOptionEntity, ReorderEntity, SplitEntity
from loopwright.task.knobs import Knob
from loopwright.task.policies import Axis
from loopwright.task.sampling import ValidCount
from loopwright.task.space import ConfigEntity, ConfigSpace
from loopwright.task.task import FallbackConfig, Task, create_task
from loopwright.task.template import TASKS, Template, lookup
from loopwright.task.template_config import get_config

__all__ = [
    "TASKS", "AnnotateEntity", "ApplyConfig", "ApplyFixedConfig", "ApplyGraphBest",
    "ApplyHistoryBest", "AsCalled", "Axis", "Choice", "ConfigEntity", "ConfigSpace",
    "DispatchContext", "FallbackConfig", "FallbackContext", "Knob", "Match", "OtherOptionEntity",
    "ReorderEntity", "Report", "SplitEntity", "Task", "Template", "ValidCount",
    "apply_history_best", "clear_fallback_cache", "create_task", "get_config", "in_context",
    "lookup", "template", "why_not_applied",
]  # fmt: skip

#: Names of `loopwright.history`, which stands above this room.
_HISTORY = frozenset(
    {
        *("ApplyConfig", "ApplyFixedConfig", "ApplyGraphBest", "ApplyHistoryBest", "AsCalled"),
        *("Choice", "Match", "Report", "apply_history_best", "why_not_applied"),
    }
)


def __getattr__(name: str) -> Any:
    if name not in _HISTORY:
        raise AttributeError(f"module 'loopwright.task' has no attribute {name!r}")
    return getattr(importlib.import_module("loopwright.history"), name)

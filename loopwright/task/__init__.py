"""Tasks: templates, the spaces that they span, and the choice of the configuration for a build.

Names of `loopwright.history`, which applies records, stand here as well.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from loopwright.lazy import lazy_names
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
from loopwright.task.space import ConfigEntity, ConfigSpace, ValidCount
from loopwright.task.task import FallbackConfig, Task, create_task
from loopwright.task.template import TASKS, Template, lookup
from loopwright.task.template_config import get_config

# Imported at their first use, by other rooms.
if TYPE_CHECKING:
    from loopwright.task.dispatch import (
        enter,
        fallback,
        say_once,
        schedule_for,
        schedule_of,
        task_of,
    )
    from loopwright.task.entities import Entity
    from loopwright.task.knobs import KnobKind, value_text
    from loopwright.task.sampling import (
        Digits,
        ValidMemo,
        digits_of,
        distinct,
        indices_of,
        random_digits,
    )
    from loopwright.task.space import Scheduler, StructureRanking
    from loopwright.task.task import Refusal, Seed, TargetLike, refusals, resolve_target
    from loopwright.task.template import UNNAMED, Function, Scheduled
    from loopwright.task.template_config import TemplateConfig, running, running_config
    from loopwright.task.union import STRUCTURE, SpaceUnion

__all__ = [
    "TASKS", "AnnotateEntity", "ApplyConfig", "ApplyFixedConfig", "ApplyGraphBest",
    "ApplyHistoryBest", "AsCalled", "Axis", "Choice", "ConfigEntity", "ConfigSpace",
    "DispatchContext", "FallbackConfig", "FallbackContext", "Knob", "Match", "OtherOptionEntity",
    "ReorderEntity", "Report", "SplitEntity", "Task", "Template", "ValidCount",
    "apply_history_best", "clear_fallback_cache", "create_task", "get_config", "in_context",
    "lookup", "template", "why_not_applied",
]  # fmt: skip

#: Names of `loopwright.history`, which stands above this room.
_HISTORY = {
    *("ApplyConfig", "ApplyFixedConfig", "ApplyGraphBest", "ApplyHistoryBest", "AsCalled"),
    *("Choice", "Match", "Report", "apply_history_best", "why_not_applied"),
}


_lazy_name, _lazy_dir = lazy_names(__name__)


def __getattr__(name: str) -> Any:
    if name in _HISTORY:
        return getattr(importlib.import_module("loopwright.history"), name)
    return _lazy_name(name)


def __dir__() -> list[str]:
    return sorted({*_lazy_dir(), *_HISTORY})

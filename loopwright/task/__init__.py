"""Tasks: templates, the spaces that they span, and which configuration a build uses."""

from loopwright.task.axes import Axis
from loopwright.task.decorator import template
from loopwright.task.dispatch import ApplyConfig, DispatchContext, clear_fallback_cache
from loopwright.task.entities import (
    AnnotateEntity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
)
from loopwright.task.fallback import FallbackConfig
from loopwright.task.history import ApplyHistoryBest, Choice, apply_history_best
from loopwright.task.knobs import Knob
from loopwright.task.running_config import get_config
from loopwright.task.sampling import ValidCount
from loopwright.task.space import ConfigEntity, ConfigSpace
from loopwright.task.task import Task, create_task
from loopwright.task.template import TASKS, Template, lookup

__all__ = [
    "TASKS",
    "AnnotateEntity",
    "ApplyConfig",
    "ApplyHistoryBest",
    "Axis",
    "Choice",
    "ConfigEntity",
    "ConfigSpace",
    "DispatchContext",
    "FallbackConfig",
    "Knob",
    "OtherOptionEntity",
    "ReorderEntity",
    "SplitEntity",
    "Task",
    "Template",
    "ValidCount",
    "apply_history_best",
    "clear_fallback_cache",
    "create_task",
    "get_config",
    "lookup",
    "template",
]

"""``autotvm.task``: ``create(name, args, target)`` and what a task is made of."""

from __future__ import annotations

from loopwright.ops import create_task as create
from loopwright.task import TASKS as TASK_TABLE
from loopwright.task import (
    ApplyConfig,
    ApplyFixedConfig,
    ApplyGraphBest,
    ApplyHistoryBest,
    ConfigEntity,
    ConfigSpace,
    DispatchContext,
    FallbackContext,
    Task,
    clear_fallback_cache,
    get_config,
    template,
)
from loopwright.tuner import ApplyHistoryBestOrSample

__all__ = [
    "TASK_TABLE",
    "ApplyConfig",
    "ApplyFixedConfig",
    "ApplyGraphBest",
    "ApplyHistoryBest",
    "ApplyHistoryBestOrSample",
    "ConfigEntity",
    "ConfigSpace",
    "DispatchContext",
    "FallbackContext",
    "Task",
    "clear_fallback_cache",
    "create",
    "get_config",
    "template",
]

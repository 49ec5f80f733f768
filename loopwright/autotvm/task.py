"""``autotvm.task``: ``create(name, args, target)`` and what a task is made of."""

from __future__ import annotations

from loopwright.ops import create_task as create
from loopwright.task import TASKS as TASK_TABLE
from loopwright.task import (
    ApplyConfig,
    ApplyHistoryBest,
    ConfigEntity,
    ConfigSpace,
    DispatchContext,
    Task,
    get_config,
    template,
)

__all__ = [
    "TASK_TABLE",
    "ApplyConfig",
    "ApplyHistoryBest",
    "ConfigEntity",
    "ConfigSpace",
    "DispatchContext",
    "Task",
    "create",
    "get_config",
    "template",
]

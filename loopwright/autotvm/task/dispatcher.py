"""``autotvm.task.dispatcher``: the contexts that choose the configuration of a template."""

from __future__ import annotations

from loopwright.history import ApplyConfig, ApplyFixedConfig, ApplyGraphBest, ApplyHistoryBest
from loopwright.task import DispatchContext, FallbackContext, clear_fallback_cache

__all__ = [
    "ApplyConfig",
    "ApplyFixedConfig",
    "ApplyGraphBest",
    "ApplyHistoryBest",
    "DispatchContext",
    "FallbackContext",
    "clear_fallback_cache",
]

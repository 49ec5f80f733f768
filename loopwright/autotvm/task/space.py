"""``autotvm.task.space``: spaces, configurations, and the choices of knobs in them."""

from __future__ import annotations

from loopwright.errors import InstantiationError
from loopwright.task import (
    AnnotateEntity,
    ConfigEntity,
    ConfigSpace,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
)
from loopwright.task import FallbackConfig as FallbackConfigEntity

__all__ = [
    "AnnotateEntity",
    "ConfigEntity",
    "ConfigSpace",
    "FallbackConfigEntity",
    "InstantiationError",
    "OtherOptionEntity",
    "ReorderEntity",
    "SplitEntity",
]

"""The primitives by topic: one class each, with its rules, its effect, its JSON and Python text.

Importing this package registers them all, in the order in which `loopwright.schedule.apply` asks
them: what is wrong with a kernel is said first, what marks of loops come to is said last.
"""

from __future__ import annotations

# isort: off
from loopwright.schedule.primitives.loops import FollowFusedSplit, FollowSplit, Fuse, Reorder, Split
from loopwright.schedule.primitives.threads import Bind, EnvThreads, SetStorePredicate
from loopwright.schedule.primitives.placement import (
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    CreateGroup,
)
from loopwright.schedule.primitives.storage import (
    DoubleBuffer,
    SetScope,
    StorageAlign,
    StoreAt,
    StoreRoot,
)
from loopwright.schedule.primitives.layout import TransformLayout
from loopwright.schedule.primitives.prefetch import Prefetch, PrefetchNext
from loopwright.schedule.primitives.tensorize import Tensorize
from loopwright.schedule.primitives.caching import CacheRead, CacheWrite
from loopwright.schedule.primitives.rfactor import BlockedScan, RFactor
from loopwright.schedule.primitives.sampling import (
    SampleCategorical,
    SampleComputeLocation,
    SamplePerfectTile,
)
from loopwright.schedule.primitives.annotate import Annotate, Pragma
# isort: on

__all__ = [
    "Annotate", "Bind", "BlockedScan", "CacheRead", "CacheWrite", "ComputeAt", "ComputeInline",
    "ComputeRoot", "CreateGroup", "DoubleBuffer", "EnvThreads", "FollowFusedSplit", "FollowSplit",
    "Fuse", "Pragma", "Prefetch", "PrefetchNext", "RFactor", "Reorder", "SampleCategorical",
    "SampleComputeLocation", "SamplePerfectTile", "SetScope", "SetStorePredicate", "Split",
    "StorageAlign", "StoreAt", "StoreRoot", "Tensorize", "TransformLayout",
]  # fmt: skip

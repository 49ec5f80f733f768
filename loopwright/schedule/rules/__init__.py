"""The primitives by topic: one class each, with its rules, its effect, its JSON and Python text.

Importing this package registers them all, in the order in which `loopwright.schedule.validate` asks
them: what is wrong with a kernel is said first, what marks of loops come to is said last.
"""

from __future__ import annotations

# isort: off
from loopwright.schedule.rules.loops import Fuse, Reorder, Split
from loopwright.schedule.rules.following import FollowFusedSplit, FollowSplit
from loopwright.schedule.rules.threads import Bind, EnvThreads, SetStorePredicate
from loopwright.schedule.rules.grouping import CreateGroup
from loopwright.schedule.rules.placement import ComputeAt, ComputeInline, ComputeRoot
from loopwright.schedule.rules.storage import (
    DoubleBuffer,
    SetScope,
    StorageAlign,
    StoreAt,
    StoreRoot,
)
from loopwright.schedule.rules.layout import TransformLayout
from loopwright.schedule.rules.prefetch import Prefetch
from loopwright.schedule.rules.prefetch_next import PrefetchNext
from loopwright.schedule.rules.tensorize import Tensorize
from loopwright.schedule.rules.caching import CacheRead, CacheWrite
from loopwright.schedule.rules.rfactor import RFactor
from loopwright.schedule.rules.blocked_scan import BlockedScan
from loopwright.schedule.rules.sampling import (
    SampleCategorical,
    SampleComputeLocation,
    SamplePerfectTile,
)
from loopwright.schedule.rules.annotate import Annotate, Pragma
# isort: on

__all__ = [
    "Annotate",
    "Bind",
    "BlockedScan",
    "CacheRead",
    "CacheWrite",
    "ComputeAt",
    "ComputeInline",
    "ComputeRoot",
    "CreateGroup",
    "DoubleBuffer",
    "EnvThreads",
    "FollowFusedSplit",
    "FollowSplit",
    "Fuse",
    "Pragma",
    "Prefetch",
    "PrefetchNext",
    "RFactor",
    "Reorder",
    "SampleCategorical",
    "SampleComputeLocation",
    "SamplePerfectTile",
    "SetScope",
    "SetStorePredicate",
    "Split",
    "StorageAlign",
    "StoreAt",
    "StoreRoot",
    "Tensorize",
    "TransformLayout",
]

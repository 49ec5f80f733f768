"""Schedules: how a program is computed. Immutable states, steps, traces, and bound inference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.lazy import lazy_names
from loopwright.schedule.apply import apply
from loopwright.schedule.bounds.infer import infer_bounds
from loopwright.schedule.bounds.results import Bounds, StageBounds
from loopwright.schedule.schedule import Schedule, create_schedule, replay
from loopwright.schedule.stage import Stage
from loopwright.schedule.state import State
from loopwright.schedule.steps import Step

# Imported at their first use, by other rooms.
if TYPE_CHECKING:
    from loopwright.schedule.bounds.infer import attach_position
    from loopwright.schedule.bounds.inlining import inline_ops, share_inlined
    from loopwright.schedule.bounds.launches import cross_tags, find_kernels, memory_scope
    from loopwright.schedule.bounds.relations import LoopArithmetic, loop_extents, loop_values
    from loopwright.schedule.bounds.results import Guard, KernelLaunch, LoopBound, launch_tag
    from loopwright.schedule.primitives import (
        Annotate,
        SampleCategorical,
        SamplePerfectTile,
        Tensorize,
    )
    from loopwright.schedule.primitives.annotate import MAX_VECTOR
    from loopwright.schedule.primitives.index_map import index_bounds
    from loopwright.schedule.primitives.layout import (
        expression,
        is_digit,
        layout_shape,
        layout_text,
    )
    from loopwright.schedule.primitives.prefetch import (
        Shares,
        loops_between,
        reads_inside,
        shares_of,
    )
    from loopwright.schedule.primitives.sampling import perfect_tiles
    from loopwright.schedule.primitives.storage import aligned_strides
    from loopwright.schedule.primitives.tensorize import (
        IntrinsicMatch,
        match_intrinsic,
        refuse_match,
    )
    from loopwright.schedule.resolution import StageOp
    from loopwright.schedule.state import (
        NONTEMPORAL,
        PARTITION_HINT,
        Attach,
        FuseRel,
        IndexExpr,
        LayoutDim,
        Prefetched,
        SplitRel,
        StageId,
        StageState,
        store_position,
    )

__all__ = [
    "Bounds",
    "Schedule",
    "Stage",
    "StageBounds",
    "State",
    "Step",
    "apply",
    "create_schedule",
    "infer_bounds",
    "replay",
]

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__)

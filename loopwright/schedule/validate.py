"""Rules that need extents: checked after bound inference and before lowering."""

from __future__ import annotations

from loopwright.schedule.bounds import Bounds, LoopBound, StageBounds
from loopwright.schedule.state import State, refuse

#: Longest vector loop. Long vectors are cut into registers; beyond this it is a mistake.
MAX_VECTOR = 1024
#: Most copies of a body that explicit unrolling may make.
MAX_UNROLL = 4096


def validate_bounds(state: State, bounds: Bounds) -> None:
    """Check vector lengths, unroll sizes and the nesting of marked loops.

    Raises:
        ScheduleError: names the step, the loop, the extent, the limit and the remedy.
    """
    for sb in bounds.stages.values():
        copies = 1
        vector: LoopBound | None = None
        for x in sb.loops:
            if x.mark is None:
                continue
            if x.mark.kind == "vectorized":
                _check_vector(state, sb, x, vector)
                vector = x
            if x.mark.kind == "unrolled":
                copies *= x.extent
                _check_unroll(state, sb, x, copies)


def _check_vector(state: State, sb: StageBounds, x: LoopBound, other: LoopBound | None) -> None:
    assert x.mark is not None
    name = state.loop_label(sb.stage, x.loop.id)
    if x.extent > MAX_VECTOR:
        refuse(
            "vectorize",
            x.mark.step,
            f"loop {name!r} has {x.extent} iterations, the longest vector is {MAX_VECTOR}; split "
            "it and vectorize the inner part",
        )
    if other is not None:
        outer = state.loop_label(sb.stage, other.loop.id)
        refuse(
            "vectorize",
            x.mark.step,
            f"loop {name!r} lies inside loop {outer!r}, which is vectorized already; fuse the two "
            "or vectorize one",
        )


def _check_unroll(state: State, sb: StageBounds, x: LoopBound, copies: int) -> None:
    assert x.mark is not None
    if copies > MAX_UNROLL:
        name = state.loop_label(sb.stage, x.loop.id)
        refuse(
            "unroll",
            x.mark.step,
            f"unrolling loop {name!r} would make {copies} copies of the body (limit {MAX_UNROLL}); "
            "split it and unroll a smaller part",
        )

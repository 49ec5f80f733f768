"""Rules that need extents: checked after bound inference and before lowering."""

from __future__ import annotations

from math import prod

from loopwright.schedule.bounds import Bounds, LoopBound, StageBounds, attach_position
from loopwright.schedule.state import State, refuse

#: Longest vector loop. Long vectors are cut into registers; beyond this it is a mistake.
MAX_VECTOR = 1024
#: Most copies of a body that explicit unrolling may make, loops around an attached stage included.
MAX_UNROLL = 4096
#: A vector loop is written out in pieces of the native length, which is at least about this.
_PIECE = 16


def validate_bounds(state: State, bounds: Bounds) -> None:
    """Check vector lengths, unroll sizes and the nesting of marked loops.

    Raises:
        ScheduleError: names the step, the loop, the extent, the limit and the remedy.
    """
    for sb in bounds.stages.values():
        copies = _copies_around(state, bounds, sb)
        vector: LoopBound | None = None
        for x in sb.loops:
            if x.mark is None:
                continue
            if x.mark.kind == "vectorized":
                _check_vector(state, sb, x, vector)
                vector = x
            copies *= _copies(x)
            if copies > MAX_UNROLL:
                _refuse_copies(state, sb, x, copies)


def _copies(x: LoopBound) -> int:
    kind = x.mark.kind if x.mark else ""
    return x.extent if kind == "unrolled" else -(-x.extent // _PIECE) if kind == "vectorized" else 1


def _copies_around(state: State, bounds: Bounds, sb: StageBounds) -> int:
    """Copies that the loops around an attached stage make of all of it."""
    stage, copies = sb.stage, 1
    while stage.attach.kind == "at":
        host, pos = attach_position(state, stage, bounds)
        outer = [x for x in host.loops[: pos + 1] if x.mark and x.mark.kind == "unrolled"]
        copies *= prod(x.extent for x in outer)
        stage = host.stage
    return copies


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


def _refuse_copies(state: State, sb: StageBounds, x: LoopBound, copies: int) -> None:
    assert x.mark is not None
    name = state.loop_label(sb.stage, x.loop.id)
    verb, doing = ("unroll", "unrolling")
    if x.mark.kind == "vectorized":
        verb, doing = ("vectorize", "vectorizing")
    refuse(
        verb,
        x.mark.step,
        f"{doing} loop {name!r} would make {copies} copies of the body (limit {MAX_UNROLL}); "
        "split it and unroll a smaller part",
    )

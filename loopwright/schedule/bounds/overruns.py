"""Over-runs of the loops of a stage, and the guards that they need.

A split that does not divide over-runs, and so may a split of one of its parts. Where the inner part
divides, the guard of the outer part is enough: below ``i < 250`` no ``i * 4 + j`` with ``j < 4``
reaches 1000. So loops are walked from the innermost relation outwards, with the largest value that
each has in iterations that pass the guards found so far; a guard is needed only where that value is
too large. Intervals over the loops that remain would not tell, since they know nothing of guards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from loopwright.ir.affine import Affine, Extent, to_affine
from loopwright.ir.expr import Dim, Expr
from loopwright.ir.sizes import Sizes
from loopwright.schedule.bounds.results import Guard, StageBounds
from loopwright.schedule.state import FuseRel, SplitRel


def beyond(value: Affine, extent: Extent, sizes: Sizes) -> tuple[bool, bool]:
    """Whether a value may be negative, and whether it may reach an extent."""
    return value.bounds(sizes.ranges)[0] < 0, (value - extent).bounds(sizes.ranges)[1] >= 0


def guard_splits(
    sb: StageBounds, extents: Mapping[str, Extent], values: Mapping[str, Affine]
) -> dict[str, int]:
    """Enter the guards that the splits of a stage need, given all of its loops by id.

    Returns the largest value, if it is a number, of each loop in iterations that pass the guards.
    """
    last = {x.loop.id: x.extent - 1 for x in sb.loops if isinstance(x.extent, int)}
    guards: list[Guard] = []
    for rel in reversed(sb.stage.relations):
        match rel:
            case SplitRel():
                guards += _guard_split(rel, sb, extents, values, last)
            case FuseRel():
                _divide_last(rel, extents, last)
            case _:
                assert_never(rel)
    sb.guards += reversed(guards)
    return last


def _guard_split(
    rel: SplitRel,
    sb: StageBounds,
    extents: Mapping[str, Extent],
    values: Mapping[str, Affine],
    last: dict[str, int],
) -> list[Guard]:
    """The guard of one split, if it needs one; notes the last value of the loop that was split."""
    extent, value = extents[rel.parent], values[rel.parent]
    most = _last_of_split(rel, sb, extents, value, last)
    past = beyond(value, extent, sb.sizes)[1]
    if isinstance(extent, int) and most is not None:
        past = most >= extent
    kind = sb.stage.loops[rel.parent].kind
    covered = sb.padded and rel.parent.startswith("a") and kind == "spatial"
    if past and not covered and isinstance(extent, int):
        most = extent - 1
    if most is not None:
        last[rel.parent] = most
    return [Guard(value, kind, extent)] if past and not covered else []


def _last_of_split(
    rel: SplitRel,
    sb: StageBounds,
    extents: Mapping[str, Extent],
    value: Affine,
    last: Mapping[str, int],
) -> int | None:
    """Last value of a loop that was split, from its parts and its interval."""
    length, outer, inner = extents[rel.inner], last.get(rel.outer), last.get(rel.inner)
    end = sb.sizes.span(value)[1]
    if not isinstance(length, int) or outer is None or inner is None or not isinstance(end, int):
        return None
    return min(outer * length + inner, end)


def _divide_last(rel: FuseRel, extents: Mapping[str, Extent], last: dict[str, int]) -> None:
    """Note the last values of two loops that were fused."""
    length, whole = extents[rel.inner], last.get(rel.fused)
    if isinstance(length, int) and whole is not None:
        last[rel.outer], last[rel.inner] = whole // length, min(whole, length - 1)


def stays_inside(sb: StageBounds, index: Expr, extent: Dim) -> bool:
    """Whether an index over a reader's axes lies in a dimension in all iterations that pass
    guards.
    """
    ranges = {**sb.sizes.ranges, **sb.guarded}
    form = to_affine(index, {}, ranges)
    if not isinstance(extent, int) or form is None or any(v not in ranges for v in form.terms):
        return False
    lo, hi = form.bounds(ranges)
    return lo >= 0 and hi < extent

"""Tiles at the edge of a stage, below a ``loop_partition_hint``: where tiles do not divide the
extent, the iterations of the last one are a copy of their own without a test, a second microkernel
as libraries of products have."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from loopwright.ir.affine import Affine
from loopwright.lowering.nest.enclosing import guards_around, largest
from loopwright.schedule.bounds.results import Bounds, Guard, LoopBound, StageBounds
from loopwright.schedule.state import State

#: Most axes of a stage whose last tile is written out by itself: each of them doubles the copies.
MOST = 3


@dataclass(frozen=True, eq=False)
class ShortTile:
    """The last tile along an axis."""

    guard: Guard  #: passed by whole tiles
    loop: LoopBound  #: the inside of a tile
    count: int  #: iterations of the loop in the last tile
    exact: bool  #: whether all of these pass the guard

    @property
    def is_whole(self) -> bool:
        """Whether it is no shorter than the others."""
        return self.exact and self.count == self.loop.extent


def short_tiles(
    state: State, bounds: Bounds, sb: StageBounds, guards: Iterable[Guard], p: int
) -> list[ShortTile]:
    """The last tiles of a stage inside of loop p, below which copies of the nest are written.

    Only tiles that certainly have an iteration: one that lies beyond the edge as a whole would read
    what is not there.
    """
    multiples = sb.stage.short_tiles
    if not multiples or sb.stage.pad_value is not None:
        return []  # what is filled up has values beyond the edge, too
    known = sb.visible(p)
    around = [*guards_around(state, bounds, sb)]
    around += [g for g in sb.guards if set(g.value.terms) <= known]
    found = [x for g in guards if (x := _short_tile(sb, g, p, multiples, around)) is not None]
    whole, short = ([x for x in found if x.is_whole is is_whole] for is_whole in (True, False))
    return [*whole, *short[:MOST]]


def _short_tile(
    sb: StageBounds, g: Guard, p: int, multiples: dict[str, int], around: Collection[Guard]
) -> ShortTile | None:
    if g.kind == "thread" or g.nonnegative or not isinstance(g.below, int):
        return None
    outer, inner = g.value.split(sb.visible(p))
    loop, step = _outermost(sb, inner, p)
    if loop is None or loop.loop.id not in multiples:
        return None
    tile = loop.count * step
    outer, rest = outer + inner.const, (g.below - 1) % tile + 1
    aligned = all(c % tile == 0 for c in (outer.const, *outer.terms.values()))
    if not aligned or largest(outer, around, sb.sizes.ranges) > g.below - rest:
        return None
    multiple = multiples[loop.loop.id]
    count = min(loop.count, -(-rest // (step * multiple)) * multiple)
    return ShortTile(g, loop, count, count * step == rest)


def _outermost(sb: StageBounds, inner: Affine, p: int) -> tuple[LoopBound | None, int]:
    """The loop inside of p that moves a value in the largest steps, if all others together stay
    within one of these, and the step."""
    own = {x.var: x for x in sb.loops[p + 1 :] if isinstance(x.extent, int)}
    if not inner.terms or not all(v in own and c > 0 for v, c in inner.terms.items()):
        return None, 0
    var = max(inner.terms, key=lambda v: inner.terms[v])
    step = inner.terms[var]
    reach = sum(c * (own[v].count - 1) for v, c in inner.terms.items() if v is not var)
    return (own[var], step) if reach < step else (None, 0)

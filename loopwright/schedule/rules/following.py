"""The primitives that split a loop as another one was split: Ansor's steps of these names.

They hold no numbers: sizes are read from the loops that they follow. So another number in the split
that is followed is followed as well, when the trace is replayed or a cost model puts a symbol
there.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.ir.expr import Dim
from loopwright.schedule.names import Names
from loopwright.schedule.rules.loops import NOMINAL, check_unused, halved
from loopwright.schedule.state import SplitRel, StageId, StageState, State, refuse
from loopwright.schedule.steps import FieldType, Step, each, is_id, is_text, pair, register

#: More iterations than this no tile has.
_MOST = 1 << 40


@register("follow_split")
class FollowSplit(Step):
    """Split a loop into ``n_split + 1``, by the tiles that a loop of a stage was split into."""

    loop: str
    source: StageId
    source_loop: str
    n_split: int

    def apply(self, state: State, t: int) -> State:
        stage = state.compute_stage(self.stage, "follow_split")
        state.leaf(stage, self.loop, "follow_split")
        tiles = _tiles(state, self.source, self.source_loop, "follow_split", t)
        if not 1 <= self.n_split <= len(tiles):
            label = _label(state, self.source, self.source_loop)
            refuse(
                "follow_split",
                t,
                f"n_split is {self.n_split}, and {label!r} is split {len(tiles)} time(s); take 1 "
                f"to {len(tiles)}",
            )
        check_unused(state, stage, self.loop, "follow_split", t, verb="split")
        return state.with_stage(self._split(stage, tiles[: self.n_split], t))

    def _split(self, stage: StageState, tiles: Sequence[Dim], t: int) -> StageState:
        name, last, rest = stage.loops[self.loop].name, len(tiles), self.loop
        for k, tile in enumerate(tiles):
            # What is left to be split is numbered behind the loops that stay.
            end = k + 1 == last
            inner = f"{t}.{last}" if end else f"{t}.{last + 1 + k}"
            names = (f"{t}.{k}", f"{name}.{k}"), (inner, f"{name}.{last if end else f'{k}.rest'}")
            stage = halved(stage, stage.loops[rest], names, tile, None, t)  # type: ignore[arg-type]
            rest = inner
        return stage

    def as_python(self, names: Names) -> str:
        """Text such as ``y_0, y_1, y_2 = s[D].follow_split(y, x, n_split=2)``."""
        t, stage = names.step, self.stage
        old = f"{names.loop(stage, self.loop)}, {names.loop(self.source, self.source_loop)}"
        new = ", ".join(names.loop(stage, f"{t}.{k}") for k in range(self.n_split + 1))
        return f"{new} = {names.stage(stage)}.follow_split({old}, n_split={self.n_split})"


@register("follow_fused_split", sources=FieldType(each(pair(is_id, is_text))))
class FollowFusedSplit(Step):
    """Split a loop by the product of the loops of one level of some splits."""

    loop: str
    sources: tuple[tuple[StageId, str], ...]
    level: int
    factor_or_nparts: bool = True

    def apply(self, state: State, t: int) -> State:
        """Split by the product of the lengths of a level: inner ones, or outer ones."""
        who = "follow_fused_split"
        stage = state.compute_stage(self.stage, who)
        loop = state.leaf(stage, self.loop, who)
        if not self.sources:
            refuse(who, t, "expected at least one loop to follow; name those that were fused")
        size: Dim = 1
        for sid, x in self.sources:
            size = _checked(NOMINAL.times(size, self._length(state, sid, x, t)), who, t)
        check_unused(state, stage, self.loop, who, t, verb="split")
        factor, nparts = (size, None) if self.factor_or_nparts else (None, size)
        names = ((f"{t}.0", f"{loop.name}.0"), (f"{t}.1", f"{loop.name}.1"))
        return state.with_stage(halved(stage, loop, names, factor, nparts, t))  # type: ignore[arg-type]

    def _length(self, state: State, sid: StageId, loop: str, t: int) -> Dim:
        """Iterations of the loop of this level; 0 is the one behind the outermost."""
        tiles = _tiles(state, sid, loop, "follow_fused_split", t)
        if not 0 <= self.level < len(tiles):
            refuse(
                "follow_fused_split",
                t,
                f"level is {self.level}, and {_label(state, sid, loop)!r} is split {len(tiles)} "
                f"time(s); take 0 to {len(tiles) - 1}",
            )
        whole, *inside = tiles[self.level : self.level + 2]
        return NOMINAL.ceil_div(whole, inside[0]) if inside else whole

    def as_python(self, names: Names) -> str:
        """Text such as ``f_0, f_1 = s[D].follow_fused_split(f, [x, y], level=1)``."""
        t, stage = names.step, self.stage
        old = names.loop(stage, self.loop)
        followed = ", ".join(names.loop(sid, x) for sid, x in self.sources)
        parts = "" if self.factor_or_nparts else ", factor_or_nparts=False"
        new = f"{names.loop(stage, f'{t}.0')}, {names.loop(stage, f'{t}.1')}"
        call = f"follow_fused_split({old}, [{followed}], level={self.level}{parts})"
        return f"{new} = {names.stage(stage)}.{call}"


def _tiles(state: State, sid: StageId, loop: str, who: str, t: int) -> list[Dim]:
    """Iterations inside each cut of a loop, from the outside in.

    A loop that was split by 4, and the outer part again by 8, has tiles of 32 and 4. Where the
    inner part was split further, its factor is such a tile itself.
    """
    stage = state.compute_stage(sid, who)
    if loop not in stage.loops:
        state.leaf(stage, loop, who)
    parts = [loop]
    tiles: list[Dim] = []
    inside: dict[str, Dim] = {loop: 1}
    for rel in stage.relations:
        if not isinstance(rel, SplitRel) or rel.parent not in inside:
            continue
        if rel.factor is None:
            refuse(
                who,
                t,
                f"{state.loop_label(stage, rel.parent)!r} was split by nparts (step {rel.step}), "
                "whose tiles have no fixed size; split it by factor",
            )
        tile = _checked(NOMINAL.times(rel.factor, inside[rel.parent]), who, t)
        at = parts.index(rel.parent)
        parts[at : at + 1] = rel.outer, rel.inner
        tiles.insert(at, tile)
        inside[rel.outer], inside[rel.inner] = tile, inside[rel.parent]
    if not tiles:
        label = _label(state, sid, loop)
        refuse(who, t, f"{label!r} has not been split; split it first, by factor")
    return tiles


def _checked(size: Dim, who: str, t: int) -> Dim:
    if isinstance(size, int) and size > _MOST:
        refuse(who, t, f"the splits that are followed come to {size} iterations; at most 2^40")
    return size


def _label(state: State, sid: StageId, loop: str) -> str:
    return state.loop_label(state.stages[sid], loop)

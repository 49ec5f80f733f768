"""The primitives that take the loops of one stage apart, join them and order them."""

from __future__ import annotations

from dataclasses import replace

from loopwright.ir.expr import Dim
from loopwright.ir.sizes import Sizes, Symbol
from loopwright.schedule.bounds.relations import ExtentArithmetic
from loopwright.schedule.state import (
    FuseRel,
    IllegalStep,
    Loop,
    LoopMark,
    SplitRel,
    StageId,
    StageState,
    State,
    refuse,
)
from loopwright.schedule.steps import (
    FieldType,
    Step,
    TraceNames,
    at_least,
    each,
    is_id,
    is_text,
    pair,
    register,
)
from loopwright.te import why_in_order


@register("split")
class Split(Step):
    may_be_sampled = ("factor", "nparts")

    loop: str
    factor: int | None
    nparts: int | None

    def apply(self, state: State, t: int) -> State:
        stage = state.compute_stage(self.stage)
        loop = state.leaf(stage, self.loop)
        sizes = [v for v in (self.factor, self.nparts) if v is not None]
        if len(sizes) != 1:
            raise IllegalStep(f"give one of factor= and nparts=, got {self.factor}, {self.nparts}")
        if not at_least(sizes[0], 1):
            what = "factor" if self.factor is not None else "nparts"
            raise IllegalStep(f"{what} must be a positive integer, got {sizes[0]!r}")
        check_unused(state, stage, self.loop, "split")
        names = ((f"{t}.0", f"{loop.name}.0"), (f"{t}.1", f"{loop.name}.1"))
        return state.with_stage(halved(stage, loop, names, self.factor, self.nparts, t))

    def as_python(self, names: TraceNames) -> str:
        t, stage = names.step, self.stage
        word, value = ("factor", self.factor) if self.nparts is None else ("nparts", self.nparts)
        by = f"{word}={names.number(value)}"
        old = names.loop(stage, self.loop)
        new = f"{names.loop(stage, f'{t}.0')}, {names.loop(stage, f'{t}.1')}"
        return f"{new} = {names.stage(stage)}.split({old}, {by})"


def halved(
    stage: StageState,
    loop: Loop,
    names: tuple[tuple[str, str], tuple[str, str]],
    factor: int | None,
    nparts: int | None,
    t: int,
) -> StageState:
    """A stage with an outer and an inner loop, of these ids and names, in the place of a loop."""
    outer, inner = NOMINAL.split_extents(loop.nominal, factor, nparts)
    lo = Loop(*names[0], loop.kind, outer)
    li = Loop(*names[1], loop.kind, inner)
    return replace(
        stage,
        loops={**stage.loops, lo.id: lo, li.id: li},
        leaves=_put(stage.leaves, (loop.id,), (lo.id, li.id)),
        relations=(*stage.relations, SplitRel(loop.id, lo.id, li.id, factor, nparts, t)),
    )


class _NominalArithmetic(ExtentArithmetic[Dim]):
    """Extents of a stage that covers its whole tensor: ints, `Symbol`, or expressions of sizes."""

    def times(self, a: Dim, b: Dim) -> Dim:
        return a * b

    def ceil_div(self, a: Dim, b: Dim) -> Dim:
        return (a + (b - 1)) // b

    def clipped(self, factor: Dim, n: Dim) -> Dim:
        if isinstance(n, int) and isinstance(factor, int):
            return min(factor, n)
        smaller: Dim = factor
        if isinstance(n, Symbol):
            smaller = n.at_most(factor)
        elif isinstance(factor, Symbol):
            smaller = factor.at_most(n)
        return smaller


NOMINAL = _NominalArithmetic()  #: arithmetic on extents of stages that cover their whole tensors


def check_even(state: State, stage: StageState, t: int) -> None:
    """Refuse the split that step ``t`` made where its loops run over the end."""
    rel = next(r for r in stage.relations if isinstance(r, SplitRel) and r.step == t)
    n, outer, inner = (stage.loops[x].nominal for x in (rel.parent, rel.outer, rel.inner))
    if Sizes().of(outer * inner - n) == 0:
        return
    size = f"factor {rel.factor}" if rel.factor is not None else f"nparts {rel.nparts}"
    refuse(
        "split",
        t,
        f"disable_predication needs an even split, and {size} does not divide the {n} iterations "
        f"of {state.loop_label(stage, rel.parent)!r}; take one that does, or let a test guard the "
        "tail",
    )


@register("fuse")
class Fuse(Step):
    outer: str
    inner: str

    def apply(self, state: State, t: int) -> State:
        stage = state.compute_stage(self.stage)
        a = state.leaf(stage, self.outer)
        b = state.leaf(stage, self.inner)
        names = f"{state.loop_label(stage, a.id)!r} and {state.loop_label(stage, b.id)!r}"
        if a.kind != b.kind:
            raise IllegalStep(
                f"{names} are of different kinds ({a.kind}, {b.kind}); fuse like kinds"
            )
        pos = stage.leaves.index(a.id)
        if stage.leaves[pos + 1 : pos + 2] != (b.id,):
            raise IllegalStep(
                f"{names} are not adjacent, outer first; reorder them (loops: "
                f"{state.loop_list(stage)})"
            )
        for x in (a, b):
            check_unused(state, stage, x.id, "fuse")
        f = Loop(f"{t}.0", f"{a.name}.{b.name}", a.kind, NOMINAL.times(a.nominal, b.nominal))
        return state.with_stage(
            replace(
                stage,
                loops={**stage.loops, f.id: f},
                leaves=_put(stage.leaves, (a.id, b.id), (f.id,)),
                relations=(*stage.relations, FuseRel(a.id, b.id, f.id, t)),
            )
        )

    def as_python(self, names: TraceNames) -> str:
        old = f"{names.loop(self.stage, self.outer)}, {names.loop(self.stage, self.inner)}"
        new = names.loop(self.stage, f"{names.step}.0")
        return f"{new} = {names.stage(self.stage)}.fuse({old})"


def check_unused(state: State, stage: StageState, loop: str, verb: str) -> None:
    """Refuse to split or fuse a loop that is used for something."""
    for use in state.uses(stage, loop):
        remedy = f"{verb} it before that"
        if use.kind == "attached":
            remedy = f"{verb} the loop first and use {use.primitive} afterwards"
        raise IllegalStep(f"{use.says(state.loop_label(stage, loop))}; {remedy}")


def _put(leaves: tuple[str, ...], old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    pos = leaves.index(old[0])
    return leaves[:pos] + new + leaves[pos + len(old) :]


@register("reorder")
class Reorder(Step):
    order: tuple[str, ...]

    def apply(self, state: State, t: int) -> State:
        stage = state.compute_stage(self.stage)
        for x in self.order:
            state.leaf(stage, x)
        if len(set(self.order)) != len(self.order):
            twice = next(x for x in self.order if self.order.count(x) > 1)
            name = state.loop_label(stage, twice)
            raise IllegalStep(f"loop {name!r} is given twice; name each loop once")
        slots = iter(self.order)
        leaves = tuple(next(slots) if x in self.order else x for x in stage.leaves)
        return state.with_stage(replace(stage, leaves=leaves, reordered=True))

    def arguments(self, names: TraceNames) -> str:
        return ", ".join(names.loop(self.stage, x) for x in self.order)


def put_mark(state: State, stage: StageState, loop: str, mark: LoopMark) -> State:
    """Mark a loop, which carries one mark at most."""
    old = stage.marks.get(loop)
    if old is not None and (old.kind, old.tag) != (mark.kind, mark.tag):
        raise IllegalStep(
            f"loop {state.loop_label(stage, loop)!r} is already {old.text} (step {old.step}); "
            "split it and mark the parts"
        )
    return state.with_stage(replace(stage, marks={**stage.marks, loop: mark}))


_MOST = 1 << 40  #: more iterations than this no tile has


@register("follow_split")
class FollowSplit(Step):
    loop: str
    source: StageId
    source_loop: str
    n_split: int

    def apply(self, state: State, t: int) -> State:
        stage = state.compute_stage(self.stage)
        state.leaf(stage, self.loop)
        tiles = _tiles(state, self.source, self.source_loop)
        if not 1 <= self.n_split <= len(tiles):
            label = _label(state, self.source, self.source_loop)
            raise IllegalStep(
                f"n_split is {self.n_split}, and {label!r} is split {len(tiles)} time(s); take 1 "
                f"to {len(tiles)}"
            )
        check_unused(state, stage, self.loop, "split")
        name, last, rest = stage.loops[self.loop].name, self.n_split, self.loop
        for k, tile in enumerate(tiles[:last]):
            # What is left to be split is numbered behind the loops that stay.
            end = k + 1 == last
            inner = f"{t}.{last}" if end else f"{t}.{last + 1 + k}"
            names = (f"{t}.{k}", f"{name}.{k}"), (inner, f"{name}.{last if end else f'{k}.rest'}")
            stage = halved(stage, stage.loops[rest], names, tile, None, t)  # type: ignore[arg-type]
            rest = inner
        return state.with_stage(stage)

    def as_python(self, names: TraceNames) -> str:
        t, stage = names.step, self.stage
        old = f"{names.loop(stage, self.loop)}, {names.loop(self.source, self.source_loop)}"
        new = ", ".join(names.loop(stage, f"{t}.{k}") for k in range(self.n_split + 1))
        return f"{new} = {names.stage(stage)}.follow_split({old}, n_split={self.n_split})"


@register("follow_fused_split", sources=FieldType(each(pair(is_id, is_text))))
class FollowFusedSplit(Step):
    loop: str
    sources: tuple[tuple[StageId, str], ...]
    level: int
    factor_or_nparts: bool = True

    def apply(self, state: State, t: int) -> State:
        stage = state.compute_stage(self.stage)
        loop = state.leaf(stage, self.loop)
        if not self.sources:
            raise IllegalStep("expected at least one loop to follow; name those that were fused")
        size: Dim = 1
        for sid, x in self.sources:
            tiles = _tiles(state, sid, x)
            if not 0 <= self.level < len(tiles):
                raise IllegalStep(
                    f"level is {self.level}, and {_label(state, sid, x)!r} is split {len(tiles)} "
                    f"time(s); take 0 to {len(tiles) - 1}"
                )
            # Level 0 is the loop behind the outermost.
            whole, *inside = tiles[self.level : self.level + 2]
            length = NOMINAL.ceil_div(whole, inside[0]) if inside else whole
            size = _checked(NOMINAL.times(size, length))
        check_unused(state, stage, self.loop, "split")
        factor, nparts = (size, None) if self.factor_or_nparts else (None, size)
        names = ((f"{t}.0", f"{loop.name}.0"), (f"{t}.1", f"{loop.name}.1"))
        return state.with_stage(halved(stage, loop, names, factor, nparts, t))  # type: ignore[arg-type]

    def as_python(self, names: TraceNames) -> str:
        t, stage = names.step, self.stage
        old = names.loop(stage, self.loop)
        followed = ", ".join(names.loop(sid, x) for sid, x in self.sources)
        parts = "" if self.factor_or_nparts else ", factor_or_nparts=False"
        new = f"{names.loop(stage, f'{t}.0')}, {names.loop(stage, f'{t}.1')}"
        call = f"follow_fused_split({old}, [{followed}], level={self.level}{parts})"
        return f"{new} = {names.stage(stage)}.{call}"


def _tiles(state: State, sid: StageId, loop: str) -> list[Dim]:
    """Iterations inside each cut of a loop, from the outside in: a loop that was split by 4, and
    the outer part again by 8, has tiles of 32 and 4."""
    stage = state.compute_stage(sid)
    if loop not in stage.loops:
        state.leaf(stage, loop)
    parts = [loop]
    tiles: list[Dim] = []
    inside: dict[str, Dim] = {loop: 1}
    for rel in stage.relations:
        if not isinstance(rel, SplitRel) or rel.parent not in inside:
            continue
        if rel.factor is None:
            raise IllegalStep(
                f"{state.loop_label(stage, rel.parent)!r} was split by nparts (step {rel.step}), "
                "whose tiles have no fixed size; split it by factor"
            )
        tile = _checked(NOMINAL.times(rel.factor, inside[rel.parent]))
        at = parts.index(rel.parent)
        parts[at : at + 1] = rel.outer, rel.inner
        tiles.insert(at, tile)
        inside[rel.outer], inside[rel.inner] = tile, inside[rel.parent]
    if not tiles:
        label = _label(state, sid, loop)
        raise IllegalStep(f"{label!r} has not been split; split it first, by factor")
    return tiles


def _checked(size: Dim) -> Dim:
    if isinstance(size, int) and size > _MOST:
        raise IllegalStep(f"the splits that are followed come to {size} iterations; at most 2^40")
    return size


def _label(state: State, sid: StageId, loop: str) -> str:
    return state.loop_label(state.stages[sid], loop)


def refuse_in_order(stage: StageState, verb: str) -> None:
    """Refuse to combine the terms of a stage in another order, where its reducer forbids it."""
    red = stage.op.reduction
    if red is not None and (why := why_in_order(red.combiner)):
        raise IllegalStep(
            f"the reducer {red.combiner.name!r} of {stage.op.name!r} depends on the order of its "
            f"terms, which {verb} changes: {why}; reduce in one serial loop, or mend the reducer"
        )

"""The primitives that take the loops of one stage apart, join them and order them."""

from __future__ import annotations

from dataclasses import replace

from loopwright.ir.expr import Dim
from loopwright.ir.sizes import Sizes, Symbol
from loopwright.schedule.bounds.relations import ExtentArithmetic
from loopwright.schedule.names import Names
from loopwright.schedule.state import FuseRel, Loop, Mark, SplitRel, StageState, State, refuse
from loopwright.schedule.steps import Step, register


@register("split")
class Split(Step):
    """Split a loop; exactly one of ``factor`` and ``nparts`` is set."""

    may_be_sampled = ("factor", "nparts")

    loop: str
    factor: int | None
    nparts: int | None

    def apply(self, state: State, t: int) -> State:
        stage = state.compute_stage(self.stage, "split")
        loop = state.leaf(stage, self.loop, "split")
        given = [v for v in (self.factor, self.nparts) if v is not None]
        if len(given) != 1:
            refuse("split", t, f"give one of factor= and nparts=, got {self.factor}, {self.nparts}")
        if not _is_size(given[0]):
            what = "factor" if self.factor is not None else "nparts"
            refuse("split", t, f"{what} must be a positive integer, got {given[0]!r}")
        check_unused(state, stage, self.loop, "split", t)
        names = ((f"{t}.0", f"{loop.name}.0"), (f"{t}.1", f"{loop.name}.1"))
        return state.with_stage(halved(stage, loop, names, self.factor, self.nparts, t))

    def as_python(self, names: Names) -> str:
        """Text such as ``io, ii = s[C].split(i, factor=8)``."""
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


def _is_size(v: object) -> bool:
    """Whether a factor is a positive integer, or one that is not known."""
    if isinstance(v, int) and not isinstance(v, bool):
        return v >= 1
    return isinstance(v, Symbol)


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


#: Arithmetic on extents of stages that cover their whole tensors.
NOMINAL = _NominalArithmetic()


def check_even(state: State, stage: StageState, t: int) -> None:
    """Refuse the split that step ``t`` made where its loops run over the end."""
    rel = next(r for r in stage.relations if isinstance(r, SplitRel) and r.step == t)
    n, outer, inner = (stage.loops[x].nominal for x in (rel.parent, rel.outer, rel.inner))
    if Sizes().of(outer * inner - n) == 0:
        return
    given = f"factor {rel.factor}" if rel.factor is not None else f"nparts {rel.nparts}"
    refuse(
        "split",
        t,
        f"disable_predication needs an even split, and {given} does not divide the {n} iterations "
        f"of {state.loop_label(stage, rel.parent)!r}; take one that does, or let a test guard the "
        "tail",
    )


@register("fuse")
class Fuse(Step):
    """Fuse two adjacent loops of one kind, outer first."""

    outer: str
    inner: str

    def apply(self, state: State, t: int) -> State:
        stage = state.compute_stage(self.stage, "fuse")
        a = state.leaf(stage, self.outer, "fuse")
        b = state.leaf(stage, self.inner, "fuse")
        names = f"{state.loop_label(stage, a.id)!r} and {state.loop_label(stage, b.id)!r}"
        if a.kind != b.kind:
            refuse(
                "fuse", t, f"{names} are of different kinds ({a.kind}, {b.kind}); fuse like kinds"
            )
        pos = stage.leaves.index(a.id)
        if stage.leaves[pos + 1 : pos + 2] != (b.id,):
            refuse(
                "fuse",
                t,
                f"{names} are not adjacent, outer first; reorder them (loops: "
                f"{state.loop_list(stage)})",
            )
        for x in (a, b):
            check_unused(state, stage, x.id, "fuse", t)
        f = Loop(f"{t}.0", f"{a.name}.{b.name}", a.kind, NOMINAL.times(a.nominal, b.nominal))
        return state.with_stage(
            replace(
                stage,
                loops={**stage.loops, f.id: f},
                leaves=_put(stage.leaves, (a.id, b.id), (f.id,)),
                relations=(*stage.relations, FuseRel(a.id, b.id, f.id, t)),
            )
        )

    def as_python(self, names: Names) -> str:
        """Text such as ``f = s[C].fuse(i, j)``."""
        old = f"{names.loop(self.stage, self.outer)}, {names.loop(self.stage, self.inner)}"
        new = names.loop(self.stage, f"{names.step}.0")
        return f"{new} = {names.stage(self.stage)}.fuse({old})"


def check_unused(
    state: State, stage: StageState, loop: str, who: str, t: int, verb: str = ""
) -> None:
    """Refuse to take a loop apart that is used for something; ``verb`` is what ``who`` does."""
    verb = verb or who
    for use in state.uses(stage, loop):
        remedy = f"{verb} it before that"
        if use.kind == "attached":
            remedy = f"{verb} the loop first and use {use.primitive} afterwards"
        refuse(who, t, f"{use.says(state.loop_label(stage, loop))}; {remedy}")


def _put(leaves: tuple[str, ...], old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    pos = leaves.index(old[0])
    return leaves[:pos] + new + leaves[pos + len(old) :]


@register("reorder")
class Reorder(Step):
    """Put loops in the given order into the places that they occupy together."""

    order: tuple[str, ...]

    def apply(self, state: State, t: int) -> State:
        stage = state.compute_stage(self.stage, "reorder")
        for x in self.order:
            state.leaf(stage, x, "reorder")
        if len(set(self.order)) != len(self.order):
            twice = next(x for x in self.order if self.order.count(x) > 1)
            name = state.loop_label(stage, twice)
            refuse("reorder", t, f"loop {name!r} is given twice; name each loop once")
        slots = iter(self.order)
        leaves = tuple(next(slots) if x in self.order else x for x in stage.leaves)
        return state.with_stage(replace(stage, leaves=leaves, reordered=True))

    def as_python(self, names: Names) -> str:
        """Text such as ``s[C].reorder(k, i)``."""
        order = ", ".join(names.loop(self.stage, x) for x in self.order)
        return f"{names.stage(self.stage)}.reorder({order})"


def put_mark(state: State, stage: StageState, loop: str, mark: Mark, who: str, t: int) -> State:
    """Mark a loop, which carries one mark at most."""
    old = stage.marks.get(loop)
    if old is not None and (old.kind, old.tag) != (mark.kind, mark.tag):
        refuse(
            who,
            t,
            f"loop {state.loop_label(stage, loop)!r} is already {old.text} (step {old.step}); "
            "split it and mark the parts",
        )
    return state.with_stage(replace(stage, marks={**stage.marks, loop: mark}))

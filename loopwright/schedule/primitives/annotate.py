"""The primitives that say how a loop runs, and hints about it."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from loopwright.errors import did_you_mean
from loopwright.ir.kinds import MarkKind
from loopwright.ir.sizes import Symbol
from loopwright.schedule.bounds.results import Bounds, LoopBound, StageBounds
from loopwright.schedule.primitives.loops import put_mark, refuse_in_order
from loopwright.schedule.state import (
    NONTEMPORAL,
    PARTITION_HINT,
    IllegalStep,
    LoopMark,
    PragmaValue,
    State,
    loops_around,
    refuse,
)
from loopwright.schedule.steps import Step, TraceNames, register

#: Longest vector loop. Long vectors are cut into registers; beyond this it is a mistake.
MAX_VECTOR = 1024
#: Most copies of a body that explicit unrolling may make, loops around an attached stage included.
MAX_UNROLL = 4096
#: A vector loop is written out in pieces of the native length, which is at least about this.
_PIECE = 16
#: Pragmas that lowering or code generation knows.
PRAGMAS = ("auto_unroll_max_step", "unroll_explicit", PARTITION_HINT, NONTEMPORAL)
#: Pragmas whose names begin so belong to users: their passes find them in `For.pragmas`.
USER_PRAGMA = "user."
#: The method of `Stage` for each kind that `Annotate` takes.
_VERBS = {"vectorized": "vectorize", "unrolled": "unroll", "parallel": "parallel"}


@register("annotate")
class Annotate(Step):
    loop: str
    kind: MarkKind

    @property
    def verb(self) -> str:
        return _VERBS.get(self.kind, "annotate")

    def apply(self, state: State, t: int) -> State:
        if self.kind not in _VERBS:
            raise IllegalStep(f"unknown kind {self.kind!r}; use vectorized, unrolled or parallel")
        stage = state.compute_stage(self.stage)
        loop = state.leaf(stage, self.loop)
        if loop.kind == "reduce" and self.kind == "parallel":
            raise IllegalStep(
                f"loop {state.loop_label(stage, loop.id)!r} is a reduction: its iterations add to "
                "one element; use a spatial loop, or rfactor to make the loop one"
            )
        if loop.kind == "reduce" and self.kind == "vectorized":
            refuse_in_order(stage, "vectorize")
        return put_mark(state, stage, loop.id, LoopMark(self.kind, t))

    def arguments(self, names: TraceNames) -> str:
        return names.loop(self.stage, self.loop)

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        for sb in bounds.stages.values():
            for x in sb.loops:
                _check_constant(state, sb, x)
        for sb in bounds.stages.values():
            _check_copies(state, bounds, sb)


@register("pragma")
class Pragma(Step):
    may_be_sampled = ("value",)

    loop: str
    key: str
    value: PragmaValue

    def apply(self, state: State, t: int) -> State:
        stage = state.compute_stage(self.stage)
        loop = state.leaf(stage, self.loop)
        user = isinstance(self.key, str) and self.key.startswith(USER_PRAGMA)
        if self.key not in PRAGMAS and not (user and self.key != USER_PRAGMA):
            raise IllegalStep(
                f"unknown pragma {self.key!r}{did_you_mean(self.key, PRAGMAS)}; "
                f"known: {', '.join(PRAGMAS)}, and names of your own that begin with "
                f"{USER_PRAGMA!r}"
            )
        _check_value(self.key, self.value)
        if self.key == NONTEMPORAL and stage.op.reduction is not None:
            raise IllegalStep(
                f"stage {state.label(stage.id)!r} is a reduction, which reads again what it "
                f"stores; cache_write it, and give {NONTEMPORAL} to the stage that copies the "
                "result"
            )
        # A later value of one key replaces the earlier.
        kept = tuple(p for p in stage.pragmas if p[:2] != (loop.id, self.key))
        return state.with_stage(replace(stage, pragmas=(*kept, (loop.id, self.key, self.value))))

    def arguments(self, names: TraceNames) -> str:
        return f"{names.loop(self.stage, self.loop)}, {self.key!r}, {names.number(self.value)}"


def _check_value(key: str, value: PragmaValue) -> None:
    is_bool = isinstance(value, bool)
    steps = isinstance(value, int) and not is_bool and value >= 0
    if key == "auto_unroll_max_step" and not steps:
        raise IllegalStep(f"{key} takes a number of steps, 0 or more, got {value!r}")
    if key == PARTITION_HINT and not (is_bool or steps):
        raise IllegalStep(f"{key} takes True, or the multiple of a short tile, got {value!r}")
    if key == "unroll_explicit" and not is_bool and value not in (0, 1):
        raise IllegalStep(f"{key} takes True or False, got {value!r}")
    if key == NONTEMPORAL and not (is_bool or isinstance(value, Symbol) or value in (0, 1)):
        raise IllegalStep(f"{key} takes True or False, got {value!r}")
    if key not in PRAGMAS and not isinstance(value, str | int | float | bool | None):
        raise IllegalStep(f"{key} takes a number, a text, a bool or None, got {value!r}")


# ---------------------------------------------------------------- rules that need extents


def _check_copies(state: State, bounds: Bounds, sb: StageBounds) -> None:
    """Refuse vectors that are too long or lie in another, and too many copies."""
    around = [bounds.stages[sid].loops[p] for sid, p in loops_around(state, sb.stage)]
    copies = prod(x.count for x in around if x.mark and x.mark.kind == "unrolled")
    vector: LoopBound | None = None
    for x in sb.loops:
        if x.mark is None or x.mark.kind not in ("vectorized", "unrolled"):
            continue
        if x.mark.kind == "vectorized":
            _check_vector(state, sb, x, vector)
            vector = x
        copies *= x.count if x.mark.kind == "unrolled" else -(-x.count // _PIECE)
        if copies > MAX_UNROLL:
            verb, doing = ("unroll", "unrolling")
            if vector is x:
                verb, doing = ("vectorize", "vectorizing")
            refuse(
                verb,
                x.mark.step,
                f"{doing} loop {state.loop_label(sb.stage, x.loop.id)!r} would make {copies} "
                f"copies of the body (limit {MAX_UNROLL}); split it and unroll a smaller part",
            )


def _check_constant(state: State, sb: StageBounds, x: LoopBound) -> None:
    """Refuse to write out a loop whose number of iterations is not known at compile time."""
    verb = {"vectorized": "vectorize", "unrolled": "unroll"}.get(x.mark.kind if x.mark else "")
    if verb is None or isinstance(x.extent, int):
        return
    assert x.mark is not None
    name = state.loop_label(sb.stage, x.loop.id)
    refuse(
        verb,
        x.mark.step,
        f"loop {name!r} has {sb.sizes.dim(x.extent)} iterations, which is known only "
        f"when the program runs; split it by a constant factor and {verb} the inner part",
    )


def _check_vector(state: State, sb: StageBounds, x: LoopBound, other: LoopBound | None) -> None:
    assert x.mark is not None
    name = state.loop_label(sb.stage, x.loop.id)
    if x.count > MAX_VECTOR:
        refuse(
            "vectorize",
            x.mark.step,
            f"loop {name!r} has {x.count} iterations, the longest vector is {MAX_VECTOR}; split "
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

"""The primitive tensorize: its rules, and the comparison of a nest with an intrinsic.

Places of operands in memory are compared when the nest is built
(`loopwright.lowering.nest.tensorize`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    IfThenElse,
    IterVar,
    Read,
    Select,
    Unary,
    Var,
)
from loopwright.ir.node import Node, same
from loopwright.ir.printer import print_expr
from loopwright.ir.reduction import Reduce
from loopwright.ir.visitor import free_vars, map_nodes
from loopwright.schedule.bounds.results import Bounds, LoopBound, StageBounds, launch_tag
from loopwright.schedule.state import IllegalStep, StageState, State, Tensorized, refuse
from loopwright.schedule.steps import FieldType, Step, TraceNames, register
from loopwright.te import TensorIntrin, call_of, combiner_to_json, intrinsic_from_json

_COMMUTE = ("+", "*", "min", "max", "and", "or", "&", "|", "^", "==", "!=")
_DECLARE = "declare an intrinsic that does what the nest does"


@register(
    "tensorize",
    intrin=FieldType(
        fits=lambda v: isinstance(v, dict), read=intrinsic_from_json, write=TensorIntrin.to_json
    ),
)
class Tensorize(Step):
    loop: str
    intrin: TensorIntrin

    def apply(self, state: State, t: int) -> State:
        stage = state.compute_stage(self.stage)
        loop = state.leaf(stage, self.loop)
        if stage.tensorized is not None:
            old = state.loop_label(stage, stage.tensorized.loop)
            raise IllegalStep(
                f"{state.label(stage.id)!r} is already tensorized at loop {old!r} (step "
                f"{stage.tensorized.step}); a stage has one intrinsic"
            )
        if stage.op.num_outputs != 1:
            raise IllegalStep(
                f"{state.label(stage.id)!r} has {stage.op.num_outputs} outputs; an intrinsic makes "
                "one"
            )
        return state.with_stage(replace(stage, tensorized=Tensorized(loop.id, self.intrin, t)))

    def arguments(self, names: TraceNames) -> str:
        intrin = call_of(self.intrin) or repr(self.intrin.to_json())
        return f"{names.loop(self.stage, self.loop)}, {intrin}"

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        for sb in bounds.stages.values():
            if sb.stage.tensorized is not None:
                match_intrinsic(state, sb)


@dataclass(frozen=True, eq=False)
class TensorizedAxis:
    """An axis of a stage inside the loop: its extent there, and the weights of its loops."""

    axis: IterVar
    extent: int
    weights: dict[Var, int]


@dataclass(eq=False)
class IntrinsicMatch:
    position: int  #: index of the tensorized loop
    #: The stage's axis for each axis variable of the description; None: one iteration.
    axes: dict[Var, TensorizedAxis | None] = field(default_factory=dict)
    #: The stage's read for each input of the description.
    reads: dict[int, Read] = field(default_factory=dict)
    #: Whether the intrinsic's body does it; else its update, after the start outside.
    whole: bool = True


def refuse_match(state: State, stage: StageState, text: str) -> NoReturn:
    done = stage.tensorized
    assert done is not None
    refuse(
        "tensorize",
        done.step,
        f"the nest inside loop {state.loop_label(stage, done.loop)!r} is not intrinsic "
        f"{done.intrin.name!r}: {text}",
    )


def region(sb: StageBounds, position: int, axis: IterVar) -> TensorizedAxis | str:
    """Part of an axis that loops from ``position`` on cover, or the reason why it is no range."""
    extents = {x.var: x.count for x in sb.loops[position:]}
    value = sb.values[axis.var]
    weights = {v: c for v, c in value.terms.items() if sb.position.get(v, -1) >= position}
    covered = 1
    for v, c in sorted(weights.items(), key=lambda x: x[1]):
        if v not in extents:
            return f"axis {axis.name!r} is fused with another inside; fuse outside only"
        if c != covered:
            return (
                f"the loops inside do not run through one range of axis {axis.name!r} (steps of "
                f"{c} where {covered} would go on)"
            )
        covered *= extents[v]
    return TensorizedAxis(axis, covered, weights)


def match_intrinsic(state: State, sb: StageBounds) -> IntrinsicMatch:
    """Compare a tensorized stage's nest with its intrinsic's; refuse a difference."""
    return _Matcher(state, sb).run()


class _Matcher:
    def __init__(self, state: State, sb: StageBounds) -> None:
        done = sb.stage.tensorized
        assert done is not None
        self.state, self.sb, self.intrin = state, sb, done.intrin
        self.out = IntrinsicMatch(sb.stage.leaves.index(done.loop))

    def fail(self, text: str) -> NoReturn:
        refuse_match(self.state, self.sb.stage, text)

    def run(self) -> IntrinsicMatch:
        p, loops = self.out.position, self.sb.loops
        self._outside(loops[:p])
        for x in loops[p:]:
            self._inside(x)
        want, op = self.intrin.op, self.sb.op
        self._axes("", want.axes, op.axes)
        if (want.reduction is None) != (op.reduction is None):
            self.fail(f"a reduction is on one side only; {_DECLARE}")
        self._axes("reduction ", want.reduce_axes, op.reduce_axes)
        if want.dtype != op.dtype:
            self.fail(
                f"the result of the intrinsic is {want.dtype}, that of the nest {op.dtype}; "
                f"{_DECLARE}"
            )
        assert want.body is not None
        assert op.body is not None
        self._bodies(want.body, op.body)
        return self.out

    # ------------------------------------------------------------ loops

    def _outside(self, loops: Sequence[LoopBound]) -> None:
        threads = any(x.mark is not None and x.mark.kind == "thread" for x in loops)
        if self.intrin.of_warp:
            self._in_warps()
        elif threads or self.sb.kernel is not None:
            self.fail(
                "the stage runs in a kernel of thread axes, and this intrinsic is for CPUs; those "
                "of tensor cores are te.intrinsics.mma_m16n8k16, mma_m16n8k8 and ldmatrix_x4"
            )
        for x in loops:
            if x.mark is not None and x.mark.kind == "vectorized":
                label = self.state.loop_label(self.sb.stage, x.loop.id)
                self.fail(
                    f"it lies inside loop {label!r}, which is vectorized; an intrinsic runs in "
                    "serial, unrolled and parallel loops"
                )
        outside = [x for x in loops if x.loop.kind == "reduce"]
        self.out.whole = not outside
        red = self.sb.op.reduction
        if not outside and red is not None and red.init is not None:
            self.fail(
                "the reduction starts from init=, and the body of the intrinsic from "
                f"{print_expr(red.combiner.identity[0])}; add that value in a stage of its own"
            )
        if outside and self.intrin.update is None:
            label = self.state.loop_label(self.sb.stage, outside[0].loop.id)
            self.fail(
                f"loop {label!r} of the reduction stands outside, and the intrinsic has no update "
                "that adds to the result; declare it, or tensorize a loop outside of this one"
            )

    def _in_warps(self) -> None:
        """Check that a warp's lanes run the intrinsic, and no loop of the stage is bound to
        them."""
        if self.sb.kernel is None or self.sb.scope != "warp":
            self.fail(
                "the lanes of a warp run the intrinsic, and its result lies in their registers; "
                'compute the stage inside a kernel, with set_scope("warp")'
            )
        for x in self.sb.loops:
            if launch_tag(x.mark):
                label = self.state.loop_label(self.sb.stage, x.loop.id)
                self.fail(
                    f"loop {label!r} is bound to {launch_tag(x.mark)}; all threads of threadIdx.x "
                    "run the intrinsic together, bind loops of the stage around"
                )

    def _inside(self, x: LoopBound) -> None:
        stage, label = self.sb.stage, self.state.loop_label(self.sb.stage, x.loop.id)
        if x.mark is not None:
            self.fail(
                f"loop {label!r} is {x.mark.kind} (step {x.mark.step}); the intrinsic says how its "
                "loops run, take the mark away"
            )
        inside = self.state.attached_at(stage.id, x.loop.id)
        if inside:
            self.fail(
                f"stage {self.state.label(inside[0])!r} is computed or stored at loop {label!r}; "
                "use a loop outside"
            )
        if not isinstance(x.extent, int):
            self.fail(f"loop {label!r} has no constant extent; split it by a constant")

    def _axes(self, kind: str, want: Sequence[IterVar], have: Sequence[IterVar]) -> None:
        """Match axes of more than one iteration in order."""
        covered: list[TensorizedAxis] = []
        for axis in have:
            part = region(self.sb, self.out.position, axis)
            if isinstance(part, str):
                self.fail(part)
            if part.extent != 1:
                covered.append(part)
        wanted = [a for a in want if a.extent != 1]
        same = len(covered) == len(wanted)
        if not same or any(a.extent != b.extent for a, b in zip(covered, wanted, strict=True)):
            has = ", ".join(f"{a.axis.name} = {a.extent}" for a in covered) or "none"
            wants = ", ".join(f"{a.name} = {a.extent}" for a in wanted) or "none"
            differ = next(
                (
                    f"; extent {k}: {b.extent} and {a.extent}"
                    for k, (a, b) in enumerate(zip(covered, wanted, strict=False))
                    if a.extent != b.extent
                ),
                "",
            )
            self.fail(
                f"the intrinsic wants {kind}axes {wants}; the nest has {has}{differ}; split and "
                "reorder so that these loops, and no others, stand from this one inwards"
            )
        self.out.axes |= {a.var: None for a in want}
        self.out.axes |= {b.var: a for a, b in zip(covered, wanted, strict=True)}

    # ------------------------------------------------------------ expressions

    def _bodies(self, want: Expr, have: Expr) -> None:
        if not isinstance(want, Reduce):
            self._expr(want, have)
            return
        assert isinstance(have, Reduce)
        if have.where is not None:
            self.fail(
                "the reduction of the nest has a condition (where=), which no intrinsic has; put "
                "it into a stage that the reduction reads"
            )
        if combiner_to_json(want.combiner) != combiner_to_json(have.combiner):
            self.fail(
                f"the intrinsic reduces with {want.combiner.name!r}, the nest with "
                f"{have.combiner.name!r}; {_DECLARE}"
            )
        self._expr(want.source[0], have.source[0])

    def _expr(self, want: Node, have: Node) -> None:
        if isinstance(want, Read) and isinstance(have, Read):
            self._operand(want, have)
            return
        if _head(want) != _head(have):
            wants = self._text(want, lambda r: self.intrin.dag.ops[r.source].name)
            has = self._text(have, self._label)
            self.fail(f"the intrinsic computes {wants}, the nest {has}; {_DECLARE}")
        if isinstance(want, Binary) and isinstance(have, Binary) and self._crossed(want, have):
            have = Binary(have.op, have.b, have.a, have.dtype)
        for w, h in zip(want.children(), have.children(), strict=True):
            self._expr(w, h)

    def _crossed(self, want: Binary, have: Binary) -> bool:
        """Whether operands fit the other way round only; where none fits, errors name the first."""
        if want.op not in _COMMUTE or self._fits(want.a, have.a):
            return False
        return self._fits(want.a, have.b) or self._fits(want.b, have.a)

    def _fits(self, want: Node, have: Node) -> bool:
        """Whether two operands look alike, down to the element types that they read."""
        if isinstance(want, Read) and isinstance(have, Read):
            before = self.out.reads.get(want.source)
            alike = want.dtype == have.dtype and self._same_axes(want, have)
            return alike and (before is None or same(before, have))
        parts = want.children(), have.children()
        matched = _head(want) == _head(have) and len(parts[0]) == len(parts[1])
        return matched and all(self._fits(w, h) for w, h in zip(*parts, strict=True))

    def _same_axes(self, want: Read, have: Read) -> bool:
        """Whether two reads move along the same axes inside the loop."""
        inside = {a.axis.var for a in self.out.axes.values() if a is not None}
        used = {v for i in have.indices for v in free_vars(i)} & inside
        moved = [self.out.axes.get(i) for i in want.indices if isinstance(i, Var)]
        return {a.axis.var for a in moved if a is not None} == used

    def _operand(self, want: Read, have: Read) -> None:
        name = self.intrin.dag.ops[want.source].name
        label = self._label(have)
        if want.dtype != have.dtype:
            self.fail(
                f"operand {name!r} is {want.dtype}; the nest reads {label!r}, which is "
                f"{have.dtype}; {_DECLARE}"
            )
        before = self.out.reads.setdefault(want.source, have)
        if not same(before, have):
            both = " and ".join(self._text(r, self._label) for r in (before, have))
            self.fail(f"operand {name!r} would be two elements: {both}; {_DECLARE}")

    def _label(self, r: Read) -> str:
        return self.state.output_label(r.source, r.value_index)

    def _text(self, e: Node, name: Callable[[Read], str]) -> str:
        """Text of an expression with names of its reads; with its dtype where that may differ."""

        def named(r: Read) -> Load:
            return Load(Buffer(name(r), (), r.dtype), r.indices, r.dtype)

        assert isinstance(e, Expr)
        shown = print_expr(map_nodes(e, Read, named))
        return f"{shown} ({e.dtype})" if isinstance(e, Cast | Const | Read) else shown


def _head(e: Node) -> tuple[object, ...]:
    """Content of a node without its children."""
    match e:
        case Const(value=v, dtype=d):
            return ("const", v, d)
        case Binary(op=op, dtype=d) | Unary(op=op, dtype=d):
            return (type(e).__name__, op, d)
        case Call(fn=fn, dtype=d):
            return ("call", fn, d, len(e.args))
        case Cast(dtype=d) | Select(dtype=d) | IfThenElse(dtype=d):
            return (type(e).__name__, d)
    return (type(e).__name__,)

"""The primitive rfactor: partial results along one reduction loop as a stage of their own.

Loops of the reduction are of two sorts. Those that share a root axis with the factored loop, by
splits and fuses, become axes of the new stage, and the root axes become expressions over them;
where a split over-runs a root axis, a condition leaves those points out. The others keep their root
axes and relations, which move to the new stage as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce as fold

from loopwright.ir.expr import Expr, IfThenElse, IterVar, Read, Var, binary, const
from loopwright.ir.reduction import Reduce, Tuple
from loopwright.ir.visitor import substitute
from loopwright.schedule.loop_use import Use
from loopwright.schedule.names import Names
from loopwright.schedule.rules.caching import fresh_axes
from loopwright.schedule.rules.reducing import refuse_in_order
from loopwright.schedule.state import (
    FuseRel,
    Loop,
    SplitRel,
    StageState,
    State,
    initial_stage,
    refuse,
)
from loopwright.schedule.steps import Step, register
from loopwright.te.op_node import OpNode, reads_of

Relation = SplitRel | FuseRel


@dataclass(frozen=True)
class Factoring:
    """Division of the loops of a reduction when loop ``factored`` is factored."""

    #: Root axes that stay reduction axes.
    roots: tuple[str, ...]
    #: Leaves that become reduction axes.
    leaves: tuple[str, ...]
    #: Relations that turn into expressions.
    taken: tuple[Relation, ...]
    #: Relations that move to the new stage.
    kept: tuple[Relation, ...]
    #: Loops of the old stage -> loops of the new one.
    moves: dict[str, str]


def _parts(r: Relation) -> tuple[str, str, str]:
    if isinstance(r, SplitRel):
        return r.parent, r.outer, r.inner
    return r.outer, r.inner, r.fused


def factoring(stage: StageState, factored: str, factor_axis: int) -> Factoring:
    relations = [r for r in stage.relations if stage.loops[_parts(r)[0]].kind == "reduce"]
    near = {factored}
    while True:
        wider = near.union(*(_parts(r) for r in relations if near & set(_parts(r))))
        if wider == near:
            break
        near = wider
    roots = [f"r{d}" for d in range(len(stage.op.reduce_axes))]
    kept_roots = tuple(r for r in roots if r not in near)
    leaves = tuple(x for x in stage.leaves if x in near and x != factored)
    moves = {x: f"r{d}" for d, x in enumerate((*kept_roots, *leaves))}
    moves[factored] = f"a{factor_axis}"
    kept = [r for r in relations if _parts(r)[0] not in near]
    for r in kept:
        moves |= {x: x for x in _parts(r) if x not in moves}
    taken = tuple(r for r in relations if _parts(r)[0] in near)
    return Factoring(kept_roots, leaves, taken, tuple(kept), moves)


@register("rfactor")
class RFactor(Step):
    """Compute partial results along a reduction loop, which becomes their axis ``factor_axis``."""

    loop: str
    factor_axis: int

    def apply(self, state: State, t: int) -> State:
        """Make a stage of partial results along the loop; the stage itself combines them."""
        stage = _check(state, self, t)
        op, red = stage.op, stage.op.reduction
        assert red is not None
        plan = factoring(stage, self.loop, self.factor_axis)
        new_id, loop = f"s{t}", stage.loops[self.loop]
        axis = IterVar.named(loop.name, loop.nominal, "reduce")
        at: list[Expr] = [a.var for a in op.axes]
        at.insert(self.factor_axis, axis.var)
        partial = tuple(Read(new_id, tuple(at), dtype, k) for k, dtype in enumerate(op.dtypes))
        body = Reduce(red.combiner, partial, (axis,), None, red.init, red.dtype)
        spatial = {x: v for x, v in stage.loops.items() if v.kind != "reduce"}
        combined = replace(
            stage,
            op=replace(op, reduce_axes=(axis,), body=body),
            loops={**spatial, "r0": Loop("r0", axis.name, "reduce", loop.nominal)},
            leaves=(*(x for x in stage.leaves if x in spatial), "r0"),
            relations=tuple(r for r in stage.relations if _parts(r)[0] in spatial),
        )
        pos = state.order.index(stage.id)
        return replace(
            state,
            stages={
                **state.stages,
                new_id: _partial_stage(stage, plan, self, new_id),
                stage.id: combined,
            },
            order=(*state.order[:pos], new_id, *state.order[pos:]),
        )

    def moved_loops(self, before: State) -> Mapping[str, str]:
        return factoring(before.stages[self.stage], self.loop, self.factor_axis).moves

    def as_python(self, names: Names) -> str:
        """Text such as ``C_rf = s.rfactor(C, k, 0)``."""
        tensor, loop = names.tensor(self.stage), names.loop(self.stage, self.loop)
        several = names.before.stages[self.stage].op.num_outputs > 1
        new = f"{names.new_stage()}, *_" if several else names.new_stage()
        return f"{new} = s.rfactor({tensor}, {loop}, {self.factor_axis})"


def _check(state: State, step: RFactor, t: int) -> StageState:
    stage = state.compute_stage(step.stage, "rfactor")
    name = state.label(stage.id)
    if stage.op.reduction is None:
        refuse("rfactor", t, f"{name!r} is no reduction; rfactor a stage that has reduction loops")
    loop = state.leaf(stage, step.loop, "rfactor")
    if stage.tensorized is not None:
        refuse(
            "rfactor",
            t,
            f"{name!r} is tensorized (step {stage.tensorized.step}); call rfactor before that and "
            "tensorize the stage of partial results",
        )
    label = state.loop_label(stage, loop.id)
    if loop.kind != "reduce":
        refuse(
            "rfactor", t, f"loop {label!r} is no reduction loop; factor one of those of {name!r}"
        )
    refuse_in_order(stage, "rfactor", t)
    if not 0 <= step.factor_axis <= len(stage.op.shape):
        n = len(stage.op.shape)
        refuse(
            "rfactor",
            t,
            f"factor_axis {step.factor_axis} is no place for the new axis; the partial results of "
            f"{name!r} have {n + 1} dimension(s), so it is one of {-n - 1} to {n}",
        )
    for x in stage.leaves:
        for use in state.uses(stage, x):
            _refuse_use(state, stage, x, use, t)
    return stage


def _refuse_use(state: State, stage: StageState, loop: str, use: Use, t: int) -> None:
    """Refuse a use: reduction loops must be free, and no stage may be computed at any loop."""
    says = use.says(state.loop_label(stage, loop))
    if use.kind == "attached":
        refuse(
            "rfactor",
            t,
            f"{says}, but its values go into the partial results; call rfactor first and "
            f"{use.primitive} afterwards",
        )
    if stage.loops[loop].kind == "reduce":
        marks = " and mark the loops of the stages that it leaves" if use.kind == "mark" else ""
        refuse("rfactor", t, f"{says}; call rfactor before that{marks}")


def _partial_stage(stage: StageState, plan: Factoring, step: RFactor, new_id: str) -> StageState:
    op = _partial(stage, plan, step)
    out = initial_stage(new_id, op)
    kept = {x for r in plan.kept for x in _parts(r) if plan.moves[x] == x}
    return replace(
        out,
        loops={**out.loops, **{x: v for x, v in stage.loops.items() if x in kept}},
        leaves=_leaves(stage, plan, op),
        relations=tuple(_renamed(r, plan.moves) for r in plan.kept),
        reordered=stage.reordered,
    )


def _partial(stage: StageState, plan: Factoring, step: RFactor) -> OpNode:
    op, red = stage.op, stage.op.reduction
    assert red is not None
    factored = stage.loops[step.loop]
    fresh = fresh_axes(op)
    env: dict[Var, Expr] = {a.var: b.var for a, b in zip(op.axes, fresh, strict=True)}
    own = IterVar.named(factored.name, factored.nominal, "spatial")
    axes = [*fresh]
    axes.insert(step.factor_axis, own)
    by_root = {f"r{d}": a for d, a in enumerate(op.reduce_axes)}
    leaves = [stage.loops[x] for x in plan.leaves]
    reduced = [IterVar.named(x.name, x.nominal, "reduce") for x in leaves]
    values: dict[str, Expr] = {x.id: a.var for x, a in zip(leaves, reduced, strict=True)}
    values[factored.id] = own.var
    conds = _values(stage, plan, values)
    for root, a in by_root.items():
        if root not in plan.roots:
            env[a.var] = values[root]
    where = both(conds, None if red.where is None else substitute(red.where, env))
    source = tuple(substitute(e, env) for e in red.source)
    over = (*(by_root[r] for r in plan.roots), *reduced)
    body: Expr
    if over:
        body = Reduce(red.combiner, source, over, where, None, red.dtype)
    else:
        body = _single(source, where, red)
    shape = tuple(a.extent for a in axes)
    return OpNode(f"{op.name}.rf", shape, op.dtype, tuple(axes), over, body)


def _single(source: tuple[Expr, ...], where: Expr | None, red: Reduce) -> Expr:
    """Body where no reduction is left: one value an output, the identity beyond the axis."""
    values = source
    if where is not None:
        both = zip(source, red.combiner.identity, strict=True)
        values = tuple(IfThenElse(where, e, none, e.dtype) for e, none in both)
    return values[0] if len(values) == 1 else Tuple(values, red.dtype)


def _values(stage: StageState, plan: Factoring, values: dict[str, Expr]) -> list[Expr]:
    """Fill in the values of loops that were split or fused; returns the conditions of over-runs."""
    conds: list[Expr] = []
    for r in reversed(plan.taken):
        n = stage.loops[r.inner].nominal
        if isinstance(r, FuseRel):
            values[r.outer] = binary("//", values[r.fused], n)
            values[r.inner] = binary("%", values[r.fused], n)
            continue
        value = binary("+", binary("*", values[r.outer], n), values[r.inner])
        values[r.parent] = value
        extent = stage.loops[r.parent].nominal
        covered = stage.loops[r.outer].nominal * n
        if not isinstance(covered, int) or not isinstance(extent, int) or covered > extent:
            conds.append(binary("<", value, extent))
    return conds


def both(conds: list[Expr], where: Expr | None) -> Expr | None:
    """Conditions of over-runs, and the reduction's own, which reads only where they hold."""
    if not conds:
        return where
    inside = fold(lambda a, b: binary("and", a, b), conds)
    if where is None:
        return inside
    if reads_of(where):
        return IfThenElse(inside, where, const(0, "bool"), "bool")
    return binary("and", inside, where)


def _leaves(stage: StageState, plan: Factoring, parts: OpNode) -> tuple[str, ...]:
    """Loops of the new stage: spatial ones, then the reduction's in the order that they had."""
    moved = [plan.moves[x] for x in stage.leaves if x in plan.moves]
    return (*(f"a{d}" for d in range(len(parts.axes))), *(x for x in moved if x[0] != "a"))


def _renamed(r: Relation, moves: dict[str, str]) -> Relation:
    if isinstance(r, SplitRel):
        return replace(r, parent=moves[r.parent], outer=moves[r.outer], inner=moves[r.inner])
    return replace(r, outer=moves[r.outer], inner=moves[r.inner], fused=moves[r.fused])

"""The primitive rfactor: partial results along one reduction loop as a stage of their own.

Loops of the reduction are of two sorts. Those that share a root axis with the factored loop, by
splits and fuses, become axes of the new stage, and the root axes become expressions over them;
where a split over-runs a root axis, a condition leaves those points out. The others keep their root
axes and relations, which move to the new stage as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce as fold

from loopwright.ir.expr import Expr, IfThenElse, IterVar, Read, Var, binary, const
from loopwright.ir.reduction import Reduce, Tuple
from loopwright.ir.traversal import substitute
from loopwright.schedule import steps as st
from loopwright.schedule.rules.caching import fresh_axes
from loopwright.schedule.state import (
    FuseRel,
    Loop,
    SplitRel,
    StageState,
    State,
    initial_stage,
    refuse,
)
from loopwright.te.op_node import OpNode, reads_of

Relation = SplitRel | FuseRel


@dataclass(frozen=True)
class Factoring:
    """How the loops of a reduction are shared out when loop ``factored`` is factored.

    Attributes:
        roots: root axes that stay reduction axes.
        leaves: leaves that become reduction axes.
        taken: relations that turn into expressions.
        kept: relations that move to the new stage.
        moves: loops of the old stage -> loops of the new one.
    """

    roots: tuple[str, ...]
    leaves: tuple[str, ...]
    taken: tuple[Relation, ...]
    kept: tuple[Relation, ...]
    moves: dict[str, str]


def _parts(r: Relation) -> tuple[str, str, str]:
    if isinstance(r, SplitRel):
        return r.parent, r.outer, r.inner
    return r.outer, r.inner, r.fused


def factoring(stage: StageState, factored: str, factor_axis: int) -> Factoring:
    """Share out the reduction loops of a stage."""
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


def rfactor(state: State, step: st.RFactor, t: int) -> State:
    """Make a stage of partial results along a reduction loop; the stage itself combines them."""
    stage = _check(state, step, t)
    op, red = stage.op, stage.op.reduction
    assert red is not None
    plan = factoring(stage, step.loop, step.factor_axis)
    new_id, loop = f"s{t}", stage.loops[step.loop]
    parts = _partial(stage, plan, step)
    made = replace(
        initial_stage(new_id, parts),
        leaves=_leaves(stage, plan, parts),
        relations=tuple(_renamed(r, plan.moves) for r in plan.kept),
        reordered=stage.reordered,
    )
    for r in plan.kept:
        new = {x: stage.loops[x] for x in _parts(r) if plan.moves[x] == x}
        made = replace(made, loops={**made.loops, **new})
    axis = IterVar(Var(loop.name), loop.nominal, "reduce")
    at: list[Expr] = [a.var for a in op.axes]
    at.insert(step.factor_axis, axis.var)
    partial = tuple(Read(new_id, tuple(at), dtype, k) for k, dtype in enumerate(op.dtypes))
    body = Reduce(red.combiner, partial, (axis,), None, red.init, red.dtype)
    loops = {x: v for x, v in stage.loops.items() if v.kind != "reduce"}
    spatial = tuple(x for x in stage.leaves if stage.loops[x].kind != "reduce")
    combined = replace(
        stage,
        op=replace(op, reduce_axes=(axis,), body=body),
        loops={**loops, "r0": Loop("r0", axis.name, "reduce", loop.nominal)},
        leaves=(*spatial, "r0"),
        relations=tuple(r for r in stage.relations if stage.loops[_parts(r)[0]].kind != "reduce"),
    )
    pos = state.order.index(stage.id)
    order = (*state.order[:pos], new_id, *state.order[pos:])
    return replace(state, stages={**state.stages, new_id: made, stage.id: combined}, order=order)


def _check(state: State, step: st.RFactor, t: int) -> StageState:
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
    if not 0 <= step.factor_axis <= len(stage.op.shape):
        n = len(stage.op.shape)
        refuse(
            "rfactor",
            t,
            f"factor_axis {step.factor_axis} is no place for the new axis; the partial results of "
            f"{name!r} have {n + 1} dimension(s), so it is one of {-n - 1} to {n}",
        )
    for x in stage.leaves:
        own = state.loop_label(stage, x)
        if stage.loops[x].kind == "reduce" and x in stage.marks:
            m = stage.marks[x]
            refuse(
                "rfactor",
                t,
                f"loop {own!r} is already {m.kind} (step {m.step}); call rfactor before that and "
                "mark the loops of the stages that it leaves",
            )
        if stage.loops[x].kind == "reduce" and any(p[0] == x for p in stage.pragmas):
            refuse("rfactor", t, f"loop {own!r} carries a pragma; call rfactor before that")
        if stage.loops[x].kind == "reduce" and any(p.loop == x for p in stage.prefetches):
            refuse("rfactor", t, f"loop {own!r} prefetches a tensor; call rfactor before that")
        if inside := state.attached_at(stage.id, x):
            refuse(
                "rfactor",
                t,
                f"stage {state.label(inside[0])!r} is computed at loop {own!r}, but its values go "
                "into the partial results; call rfactor first and compute_at afterwards",
            )
    return stage


def _partial(stage: StageState, plan: Factoring, step: st.RFactor) -> OpNode:
    """The operation of the partial results."""
    op, red = stage.op, stage.op.reduction
    assert red is not None
    factored = stage.loops[step.loop]
    fresh = fresh_axes(op)
    env: dict[Var, Expr] = {a.var: b.var for a, b in zip(op.axes, fresh, strict=True)}
    own = IterVar(Var(factored.name), factored.nominal, "spatial")
    axes = [*fresh]
    axes.insert(step.factor_axis, own)
    by_root = {f"r{d}": a for d, a in enumerate(op.reduce_axes)}
    leaves = [stage.loops[x] for x in plan.leaves]
    reduced = [IterVar(Var(x.name), x.nominal, "reduce") for x in leaves]
    values: dict[str, Expr] = {x.id: a.var for x, a in zip(leaves, reduced, strict=True)}
    values[factored.id] = own.var
    conds = _values(stage, plan, values)
    for root, a in by_root.items():
        if root not in plan.roots:
            env[a.var] = values[root]
    where = _both(conds, None if red.where is None else substitute(red.where, env))
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
    """The body where no reduction is left: one value an output, the identity beyond the axis."""
    values = source
    if where is not None:
        both = zip(source, red.combiner.identity, strict=True)
        values = tuple(IfThenElse(where, e, none, e.dtype) for e, none in both)
    return values[0] if len(values) == 1 else Tuple(values, red.dtype)


def _values(stage: StageState, plan: Factoring, values: dict[str, Expr]) -> list[Expr]:
    """Fill in the values of loops that were split or fused; returns what over-runs violate."""
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


def _both(conds: list[Expr], where: Expr | None) -> Expr | None:
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

"""The primitive rfactor: partial results along one reduction loop as a stage of their own.

Reduction loops that share a root axis with the factored loop, by splits and fuses, become axes of
the new stage, and the root axes expressions over them; a condition leaves out what a split
over-runs. The others keep their root axes and relations, which move to the new stage as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce as fold

from loopwright.ir.expr import (
    Expr,
    IfThenElse,
    IterVar,
    Read,
    Select,
    Var,
    binary,
    const,
    position_of,
)
from loopwright.ir.reduction import Reduce, Scan, Tuple, scan_of
from loopwright.ir.visitor import substitute
from loopwright.schedule.bounds.relations import loop_extents
from loopwright.schedule.primitives.caching import computing, fresh_axes, untouched
from loopwright.schedule.primitives.loops import NOMINAL, refuse_in_order
from loopwright.schedule.state import (
    FuseRel,
    IllegalStep,
    Loop,
    SplitRel,
    StageId,
    StageState,
    State,
    initial_stage,
)
from loopwright.schedule.steps import Step, TraceNames, register
from loopwright.te import OpNode, reads_of

Relation = SplitRel | FuseRel


@dataclass(frozen=True)
class Factoring:
    """Division of the loops of a reduction when loop ``factored`` is factored."""

    roots: tuple[str, ...]  #: root axes that stay reduction axes
    leaves: tuple[str, ...]  #: leaves that become reduction axes
    taken: tuple[Relation, ...]  #: relations that turn into expressions
    kept: tuple[Relation, ...]  #: relations that move to the new stage
    moves: dict[str, str]  #: loops of the old stage -> loops of the new one


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
    loop: str
    factor_axis: int

    def apply(self, state: State, t: int) -> State:
        stage = _checked(state, self)
        op, red = stage.op, stage.op.reduction
        assert red is not None
        plan = factoring(stage, self.loop, self.factor_axis)
        stage = _uncut(stage, plan)
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
        partial_stage = _partial_stage(stage, plan, self, new_id)
        return state.inserted(state.order.index(stage.id), partial_stage, changed=[combined])

    def moved_loops(self, before: State) -> Mapping[str, str]:
        return factoring(before.stages[self.stage], self.loop, self.factor_axis).moves

    def as_python(self, names: TraceNames) -> str:
        tensor, loop = names.tensor(self.stage), names.loop(self.stage, self.loop)
        several = names.before.stages[self.stage].op.num_outputs > 1
        new = f"{names.new_stage()}, *_" if several else names.new_stage()
        return f"{new} = s.rfactor({tensor}, {loop}, {self.factor_axis})"


def _checked(state: State, step: RFactor) -> StageState:
    stage = state.compute_stage(step.stage)
    name = state.label(stage.id)
    if stage.op.reduction is None:
        raise IllegalStep(f"{name!r} is no reduction; rfactor a stage that has reduction loops")
    loop = state.leaf(stage, step.loop)
    if stage.tensorized is not None:
        raise IllegalStep(
            f"{name!r} is tensorized (step {stage.tensorized.step}); call rfactor before that and "
            "tensorize the stage of partial results"
        )
    label = state.loop_label(stage, loop.id)
    if loop.kind != "reduce":
        raise IllegalStep(f"loop {label!r} is no reduction loop; factor one of those of {name!r}")
    refuse_in_order(stage, "rfactor")
    if not 0 <= step.factor_axis <= len(stage.op.shape):
        n = len(stage.op.shape)
        raise IllegalStep(
            f"factor_axis {step.factor_axis} is no place for the new axis; the partial results of "
            f"{name!r} have {n + 1} dimension(s), so it is one of {-n - 1} to {n}"
        )
    # Reduction loops must be free, and no stage may be computed at any loop.
    for loop_id, use in [(x, use) for x in stage.leaves for use in state.uses(stage, x)]:
        says = use.says(state.loop_label(stage, loop_id))
        if use.kind == "attached":
            raise IllegalStep(
                f"{says}, but its values go into the partial results; call rfactor first and "
                f"{use.primitive} afterwards"
            )
        if stage.loops[loop_id].kind == "reduce":
            marks = " and mark the loops of the stages that it leaves" if use.kind == "mark" else ""
            raise IllegalStep(f"{says}; call rfactor before that{marks}")
    return stage


def _uncut(stage: StageState, plan: Factoring) -> StageState:
    """The stage with ``nparts`` of the loops that turn into axes as given: threads may run them."""
    spatial, reduce = (
        [stage.loops[f"{kind}{d}"].nominal for d in range(n)]
        for kind, n in (("a", len(stage.op.axes)), ("r", len(stage.op.reduce_axes)))
    )
    extents = loop_extents(stage, spatial, reduce, NOMINAL, may_shrink=False)
    taken = {x for r in plan.taken for x in _parts(r)}
    loops = {x: replace(v, nominal=extents[x]) for x, v in stage.loops.items() if x in taken}
    return replace(stage, loops={**stage.loops, **loops})


def _partial_stage(stage: StageState, plan: Factoring, step: RFactor, new_id: str) -> StageState:
    op = _partial(stage, plan, step)
    out = initial_stage(new_id, op)
    kept = {x for r in plan.kept for x in _parts(r) if plan.moves[x] == x}
    moved = [plan.moves[x] for x in stage.leaves if x in plan.moves]
    return replace(
        out,
        loops={**out.loops, **{x: v for x, v in stage.loops.items() if x in kept}},
        # Spatial ones, then the reduction's in the order that they had.
        leaves=(*(f"a{d}" for d in range(len(op.axes))), *(x for x in moved if x[0] != "a")),
        relations=tuple(_renamed(r, plan.moves) for r in plan.kept),
        reordered=stage.reordered,
    )


def _partial(stage: StageState, plan: Factoring, step: RFactor) -> OpNode:
    op, red = stage.op, stage.op.reduction
    assert red is not None
    factored = stage.loops[step.loop]
    fresh = fresh_axes(op)
    env: dict[Var, Expr] = {a.var: b.var for a, b in zip(op.axes, fresh, strict=True)}
    factor_axis = IterVar.named(factored.name, factored.nominal, "spatial")
    axes = [*fresh]
    axes.insert(step.factor_axis, factor_axis)
    by_root = {f"r{d}": a for d, a in enumerate(op.reduce_axes)}
    leaves = [stage.loops[x] for x in plan.leaves]
    reduced = [IterVar.named(x.name, x.nominal, "reduce") for x in leaves]
    values: dict[str, Expr] = {x.id: a.var for x, a in zip(leaves, reduced, strict=True)}
    values[factored.id] = factor_axis.var
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
        # One value an output, the identity beyond the axis.
        if where is not None:
            both_values = zip(source, red.combiner.identity, strict=True)
            source = tuple(IfThenElse(where, e, none, e.dtype) for e, none in both_values)
        body = source[0] if len(source) == 1 else Tuple(source, red.dtype)
    shape = tuple(a.extent for a in axes)
    return OpNode(f"{op.name}.rf", shape, op.dtype, tuple(axes), over, body)


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


def _renamed(r: Relation, moves: dict[str, str]) -> Relation:
    if isinstance(r, SplitRel):
        return replace(r, parent=moves[r.parent], outer=moves[r.outer], inner=moves[r.inner])
    return replace(r, outer=moves[r.outer], inner=moves[r.inner], fused=moves[r.fused])


@register("blocked_scan")
class BlockedScan(Step):
    loop: str
    factor: int

    def apply(self, state: State, t: int) -> State:
        """Make stages of totals and of running totals; the stage itself begins with the latter."""
        stage, scan = _scan_of(state, self)
        running, totals = f"s{t}", f"s{t}.0"
        plan = _Blocks(stage.op, scan, self.factor, running, totals)
        return state.inserted(
            state.order.index(stage.id),
            initial_stage(totals, plan.total()),
            initial_stage(running, plan.between()),
            changed=[computing(stage, plan.within())],
        )

    def moved_loops(self, before: State) -> Mapping[str, str]:
        """Nothing: no loop of the reduction stays what it was."""
        return {}

    def as_python(self, names: TraceNames) -> str:
        tensor, loop = names.tensor(self.stage), names.loop(self.stage, self.loop)
        new = f"{names.new_stage()}, {names.tensor(f's{names.step}.0')}"
        return f"{new} = s.blocked_scan({tensor}, {loop}, {self.factor})"


def _scan_of(state: State, step: BlockedScan) -> tuple[StageState, Scan]:
    stage = untouched(state, step.stage, "blocked_scan")
    name, op = state.label(stage.id), stage.op
    loop = state.leaf(stage, step.loop)
    over = {f"r{d}": x for d, x in enumerate(op.reduce_axes)}.get(loop.id)
    scan = None
    if over is not None and op.reduction is not None:
        scan = scan_of(op.axes, op.reduction, over)
    if scan is None:
        raise IllegalStep(
            f"{name!r} is no scan along {state.loop_label(stage, loop.id)!r}: a reduction of "
            "select(k <= j, element, identity), where the element does not depend on axis j of the "
            "result, and all sizes are known"
        )
    low, high = scan.range
    if isinstance(step.factor, bool) or not 1 < step.factor < high - low:
        raise IllegalStep(
            f"a block of {step.factor} is no part of the {max(0, high - low)} elements that "
            f"{name!r} combines; give a number between"
        )
    return stage, scan


@dataclass(frozen=True, eq=False)
class _Blocks:
    op: OpNode
    scan: Scan
    factor: int  #: elements of a block
    running: StageId  #: stage of running totals
    totals: StageId  #: stage of totals

    @property
    def count(self) -> int:
        return -(-self.scan.range[1] // self.factor)

    def total(self) -> OpNode:
        """Operation that combines each block to one element."""
        op, scan, red = self.op, self.scan, self._reduction
        axes, block = self._axes()
        step = IterVar.named(scan.over.name, self.factor, "reduce")
        at = self._place(block.var, step)
        values: dict[Var, Expr] = {a.var: b.var for a, b in zip(op.axes, axes, strict=True)}
        values[scan.over.var] = at
        over = tuple(step if x is scan.over else x for x in red.axes)
        source = (substitute(scan.element, values),)
        where = self._where(values, at)
        body = Reduce(red.combiner, source, over, where, None, red.dtype)
        return self._node("totals", axes, body)

    def between(self) -> OpNode:
        """Operation of the totals of all blocks up to each (from it on, in a backward scan)."""
        scan, red = self.scan, self._reduction
        axes, block = self._axes()
        other = IterVar.named(scan.over.name, self.count, "reduce")
        sign = "<=" if scan.forward else ">="
        indices = tuple(other.var if a is block else a.var for a in axes)
        total = Read(self.totals, indices, self.op.dtype)
        (identity,) = red.combiner.identity
        source = Select(binary(sign, other.var, block.var), total, identity, self.op.dtype)
        body = Reduce(red.combiner, (source,), (other,), None, None, red.dtype)
        return self._node("blocks", axes, body)

    def within(self) -> OpNode:
        """Operation that combines for each place its own block, starting from those before."""
        op, scan, red = self.op, self.scan, self._reduction
        step = IterVar.named(scan.over.name, self.factor, "reduce")
        block = self._own_block()
        at = self._place(block, step)
        values: dict[Var, Expr] = {scan.over.var: at}
        element = substitute(scan.element, values)
        # Both sides without what they share: a vector along a block compares it with constants.
        limit = binary("-", scan.place.var, binary("*", block, self.factor))
        limit = binary("+", limit, scan.offset) if scan.offset else limit
        inside = binary("<=" if scan.forward else ">=", step.var, limit)
        (identity,) = red.combiner.identity
        source = (Select(inside, element, identity, element.dtype),)
        over = tuple(step if x is scan.over else x for x in red.axes)
        where, start = self._where(values, at), (self._start(block),)
        body = Reduce(red.combiner, source, over, where, start, red.dtype)
        return replace(op, reduce_axes=over, body=body)

    def _own_block(self) -> Expr:
        """Block in which the last element of a place lies: none before it has others."""
        scan = self.scan
        # The element next to the block of a place is the last one of the block before.
        next_to = -1 if scan.forward else 1
        offset = 0 if scan.offset == next_to else scan.offset
        place = binary("+", scan.place.var, offset) if offset else scan.place.var
        if offset < 0:
            place = binary("max", place, 0)
        last = self.count * self.factor - 1
        if scan.place.count - 1 + offset > last:
            place = binary("min", place, last)
        return binary("//", place, self.factor)

    def _start(self, block: Expr) -> Expr:
        """Combination of all blocks before that of a place."""
        op, scan = self.op, self.scan
        (identity,) = self._reduction.combiner.identity
        neighbour = binary("-" if scan.forward else "+", block, 1)
        limit = binary(">=", neighbour, 0) if scan.forward else binary("<", neighbour, self.count)
        indices = tuple(neighbour if a is scan.place else a.var for a in op.axes)
        return IfThenElse(limit, Read(self.running, indices, op.dtype), identity, op.dtype)

    @property
    def _reduction(self) -> Reduce:
        assert self.op.reduction is not None
        return self.op.reduction

    def _axes(self) -> tuple[list[IterVar], IterVar]:
        """Axes of a new stage, and the one of them that counts blocks."""
        axes, at = list(fresh_axes(self.op)), position_of(self.scan.place, self.op.axes)
        axes[at] = IterVar.named(self.scan.place.name, self.count, "spatial")
        return axes, axes[at]

    def _node(self, name: str, axes: Sequence[IterVar], body: Reduce) -> OpNode:
        shape = tuple(x.extent for x in axes)
        op = self.op
        return OpNode(f"{op.name}.{name}", shape, op.dtype, tuple(axes), body.axes, body)

    def _place(self, block: Expr, step: IterVar) -> Expr:
        return binary("+", binary("*", block, self.factor), step.var)

    def _where(self, values: Mapping[Var, Expr], at: Expr) -> Expr | None:
        """Condition that an element exists: blocks may reach beyond, and ``where`` must hold."""
        scan, red = self.scan, self._reduction
        low, high = scan.range
        conditions: list[Expr] = []
        if low:
            conditions.append(binary(">=", at, low))
        if self.count * self.factor > high:
            conditions.append(binary("<", at, high))
        where = red.where if red.where is not scan.condition else None
        return both(conditions, None if where is None else substitute(where, dict(values)))

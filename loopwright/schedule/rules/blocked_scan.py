"""The primitive blocked_scan: running sums by blocks, in linear instead of quadratic work.

A reduction of which each place ``j`` combines ``k <= j`` is a triangle. All places of one block of
``j`` have the blocks of ``k`` before theirs in common: a first new stage combines each block to one
element, its total, a second one the totals up to each block. From there the reduction of a place
starts, and combines the elements of its own block up to it. The second stage is a scan again, so
that the primitive may be called for it in turn (Blelloch, Prefix Sums and Their Applications, CMU
1990).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from loopwright.ir.expr import Expr, IfThenElse, IterVar, Read, Select, Var, binary, position_of
from loopwright.ir.reduction import Reduce, Scan, scan_of
from loopwright.ir.visitor import substitute
from loopwright.schedule.names import Names
from loopwright.schedule.rules.caching import fresh_axes
from loopwright.schedule.rules.rfactor import both
from loopwright.schedule.state import StageId, StageState, State, initial_stage, refuse
from loopwright.schedule.steps import Step, register
from loopwright.te.op_node import OpNode


@register("blocked_scan")
class BlockedScan(Step):
    """Run a scan along reduction loop ``loop`` by blocks of ``factor``."""

    loop: str
    factor: int

    def apply(self, state: State, t: int) -> State:
        """Make stages of totals and of running totals; the stage itself begins with the latter."""
        stage, scan = _check(state, self, t)
        running, totals = f"s{t}", f"s{t}.0"
        plan = _Blocks(stage.op, scan, self.factor, running, totals)
        own = replace(
            initial_stage(stage.id, plan.within(), stage.scope),
            attach=stage.attach,
            group=stage.group,
            env_threads=stage.env_threads,
            since=stage.since,
        )
        pos = state.order.index(stage.id)
        return replace(
            state,
            stages={
                **state.stages,
                totals: initial_stage(totals, plan.total()),
                running: initial_stage(running, plan.between()),
                stage.id: own,
            },
            order=(*state.order[:pos], totals, running, *state.order[pos:]),
        )

    def moved_loops(self, before: State) -> Mapping[str, str]:
        """Nothing: no loop of the reduction stays what it was."""
        return {}

    def as_python(self, names: Names) -> str:
        """Text such as ``Y_blocks, Y_totals = s.blocked_scan(Y, k, 16)``."""
        tensor, loop = names.tensor(self.stage), names.loop(self.stage, self.loop)
        made = f"{names.new_stage()}, {names.tensor(f's{names.step}.0')}"
        return f"{made} = s.blocked_scan({tensor}, {loop}, {self.factor})"


def _check(state: State, step: BlockedScan, t: int) -> tuple[StageState, Scan]:
    stage = state.compute_stage(step.stage, "blocked_scan")
    name, op = state.label(stage.id), stage.op
    if stage.transformed or stage.layout is not None or stage.align:
        refuse(
            "blocked_scan",
            t,
            f"the loops of {name!r} are already transformed (now {state.loop_list(stage)}); call "
            "blocked_scan before split, reorder and annotations",
        )
    if any(state.uses(stage, x) for x in stage.leaves):
        refuse("blocked_scan", t, f"a stage is already computed inside {name!r}; call it before")
    loop = state.leaf(stage, step.loop, "blocked_scan")
    over = {f"r{d}": x for d, x in enumerate(op.reduce_axes)}.get(loop.id)
    scan = None
    if over is not None and op.reduction is not None:
        scan = scan_of(op.axes, op.reduction, over)
    if scan is None:
        refuse(
            "blocked_scan",
            t,
            f"{name!r} is no scan along {state.loop_label(stage, loop.id)!r}: a reduction of "
            "select(k <= j, element, identity), where the element does not depend on axis j of the "
            "result, and all sizes are known",
        )
    low, high = scan.range
    if isinstance(step.factor, bool) or not 1 < step.factor < high - low:
        refuse(
            "blocked_scan",
            t,
            f"a block of {step.factor} is no part of the {max(0, high - low)} elements that "
            f"{name!r} combines; give a number between",
        )
    return stage, scan


@dataclass(frozen=True, eq=False)
class _Blocks:
    op: OpNode
    scan: Scan
    #: Elements of a block.
    factor: int
    #: Stage of running totals.
    running: StageId
    #: Stage of totals.
    totals: StageId

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
        found: list[Expr] = []
        if low:
            found.append(binary(">=", at, low))
        if self.count * self.factor > high:
            found.append(binary("<", at, high))
        own = red.where if red.where is not scan.condition else None
        return both(found, None if own is None else substitute(own, dict(values)))

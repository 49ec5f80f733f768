"""Reductions in the nest of a stage: how they start, accumulate and end.

A reduction's init nest stands just outside its outermost reduction loop and repeats only the
spatial loops inside it. Vector lanes (`vector_reduction`) and threads that reduce together
(`cross_thread`) have accumulators of their own around the loops; the nest that starts them, and the
one that writes what they made, are of the same shape.
"""

from __future__ import annotations

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, Var
from loopwright.ir.reduction import Reduce
from loopwright.ir.stmt import Allocate, For, If, Let, Stmt, seq
from loopwright.ir.traversal import free_vars, substitute
from loopwright.lowering.nest.buffers import Buffers
from loopwright.lowering.nest.cross_thread import CrossThread
from loopwright.lowering.nest.guards import Guards
from loopwright.lowering.nest.multi_output import combine_into, write_all
from loopwright.lowering.nest.tensorize import Tensorization
from loopwright.lowering.nest.values import Values
from loopwright.lowering.nest.vector_reduction import Lanes
from loopwright.schedule.bounds.results import StageBounds


class Reduction:
    """The reduction of one stage.

    Attributes:
        first: the outermost reduction loop, around which all of it stands.
    """

    def __init__(
        self,
        buffers: Buffers,
        sb: StageBounds,
        guards: Guards,
        values: Values,
        ways: tuple[Lanes | None, CrossThread | None, Tensorization | None],
    ) -> None:
        """A reduction.

        Args:
            buffers, sb, guards, values: of the stage.
            ways: what does its work, where plain loops do not do it alone.
        """
        assert sb.op.reduction is not None
        self.b, self.sb, self.guards, self.values = buffers, sb, guards, values
        self.lanes, self.cross, self.tensor = ways
        self.red = sb.op.reduction
        self.buffers = buffers.of[sb.stage.id]
        self.first = next(p for p, x in enumerate(sb.loops) if x.loop.kind == "reduce")

    def update(self, body: Reduce) -> Stmt:
        """What one iteration does."""
        indices = self.values.own_element()
        values = [self.values.of(e) for e in body.source]
        if self.lanes is not None:
            of_lanes = [g for g in self.sb.guards if self.guards.in_lanes(g)]
            conds = [c for g in of_lanes for c in self.guards.conditions(g)]
            where = None if body.where is None else self.values.of(body.where)
            return self.lanes.update(values, conds, where)
        if self.cross is not None:
            update = self.cross.update(values)
        else:
            old = [Load(b, indices, b.dtype) for b in self.buffers]
            label = self.b.state.label(self.sb.stage.id)
            update = combine_into(self.buffers, indices, body.combiner, old, values, label)
        return update if body.where is None else If(self.values.of(body.where), update)

    def around(self, loops: Stmt) -> Stmt:
        """The outermost reduction loop between what starts and what ends the reduction."""
        if self.cross is not None:
            return self._of_threads(self.cross, loops)
        if self.lanes is not None:
            return self._of_lanes(self.lanes, loops)
        return seq(self._start(), loops)

    # ------------------------------------------------------------ kinds

    def _start(self) -> Stmt:
        """A nest that sets the elements to the reducer's start."""
        reset = None
        if self.tensor is not None and self.first < self.tensor.position:
            reset = self._reset(self.tensor)
        if reset is not None:
            return reset
        start = [self.values.of(e) for e in self.red.start]
        return self._each_element(write_all(self.buffers, self.values.own_element(), start))

    def _reset(self, tensor: Tensorization) -> Stmt | None:
        """What starts a reduction by the intrinsic's own means, where nothing is guarded."""
        part = tensor.intrin.reset
        if part is None or self.red.init is not None:
            return None
        spatial = [g for g in self.sb.guards if g.kind != "reduce"]
        if any(self.guards.conditions(g) for g in spatial):
            return None
        return self._each_element(tensor.operate(part, self.values), upto=tensor.position)

    def _of_lanes(self, lanes: Lanes, loops: Stmt) -> Stmt:
        """Accumulators of their own, combined into the elements after the loops."""
        init, own = self._init(), self.values.own_element()
        begin = self._each_element(lanes.start(), guarded=False)
        if lanes.together:
            end = lanes.folded(self._each_element, self.buffers, own, init)
        else:
            end = self._each_element(lanes.end(self.buffers, own, init))
        return _holding(lanes.buffers, seq(begin, loops, end))

    def _of_threads(self, cross: CrossThread, loops: Stmt) -> Stmt:
        """A reduction by several threads; see `loopwright.lowering.nest.cross_thread`."""
        store = cross.store(self.buffers, self.values.own_element(), self._init())
        whole = seq(
            self._each_element(cross.start(), guarded=False),
            loops,
            self._each_element(cross.combine(), guarded=False),
            self._each_element(store),
        )
        return _holding(cross.buffers, whole)

    def _init(self) -> list[Expr] | None:
        init = self.red.init
        return None if init is None else [self.values.of(e) for e in init]

    # ------------------------------------------------------------ the nest of start and end

    def _each_element(self, body: Stmt, guarded: bool = True, upto: int | None = None) -> Stmt:
        """A statement over the spatial loops inside ``first``, where their guards hold.

        ``upto`` is the first of the loops that the statement runs through by itself.
        """
        needed = free_vars(body)
        known = self.guards.assumed
        spatial = [g for g in self.sb.guards if g.kind != "reduce" and g not in known]
        spatial = spatial if guarded else []
        for g in spatial:
            needed |= set(g.value.terms)
        renamed: dict[Var, Expr] = {}
        last = len(self.sb.loops) if upto is None else upto
        for p in range(last - 1, self.first - 1, -1):
            x = self.sb.loops[p]
            body = self.guards.around([g for g in spatial if self.guards.position(g) == p], body)
            for var, value in reversed(self.sb.lets[p + 1]):
                if var in needed:
                    renamed[var] = fresh = Var(var.name, var.dtype)
                    body = Let(fresh, value, body)
                    needed |= free_vars(value)
            axis = self.sb.launch_var(x)
            if axis is not None and axis is not x.var:
                renamed[x.var] = fresh = Var(x.var.name)
                body = Let(fresh, axis, body)
            if x.loop.kind == "reduce" or x.extent == 1 or axis is not None:
                continue
            renamed[x.var] = fresh = Var(x.var.name, x.var.dtype)
            self.sb.sizes.ranges.enter(fresh, x.extent)
            kind = x.mark.kind if x.mark else "serial"
            extent, tag = self.sb.sizes.dim(x.extent), x.mark.tag if x.mark else ""
            body = For(fresh, extent, kind, body, (), tag)
        out: Stmt = substitute(body, renamed)
        return out


def _holding(buffers: list[Buffer], body: Stmt) -> Stmt:
    """A statement inside the accumulators that it uses."""
    for buffer in reversed(buffers):
        body = Allocate(buffer, body)
    return body

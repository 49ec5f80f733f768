"""Reductions in the nest of a stage: their start, accumulation and end.

The nest that starts the elements stands just outside the outermost reduction loop and repeats only
the loops over elements inside it. `vector_reduction` and `cross_thread` add into accumulators of
their own, started and written by nests with the same loops.
"""

from __future__ import annotations

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, Var
from loopwright.ir.kinds import LoopKind
from loopwright.ir.reduction import Reduce
from loopwright.ir.stmt import Allocate, For, If, Let, Stmt, seq
from loopwright.ir.traversal import free_vars, substitute
from loopwright.lowering.nest.accumulators import first_reduction_loop
from loopwright.lowering.nest.buffers import Buffers
from loopwright.lowering.nest.cross_thread import CrossThread
from loopwright.lowering.nest.guards import Guards
from loopwright.lowering.nest.multi_output import combine_into, write_all
from loopwright.lowering.nest.tensorize import Tensorization
from loopwright.lowering.nest.values import Values
from loopwright.lowering.nest.vector_reduction import VectorReduction
from loopwright.schedule.bounds.results import LoopBound, StageBounds


class Reduction:
    def __init__(
        self,
        buffers: Buffers,
        sb: StageBounds,
        guards: Guards,
        values: Values,
        vector: VectorReduction | None,
        cross: CrossThread | None,
        tensor: Tensorization | None,
    ) -> None:
        assert sb.op.reduction is not None
        self.b, self.sb, self.guards, self.values = buffers, sb, guards, values
        #: Reductions that are not by plain loops only; None for others.
        self.vector, self.cross, self.tensor = vector, cross, tensor
        self.red = sb.op.reduction
        self.buffers = buffers.of[sb.stage.id]
        #: The outermost reduction loop.
        self.first = first_reduction_loop(sb)

    def update(self, body: Reduce) -> Stmt:
        indices = self.values.own_element()
        values = [self.values.of(e) for e in body.source]
        asked = None if self.guards.reduces_all() else body.where
        if self.vector is not None:
            of_lanes = [g for g in self.sb.guards if self.guards.in_lanes(g)]
            conds = [c for g in of_lanes for c in self.guards.conditions(g)]
            where = None if asked is None else self.values.of(asked)
            return self.vector.update(values, conds, where)
        if self.cross is not None:
            update = self.cross.update(values)
        else:
            old = [Load(b, indices, b.dtype) for b in self.buffers]
            label = self.b.state.label(self.sb.stage.id)
            update = combine_into(self.buffers, indices, body.combiner, old, values, label)
        return update if asked is None else If(self.values.of(asked), update)

    def begin(self) -> None:
        """Prepare for another copy of the nest."""
        if self.vector is not None:
            self.vector.begin()

    def around(self, loops: Stmt) -> Stmt:
        """The outermost reduction loop between the nests that start and that end the reduction."""
        if self.cross is not None:
            return self._cross_thread(self.cross, loops)
        if self.vector is not None:
            return self._vector(self.vector, loops)
        return seq(self._start(), loops)

    # ------------------------------------------------------------ kinds

    def _start(self) -> Stmt:
        """A nest that sets the elements to their starting values."""
        if self.tensor is not None and self.first < self.tensor.position:
            reset = self._reset(self.tensor)
            if reset is not None:
                return reset
        start = [self.values.of(e) for e in self.red.start]
        return self._over_elements(write_all(self.buffers, self.values.own_element(), start))

    def _reset(self, tensor: Tensorization) -> Stmt | None:
        """The nest of the intrinsic's own reset; None where it cannot be used."""
        part = tensor.intrin.reset
        if part is None or self.red.init is not None:
            return None
        spatial = [g for g in self.sb.guards if g.kind != "reduce"]
        if any(self.guards.conditions(g) for g in spatial):
            return None
        return self._over_elements(tensor.operate(part, self.values), upto=tensor.position)

    def _vector(self, vector: VectorReduction, loops: Stmt) -> Stmt:
        """Loops that add into vector accumulators, which are combined into the elements after."""
        init, own = self._init(), self.values.own_element()
        begin = self._over_elements(vector.start(), guarded=False)
        if vector.whole_tile:
            end = vector.fold_tile(self._over_elements, self.buffers, own, init)
        else:
            end = self._over_elements(vector.end(self.buffers, own, init))
        return _allocated(vector.buffers, seq(begin, loops, end))

    def _cross_thread(self, cross: CrossThread, loops: Stmt) -> Stmt:
        """A reduction by several threads; see `loopwright.lowering.nest.cross_thread`."""
        store = cross.store(self.buffers, self.values.own_element(), self._init())
        whole = seq(
            self._over_elements(cross.start(), guarded=False),
            loops,
            self._over_elements(cross.combine(), guarded=False),
            self._over_elements(store),
        )
        return _allocated(cross.buffers, whole)

    def _init(self) -> list[Expr] | None:
        init = self.red.init
        return None if init is None else [self.values.of(e) for e in init]

    # ------------------------------------------------------------ the nests of start and end

    def _over_elements(self, body: Stmt, guarded: bool = True, upto: int | None = None) -> Stmt:
        """``body``, the statement for one element, over the loops over elements inside ``first``.

        With ``guarded`` it runs only for elements that the stage's guards let through. ``upto`` is
        the first loop that the statement covers by itself.
        """
        assumed = self.guards.assumed
        spatial = [g for g in self.sb.guards if g.kind != "reduce" and g not in assumed]
        guards = spatial if guarded else []
        # Variables that the statement needs, and the new ones of this copy of their loops.
        needed = free_vars(body).union(*(g.value.terms for g in guards))
        renamed: dict[Var, Expr] = {}
        last = len(self.sb.loops) if upto is None else upto
        for p in range(last - 1, self.first - 1, -1):
            here = [g for g in guards if self.guards.position(g) == p]
            body = self._with_lets(p, self.guards.around(here, body), needed, renamed)
            body = self._in_loop(self.sb.loops[p], body, renamed)
        return substitute(body, renamed)

    def _with_lets(self, p: int, body: Stmt, needed: set[Var], renamed: dict[Var, Expr]) -> Stmt:
        """A statement inside the definitions of loop p that it needs; adds to the two tables."""
        for var, value in reversed(self.sb.lets[p + 1]):
            if var in needed:
                renamed[var] = fresh = Var(var.name, var.dtype)
                body = Let(fresh, value, body)
                needed |= free_vars(value)
        return body

    def _in_loop(self, x: LoopBound, body: Stmt, renamed: dict[Var, Expr]) -> Stmt:
        """A statement inside a copy of a loop, if this is a loop over elements."""
        axis = self.sb.launch_var(x)
        if axis is not None:
            if axis is not x.var:
                renamed[x.var] = fresh = Var(x.var.name, x.var.dtype)
                body = Let(fresh, axis, body)
            return body
        if x.loop.kind == "reduce" or x.extent == 1:
            return body
        renamed[x.var] = fresh = Var(x.var.name, x.var.dtype)
        self.sb.sizes.ranges.enter(fresh, x.extent)
        kind: LoopKind = x.mark.kind if x.mark else "serial"
        tag = x.mark.tag if x.mark else ""
        return For(fresh, self.sb.sizes.dim(x.written), kind, body, (), tag)


def _allocated(buffers: list[Buffer], body: Stmt) -> Stmt:
    """A statement inside the allocations of the accumulators that it uses."""
    for buffer in reversed(buffers):
        body = Allocate(buffer, body)
    return body

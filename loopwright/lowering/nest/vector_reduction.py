"""Reductions over a vectorized loop of n iterations: each element has n accumulators side by
side, one for each lane. They start from the reducer's identity and are combined in halves,
and with ``init``, after the outermost reduction loop: valid since a reducer is commutative
and associative. Accumulators accessed at constant places, in pieces of the native vector
length, become registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce as fold
from math import prod

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Expr, IfThenElse, Select, Var, as_expr, binary, const
from loopwright.ir.reduction import Combiner
from loopwright.ir.stmt import Allocate, For, Stmt, seq
from loopwright.ir.traversal import contains
from loopwright.lowering.nest.accumulators import accumulators, tile_loops
from loopwright.lowering.nest.multi_output import combine_into, write_all
from loopwright.schedule.bounds.results import StageBounds
from loopwright.schedule.state import State

#: Most accumulators of a tile whose elements are combined together: it is kept in registers.
MAX_TILE = 1024


def vector_reduction_of(state: State, sb: StageBounds) -> VectorReduction | None:
    """The vector reduction of a stage, or None if it has no vectorized reduction loop."""
    red = sb.op.reduction
    for p, x in enumerate(sb.loops):
        vectorized = x.mark is not None and x.mark.kind == "vectorized" and x.count > 1
        if red is not None and vectorized and x.loop.kind == "reduce":
            name = f"{state.label(sb.stage.id)}.lanes"
            return VectorReduction(name, sb, p, red.combiner)
    return None


class VectorReduction:
    """The accumulators of one stage."""

    def __init__(self, name: str, sb: StageBounds, position: int, combiner: Combiner) -> None:
        #: Index of the vectorized reduction loop.
        self.position, self.name, self.combiner = position, name, combiner
        self.types = sb.op.dtypes
        #: Variable of the vectorized loop, and its extent ``count``.
        self.lane, self.count = sb.loops[position].var, sb.loops[position].count
        tile = tile_loops(sb)
        #: Variables and extents of the loops over elements inside the outermost reduction loop.
        self.element: tuple[Expr, ...] = tuple(x.var for x in tile)
        self.extents = tuple(sb.sizes.dim(x.extent) for x in tile)
        unrolled = all(x.mark is not None and x.mark.kind == "unrolled" for x in tile)
        #: Number of these elements where all their loops are unrolled, else 0.
        self.points = prod(x.count for x in tile) if unrolled else 0
        power_of_two = self.count & (self.count - 1) == 0
        #: Whether the elements are combined together (`fold_tile`), not one by one.
        self.whole_tile = power_of_two and 1 < self.points <= MAX_TILE // self.count
        #: The accumulators of each output: flat where ``whole_tile``, else with a dimension for
        #: each loop over elements and one for the lanes.
        self.buffers = self._new_buffers()

    def _new_buffers(self) -> list[Buffer]:
        if self.whole_tile:
            return self._flat_buffers(self.points * self.count)
        return accumulators(self.name, (*self.extents, self.count), self.types)

    def _flat_buffers(self, size: int) -> list[Buffer]:
        return accumulators(self.name, (size,), self.types)

    def begin(self) -> None:
        """Take new accumulators: each copy of a nest has its own."""
        self.buffers = self._new_buffers()

    def _at(self, lane: Expr) -> tuple[Expr, ...]:
        """Indices of the accumulator of a lane, for the element at hand."""
        return (self._flat_index(self.count, lane),) if self.whole_tile else (*self.element, lane)

    def _flat_index(self, count: int, lane: Expr) -> Expr:
        """Index of a lane in flat buffers with ``count`` lanes for each element."""
        out: Expr = as_expr(0)
        for var, extent in zip(self.element, self.extents, strict=True):
            out = binary("+", binary("*", out, extent), var)
        return binary("+", binary("*", out, count), lane)

    def _load(self, lane: Expr) -> list[Expr]:
        return [Load(b, self._at(lane), b.dtype) for b in self.buffers]

    def _vector_loop(self, count: int, body: Stmt, lane: Var) -> Stmt:
        return For(lane, count, "vectorized", body)

    def start(self) -> Stmt:
        """Set the accumulators of one element to the reducer's identity."""
        lane = Var(self.lane.name)
        set_lane = write_all(self.buffers, self._at(lane), self.combiner.identity)
        return self._vector_loop(self.count, set_lane, lane)

    def update(self, values: list[Expr], guards: list[Expr], where: Expr | None) -> Stmt:
        """Combine values, one for each output, into the accumulators of one lane.

        Where a guard or ``where`` does not hold, the old value is stored again: a masked store
        would keep the accumulators in memory.
        """
        old = self._load(self.lane)
        cond = _conjunction(guards, where)
        if cond is not None:
            values = [
                IfThenElse(cond, v, const(0, v.dtype), v.dtype) if contains(v, Load) else v
                for v in values
            ]

        def chosen(k: int, new: Expr) -> Expr:
            return new if cond is None else Select(cond, new, old[k], new.dtype)

        at = self._at(self.lane)
        return combine_into(self.buffers, at, self.combiner, old, values, self.name, chosen)

    def fold_tile(
        self,
        over_elements: Callable[[Stmt], Stmt],
        buffers: Sequence[Buffer],
        indices: tuple[Expr, ...],
        init: Sequence[Expr] | None,
    ) -> Stmt:
        """Combine the lanes of all elements of a tile together, then write the elements.

        Halves of two elements' lanes are interleaved and combined by one vector operation, and so
        on with the results, so a tile of 16 elements of 16 lanes takes 15 vector operations instead
        of 64. ``over_elements`` puts the loops over the tile around a statement that writes one
        element.
        """
        steps: list[Stmt] = []
        partial: list[Buffer] = []
        old, rows, width, mixed = self.buffers, self.points, self.count, 1
        while width > mixed:
            pairs = rows % 2 == 0
            rows, wide = (rows // 2, width) if pairs else (rows, width // 2)
            new = self._flat_buffers(rows * wide)
            steps.append(self._fold_level(old, new, rows, width, pairs))
            partial += new
            old, width, mixed = new, wide, mixed * 2 if pairs else mixed
        point = self._flat_index(1, as_expr(0))
        at = binary("+", binary("*", binary("%", point, rows), width), binary("//", point, rows))
        values: list[Expr] = [Load(b, (at,), b.dtype) for b in old]
        write = write_all(buffers, indices, values)
        if init is not None:
            write = combine_into(buffers, indices, self.combiner, init, values, self.name)
        out = seq(*steps, over_elements(write))
        for buffer in reversed(partial):
            out = Allocate(buffer, out)
        return out

    def _fold_level(
        self, old: list[Buffer], new: list[Buffer], rows: int, width: int, pairs: bool
    ) -> Stmt:
        """Combine the upper halves of rows with the lower ones; of pairs of rows, interleaved."""
        lane, half = Var(self.lane.name), width // 2
        if pairs:
            row = binary("+", binary("//", lane, width), binary("*", binary("%", lane, 2), rows))
            at = binary("%", binary("//", lane, 2), half)
        else:
            row, at = binary("//", lane, half), binary("%", lane, half)
        near = binary("+", binary("*", row, width), at)
        a, b = ([Load(x, (i,), x.dtype) for x in old] for i in (near, binary("+", near, half)))
        body = combine_into(new, (lane,), self.combiner, a, b, self.name)
        return self._vector_loop(new[0].size, body, lane)

    def end(
        self, buffers: Sequence[Buffer], indices: tuple[Expr, ...], init: Sequence[Expr] | None
    ) -> Stmt:
        """Combine the lanes of one element in halves, then write the element."""
        steps: list[Stmt] = []
        count = self.count
        while count > 2:
            half = 1 << ((count - 1).bit_length() - 1)
            lane = Var(self.lane.name)
            steps.append(self._fold(count - half, half, lane))
            count = half
        left, right = self._load(as_expr(0)), self._load(as_expr(1))
        if init is not None:
            left, right = list(init), list(self.combiner.combine(left, right))
        last = combine_into(buffers, indices, self.combiner, left, right, self.name)
        return seq(*steps, last)

    def _fold(self, count: int, distance: int, lane: Var) -> Stmt:
        """Combine each of the first ``count`` lanes with the one at a distance."""
        at: Expr = lane if count > 1 else as_expr(0)
        far = self._load(binary("+", at, distance))
        store = combine_into(
            self.buffers, self._at(at), self.combiner, self._load(at), far, self.name
        )
        return self._vector_loop(count, store, lane) if count > 1 else store


def _conjunction(guards: list[Expr], where: Expr | None) -> Expr | None:
    """Guards and the reduction's own condition, which is evaluated only where the guards hold."""
    inside = fold(lambda a, b: Binary("and", a, b, "bool"), guards) if guards else None
    if where is None or inside is None:
        return where if inside is None else inside
    if contains(where, Load):
        return IfThenElse(inside, where, const(0, "bool"), "bool")
    return Binary("and", inside, where, "bool")

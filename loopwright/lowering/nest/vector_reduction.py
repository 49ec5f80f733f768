"""Reductions whose iterations are the lanes of vectors: accumulators of their own, one a lane.

A vectorized reduction loop of n iterations adds into n accumulators beside each other, one set for
each element that the loops inside the outermost reduction loop compute. They start from the
reducer's identity; after the outermost reduction loop the n of an element are combined in halves,
and the result, with what ``init`` gives, becomes the element. A reducer is commutative and
associative, so this needs no other promise. Accumulators that are accessed at constant places, in
pieces of the native vector length, become registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce as fold
from math import prod

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Expr, IfThenElse, Select, Var, as_expr, binary, const
from loopwright.ir.reduction import Combiner
from loopwright.ir.stmt import Allocate, For, Stmt, seq
from loopwright.ir.traversal import walk
from loopwright.lowering.nest.multi_output import combine_into, write_all
from loopwright.schedule.bounds.results import StageBounds
from loopwright.schedule.state import State

#: Most accumulators whose elements are folded together: a tile that is kept in registers.
TOGETHER = 1024


def lanes_of(state: State, sb: StageBounds) -> Lanes | None:
    """The lanes of a stage that has a vectorized reduction loop, else None."""
    red = sb.op.reduction
    for p, x in enumerate(sb.loops):
        marked = x.mark is not None and x.mark.kind == "vectorized" and x.count > 1
        if red is not None and marked and x.loop.kind == "reduce":
            name = f"{state.label(sb.stage.id)}.lanes"
            return Lanes(name, sb, p, red.combiner)
    return None


class Lanes:
    """The accumulators of one stage.

    Attributes:
        position: index of the vectorized reduction loop.
        buffers: the accumulators, one buffer an output: spatial loops inside the outermost
            reduction loop, then lanes.
    """

    def __init__(self, name: str, sb: StageBounds, position: int, combiner: Combiner) -> None:
        self.position, self.name, self.combiner = position, name, combiner
        self.types = sb.op.dtypes
        self.lane, self.count = sb.loops[position].var, sb.loops[position].count
        first = next(p for p, x in enumerate(sb.loops) if x.loop.kind == "reduce")
        # Each thread has accumulators of its own: a loop over threads is no dimension of them.
        inside = [
            x
            for x in sb.loops[first:]
            if x.loop.kind != "reduce" and x.extent != 1 and sb.launch_var(x) is None
        ]
        self.element: tuple[Expr, ...] = tuple(x.var for x in inside)
        self.extents = tuple(sb.sizes.dim(x.extent) for x in inside)
        unrolled = all(x.mark is not None and x.mark.kind == "unrolled" for x in inside)
        self.points = prod(x.count for x in inside) if unrolled else 0
        halves = self.count & (self.count - 1) == 0
        self.together = halves and 1 < self.points <= TOGETHER // self.count
        self.size = self.points * self.count if self.together else 0
        self.buffers = self._fresh(self.size)

    def _fresh(self, size: int = 0) -> list[Buffer]:
        """Buffers, one an output; flat ones of a size where elements are folded together."""
        names = [f"{self.name}.v{k}" for k in range(len(self.types))]
        names = [self.name] if len(names) == 1 else names
        shape = (size,) if size else (*self.extents, self.count)
        return [Buffer(n, shape, t, "local") for n, t in zip(names, self.types, strict=True)]

    def begin(self) -> None:
        """Take new accumulators: each copy of a nest has its own."""
        self.buffers = self._fresh(self.size)

    def _at(self, lane: Expr) -> tuple[Expr, ...]:
        """Where a lane of the element at hand is."""
        return (self._point(self.count, lane),) if self.together else (*self.element, lane)

    def _point(self, count: int, lane: Expr) -> Expr:
        """Where a lane is in buffers of ``count`` lanes an element, one element after the other."""
        out: Expr = as_expr(0)
        for var, extent in zip(self.element, self.extents, strict=True):
            out = binary("+", binary("*", out, extent), var)
        return binary("+", binary("*", out, count), lane)

    def _load(self, lane: Expr) -> list[Expr]:
        return [Load(b, self._at(lane), b.dtype) for b in self.buffers]

    def _each(self, count: int, value: Stmt, lane: Var) -> Stmt:
        return For(lane, count, "vectorized", value)

    def start(self) -> Stmt:
        """The accumulators of one element at the reducer's identity."""
        lane = Var(self.lane.name)
        set_lane = write_all(self.buffers, self._at(lane), self.combiner.identity)
        return self._each(self.count, set_lane, lane)

    def update(self, values: list[Expr], guards: list[Expr], where: Expr | None) -> Stmt:
        """One lane combined with values, one an output, where the conditions hold.

        Conditions choose values, not stores: a masked store would keep the accumulators in memory.
        """
        old = self._load(self.lane)
        cond = _both(guards, where)
        if cond is not None:
            values = [
                IfThenElse(cond, v, const(0, v.dtype), v.dtype) if _loads(v) else v for v in values
            ]

        def chosen(k: int, new: Expr) -> Expr:
            return new if cond is None else Select(cond, new, old[k], new.dtype)

        at = self._at(self.lane)
        return combine_into(self.buffers, at, self.combiner, old, values, self.name, chosen)

    def folded(
        self,
        finish: Callable[[Stmt], Stmt],
        buffers: Sequence[Buffer],
        indices: tuple[Expr, ...],
        init: Sequence[Expr] | None,
    ) -> Stmt:
        """The elements of a tile folded together, then written.

        Halves of two elements' lanes are interleaved and combined by one vector operation, and so
        on with the results, so a tile of 16 elements of 16 lanes takes 15 vector operations instead
        of 64. ``finish`` makes a nest over the elements of the statement that writes one.
        """
        steps: list[Stmt] = []
        made: list[Buffer] = []
        old, rows, width, mixed = self.buffers, self.points, self.count, 1
        while width > mixed:
            pairs = rows % 2 == 0
            rows, wide = (rows // 2, width) if pairs else (rows, width // 2)
            new = self._fresh(rows * wide)
            steps.append(self._level(old, new, rows, width, pairs))
            made += new
            old, width, mixed = new, wide, mixed * 2 if pairs else mixed
        point = self._point(1, as_expr(0))
        at = binary("+", binary("*", binary("%", point, rows), width), binary("//", point, rows))
        values: list[Expr] = [Load(b, (at,), b.dtype) for b in old]
        write = write_all(buffers, indices, values)
        if init is not None:
            write = combine_into(buffers, indices, self.combiner, init, values, self.name)
        out = seq(*steps, finish(write))
        for buffer in reversed(made):
            out = Allocate(buffer, out)
        return out

    def _level(
        self, old: list[Buffer], new: list[Buffer], rows: int, width: int, pairs: bool
    ) -> Stmt:
        """Upper halves of rows combined into lower ones; of pairs of rows interleaved."""
        lane, half = Var(self.lane.name), width // 2
        if pairs:
            row = binary("+", binary("//", lane, width), binary("*", binary("%", lane, 2), rows))
            at = binary("%", binary("//", lane, 2), half)
        else:
            row, at = binary("//", lane, half), binary("%", lane, half)
        near = binary("+", binary("*", row, width), at)
        a, b = ([Load(x, (i,), x.dtype) for x in old] for i in (near, binary("+", near, half)))
        body = combine_into(new, (lane,), self.combiner, a, b, self.name)
        return self._each(new[0].size, body, lane)

    def end(
        self, buffers: Sequence[Buffer], indices: tuple[Expr, ...], init: Sequence[Expr] | None
    ) -> Stmt:
        """The lanes of one element combined in halves, and the element written."""
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
        """Combine the first lanes with those at a distance."""
        at: Expr = lane if count > 1 else as_expr(0)
        far = self._load(binary("+", at, distance))
        store = combine_into(
            self.buffers, self._at(at), self.combiner, self._load(at), far, self.name
        )
        return self._each(count, store, lane) if count > 1 else store


def _both(guards: list[Expr], where: Expr | None) -> Expr | None:
    """Guards and the reduction's own condition, which is read only where the guards hold."""
    inside = fold(lambda a, b: Binary("and", a, b, "bool"), guards) if guards else None
    if where is None or inside is None:
        return where if inside is None else inside
    if _loads(where):
        return IfThenElse(inside, where, const(0, "bool"), "bool")
    return Binary("and", inside, where, "bool")


def _loads(e: Expr) -> bool:
    found: list[object] = []
    walk(e, lambda n: found.append(n) if isinstance(n, Load) else None)
    return bool(found)

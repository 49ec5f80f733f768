"""Reductions whose iterations are the lanes of vectors: accumulators of their own, one a lane.

A vectorized reduction loop of n iterations adds into n accumulators beside each other, one set for
each element that the loops inside the outermost reduction loop compute. They start from the
reducer's identity; after the outermost reduction loop the n of an element are combined in halves,
and the result, with what ``init`` gives, becomes the element. A reducer is commutative and
associative, so this needs no other promise. Accumulators that are accessed at constant places, in
pieces of the native vector length, become registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold
from typing import TYPE_CHECKING

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Expr, IfThenElse, Select, Var, as_expr, binary, const
from loopwright.ir.reduction import Combiner
from loopwright.ir.stmt import For, Stmt, seq
from loopwright.ir.traversal import walk
from loopwright.lower.together import combine_into, write_all
from loopwright.schedule.bounds import StageBounds

if TYPE_CHECKING:
    from loopwright.lower.nest import NestBuilder


def lanes_of(builder: NestBuilder, sb: StageBounds) -> Lanes | None:
    """The lanes of a stage that has a vectorized reduction loop, else None."""
    red = sb.op.reduction
    for p, x in enumerate(sb.loops):
        marked = x.mark is not None and x.mark.kind == "vectorized" and x.count > 1
        if red is not None and marked and x.loop.kind == "reduce":
            name = f"{builder.state.label(sb.stage.id)}.lanes"
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
        inside = [x for x in sb.loops[first:] if x.loop.kind != "reduce" and x.extent != 1]
        self.element: tuple[Expr, ...] = tuple(x.var for x in inside)
        self.shape = (*(sb.sizes.dim(x.extent) for x in inside), self.count)
        self.buffers = self._fresh()

    def _fresh(self) -> list[Buffer]:
        names = [f"{self.name}.v{k}" for k in range(len(self.types))]
        names = [self.name] if len(names) == 1 else names
        return [Buffer(n, self.shape, t, "local") for n, t in zip(names, self.types, strict=True)]

    def begin(self) -> None:
        """Take new accumulators: each copy of a nest has its own."""
        self.buffers = self._fresh()

    def _at(self, lane: Expr) -> tuple[Expr, ...]:
        return (*self.element, lane)

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

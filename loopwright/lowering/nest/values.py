"""The values of a stage: expressions over its tensor's axes become ones over loops and buffers.
Iterations of a padded stage over its edge must not read outside of a buffer nor trap, though nobody
reads what they compute."""

from __future__ import annotations

from typing import Any

from loopwright.errors import LowerError
from loopwright.ir.affine import Affine, exact, fits, form_expr, to_affine
from loopwright.ir.buffer import Load
from loopwright.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    IfThenElse,
    Read,
    Select,
    Unary,
    Var,
    binary,
    cast,
    const,
)
from loopwright.ir.visitor import free_vars
from loopwright.lowering.nest.buffers import Buffers
from loopwright.lowering.nest.guards import StageGuards, all_of
from loopwright.schedule import StageBounds

#: Operations on axes that are the same for whole numbers.
_WHOLE = ("+", "-", "*", "//", "%", "tdiv", "tmod", "min", "max")


class StageValues:
    def __init__(self, buffers: Buffers, sb: StageBounds, guards: StageGuards) -> None:
        self.b, self.sb, self.guards = buffers, sb, guards
        self.ranges = buffers.bounds.ranges
        reduction = sb.op.reduction
        where = None if reduction is None else reduction.where
        # Axes on which it depends whether what is being translated is evaluated at all.
        self._deciding: frozenset[Var] = (
            frozenset() if where is None else frozenset(free_vars(where))
        )

    def own_element(self) -> tuple[Expr, ...]:
        """Indices into the stage's buffer of the element that an iteration computes."""
        values: list[Affine | Expr] = [self.sb.values[a.var] for a in self.sb.op.axes]
        return self.b.element(self.sb.stage.id, values)

    # Any: a child of an expression is an expression.
    def of(self, e: Any) -> Expr:
        """An expression over the tensor's axes as one over loops and buffers."""
        if isinstance(e, Var):
            value = self.sb.values.get(e)
            return e if value is None else cast(form_expr(value, self.ranges), e.dtype)
        if isinstance(e, Read):
            indices = self._indices_of(e)
            load = self.load_of(e, indices)
            conds = self._load_guard(e, indices)
            if not conds:
                return load
            return IfThenElse(all_of(conds), load, const(0, load.dtype), load.dtype)
        if isinstance(e, IfThenElse):
            return self._choice(e)
        out: Expr = e.map_children(self.of)
        if isinstance(out, Binary) and out.op in ("//", "%", "tdiv", "tmod"):
            if isinstance(out.b, Const):
                return out
            # Iterations over the edge, where zeros are read, must not trap.
            conds = [c for g in self.guards.domain() for c in self.guards.conditions(g)]
            if not conds:
                return out
            safe = Select(all_of(conds), out.b, const(1, out.b.dtype), out.b.dtype)
            return Binary(out.op, out.a, safe, out.dtype)
        return out

    def load_of(self, e: Read, indices: list[Affine | Expr] | None = None) -> Load:
        """The load of a read, without a test whether the element exists."""
        sid = e.source
        if sid not in self.b.of:
            raise LowerError(
                f"lower: {self.b.state.label(sid)!r} is read but is not among the arguments"
            )
        buffer = self.b.of[sid][e.value_index]
        at = self._indices_of(e) if indices is None else indices
        return Load(buffer, self.b.element(sid, at), buffer.dtype)

    def _load_guard(self, e: Read, indices: list[Affine | Expr]) -> list[Expr]:
        """Conditions under which an iteration that may run over the edge reads this element. An
        index that may be outside is inside for all points of the axes for which it is evaluated; so
        the axes in the index and in the conditions around it must be at such points."""
        if not self.sb.domain:
            return []
        inside = self.b.contains(e.source, indices)
        axes = {a.var: d for d, a in enumerate(self.sb.op.axes)}
        needed: set[int] = set()
        for i, ok in zip(e.indices, inside, strict=True):
            if not ok:
                needed |= {axes[v] for v in self._deciding.union(free_vars(i)) if v in axes}
        return [
            c
            for d in sorted(needed)
            for g in self.sb.domain.get(d, ())
            for c in self.guards.conditions(g)
        ]

    def _indices_of(self, e: Read) -> list[Affine | Expr]:
        forms = [(i, to_affine(i, self.sb.values, self.ranges)) for i in e.indices]
        return [a if a is not None else self._index(i) for i, a in forms]

    def _index(self, i: Expr) -> Expr:
        e = self.of(i)
        if e.dtype == "int32" and not (exact(e, {}, self.ranges) and fits(e, {}, self.ranges)):
            # An index means what it means for whole numbers, unlike a value, which wraps.
            wide = self._in_int64(i)
            return e if wide is None else wide
        return e if e.dtype == "int32" else Cast(e, "int64") if e.dtype != "int64" else e

    def _in_int64(self, i: Expr) -> Expr | None:
        """Arithmetic on axes alone, all of it in int64; None for what holds data."""
        match i:
            case Const(value=v):
                return const(v, "int64")
            case Var() if i in self.sb.values:
                return self.sb.values[i].to_expr("int64")
            case Unary(op="-", a=a):
                x = self._in_int64(a)
                return None if x is None else Unary("-", x, "int64")
            case Binary(op=op, a=a, b=b) if op in _WHOLE:
                x, y = self._in_int64(a), self._in_int64(b)
                return None if x is None or y is None else binary(op, x, y)
        return None

    def _choice(self, e: IfThenElse) -> Expr:
        """A guarded value; guards that its condition implies are not tested again inside."""
        cond = self.of(e.cond)
        outside = self._deciding
        self._deciding = outside.union(free_vars(e.cond))
        with self.guards.supposing(e.cond):
            taken = self.of(e.a)
        other = self.of(e.b)
        self._deciding = outside
        return IfThenElse(cond, taken, other, e.dtype)

"""The guards and the values of a stage: expressions over its axes become ones over buffers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loopwright.errors import LowerError
from loopwright.ir.affine import Affine, exact, fits, form_expr, to_affine
from loopwright.ir.buffer import Load
from loopwright.ir.expr import (
    DIVISIONS,
    Binary,
    Cast,
    Const,
    Expr,
    IfThenElse,
    Read,
    Select,
    Unary,
    Var,
    all_of,
    binary,
    cast,
    conjuncts,
    const,
)
from loopwright.ir.stmt import If, Stmt
from loopwright.ir.visitor import free_vars
from loopwright.lowering.nest.buffers import Buffers
from loopwright.schedule import Guard, StageBounds


class StageGuards:
    """The loop at which each guard is tested, and the tests that can be left out: as the copy being
    built assumes them (`loopwright.lowering.nest.tiles`) or a condition around implies them."""

    def __init__(self, sb: StageBounds, late: int, vector_loop: int | None) -> None:
        # Guards that differ between threads are tested inside loop ``late``.
        self.sb, self._late, self._vector_loop = sb, late, vector_loop
        #: Guards that hold in the copy being built.
        self.assumed: set[Guard] = set()
        #: Guards whose violation does no harm.
        self.needless: set[Guard] = set()
        #: The reduction's own condition as guards, if it is one of upper bounds.
        self.where = _bounds_of(sb)
        #: Guards that the statements built so far test.
        self.tested: set[Guard] = set()
        # Forms, each with the largest value that it has where the expression at hand is evaluated.
        self._limits: list[tuple[Affine, int]] = []

    def position(self, g: Guard) -> int:
        """The loop inside which a guard is tested (-1: outside all loops)."""
        earliest = max((self.sb.position.get(v, -1) for v in g.value.terms), default=-1)
        return max(earliest, self._late) if self._differs(g) else earliest

    def in_lanes(self, g: Guard) -> bool:
        """Whether a guard is tested for each vector lane, where a reduction accumulates."""
        first = self._vector_loop
        return first is not None and g.kind == "reduce" and self.position(g) >= first

    def at(self, p: int) -> tuple[list[Guard], list[Guard]]:
        """Guards tested inside loop p: those equal in all threads of a block, and the others."""
        here = [g for g in self.sb.guards if self.position(g) == p and not self.in_lanes(g)]
        return [g for g in here if not self._differs(g)], [g for g in here if self._differs(g)]

    def _differs(self, g: Guard) -> bool:
        """Whether a guard may hold for some threads of a block and not for others."""
        kernel = self.sb.kernel
        return kernel is not None and any(v in kernel.varying for v in g.value.terms)

    def around(self, guards: list[Guard], body: Stmt) -> Stmt:
        conds = [c for g in guards for c in self.conditions(g)]
        return If(all_of(conds), body) if conds else body

    def conditions(self, g: Guard) -> list[Expr]:
        """The tests of a guard that cannot be left out; it counts as tested from here on."""
        if g in self.assumed or g in self.needless:
            return []
        value, out = form_expr(g.value, self.sb.sizes.ranges), []
        if g.nonnegative and not self._is_at_most(g.value * -1, 0):
            out.append(binary(">=", value, 0))
        if g.below is not None and not self._is_at_most(g.value - g.below, -1):
            out.append(binary("<", value, self.sb.sizes.dim(g.below)))
        if out:
            self.tested.add(g)
        return out

    def domain(self) -> list[Guard]:
        """Guards of the spatial axes of a padded stage, which its stores do not need."""
        return [g for gs in self.sb.domain.values() for g in gs]

    def reduces_all(self) -> bool:
        """Whether the reduction's own condition holds throughout the copy that is being built."""
        return bool(self.where) and self.assumed.issuperset(self.where)

    @contextmanager
    def supposing(self, cond: Expr) -> Iterator[None]:
        """Leave out tests that a condition over the tensor's axes implies, while this lasts."""
        outside = self._limits
        self._limits = [*outside, *self._implied_by(cond)]
        yield
        self._limits = outside

    def _implied_by(self, cond: Expr) -> list[tuple[Affine, int]]:
        """Forms, each with its largest value where a condition holds."""
        values, ranges = self.sb.values, self.sb.sizes.ranges
        match cond:
            case Binary(op="and", a=a, b=b):
                return [*self._implied_by(a), *self._implied_by(b)]
            case Binary(op="<" | "<=" | ">" | ">=" as op, a=a, b=b):
                x, y = (to_affine(s, values, ranges) for s in (a, b))
                sure = all(fits(s, values, ranges) for s in (a, b))
                if x is not None and y is not None and sure:
                    return [(x - y if op[0] == "<" else y - x, 0 if "=" in op else -1)]
        return []

    def _is_at_most(self, value: Affine, most: int) -> bool:
        differences = ((value - form, limit) for form, limit in self._limits)
        return any(not d.terms and d.const + limit <= most for d, limit in differences)


def _bounds_of(sb: StageBounds) -> list[Guard]:
    """The condition of a reduction as guards, if it is upper bounds of forms, as rfactor leaves
    behind."""
    where = None if sb.op.reduction is None else sb.op.reduction.where
    guards: list[Guard] = []
    for test in [] if where is None else conjuncts(where):
        if not isinstance(test, Binary) or test.op != "<" or not isinstance(test.b, Const):
            return []
        form = to_affine(test.a, sb.values, sb.sizes.ranges)
        if form is None or not fits(test.a, sb.values, sb.sizes.ranges):
            return []
        guards.append(Guard(form, "reduce", int(test.b.value)))
    return guards


#: Operations on axes that are the same for whole numbers.
_WHOLE = ("+", "-", "*", *DIVISIONS, "min", "max")


class StageValues:
    """Iterations of a padded stage over its edge must not read outside of a buffer nor trap, though
    nobody reads what they compute."""

    def __init__(self, buffers: Buffers, sb: StageBounds, guards: StageGuards) -> None:
        self.b, self.sb, self.guards = buffers, sb, guards
        self.ranges = buffers.bounds.ranges
        where = None if sb.op.reduction is None else sb.op.reduction.where
        # Axes on which it depends whether what is being translated is evaluated at all.
        self._deciding = frozenset[Var]() if where is None else frozenset(free_vars(where))

    def own_element(self) -> tuple[Expr, ...]:
        values: list[Affine | Expr] = [self.sb.values[a.var] for a in self.sb.op.axes]
        return self.b.element(self.sb.stage.id, values)

    # Any: a child of an expression is an expression.
    def of(self, e: Any) -> Expr:
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
        if not isinstance(out, Binary) or out.op not in DIVISIONS or isinstance(out.b, Const):
            return out
        # Iterations over the edge, where zeros are read, must not trap.
        conds = [c for g in self.guards.domain() for c in self.guards.conditions(g)]
        if not conds:
            return out
        safe = Select(all_of(conds), out.b, const(1, out.b.dtype), out.b.dtype)
        return Binary(out.op, out.a, safe, out.dtype)

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
        """Conditions under which an iteration that may run over the edge reads this element."""
        # An index that may be outside is inside for all points of the axes for which it is
        # evaluated; so the axes in it and in the conditions around it must be at such points.
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

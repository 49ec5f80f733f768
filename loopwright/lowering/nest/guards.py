"""The guards of one stage: the loop at which each is tested, and the tests that can be left out,
since the copy being built assumes them (`loopwright.lowering.nest.tiles`) or a condition of the
expression around implies them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce as fold

from loopwright.ir.affine import Affine, fits, form_expr, to_affine
from loopwright.ir.expr import Binary, Const, Expr, binary
from loopwright.ir.node import distinct
from loopwright.ir.stmt import If, Stmt
from loopwright.schedule import Guard, StageBounds


class StageGuards:
    def __init__(self, sb: StageBounds, late: int, vector_loop: int | None) -> None:
        """Guards that differ between threads are tested inside loop ``late``."""
        self.sb, self._late, self._vector_loop = sb, late, vector_loop
        #: Guards that hold in the copy being built.
        self.assumed: set[Guard] = set()
        #: Guards whose violation does no harm.
        self.needless: set[Guard] = set()
        #: The reduction's own condition as guards, if it is one of upper bounds.
        self.where = list(_bounds_of(sb))
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
        equal = [g for g in here if not self._differs(g)]
        return equal, [g for g in here if self._differs(g)]

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
        """Whether ``value <= most`` follows from one of the conditions around."""
        differences = ((value - form, limit) for form, limit in self._limits)
        return any(not d.terms and d.const + limit <= most for d, limit in differences)


def _bounds_of(sb: StageBounds) -> Iterator[Guard]:
    """The condition of a reduction as guards; none where it is anything but upper bounds of forms,
    as rfactor leaves them behind for a block that is not full."""
    where = None if sb.op.reduction is None else sb.op.reduction.where
    found: list[Guard] = []
    for test in _conjuncts(where):
        if not isinstance(test, Binary) or test.op != "<" or not isinstance(test.b, Const):
            return
        form = to_affine(test.a, sb.values, sb.sizes.ranges)
        if form is None or not fits(test.a, sb.values, sb.sizes.ranges):
            return
        found.append(Guard(form, "reduce", int(test.b.value)))
    yield from found


def _conjuncts(cond: Expr | None) -> list[Expr]:
    match cond:
        case None:
            return []
        case Binary(op="and", a=a, b=b):
            return [*_conjuncts(a), *_conjuncts(b)]
    return [cond]


def all_of(conds: list[Expr]) -> Expr:
    return fold(lambda a, b: Binary("and", a, b, "bool"), distinct(conds))

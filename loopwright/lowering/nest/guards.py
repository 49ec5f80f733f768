"""The guards of one stage: at which loop each is tested, and what of it is still open there.

A guard is open unless the copy of the nest that is being built assumes it
(`loopwright.lowering.nest.partition`), or a condition of the expression around says the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce as fold

from loopwright.ir.affine import Affine, fits, to_affine
from loopwright.ir.expr import Binary, Expr, binary
from loopwright.ir.stmt import If, Stmt
from loopwright.schedule.bounds.results import Guard, StageBounds


class Guards:
    """The guards of a stage while its nest is built.

    Attributes:
        assumed: those that hold in the copy being built.
        tested: those that what was built so far tests.
    """

    def __init__(self, sb: StageBounds, late: int, lanes_from: int | None) -> None:
        """Place guards.

        Args:
            sb: the stage.
            late: the loop inside which guards are tested that differ between threads.
            lanes_from: the first loop of those that are lanes of a reduction, if any.
        """
        self.sb, self._late, self._lanes_from = sb, late, lanes_from
        self.assumed: set[Guard] = set()
        self.tested: set[Guard] = set()
        self._facts: list[tuple[Affine, int]] = []

    # ------------------------------------------------------------ where

    def position(self, g: Guard) -> int:
        """The loop inside which a guard is tested (-1: outside all loops)."""
        known = max((self.sb.position.get(v, -1) for v in g.value.terms), default=-1)
        return max(known, self._late) if self._differs(g) else known

    def in_lanes(self, g: Guard) -> bool:
        """Whether a guard is tested lane by lane, where a reduction accumulates."""
        first = self._lanes_from
        return first is not None and g.kind == "reduce" and self.position(g) >= first

    def at(self, p: int) -> tuple[list[Guard], list[Guard]]:
        """Guards tested on entering loop p: of all threads together, and of each by itself."""
        here = [g for g in self.sb.guards if self.position(g) == p and not self.in_lanes(g)]
        together = [g for g in here if not self._differs(g)]
        return together, [g for g in here if self._differs(g)]

    def _differs(self, g: Guard) -> bool:
        """Whether the threads of a block may differ about a guard."""
        kernel = self.sb.kernel
        return kernel is not None and any(v in kernel.varying for v in g.value.terms)

    # ------------------------------------------------------------ what

    def around(self, guards: list[Guard], body: Stmt) -> Stmt:
        """A statement behind tests of what is open of guards."""
        conds = [c for g in guards for c in self.conditions(g)]
        return If(all_of(conds), body) if conds else body

    def conditions(self, g: Guard) -> list[Expr]:
        """What is open of a guard; it counts as tested from here on."""
        if g in self.assumed:
            return []
        value, out = g.value.to_expr(), []
        if g.nonnegative and not self._known(g.value * -1, 0):
            out.append(binary(">=", value, 0))
        if g.below is not None and not self._known(g.value - g.below, -1):
            out.append(binary("<", value, self.sb.sizes.dim(g.below)))
        if out:
            self.tested.add(g)
        return out

    def domain(self) -> list[Guard]:
        """Guards of the spatial axes of a padded stage, which its stores do without."""
        return [g for gs in self.sb.domain.values() for g in gs]

    @contextmanager
    def supposing(self, cond: Expr) -> Iterator[None]:
        """What a condition over the tensor's axes says need not be tested while this lasts."""
        outside = self._facts
        self._facts = [*outside, *self._said_by(cond)]
        yield
        self._facts = outside

    def _said_by(self, cond: Expr) -> list[tuple[Affine, int]]:
        """Forms and their largest values where a condition holds."""
        values, ranges = self.sb.values, self.sb.sizes.ranges
        match cond:
            case Binary(op="and", a=a, b=b):
                return [*self._said_by(a), *self._said_by(b)]
            case Binary(op="<" | "<=" | ">" | ">=" as op, a=a, b=b):
                x, y = (to_affine(s, values, ranges) for s in (a, b))
                sure = all(fits(s, values, ranges) for s in (a, b))
                if x is not None and y is not None and sure:
                    return [(x - y if op[0] == "<" else y - x, 0 if "=" in op else -1)]
        return []

    def _known(self, value: Affine, most: int) -> bool:
        """Whether ``value <= most`` follows from one of the conditions around."""
        gaps = ((value - form, limit) for form, limit in self._facts)
        return any(not gap.terms and gap.const + limit <= most for gap, limit in gaps)


def all_of(conds: list[Expr]) -> Expr:
    """The conjunction of conditions, each once."""
    return fold(lambda a, b: Binary("and", a, b, "bool"), dict.fromkeys(conds))

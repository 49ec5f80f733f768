"""Loop partition: a nest is written twice, and one test for each tile chooses between the copies.

Where guards remain, the nest below the outermost guarded loop is written once without tests, for
tiles in which all guards hold (the hot copy), and once with them (the cold copy). There are never
more than these two copies.
"""

from __future__ import annotations

from collections.abc import Callable

from loopwright.ir.affine import form_expr
from loopwright.ir.expr import Expr, binary
from loopwright.ir.stmt import If, Stmt
from loopwright.lowering.nest.guards import Guards, all_of
from loopwright.schedule.bounds.results import Guard, StageBounds

#: Largest product of unrolled extents for which a nest is written twice, by default.
PARTITION_CAP = 512


class Partition:
    """How the nest of one stage is partitioned.

    Attributes:
        point: the loop below which there are two copies (-1: outside all loops); None for one copy.
    """

    def __init__(self, sb: StageBounds, guards: Guards, attached: list[int], cap: int) -> None:
        """Choose the point.

        Args:
            sb: the stage.
            guards: of the stage.
            attached: its loops with stages computed at them, which are never copied.
            cap: largest product of unrolled extents that is written twice.
        """
        self.sb, self.guards = sb, guards
        self._all = [*sb.guards, *guards.domain()]
        self.point = self._point(attached, cap)

    def _point(self, attached: list[int], cap: int) -> int | None:
        if not self._all or self.sb.kernel is not None:
            return None
        sizes = self.sb.sizes.known
        outermost = [
            min((self.sb.position.get(v, -1) for v in g.value.terms if v not in sizes), default=-1)
            for g in self._all
        ]
        point = max([*outermost, *attached])
        inside = self.sb.loops[point + 1 :]
        marks = [x.mark.kind if x.mark else "" for x in self.sb.loops]
        copies = 1
        for x in inside:
            if x.mark and x.mark.kind == "unrolled" and isinstance(x.extent, int):
                copies *= x.extent
        big = any(x.extent != 1 for x in inside)
        if not big or copies > cap or "vectorized" in marks[: point + 1]:
            return None
        return point

    def due(self, p: int) -> bool:
        """Whether the copies are to be built inside loop p, and this is not one of them."""
        return p == self.point and not self.guards.assumed

    def copies(self, p: int, build: Callable[[], Stmt]) -> Stmt:
        """The statement that ``build`` gives for the inside of loop p.

        It is built twice where a copy can do without tests.
        """
        guards = self.guards
        tests: dict[Guard, list[Expr]] = {}
        for g in self._all:
            if guards.position(g) <= p and g in self.sb.guards:
                continue
            test = self._holds_inside(g, p)
            if test is not None:
                tests[g] = test
        guards.tested = set()
        cold = build()
        # A guard that the nest does not test, such as one of padding, is no reason for a copy.
        assumed = [g for g in tests if g in guards.tested]
        if not assumed:
            return cold
        guards.assumed = set(assumed)
        hot = build()
        guards.assumed = set()
        conds = [c for g in assumed for c in tests[g]]
        return If(all_of(conds), hot, cold) if conds else hot

    def _holds_inside(self, g: Guard, p: int) -> list[Expr] | None:
        """Conditions on the loops up to p under which ``g`` holds for all inner iterations.

        Returns:
            None if it never holds for all of them.
        """
        sizes, ranges = self.sb.sizes, self.sb.sizes.ranges
        outer, rest = g.value.split(self.sb.visible(p))
        lo, hi = sizes.span(rest)
        out: list[Expr] = []
        if g.below is not None:
            value = outer + hi
            least, most = (value - g.below).bounds(ranges)
            if least >= 0:
                return None
            if most >= 0:
                out.append(binary("<", form_expr(value, ranges), sizes.dim(g.below)))
        if g.nonnegative:
            value = outer + lo
            least, most = value.bounds(ranges)
            if most < 0:
                return None
            if least < 0:
                out.append(binary(">=", form_expr(value, ranges), 0))
        return out

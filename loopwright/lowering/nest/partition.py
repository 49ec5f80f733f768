"""Loop partition: the nest below the outermost guarded loop is written once without tests, for
tiles in which all guards hold (the hot copy), and once with them (the cold copy); one test for each
tile chooses. Only loops with a hint get more copies (`loopwright.lowering.nest.tiles`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopwright.ir.affine import form_expr
from loopwright.ir.expr import Expr, binary
from loopwright.ir.stmt import If, Stmt
from loopwright.lowering.nest.guards import StageGuards, all_of
from loopwright.lowering.nest.tiles import ShortTile
from loopwright.schedule import Guard, StageBounds

#: Largest product of unrolled extents for which a nest is written twice, by default.
PARTITION_CAP = 512


class NestPartition:
    def __init__(
        self,
        sb: StageBounds,
        guards: StageGuards,
        attached: list[int],
        cap: int,
        short_tiles: Callable[[list[Guard], int], list[ShortTile]],
    ) -> None:
        """Choose the points.

        Loops in ``attached``, with stages computed at them, are never copied. ``cap`` is the
        largest product of unrolled extents that is written twice. ``short_tiles`` finds the tiles
        of guards inside of a loop.
        """
        self.sb, self.guards = sb, guards
        self._all = [*sb.guards, *guards.domain()]
        #: The loop below which there are two copies (-1: outside all loops); None for one copy.
        self.point = self._point(self._all, attached, cap)
        wanted = {x.var for x in sb.loops if x.loop.id in sb.stage.short_tiles}
        every = [*self._all, *guards.where]
        hinted = [g for g in every if wanted.intersection(g.value.terms)]
        #: The same of copies for short tiles.
        self.short_point = self._point(hinted, attached, cap)
        self._short: list[ShortTile] = []
        if self.short_point is not None:
            self._short = short_tiles(hinted, self.short_point)
        if not self._short:
            self.short_point = None

    def _point(self, guards: list[Guard], attached: list[int], cap: int) -> int | None:
        if not guards or self.sb.kernel is not None:
            return None
        sizes = self.sb.sizes.known
        outermost = [
            min((self.sb.position.get(v, -1) for v in g.value.terms if v not in sizes), default=-1)
            for g in guards
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
        """Whether copies are to be built inside loop p."""
        return p in (self.point, self.short_point)

    def copies(self, p: int, build: Callable[[], Stmt]) -> Stmt:
        """The statement that ``build`` gives for the inside of loop p, built again for each short
        tile, and twice where a copy can do without tests."""
        if p == self.short_point:
            return self._short_copies(self._short, p, build)
        return self._two_copies(p, build)

    def _short_copies(self, tiles: Sequence[ShortTile], p: int, build: Callable[[], Stmt]) -> Stmt:
        """A copy for whole tiles and one for the short one, along each of some axes."""
        if not tiles:
            return self._two_copies(p, build) if p == self.point else build()
        first, *others = tiles
        assuming, as_now = {*self.guards.assumed, first.guard}, self.guards.assumed

        def copy(assumed: set[Guard]) -> Stmt:
            self.guards.assumed = assumed
            made = self._short_copies(others, p, build)
            self.guards.assumed = as_now
            return made

        tests = [] if first.is_whole else self._holds_inside(first.guard, p)
        whole = None if tests is None else copy(assuming)
        if whole is not None and not tests:
            return whole
        first.loop.shortened = first.count
        short = copy(assuming if first.exact else as_now)
        first.loop.shortened = None
        self.guards.tested.add(first.guard)  # by the choice of a copy: an intrinsic has no such
        return short if whole is None or not tests else If(all_of(tests), whole, short)

    def _two_copies(self, p: int, build: Callable[[], Stmt]) -> Stmt:
        """A copy without tests, for tiles for which all guards hold, and one with them."""
        guards = self.guards
        decided = {x.guard for x in self._short}
        tests: dict[Guard, list[Expr]] = {}
        for g in self._all:
            if g in decided or (guards.position(g) <= p and g in self.sb.guards):
                continue
            test = self._holds_inside(g, p)
            if test is not None:
                tests[g] = test
        guards.tested, outside = set(), guards.assumed
        cold = build()
        # A guard that the nest does not test, such as one of padding, is no reason for a copy.
        assumed = [g for g in tests if g in guards.tested]
        out = cold
        if assumed:
            guards.assumed = {*outside, *assumed}
            hot = build()
            conds = [c for g in assumed for c in tests[g]]
            out = If(all_of(conds), hot, cold) if conds else hot
        guards.assumed = outside
        return out

    def _holds_inside(self, g: Guard, p: int) -> list[Expr] | None:
        """Conditions on the loops up to p under which ``g`` holds for all inner iterations; None if
        it never holds for all of them."""
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

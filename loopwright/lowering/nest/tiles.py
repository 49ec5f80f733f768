"""Guards at the edges of tiles, and the copies of a nest that need fewer of them."""

# A tensorized tile does without a guard where nobody reads the elements that it computes beyond the
# edge of the result, and beyond the end of a reduction a factor is the zero of padding. Every
# element that is read must exist.

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from loopwright import dtypes
from loopwright.ir.affine import Affine, Ranges, form_expr, interval, to_affine
from loopwright.ir.expr import DIVISIONS, Binary, Cast, Const, Expr, Read, all_of, binary
from loopwright.ir.reduction import Combiner, Reduce
from loopwright.ir.stmt import If, Stmt
from loopwright.ir.visitor import nodes
from loopwright.lowering.nest.tensorize import Tensorization
from loopwright.lowering.nest.values import StageValues
from loopwright.schedule import Guard, LoopBound, StageBounds, attach_position


def guards_around(values: StageValues) -> Iterator[Guard]:
    """Guards of the stages around that hold wherever an attached stage is computed."""
    bounds, sb = values.b.bounds, values.sb
    while sb.padded:
        host, position = attach_position(bounds.state, sb.stage, bounds)
        visible = host.visible(position)
        yield from (g for g in host.guards if set(g.value.terms) <= visible)
        sb = host


def largest(form: Affine, guards: Iterable[Guard], ranges: Ranges) -> int:
    """The largest value of a form where guards hold, as far as one of them tells."""
    most = form.bounds(ranges)[1]
    for g in guards:
        multiple = _in_multiples(form, g.value)
        if multiple is not None and isinstance(g.below, int):
            times, rest = multiple
            most = min(most, times * (g.below - 1) + rest.bounds(ranges)[1])
    return most


def _in_multiples(form: Affine, part: Affine) -> tuple[int, Affine] | None:
    """``form = times * part + rest`` where the rest has none of the part's variables; else None."""
    shared = next((v for v in part.terms if v in form.terms), None)
    if shared is None or form.terms[shared] % part.terms[shared]:
        return None
    times = form.terms[shared] // part.terms[shared]
    rest = form - part * times
    return None if times < 0 or any(rest.terms.get(v) for v in part.terms) else (times, rest)


def needless_guards(values: StageValues, tensor: Tensorization) -> set[Guard]:
    sb, body = values.sb, values.sb.op.body
    if tensor.intrin.of_warp or not sb.padded or not isinstance(body, Reduce):
        return set()
    edges = _Edges(values)
    reads = list(tensor.match.reads.values())
    # A division might trap on what lies beyond the edge.
    below = (n for e in body.source for n in nodes(e))
    if any(isinstance(n, Binary) and n.op in ("/", *DIVISIONS) for n in below):
        return set()
    of_sums = [g for g in sb.guards if g.kind == "reduce"]
    of_elements = [g for own in sb.domain.values() for g in own]
    kept = {*of_elements, *of_sums}
    for g in [*of_elements, *filter(edges.adds_zeros, of_sums)]:
        others = kept - {g}
        if all(edges.exists(r, others) for r in reads):
            kept = others
    return {*of_elements, *of_sums} - kept


class _Edges:
    def __init__(self, values: StageValues) -> None:
        self.b, self.sb, self.values, self.ranges = values.b, values.sb, values, values.ranges
        self._outside = list(guards_around(values))

    def exists(self, read: Read, kept: Collection[Guard]) -> bool:
        """Whether every element of a tile lies in the buffer and has a value, where guards hold."""
        load, guards = self.values.load_of(read), [*self._outside, *kept]
        each = zip(load.indices, load.buffer.shape, strict=True)
        inside = (self._inside(i, n, guards) for i, n in each)
        source = self.b.bounds.stages.get(read.source)
        filled = source is None or source.stage.layout is None or source.stage.pad_value is not None
        return all(inside) and filled

    def _inside(self, index: Expr, extent: object, guards: Iterable[Guard]) -> bool:
        form = to_affine(index, {}, self.ranges)
        if form is None:
            bounds = interval(index, {}, self.ranges)
        elif all(v in self.ranges for v in form.terms):
            bounds = form.bounds(self.ranges)[0], largest(form, guards, self.ranges)
        else:
            bounds = None
        if bounds is None or not isinstance(extent, int):
            return False
        return bounds[0] >= 0 and bounds[1] < extent

    def adds_zeros(self, g: Guard) -> bool:
        """Whether steps of the reduction beyond the guard add nothing: products of zeros."""
        # One factor suffices for integers; of floats the other one might be infinite.
        reduction = self.sb.op.reduction
        assert reduction is not None
        source = reduction.source[0]
        if g.nonnegative or not _adds(reduction.combiner):
            return False
        if not isinstance(source, Binary) or source.op != "*":
            return False
        zeros = [self._is_padding(e, g) for e in (source.a, source.b)]
        return all(zeros) if dtypes.is_float(source.dtype) else any(zeros)

    def _is_padding(self, e: Expr, g: Guard) -> bool:
        if isinstance(e, Cast):
            return self._is_padding(e.value, g)
        source = self.b.bounds.stages.get(e.source) if isinstance(e, Read) else None
        if source is None or not isinstance(e, Read) or source.stage.pad_value != 0:
            return False
        forms = [to_affine(i, self.sb.values, self.ranges) for i in e.indices]
        return any(
            form is not None and form - base == g.value and extent == g.below
            for form, base, extent in zip(forms, source.base, source.shape, strict=True)
        )


def _adds(combiner: Combiner) -> bool:
    (total, *more), (start, *_) = combiner.result, combiner.identity
    if more or not isinstance(total, Binary) or total.op != "+":
        return False
    both = {total.a, total.b} == {combiner.lhs[0], combiner.rhs[0]}
    return both and isinstance(start, Const) and start.value == 0


# ---------------------------------------------------------------- short tiles
#
# Tiles at the edge of a stage, below a ``loop_partition_hint``: where tiles do not divide the
# extent, the iterations of the last one are a copy of their own without a test, a second
# microkernel as libraries of products have.

#: Most axes of a stage whose last tile is written out by itself: each of them doubles the copies.
MOST = 3


@dataclass(frozen=True, eq=False)
class ShortTile:
    guard: Guard  #: passed by whole tiles
    loop: LoopBound  #: the inside of a tile
    count: int  #: iterations of the loop in the last tile
    exact: bool  #: whether all of these pass the guard

    @property
    def is_whole(self) -> bool:
        return self.exact and self.count == self.loop.extent


def short_tiles(values: StageValues, guards: Iterable[Guard], p: int) -> list[ShortTile]:
    """The last tiles of a stage inside of loop p, below which copies of the nest are written."""
    # Only tiles that certainly have an iteration: one that lies beyond the edge as a whole would
    # read what is not there.
    sb = values.sb
    multiples = sb.stage.short_tiles
    if not multiples or sb.stage.pad_value is not None:
        return []  # what is filled up has values beyond the edge, too
    visible = sb.visible(p)
    around = [*guards_around(values)]
    around += [g for g in sb.guards if set(g.value.terms) <= visible]
    tiles = [x for g in guards if (x := _short_tile(sb, g, p, multiples, around)) is not None]
    whole, short = ([x for x in tiles if x.is_whole is is_whole] for is_whole in (True, False))
    return [*whole, *short[:MOST]]


def _short_tile(
    sb: StageBounds, g: Guard, p: int, multiples: dict[str, int], around: Collection[Guard]
) -> ShortTile | None:
    if g.kind == "thread" or g.nonnegative or not isinstance(g.below, int):
        return None
    outer, inner = g.value.split(sb.visible(p))
    loop, step = _outermost(sb, inner, p)
    if loop is None or loop.loop.id not in multiples:
        return None
    tile = loop.count * step
    outer, rest = outer + inner.const, (g.below - 1) % tile + 1
    aligned = all(c % tile == 0 for c in (outer.const, *outer.terms.values()))
    if not aligned or largest(outer, around, sb.sizes.ranges) > g.below - rest:
        return None
    multiple = multiples[loop.loop.id]
    count = min(loop.count, -(-rest // (step * multiple)) * multiple)
    return ShortTile(g, loop, count, count * step == rest)


def _outermost(sb: StageBounds, inner: Affine, p: int) -> tuple[LoopBound | None, int]:
    """The loop inside of p that moves a value in the largest steps, if all others together stay
    within one of these, and the step."""
    own = {x.var: x for x in sb.loops[p + 1 :] if isinstance(x.extent, int)}
    if not inner.terms or not all(v in own and c > 0 for v, c in inner.terms.items()):
        return None, 0
    var = max(inner.terms, key=lambda v: inner.terms[v])
    step = inner.terms[var]
    reach = sum(c * (own[v].count - 1) for v, c in inner.terms.items() if v is not var)
    return (own[var], step) if reach < step else (None, 0)


# ---------------------------------------------------------------- partition
#
# The nest below the outermost guarded loop is written once without tests, for tiles in which all
# guards hold (the hot copy), and once with them (the cold copy); one test for each tile chooses.
# Only loops with a hint get more copies, those of short tiles.

#: Largest product of unrolled extents for which a nest is written twice, by default.
PARTITION_CAP = 512


class NestPartition:
    def __init__(self, values: StageValues, attached: list[int], cap: int) -> None:
        """Choose the points, outside of the loops ``attached``, at which stages are computed;
        ``cap`` is the largest product of unrolled extents that is written twice."""
        sb, guards = self.sb, self.guards = values.sb, values.guards
        self._all = [*sb.guards, *guards.domain()]
        #: The loop below which there are two copies (-1: outside all loops); None for one copy.
        self.point = self._point(self._all, attached, cap)
        wanted = {x.var for x in sb.loops if x.loop.id in sb.stage.short_tiles}
        hinted = [g for g in (*self._all, *guards.where) if wanted.intersection(g.value.terms)]
        #: The same of copies for short tiles.
        self.short_point = self._point(hinted, attached, cap)
        self._short: list[ShortTile] = []
        if self.short_point is not None:
            self._short = short_tiles(values, hinted, self.short_point)
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
        return None if not big or copies > cap or "vectorized" in marks[: point + 1] else point

    def copies(self, p: int, build: Callable[[], Stmt]) -> Stmt:
        """The inside of loop p, built again for each short tile, and twice where a copy can do
        without tests."""
        if p == self.short_point:
            return self._short_copies(self._short, p, build)
        return self._two_copies(p, build)

    def _short_copies(self, tiles: Sequence[ShortTile], p: int, build: Callable[[], Stmt]) -> Stmt:
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

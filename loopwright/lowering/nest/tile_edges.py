"""Guards that a tensorized tile does without: nobody reads the elements that it computes beyond the
edge of the result, and beyond the end of a reduction a factor is the zero of padding. Every element
that is read must exist."""

from __future__ import annotations

from loopwright import dtypes
from loopwright.ir.affine import Affine, interval, to_affine
from loopwright.ir.expr import Binary, Cast, Const, Expr, Read
from loopwright.ir.reduction import Combiner, Reduce
from loopwright.ir.traversal import walk
from loopwright.lowering.nest.buffers import Buffers
from loopwright.lowering.nest.enclosing import guards_around, largest
from loopwright.lowering.nest.tensorize import Tensorization
from loopwright.lowering.nest.values import Values
from loopwright.schedule.bounds.results import Guard, StageBounds

_DIVISIONS = ("/", "//", "%", "tdiv", "tmod")


def needless_guards(
    buffers: Buffers, sb: StageBounds, tensor: Tensorization, values: Values
) -> set[Guard]:
    body = sb.op.body
    if tensor.intrin.of_warp or not sb.padded or not isinstance(body, Reduce):
        return set()
    edges = _Edges(buffers, sb, values)
    reads = list(tensor.match.reads.values())
    if not all(map(edges.exists, reads)) or _divides(body):
        return set()
    needless = {g for own in sb.domain.values() for g in own}
    return needless | {g for g in sb.guards if g.kind == "reduce" and edges.adds_zeros(g)}


class _Edges:
    def __init__(self, buffers: Buffers, sb: StageBounds, values: Values) -> None:
        self.b, self.sb, self.values = buffers, sb, values
        self.ranges = buffers.bounds.ranges
        self._outside = list(guards_around(buffers.state, buffers.bounds, sb))

    def exists(self, read: Read) -> bool:
        """Whether every element of a tile over edges lies in the buffer, and has a value."""
        load = self.values.load_of(read)
        inside = (self._inside(i, n) for i, n in zip(load.indices, load.buffer.shape, strict=True))
        return all(inside) and self._has_values(read)

    def _has_values(self, read: Read) -> bool:
        source = self.b.bounds.stages.get(read.source)
        return source is None or source.stage.layout is None or source.stage.pad_value is not None

    def _inside(self, index: Expr, extent: object) -> bool:
        form = to_affine(index, {}, self.ranges)
        bounds = interval(index, {}, self.ranges) if form is None else self._bounds(form)
        if bounds is None or not isinstance(extent, int):
            return False
        return bounds[0] >= 0 and bounds[1] < extent

    def _bounds(self, form: Affine) -> tuple[int, int] | None:
        """Least and largest value of an index, under the guards of the loops around."""
        if not all(v in self.ranges for v in form.terms):
            return None
        return form.bounds(self.ranges)[0], largest(form, self._outside, self.ranges)

    def adds_zeros(self, g: Guard) -> bool:
        """Whether steps of the reduction beyond the guard add nothing: products of zeros.

        One factor suffices for integers; of floats the other one might be infinite.
        """
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
    """Whether a reduction is a plain sum from zero."""
    (total, *more), (start, *_) = combiner.result, combiner.identity
    if more or not isinstance(total, Binary) or total.op != "+":
        return False
    both = {total.a, total.b} == {combiner.lhs[0], combiner.rhs[0]}
    return both and isinstance(start, Const) and start.value == 0


def _divides(body: Reduce) -> bool:
    """Whether a division of the expression might trap on what lies beyond the edge."""
    found: list[Binary] = []
    for e in body.source:
        walk(e, lambda n: found.append(n) if isinstance(n, Binary) else None)
    return any(x.op in _DIVISIONS for x in found)

"""Regions of buffers that a later iteration of a loop reads, and statements as they are then. As in
bound inference, indices are affine over loops, of which some are fixed."""

from __future__ import annotations

from collections.abc import Iterator

from loopwright import dtypes
from loopwright.ir.affine import Affine, Extent, to_affine
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, Var, binary
from loopwright.ir.sizes import Sizes
from loopwright.ir.stmt import Let, Stmt
from loopwright.ir.traversal import free_vars, substitute
from loopwright.lowering.nest.buffers import Buffers
from loopwright.schedule.bounds.results import StageBounds
from loopwright.schedule.primitives.prefetch import reads_inside
from loopwright.schedule.state import Prefetched

#: Bytes of a cache line.
_LINE = 64
#: Most prefetches that are written out one after the other.
WRITTEN_OUT = 16
#: For each dimension of a buffer: an index over the variables that are fixed, and the least and the
#: largest distance from it.
Region = list[tuple[Affine, Extent, Extent]]


def later(sb: StageBounds, p: int, var: Var, offset: int, out: Stmt) -> Stmt:
    """A statement as it is ``offset`` later in ``var``: that of loop ``p``, or one that is defined
    just inside of it; what is defined from it there is defined anew."""
    env: dict[Var, Expr] = {var: binary("+", var, offset)}
    lets: list[tuple[Var, Expr]] = []
    for other, value in sb.lets[p + 1]:
        if not free_vars(value) & env.keys():
            continue
        fresh = Var(other.name, other.dtype)
        lets.append((fresh, substitute(value, env)))
        env[other] = fresh
    out = substitute(out, env)
    needed = free_vars(out)
    for other, value in reversed(lets):
        if other in needed:
            out = Let(other, value, out)
            needed |= free_vars(value)
    return out


def regions(b: Buffers, sb: StageBounds, want: Prefetched, fixed: set[Var]) -> list[Region]:
    """The regions of a buffer that are read inside of a loop while these variables are fixed; reads
    whose regions move in step, such as those of a stencil, share one."""
    found: list[Region] = []
    for indices in indices_read(b, sb, want):
        _add(found, _region(b, sb.sizes, want, fixed, indices), sb.sizes)
    return found


def indices_read(
    b: Buffers, sb: StageBounds, want: Prefetched
) -> Iterator[tuple[Affine | None, ...]]:
    """The indices of a buffer at which the stages inside of a loop read it; None: not affine."""
    ranges = b.bounds.ranges
    for reader, read in reads_inside(b.state, b.bounds, sb, want):
        forms = [to_affine(i, reader.values, ranges) for i in read.indices]
        at = b.element(want.source, [a for a in forms if a is not None])
        yield tuple(to_affine(index, {}, ranges) for index in at)


def _region(
    b: Buffers,
    sizes: Sizes,
    want: Prefetched,
    fixed_vars: set[Var],
    indices: tuple[Affine | None, ...],
) -> Region:
    """The region of the elements at ``indices`` over all loops but those that are fixed."""
    region: Region = []
    for form, n in zip(indices, b.of[want.source][want.value_index].shape, strict=True):
        if form is None:  # a digit of a layout that does not fit the tile: all of the dimension
            region.append((Affine(0), 0, sizes.of(n) - 1))
            continue
        fixed, rest = form.split(fixed_vars)
        region.append((fixed, *sizes.span(rest)))
    return region


def _add(regions: list[Region], region: Region, sizes: Sizes) -> None:
    """Widen the region that moves in step with a new one, or else append the new one."""
    for k, old in enumerate(regions):
        wide = _union(old, region, sizes)
        if wide is not None:
            regions[k] = wide
            return
    regions.append(region)


def _union(a: Region, b: Region, sizes: Sizes) -> Region | None:
    """The smallest region around two; None where they do not move in step."""
    out: Region = []
    for (fixed, lo, hi), (other, low, high) in zip(a, b, strict=True):
        least, most = sizes.least(lo, low), sizes.most(hi, high)
        if fixed != other or least is None or most is None:
            return None
        out.append((fixed, least, most))
    return out


def elements_of_line(buffer: Buffer) -> int:
    """Elements of the last dimension of a buffer from one cache line to the next."""
    stride = 1 if buffer.strides is None else buffer.strides[-1]
    return max(1, _LINE // (dtypes.nbytes(buffer.dtype) * stride))

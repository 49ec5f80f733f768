"""Prefetches of a loop: the region that a later iteration will read, one cache line at a time.

The region is found as in bound inference. Read indices are affine over loops: the loops up to the
one that prefetches have the values of the later iteration, the others take all their values.
"""

from __future__ import annotations

from math import prod

from loopwright import dtypes
from loopwright.ir.affine import Affine, Extent, to_affine
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, Var, binary
from loopwright.ir.sizes import Sizes
from loopwright.ir.stmt import For, Let, Prefetch, Stmt, seq
from loopwright.ir.traversal import free_vars, substitute
from loopwright.lowering.nest.buffers import Buffers
from loopwright.schedule.bounds.results import StageBounds
from loopwright.schedule.rules.prefetch import reads_inside
from loopwright.schedule.state import Prefetched

#: Bytes of a cache line.
LINE = 64
#: Most prefetches that are written out one after the other.
_WRITTEN_OUT = 16
#: For each dimension of a buffer: an index over the loops that are fixed, and the least and the
#: largest distance from it.
Region = list[tuple[Affine, Extent, Extent]]


def prefetched(b: Buffers, sb: StageBounds, p: int, body: Stmt) -> Stmt:
    """The body of loop ``p`` of a stage with the prefetches of the loop in front."""
    x = sb.loops[p]
    wanted = [w for w in sb.stage.prefetches if w.loop == x.loop.id and x.extent != 1]
    return seq(*(_prefetch(b, sb, p, w) for w in wanted), body) if wanted else body


def _prefetch(b: Buffers, sb: StageBounds, p: int, want: Prefetched) -> Stmt:
    """One prefetch for a later iteration, inside the definitions that it needs for that one."""
    buffer = b.of[want.source][want.value_index]
    x = sb.loops[p]
    env: dict[Var, Expr] = {x.var: binary("+", x.var, want.offset)}
    lets: list[tuple[Var, Expr]] = []
    for var, value in sb.lets[p + 1]:
        fresh = Var(var.name, var.dtype)
        lets.append((fresh, substitute(value, env)))
        env[var] = fresh
    regions = _regions(b, sb, p, want)
    out = substitute(seq(*(_lines(buffer, r, sb.sizes) for r in regions)), env)
    needed = free_vars(out)
    for var, value in reversed(lets):
        if var in needed:
            out = Let(var, value, out)
            needed |= free_vars(value)
    return out


def _regions(b: Buffers, sb: StageBounds, p: int, want: Prefetched) -> list[Region]:
    """The regions of a buffer that one iteration of loop p reads.

    Reads whose regions move in step, such as those of a stencil, share one region.
    """
    regions: list[Region] = []
    for reader, read in reads_inside(b.state, b.bounds, sb, want):
        forms = [to_affine(i, reader.values, b.bounds.ranges) for i in read.indices]
        at = b.element(want.source, [a for a in forms if a is not None])
        _add(regions, _region(b, sb, p, want, at), sb.sizes)
    return regions


def _region(
    b: Buffers, sb: StageBounds, p: int, want: Prefetched, indices: tuple[Expr, ...]
) -> Region:
    """The region of the elements at ``indices`` over the loops inside loop p."""
    fixed_vars, sizes, buffer = sb.visible(p), sb.sizes, b.of[want.source][want.value_index]
    region: Region = []
    for index, n in zip(indices, buffer.shape, strict=True):
        form = to_affine(index, {}, b.bounds.ranges)
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


def _lines(buffer: Buffer, region: Region, sizes: Sizes) -> Stmt:
    """Prefetch a region: all its rows, and in each row one cache line after the other."""
    stride = 1 if buffer.strides is None else buffer.strides[-1]
    step = max(1, LINE // (dtypes.nbytes(buffer.dtype) * stride))
    loops: list[tuple[Var, Extent]] = []
    at: list[Expr] = []
    for d, (fixed, lo, hi) in enumerate(region):
        every = step if d == len(region) - 1 else 1
        loops.append((Var(f"p{d}"), sizes.ceil_div(hi - lo + 1, every)))
        at.append((fixed + lo + Affine.of(loops[-1][0]) * every).to_expr())
    out: Stmt = Prefetch(buffer, tuple(at))
    counts = [n for _, n in loops]
    numbers = [n for n in counts if isinstance(n, int)]
    few = len(numbers) == len(counts) and prod(numbers) <= _WRITTEN_OUT
    for var, n in reversed(loops):
        out = For(var, sizes.dim(n), "unrolled" if few else "serial", out)
    return out

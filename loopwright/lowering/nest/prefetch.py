"""What a loop prefetches: the region that an iteration ahead will read, a line at a time.

The region is that of bound inference: read indices are affine over loops, those up to the loop
stand still, at the values of the iteration ahead, and the others are run over.
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
#: Of each dimension of a buffer the first element, over loops that stand still, and least and
#: largest distance from it.
Region = list[tuple[Affine, Extent, Extent]]


def prefetched(b: Buffers, sb: StageBounds, p: int, body: Stmt) -> Stmt:
    """The body of loop ``p`` of a stage after what it prefetches."""
    x = sb.loops[p]
    wanted = [w for w in sb.stage.prefetches if w.loop == x.loop.id and x.extent != 1]
    return seq(*(_ahead(b, sb, p, w) for w in wanted), body) if wanted else body


def _ahead(b: Buffers, sb: StageBounds, p: int, want: Prefetched) -> Stmt:
    """One prefetch, behind definitions that depend on the loop, for an iteration ahead."""
    buffer = b.of[want.source][want.value_index]
    x = sb.loops[p]
    env: dict[Var, Expr] = {x.var: binary("+", x.var, want.offset)}
    lets: list[tuple[Var, Expr]] = []
    for var, value in sb.lets[p + 1]:
        fresh = Var(var.name, var.dtype)
        lets.append((fresh, substitute(value, env)))
        env[var] = fresh
    regions = _regions(b, sb, p, want)
    out: Stmt = substitute(seq(*(_lines(buffer, r, sb.sizes) for r in regions)), env)
    needed = free_vars(out)
    for var, value in reversed(lets):
        if var in needed:
            out = Let(var, value, out)
            needed |= free_vars(value)
    return out


def _regions(b: Buffers, sb: StageBounds, p: int, want: Prefetched) -> list[Region]:
    """What iteration p reads of a buffer; reads that move in step are taken together."""
    known, sizes, buffer = sb.visible(p), sb.sizes, b.of[want.source][want.value_index]
    found: list[Region] = []
    for reader, read in reads_inside(b.state, b.bounds, sb, want):
        forms = [to_affine(i, reader.values, b.bounds.ranges) for i in read.indices]
        region: Region = []
        at = b.element(want.source, [a for a in forms if a is not None])
        for e, n in zip(at, buffer.shape, strict=True):
            a = to_affine(e, {}, b.bounds.ranges)
            if a is None:  # a digit of a layout that the tile does not follow
                region.append((Affine(0), 0, sizes.of(n) - 1))
                continue
            fixed, rest = a.split(known)
            region.append((fixed, *sizes.span(rest)))
        _add(found, region, sizes)
    return found


def _add(found: list[Region], region: Region, sizes: Sizes) -> None:
    """Widen a region that moves in step with a new one by it, or add that."""
    for k, old in enumerate(found):
        wide: Region = []
        for (fixed, lo, hi), (other, low, high) in zip(old, region, strict=True):
            least, most = sizes.least(lo, low), sizes.most(hi, high)
            if fixed != other or least is None or most is None:
                break
            wide.append((fixed, least, most))
        if len(wide) == len(region):
            found[k] = wide
            return
    found.append(region)


def _lines(buffer: Buffer, region: Region, sizes: Sizes) -> Stmt:
    """Prefetch a region: all its rows, and of each row a line after the other."""
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
    known = [n for n in counts if isinstance(n, int)]
    few = len(known) == len(counts) and prod(known) <= _WRITTEN_OUT
    for var, n in reversed(loops):
        out = For(var, sizes.dim(n), "unrolled" if few else "serial", out)
    return out

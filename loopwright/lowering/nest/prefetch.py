"""Prefetches of a loop: what a later iteration will read, one cache line at a time."""

from __future__ import annotations

from math import prod

from loopwright.ir.affine import Affine, Extent
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, Var
from loopwright.ir.sizes import Sizes
from loopwright.ir.stmt import For, Prefetch, Stmt, seq
from loopwright.lowering.nest.ahead import WRITTEN_OUT, Region, elements_of_line, later, regions
from loopwright.lowering.nest.buffers import Buffers
from loopwright.lowering.nest.prefetch_next import share
from loopwright.schedule.bounds.results import StageBounds
from loopwright.schedule.primitives.prefetch import shares_of
from loopwright.schedule.state import Prefetched


def prefetched(b: Buffers, sb: StageBounds, p: int, body: Stmt) -> Stmt:
    """The body of loop ``p`` of a stage with the prefetches of the loop in front."""
    x = sb.loops[p]
    wanted = [w for w in sb.stage.prefetches if w.loop == x.loop.id and x.extent != 1]
    made = [_prefetch(b, sb, p, w) for w in wanted]
    made += [share(b, sb, note) for note in shares_of(sb) if note.loop == x.loop.id]
    return seq(*made, body) if made else body


def _prefetch(b: Buffers, sb: StageBounds, p: int, want: Prefetched) -> Stmt:
    """One prefetch for a later iteration, inside the definitions that it needs for that one."""
    buffer = b.of[want.source][want.value_index]
    found = regions(b, sb, want, sb.visible(p))
    lines = seq(*(_lines(buffer, r, sb.sizes) for r in found))
    return later(sb, p, sb.loops[p].var, want.offset, lines)


def _lines(buffer: Buffer, region: Region, sizes: Sizes) -> Stmt:
    """Prefetch a region: all its rows, and in each row one cache line after the other."""
    step = elements_of_line(buffer)
    loops: list[tuple[Var, Extent]] = []
    at: list[Expr] = []
    for d, (fixed, lo, hi) in enumerate(region):
        every = step if d == len(region) - 1 else 1
        loops.append((Var(f"p{d}"), sizes.ceil_div(hi - lo + 1, every)))
        at.append((fixed + lo + Affine.of(loops[-1][0]) * every).to_expr())
    out: Stmt = Prefetch(buffer, tuple(at))
    counts = [n for _, n in loops]
    numbers = [n for n in counts if isinstance(n, int)]
    few = len(numbers) == len(counts) and prod(numbers) <= WRITTEN_OUT
    for var, n in reversed(loops):
        out = For(var, sizes.dim(n), "unrolled" if few else "serial", out)
    return out

"""Prefetches of a loop: what a later iteration will read, one cache line at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import prod

from loopwright import dtypes
from loopwright.ir.affine import NARROW, Affine, Extent, to_affine
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Binary, Const, Expr, Var, binary, cast, const
from loopwright.ir.sizes import Sizes
from loopwright.ir.stmt import For, Let, Prefetch, Stmt, seq
from loopwright.ir.visitor import free_vars, substitute
from loopwright.lowering.nest.buffers import Buffers
from loopwright.schedule import (
    Prefetched,
    Shares,
    StageBounds,
    loops_between,
    reads_inside,
    shares_of,
)

# ---------------------------------------------------------------- shares
#
# Prefetches in shares: each iteration of an inner loop fetches some lines of what a loop around it
# will read next.


def share(b: Buffers, sb: StageBounds, note: Shares) -> Stmt:
    # Where the loop ahead is fused, and the tensor stands still along inner parts of it, all
    # iterations until it moves share the lines that the outer parts read next.
    host, want = b.bounds.stages[note.around], note.ahead
    p = host.stage.leaves.index(want.loop)
    moving = _moving(b, host, p, note)
    if moving is None:
        return seq()
    outer, still = moving
    between = loops_between(b.state, b.bounds, sb, note)
    count = still * prod(x.count for x in between)
    number: Expr = binary("%", host.loops[p].var, still) if still > 1 else const(0, "int32")
    number = cast(number, "int64") if count >= NARROW else number
    for x in between:
        number = number * x.count + x.var if x.count > 1 else number
    fixed = host.visible(p - 1) | {outer, *_defined_from(host, p, outer)}
    buffer = b.of[want.source][want.value_index]
    lines = []
    for r in regions(b, host, want, fixed):
        # A dimension is whole where its part depends on a size variable.
        region: Region = [
            x if isinstance(x[1], int) and isinstance(x[2], int) else (Affine(), 0, n - 1)
            for n, x in zip(buffer.extents, r, strict=True)
        ]
        lines.append(_lines_of_share(buffer, region, number, count))
    return later(host, p, outer, want.offset, seq(*lines))


def _moving(b: Buffers, host: StageBounds, p: int, note: Shares) -> tuple[Var, int] | None:
    """The outermost part of loop p with which the tensor moves, and for how many iterations of the
    loop it stands still; None: it does not move with the loop, or parts have no constant length."""
    loop, parents = host.loops[p].var, dict(host.lets[p + 1])
    forms = (form for at in indices_read(b, host, note.ahead) for form in at)
    read = {v for form in forms if form is not None for v in form.terms}
    used = [v for v in (loop, *parents) if v in read]
    if not used:
        return None
    paths = [_path(v, loop, parents) for v in used]
    # Quotients and remainders by constants have a length.
    parts = [parents[v] for path in paths for v in path[:-1]]
    if not all(isinstance(e, Binary) and isinstance(e.b, Const) for e in parts):
        return None
    shared = set(paths[0]).intersection(*paths)
    for x in paths[0]:
        length = _stands_still(x, loop, parents) if x in shared else None
        if length is not None:
            return x, length
    return loop, 1


def _path(var: Var, loop: Var, parents: Mapping[Var, Expr]) -> list[Var]:
    """A part of a fused loop and those that it is a part of, the loop last."""
    path = [var]
    while path[-1] is not loop:
        value = parents[path[-1]]
        whole = value.a if isinstance(value, Binary) else None
        path.append(whole if isinstance(whole, Var) and whole in parents else loop)
    return path


def _stands_still(var: Var, loop: Var, parents: Mapping[Var, Expr]) -> int | None:
    """Iterations of a fused loop for which a part stands still; None: it comes back to what it was
    before, or that is not known."""
    length = 1
    for part, whole in pairwise(_path(var, loop, parents)):
        value = parents[part]
        assert isinstance(value, Binary)
        if value.op != "//" or value.a is not whole:
            return None
        assert isinstance(value.b, Const)
        length *= value.b.value
    return length


def _defined_from(host: StageBounds, p: int, var: Var) -> set[Var]:
    found = {var}
    for other, value in host.lets[p + 1]:
        if isinstance(value, Binary) and value.a in found:
            found.add(other)
    return found


def _lines_of_share(buffer: Buffer, region: Region, number: Expr, count: int) -> Stmt:
    """The lines of a region that fall to iteration ``number`` of ``count``."""
    rows, run = _rows(buffer, region)
    step = elements_of_line(buffer)
    in_row = -(-run // step)
    lines = prod(rows) * in_row
    each = -(-lines // count)
    number = cast(number, "int64") if count * lines >= NARROW else number
    if each == 1:
        # Several iterations may have one line.
        return Prefetch(buffer, _element(region, rows, in_row, step, number * lines // count))
    more = Var("p0", "int32")
    at = Prefetch(buffer, _element(region, rows, in_row, step, number * each + more))
    return For(more, each, "unrolled" if each <= WRITTEN_OUT else "serial", at)


def _rows(buffer: Buffer, region: Region) -> tuple[list[int], int]:
    """A region as rows of elements that lie side by side: the number of rows along each of the
    first dimensions, and the elements of a row, in which all dimensions after these are."""
    counts = []
    for n, (_, low, high) in zip(buffer.extents, region, strict=True):
        assert isinstance(low, int)  # of a tensor whose shape is known
        assert isinstance(high, int)
        counts.append(min(n, high - low + 1))  # without those beyond its end
    run = counts.pop()
    while counts and buffer.strides is None and run == prod(buffer.extents[len(counts) :]):
        run *= counts.pop()
    return counts, run


def _element(
    region: Region, rows: list[int], in_row: int, step: int, line: Expr
) -> tuple[Expr, ...]:
    digits: list[Expr] = []
    if rows:
        row, line = line // in_row, line % in_row
        for n in reversed(rows[1:]):
            digits.insert(0, row % n)
            row = row // n
        digits.insert(0, row)
    digits += [const(0, "int32")] * (len(region) - len(rows) - 1)
    digits.append(line * step)
    start = (fixed + low for fixed, low, _ in region)
    return tuple(binary("+", s.to_expr(), x) for s, x in zip(start, digits, strict=True))


# ---------------------------------------------------------------- regions
#
# Regions of buffers that a later iteration of a loop reads, and statements as they are then. As in
# bound inference, indices are affine over loops, of which some are fixed.

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
    hulls: list[Region] = []
    for indices in indices_read(b, sb, want):
        region = _region(b, sb.sizes, want, fixed, indices)
        unions = ((k, _union(old, region, sb.sizes)) for k, old in enumerate(hulls))
        k, wide = next(((k, x) for k, x in unions if x is not None), (len(hulls), region))
        hulls[k : k + 1] = [wide]
    return hulls


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
    b: Buffers, sizes: Sizes, want: Prefetched, fixed: set[Var], indices: tuple[Affine | None, ...]
) -> Region:
    region: Region = []
    for form, n in zip(indices, b.of[want.source][want.value_index].shape, strict=True):
        if form is None:  # a digit of a layout that does not fit the tile: all of the dimension
            region.append((Affine(0), 0, sizes.of(n) - 1))
            continue
        start, rest = form.split(fixed)
        region.append((start, *sizes.span(rest)))
    return region


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


def prefetched(b: Buffers, sb: StageBounds, p: int, body: Stmt) -> Stmt:
    """The body of loop ``p`` of a stage with the prefetches of the loop in front."""
    x = sb.loops[p]
    prefetches = []
    for want in sb.stage.prefetches:
        if want.loop == x.loop.id and x.extent != 1:
            buffer = b.of[want.source][want.value_index]
            lines = seq(*(_lines(buffer, r, sb.sizes) for r in regions(b, sb, want, sb.visible(p))))
            prefetches.append(later(sb, p, x.var, want.offset, lines))
    prefetches += [share(b, sb, note) for note in shares_of(sb) if note.loop == x.loop.id]
    return seq(*prefetches, body) if prefetches else body


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

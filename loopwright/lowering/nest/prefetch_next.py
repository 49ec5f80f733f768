"""Prefetches in shares: each iteration of an inner loop fetches some lines of what a loop around it
will read next."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import prod

from loopwright.ir.affine import NARROW, Affine, Extent
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Binary, Const, Expr, Var, binary, cast, const
from loopwright.ir.stmt import For, Prefetch, Stmt, seq
from loopwright.lowering.nest.ahead import (
    WRITTEN_OUT,
    Region,
    elements_of_line,
    indices_read,
    later,
    regions,
)
from loopwright.lowering.nest.buffers import Buffers
from loopwright.schedule.bounds.results import StageBounds
from loopwright.schedule.primitives.prefetch import Shares, loops_between


def share(b: Buffers, sb: StageBounds, note: Shares) -> Stmt:
    """The prefetches of one iteration.

    Where the loop ahead is fused, and the tensor stands still along inner parts of it, all
    iterations until it moves share the lines that the outer parts read next.
    """
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
        number = binary("+", binary("*", number, x.count), x.var) if x.count > 1 else number
    fixed = host.visible(p - 1) | {outer, *_defined_from(host, p, outer)}
    buffer = b.of[want.source][want.value_index]
    found = regions(b, host, want, fixed)
    lines = seq(*(_lines(buffer, _of_known_size(buffer, r), number, count) for r in found))
    return later(host, p, outer, want.offset, lines)


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
    if not all(_has_length(parents[v]) for path in paths for v in path[:-1]):
        return None
    shared = set(paths[0]).intersection(*paths)
    common = [x for x in paths[0] if x in shared]
    for x in common:
        length = _stands_still(x, loop, parents)
        if length is not None:
            return x, length
    return loop, 1


def _has_length(part: Expr) -> bool:
    """Whether a part of a fused loop is a quotient, or a rest, by a constant."""
    return isinstance(part, Binary) and isinstance(part.b, Const)


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
    """The parts of loop p that are defined from one of them."""
    found = {var}
    for other, value in host.lets[p + 1]:
        if isinstance(value, Binary) and value.a in found:
            found.add(other)
    return found


def _of_known_size(buffer: Buffer, region: Region) -> Region:
    """A region in which a dimension is whole where its part depends on a size variable."""
    return [
        (start, low, high)
        if isinstance(low, int) and isinstance(high, int)
        else (Affine(), 0, n - 1)
        for n, (start, low, high) in zip(buffer.extents, region, strict=True)
    ]


def _lines(buffer: Buffer, region: Region, number: Expr, count: int) -> Stmt:
    """The lines of a region that fall to iteration ``number`` of ``count``."""
    rows, run = _rows(buffer, region)
    step = elements_of_line(buffer)
    in_row = -(-run // step)
    lines = prod(rows) * in_row
    each = -(-lines // count)
    number = cast(number, "int64") if count * lines >= NARROW else number
    if each == 1:
        # Several iterations may have one line.
        line = binary("//", binary("*", number, lines), count)
        return Prefetch(buffer, _element(region, rows, in_row, step, line))
    more = Var("p0", "int32")
    line = binary("+", binary("*", number, each), more)
    at = Prefetch(buffer, _element(region, rows, in_row, step, line))
    return For(more, each, "unrolled" if each <= WRITTEN_OUT else "serial", at)


def _rows(buffer: Buffer, region: Region) -> tuple[list[int], int]:
    """A region as rows of elements that lie side by side: the number of rows along each of the
    first dimensions, and the elements of a row, in which all dimensions after these are."""
    counts = [
        _extent(n, low, high) for n, (_, low, high) in zip(buffer.extents, region, strict=True)
    ]
    run = counts.pop()
    while counts and buffer.strides is None and run == prod(buffer.extents[len(counts) :]):
        run *= counts.pop()
    return counts, run


def _extent(n: int, low: Extent, high: Extent) -> int:
    """Number of indices of a dimension that are read, without those beyond its end."""
    assert isinstance(low, int)  # of a tensor whose shape is known
    assert isinstance(high, int)
    return min(n, high - low + 1)


def _element(
    region: Region, rows: list[int], in_row: int, step: int, line: Expr
) -> tuple[Expr, ...]:
    digits: list[Expr] = []
    if rows:
        row, line = binary("//", line, in_row), binary("%", line, in_row)
        for n in reversed(rows[1:]):
            digits.insert(0, binary("%", row, n))
            row = binary("//", row, n)
        digits.insert(0, row)
    digits += [const(0, "int32")] * (len(region) - len(rows) - 1)
    digits.append(binary("*", line, step))
    start = (fixed + low for fixed, low, _ in region)
    return tuple(binary("+", s.to_expr(), x) for s, x in zip(start, digits, strict=True))

"""Extents of a stage's loops from its shape, and values of consumed loops from those that remain.

Splits and fusions by constants keep everything affine. A part of symbolic length does not: what it
contributes (``outer * length``, ``fused // length``, ``fused % length``) becomes a variable that is
defined where its loops are known, with the bounds that it has by construction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopwright.ir.affine import Affine, Extent, div_mod
from loopwright.ir.expr import Expr, Var, binary, cast
from loopwright.ir.sizes import Sizes, form_expr
from loopwright.ir.traversal import free_vars
from loopwright.schedule.state import FuseRel, SplitRel

if TYPE_CHECKING:
    from loopwright.schedule.bounds.infer import StageBounds

_INT32 = (1 << 31) - 1


def loop_var(name: str, extent: Extent, sizes: Sizes, dtype: str = "int32") -> Var:
    """A variable that runs below an extent, with its bounds entered; int64 where int32 is narrow.

    Only the fusion of symbolic loops can be so long.
    """
    long = not isinstance(extent, int) and extent.bounds(sizes.ranges)[1] > _INT32
    var = Var(name, "int64" if long else dtype)
    sizes.ranges.enter(var, extent)
    return var


def extents_of(sb: StageBounds) -> dict[str, Extent]:
    """Extents of all loops of a stage, those that later steps consumed included."""
    sizes = sb.sizes
    extents: dict[str, Extent] = {f"a{d}": e for d, e in enumerate(sb.shape)}
    extents |= {f"r{d}": sizes.of(a.extent) for d, a in enumerate(sb.op.reduce_axes)}
    for rel in sb.stage.relations:
        if isinstance(rel, FuseRel):
            extents[rel.fused] = sizes.times(extents[rel.outer], extents[rel.inner])
            continue
        n = extents[rel.parent]
        if rel.factor is not None:
            inner = min(rel.factor, n) if isinstance(n, int) else rel.factor
            extents[rel.inner] = inner
            extents[rel.outer] = sizes.ceil_div(n, inner)
        else:
            assert rel.nparts is not None
            extents[rel.inner] = sizes.ceil_div(n, rel.nparts)
            extents[rel.outer] = rel.nparts
    return extents


def invert(
    rel: SplitRel | FuseRel, values: dict[str, Affine], extents: dict[str, Extent], sb: StageBounds
) -> None:
    """Enter the values of the loops that a step consumed, from those that it made."""
    length = extents[rel.inner]
    if isinstance(rel, SplitRel):
        outer = values[rel.outer]
        if isinstance(length, Affine):
            outer = _scaled(outer, length, f"{sb.stage.loops[rel.parent].name}.start", sb)
        else:
            outer = outer * length
        values[rel.parent] = outer + values[rel.inner]
        return
    hint = sb.stage.loops[rel.fused].name
    if isinstance(length, Affine):
        parts = _parts(values[rel.fused], extents[rel.outer], length, hint, sb)
        values[rel.outer], values[rel.inner] = parts
        return
    lets: list[tuple[Var, Expr]] = []
    q, r = div_mod(values[rel.fused], length, sb.sizes.ranges, lets, hint)
    for var, value in lets:
        _define(var, value, sb)
    if lets:
        _bound_quotient(values[rel.fused], lets[0][0], q, extents[rel.outer], length, sb)
    values[rel.outer], values[rel.inner] = q, r


def _define(var: Var, value: Expr, sb: StageBounds) -> None:
    """Make a definition just inside the innermost loop that it depends on."""
    pos = max((sb.position.get(v, -1) for v in free_vars(value)), default=-1)
    sb.position[var] = pos
    if sb.kernel is not None:
        sb.kernel.depends(var, value)
    sb.lets[pos + 1].append((var, value))


def _bound_quotient(x: Affine, var: Var, q: Affine, outer: Extent, length: int, sb: Any) -> None:
    """The quotient of a fused loop is below the outer extent, but for what the loop over-runs."""
    if isinstance(outer, Affine) and q == Affine.of(var):
        sb.sizes.ranges.enter(var, outer + -(-_over_run(x, outer * length, sb) // length))


def _over_run(x: Affine, whole: Extent, sb: StageBounds) -> int:
    """How far a fused loop may run beyond the product of its parts."""
    return max(0, (Affine(1) + x - whole).bounds(sb.sizes.ranges)[1])


def _scaled(x: Affine, length: Affine, name: str, sb: StageBounds) -> Affine:
    """``x * length``."""
    if not x.terms:
        whole = sb.sizes.times(x.const, length)
        return whole if isinstance(whole, Affine) else Affine(whole)
    most = sb.sizes.times(sb.sizes.span(x)[1], length)
    var = loop_var(name, most + 1, sb.sizes, "int64")
    _define(var, _wide("*", x, length, sb), sb)
    return Affine.of(var)


def _parts(
    x: Affine, outer: Extent, length: Affine, hint: str, sb: StageBounds
) -> tuple[Affine, Affine]:
    """``x // length`` and ``x % length``."""
    over = _over_run(x, sb.sizes.times(outer, length), sb)
    out = []
    for op, name, extent in (("//", f"{hint}.q", outer + over), ("%", f"{hint}.r", length)):
        var = loop_var(name, extent, sb.sizes, "int64")
        _define(var, _wide(op, x, length, sb), sb)
        out.append(Affine.of(var))
    return out[0], out[1]


def _wide(op: str, x: Affine, length: Affine, sb: StageBounds) -> Expr:
    """An operation in int64, in which nothing wraps."""
    a, b = form_expr(x, sb.sizes.ranges), form_expr(length, sb.sizes.ranges)
    return binary(op, cast(a, "int64"), cast(b, "int64"))

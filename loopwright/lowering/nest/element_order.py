"""Buffers whose layout was transformed: places of their elements, and what fills their padding."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from loopwright import dtypes
from loopwright.ir.affine import Affine, Extent, Ranges, form_expr, split_digits, to_affine
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, Var, binary, const
from loopwright.ir.stmt import For, Seq, Stmt, Store, seq
from loopwright.schedule.primitives import index_map
from loopwright.schedule.primitives.layout import expression, is_digit
from loopwright.schedule.state import IndexExpr


def as_index(i: Affine | Expr, ranges: Ranges) -> Expr:
    return form_expr(i, ranges) if isinstance(i, Affine) else i


def indices_in_layout(
    layout: tuple[Any, ...], local: list[Affine | Expr], shape: tuple[Any, ...], ranges: Ranges
) -> tuple[Expr, ...]:
    """The indices of an element in the transformed layout; ``local`` ones count from the first
    element of the region that the stage covers, whose extents are ``shape``."""
    out = []
    for x in layout:
        if is_digit(x):
            out.append(_digit(local[x[0]], x[1], x[2], ranges))
            continue
        value = _value(expression(x), local, ranges)
        first = index_map.bounds(expression(x), shape)[0]
        value = value - first if isinstance(value, Affine) else binary("-", value, first)
        out.append(as_index(value, ranges))
    return tuple(out)


def _digit(i: Affine | Expr, div: int, mod: int | None, ranges: Ranges) -> Expr:
    e = as_index(i, ranges)
    e = binary("//", e, div) if div > 1 else e
    e = binary("%", e, mod) if mod is not None else e
    a = to_affine(e, {}, ranges)
    return form_expr(a, ranges) if a is not None else e


def _value(x: IndexExpr, local: list[Affine | Expr], ranges: Ranges) -> Affine | Expr:
    if isinstance(x, int):
        return Affine(x)
    if isinstance(x, str):
        return local[int(x[1:])]
    left = _value(x[1], local, ranges)
    if x[0] == "+":
        right = _value(x[2], local, ranges)
        if isinstance(left, Affine) and isinstance(right, Affine):
            return left + right
        return binary("+", as_index(left, ranges), as_index(right, ranges))
    op, _, b = x
    if op == "*":
        return left * b if isinstance(left, Affine) else binary("*", left, b)
    exact = to_affine(binary(op, as_index(left, ranges), b), {}, ranges)
    if exact is not None:
        return exact
    if not isinstance(left, Affine):
        return binary(op, left, b)
    # Digits below the divisor stay affine, so that lanes of a vector lie beside each other.
    high, low, d = split_digits(left, b, ranges)
    top = binary(op, form_expr(high, ranges), b // d)
    return top if op == "//" else binary("+", binary("*", top, d), form_expr(low, ranges))


def fill_padding(buffers: Sequence[Buffer], shape: Sequence[Extent], pad: float) -> Stmt:
    """Fill buffers with ``pad``, except where a stage's elements lie; ``shape`` has numbers
    here."""
    elements = prod(n for n in shape if isinstance(n, int))
    return seq(*(_filled(b, pad) for b in buffers if prod(b.extents) != elements), Seq(()))


def _filled(b: Buffer, pad: float) -> Stmt:
    axes = [Var(f"x{d}") for d in range(len(b.shape))]
    value = float(pad) if dtypes.is_float(b.dtype) else int(pad)
    out: Stmt = Store(b, tuple(axes), const(bool(pad) if b.dtype == "bool" else value, b.dtype))
    for x, n in reversed(list(zip(axes, b.shape, strict=True))):
        out = For(x, n, "serial", out)
    return out

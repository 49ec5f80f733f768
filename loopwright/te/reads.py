"""Whether the reads of a compute stay inside the tensors that they read."""

from __future__ import annotations

from loopwright.errors import TensorError
from loopwright.ir.affine import Extent, interval, to_affine
from loopwright.ir.expr import Expr, Read
from loopwright.ir.printer import print_expr
from loopwright.ir.sizes import Shape, Sizes


def check_read(e: Read, source: str, shape: Shape, name: str, scope: Sizes) -> None:
    """Refuse an index that certainly leaves its dimension.

    Bounds of an affine index are attained. Others may be wide (``i - i // 4 * 4``), so those are
    refused only when no value of them lies inside. Where sizes are symbolic, an index that leaves
    its dimension for every size is refused; the rest is checked when the sizes are known. ``name``
    is the compute, for the message.
    """
    for d, (i, dim) in enumerate(zip(e.indices, shape, strict=True)):
        extent = scope.of(dim)
        b = interval(i, {}, scope.ranges)
        if b is None or (b[0] >= 0 and (isinstance(extent, int) and b[1] < extent)):
            continue
        text = _leaves(i, extent, b, scope)
        if text:
            raise TensorError(
                f"compute {name!r}: index {d} of {source} {text}, the dimension has "
                f"{dim if isinstance(dim, int) else print_expr(dim)} elements; guard it with "
                "te.if_then_else"
            )


def _leaves(i: Expr, extent: Extent, b: tuple[int, int], scope: Sizes) -> str:
    """Words for the way in which an index leaves its dimension, or ''."""
    form = to_affine(i, {}, scope.ranges)
    if isinstance(extent, int) and not scope.ranges.upper:
        out = form is not None or b[1] < 0 or b[0] >= extent
        return f"runs from {b[0]} to {b[1]}" if out else ""
    if form is None:
        return ""
    least, most = form.extremes(scope.ranges)
    past = most - extent
    if least.bounds(scope.ranges)[1] >= 0 and past.bounds(scope.ranges)[0] < 0:
        return ""
    low, high = (print_expr(x.to_expr()) for x in (least, most))
    return f"runs from {low} to {high}"

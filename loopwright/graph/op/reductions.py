"""Reductions over some dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from loopwright import dtypes, te
from loopwright.errors import GraphError
from loopwright.graph.op.shapes import axes_of, axis_of
from loopwright.graph.registry import Op, Pattern, register_op
from loopwright.graph.rounding import as_dtype
from loopwright.ops import compute, reduced

#: One axis, several, or all.
Axes = int | Sequence[int] | None


def _reduction(name: str, summary: str, reduce: Callable[..., Any]) -> Op:
    def define(data: te.Tensor, *, axis: Axes = None, keepdims: bool = False) -> te.Tensor:
        return reduced(data, axes_of(axis, data.ndim), reduce, name, keepdims=keepdims)

    define.__doc__, define.__qualname__ = summary, name
    return register_op(name, Pattern.REDUCTION)(define)


total = _reduction("sum", "The sum over some axes.", te.sum)
largest = _reduction("max", "The largest element over some axes.", te.max)
smallest = _reduction("min", "The smallest element over some axes.", te.min)
product = _reduction("prod", "The product over some axes.", te.prod)


@register_op("mean", Pattern.REDUCTION)
def mean(data: te.Tensor, *, axis: Axes = None, keepdims: bool = False) -> te.Tensor:
    """The mean over some axes; of integers rounded towards zero."""
    gone = axes_of(axis, len(data.shape))
    extents = [n for n in (data.shape[a] for a in gone) if isinstance(n, int)]
    if len(extents) < len(gone):
        raise GraphError("the dimensions of a mean must be numbers")
    count = math.prod(extents)
    short = dtypes.is_int(data.dtype) and dtypes.bits(data.dtype) < 32
    source = as_dtype(data, "int32") if short else data
    summed = reduced(source, gone, te.sum, "total", keepdims=keepdims)
    return as_dtype(
        te.compute(
            summed.shape, lambda *i: te.div(summed(*i), te.const(count, summed.dtype)), name="mean"
        ),
        data.dtype,
    )


def _arg(name: str, summary: str, reduce: Callable[..., Any]) -> Op:
    def define(
        data: te.Tensor, *, axis: int = 0, keepdims: bool = False, select_last: bool = False
    ) -> te.Tensor:
        at = axis_of(axis, len(data.shape))
        extent = data.shape[at]
        k = te.reduce_axis((0, extent), name="k")
        outer = (*data.shape[:at], *data.shape[at + 1 :])

        def numbered(*i: Any) -> Any:
            """The smallest of several indices is kept: the last one counts from the end."""
            place = extent - 1 - k if select_last else k
            return reduce((k, data(*i[:at], place, *i[at:])), axis=k)

        places = te.compute(outer, numbered, name=name)[0]
        shape = (*data.shape[:at], *((1,) if keepdims else ()), *data.shape[at + 1 :])
        after = at + 1 if keepdims else at

        def widened(*i: Any) -> Any:
            place = places(*i[:at], *i[after:])
            return (extent - 1 - place if select_last else place).astype("int64")

        return compute(shape, widened, name="index")

    define.__doc__, define.__qualname__ = summary, name
    return register_op(name, Pattern.REDUCTION)(define)


argmax = _arg("argmax", "Place of the largest element of an axis, the first of several.", te.argmax)
argmin = _arg("argmin", "Place of the smallest element of an axis, the first one.", te.argmin)


def _cumulative(name: str, summary: str, reduce: Callable[..., Any], start: int) -> Op:
    def define(
        data: te.Tensor, *, axis: int = 0, exclusive: bool = False, reverse: bool = False
    ) -> te.Tensor:
        at = axis_of(axis, len(data.shape))
        k = te.reduce_axis((0, data.shape[at]), name="k")
        nothing = te.const(start, data.dtype)

        def value(*i: Any) -> Any:
            near, far = (k.var, i[at]) if not reverse else (i[at], k.var)
            counts = near < far if exclusive else near <= far
            return reduce(te.if_then_else(counts, data(*i[:at], k, *i[at + 1 :]), nothing), axis=k)

        return compute(data.shape, value, name=name)

    define.__doc__, define.__qualname__ = summary, name
    return register_op(name, Pattern.REDUCTION)(define)


cumsum = _cumulative("cumsum", "The sums of the elements up to each one of an axis.", te.sum, 0)
cumprod = _cumulative("cumprod", "The products of those up to each one of an axis.", te.prod, 1)

"""Reductions over some dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from loopwright import te
from loopwright.errors import GraphError
from loopwright.graph.op.shapes import axes_of, axis_of
from loopwright.graph.registry import Op, Pattern, register_op

#: One axis, several, or all.
Axes = int | Sequence[int] | None


def reduced(
    data: te.Tensor, axis: Axes, keepdims: bool, reduce: Callable[..., Any], name: str
) -> te.Tensor:
    """A reduction over some axes.

    Args:
        data: a tensor.
        axis: over which; None over all.
        keepdims: whether they stay, with the extent 1.
        reduce: such as ``te.sum``.
        name: of the stage.
    """
    rank = len(data.shape)
    gone = axes_of(axis, rank)
    loops = {a: te.reduce_axis((0, data.shape[a]), name=f"k{a}") for a in gone}
    kept = [a for a in range(rank) if a not in loops]
    stays = range(rank) if keepdims else kept
    shape = tuple(1 if a in loops else data.shape[a] for a in stays)

    def value(*i: Any) -> Any:
        at: dict[int, Any] = {**dict(zip(stays, i, strict=True)), **loops}
        index = [at[a] for a in range(rank)]
        return reduce(data(*index), axis=list(loops.values())) if loops else data(*index)

    tensor: te.Tensor = te.compute(shape, value, name=name)
    return tensor


def _reduction(name: str, summary: str, reduce: Callable[..., Any]) -> Op:
    def compute(data: te.Tensor, *, axis: Axes = None, keepdims: bool = False) -> te.Tensor:
        return reduced(data, axis, keepdims, reduce, name)

    compute.__doc__, compute.__qualname__ = summary, name
    return register_op(name, Pattern.REDUCTION)(compute)


total = _reduction("sum", "The sum over some axes.", te.sum)
largest = _reduction("max", "The largest element over some axes.", te.max)
smallest = _reduction("min", "The smallest element over some axes.", te.min)
product = _reduction("prod", "The product over some axes.", te.prod)


@register_op("mean", Pattern.REDUCTION)
def mean(data: te.Tensor, *, axis: Axes = None, keepdims: bool = False) -> te.Tensor:
    """The mean over some axes."""
    gone = axes_of(axis, len(data.shape))
    extents = [n for n in (data.shape[a] for a in gone) if isinstance(n, int)]
    if len(extents) < len(gone):
        raise GraphError("the dimensions of a mean must be numbers")
    count = math.prod(extents)
    summed = reduced(data, axis, keepdims, te.sum, "total")
    part = te.const(1 / count, data.dtype)
    tensor: te.Tensor = te.compute(summed.shape, lambda *i: summed(*i) * part, name="mean")
    return tensor


def _arg(name: str, summary: str, reduce: Callable[..., Any]) -> Op:
    def compute(data: te.Tensor, *, axis: int = 0, keepdims: bool = False) -> te.Tensor:
        at = axis_of(axis, len(data.shape))
        k = te.reduce_axis((0, data.shape[at]), name="k")
        outer = (*data.shape[:at], *data.shape[at + 1 :])
        found = te.compute(
            outer, lambda *i: reduce((k, data(*i[:at], k, *i[at:])), axis=k), name=name
        )[0]
        shape = (*data.shape[:at], *((1,) if keepdims else ()), *data.shape[at + 1 :])
        after = at + 1 if keepdims else at

        def widened(*i: Any) -> Any:
            return found(*i[:at], *i[after:]).astype("int64")

        tensor: te.Tensor = te.compute(shape, widened, name="index")
        return tensor

    compute.__doc__, compute.__qualname__ = summary, name
    return register_op(name, Pattern.REDUCTION)(compute)


argmax = _arg("argmax", "Where the largest element of an axis is, the first of several.", te.argmax)
argmin = _arg("argmin", "Where the smallest element of an axis is, the first one.", te.argmin)

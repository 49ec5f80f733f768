"""Operators of neural networks: products, convolutions, pools, normalisations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from loopwright import dtypes, te
from loopwright.errors import GraphError
from loopwright.graph.op.shapes import accumulator, axis_of, broadcast, element, require_same
from loopwright.graph.registry import Pattern, register_op
from loopwright.graph.rounding import as_dtype
from loopwright.ops import compute, product


@register_op("nn.dense", Pattern.OUT_ELEMENTWISE_FUSABLE)
def dense(data: te.Tensor, weight: te.Tensor, *, out_dtype: str = "") -> te.Tensor:
    """Rows of data times the transposed weight: (..., K) by (N, K) to (..., N)."""
    if len(weight.shape) != 2 or not data.shape:
        raise GraphError("dense takes data of at least one dimension, and a weight of two")
    require_same(data.shape[-1], weight.shape[1], "the last extents of data and weight")
    rows = product(
        *(data, weight),
        trans_b=True,
        dtype=out_dtype or accumulator(data.dtype),
        batch=data.shape[:-2],
        name="dense",
    )
    return as_dtype(rows, out_dtype or data.dtype)


@register_op("matmul", Pattern.OUT_ELEMENTWISE_FUSABLE)
def matmul(lhs: te.Tensor, rhs: te.Tensor, *, out_dtype: str = "") -> te.Tensor:
    """The product of matrices as NumPy has it: the dimensions before the last two are broadcast."""
    a, b = lhs.shape, rhs.shape
    if not a or not b:
        raise GraphError("matmul takes tensors of at least one dimension")
    require_same(a[-1], b[-2:][0], "the inner extents of a product")
    result = product(
        *(lhs, rhs),
        dtype=out_dtype or accumulator(lhs.dtype),
        batch=broadcast(a[:-2], b[:-2]),
        read=element,
        name="matmul",
    )
    return as_dtype(result, out_dtype or lhs.dtype)


@register_op("nn.bias_add", Pattern.BROADCAST)
def bias_add(data: te.Tensor, bias: te.Tensor, *, axis: int = 1) -> te.Tensor:
    """The bias, one number for each index of an axis, added to the data."""
    at = axis_of(axis, len(data.shape))
    if len(bias.shape) != 1:
        raise GraphError(f"a bias has one dimension, got {len(bias.shape)}")
    require_same(bias.shape[0], data.shape[at], f"the extents of the bias and of axis {axis}")
    return compute(
        data.shape, lambda *i: data(*i) + bias[i[at]].astype(data.dtype), name="bias_add"
    )


@register_op("nn.batch_norm", Pattern.OPAQUE)
def batch_norm(
    data: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    moving_mean: te.Tensor,
    moving_var: te.Tensor,
    *,
    axis: int = 1,
    epsilon: float = 1e-5,
) -> te.Tensor:
    """Batch normalisation in inference: by the mean and the variance that were learned."""
    at = axis_of(axis, len(data.shape))
    for t in (gamma, beta, moving_mean, moving_var):
        require_same(t.shape[0], data.shape[at], f"the extents of {t.name} and of axis {axis}")
    eps = te.const(epsilon, data.dtype)

    def value(*i: Any) -> Any:
        c = i[at]
        return (data(*i) - moving_mean[c]) * (gamma[c] * te.rsqrt(moving_var[c] + eps)) + beta[c]

    return compute(data.shape, value, name="batch_norm")


@register_op("nn.softmax", Pattern.OPAQUE)
def softmax(data: te.Tensor, *, axis: int = -1) -> te.Tensor:
    """exp(x) divided by the sum of exp over an axis, without overflow."""
    _, exps, total, at = _exponentials(data, axis)
    return as_dtype(
        te.compute(data.shape, lambda *i: exps(*i) / total(*_without(i, at)), name="softmax"),
        data.dtype,
    )


@register_op("nn.log_softmax", Pattern.OPAQUE)
def log_softmax(data: te.Tensor, *, axis: int = -1) -> te.Tensor:
    """The logarithm of softmax, without overflow."""
    top, _, total, at = _exponentials(data, axis)

    def value(*i: Any) -> Any:
        x = data(*i).astype(total.dtype)
        return x - top(*_without(i, at)) - te.log(total(*_without(i, at)))

    return as_dtype(te.compute(data.shape, value, name="log_softmax"), data.dtype)


def _exponentials(data: te.Tensor, axis: int) -> tuple[te.Tensor, te.Tensor, te.Tensor, int]:
    """The largest element along an axis, exp of the distance to it, the sum of these, the axis."""
    if not dtypes.is_float(data.dtype):
        raise GraphError(f"exponentials are of floats, got {data.dtype}; cast the input")
    at = axis_of(axis, len(data.shape))
    outer = _without(data.shape, at)
    wide = accumulator(data.dtype)
    k = te.reduce_axis((0, data.shape[at]), name="k")
    again = te.reduce_axis((0, data.shape[at]), name="k")
    top = te.compute(outer, lambda *i: te.max(data(*_with(i, at, k)), axis=k), name="top")
    exps = te.compute(
        data.shape,
        lambda *i: te.exp(data(*i).astype(wide) - top(*_without(i, at)).astype(wide)),
        name="exps",
    )
    total = te.compute(
        outer, lambda *i: te.sum(exps(*_with(i, at, again)), axis=again), name="total"
    )
    return top, exps, total, at


def _without(items: Sequence[Any], at: int) -> tuple[Any, ...]:
    return (*items[:at], *items[at + 1 :])


def _with(items: Sequence[Any], at: int, item: Any) -> tuple[Any, ...]:
    return (*items[:at], item, *items[at:])


@register_op("nn.layer_norm", Pattern.OPAQUE)
def layer_norm(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, *, axis: int = -1, epsilon: float = 1e-5
) -> te.Tensor:
    """The data less its mean, by its standard deviation, over all dimensions from an axis on."""
    at = axis_of(axis, len(data.shape))
    outer, inner = data.shape[:at], data.shape[at:]
    for t in (gamma, beta):
        if len(t.shape) != len(inner):
            raise GraphError(f"{t.name} has {len(t.shape)} dimensions; give {len(inner)}")
    count = math.prod(n for n in inner if isinstance(n, int))
    if not all(isinstance(n, int) for n in inner):
        raise GraphError("the normalised dimensions must be numbers")
    part = te.const(1 / count, data.dtype)
    eps = te.const(epsilon, data.dtype)

    def over(f: Any, name: str) -> te.Tensor:
        loops = [te.reduce_axis((0, n), name=f"k{d}") for d, n in enumerate(inner)]
        return compute(outer, lambda *i: te.sum(f(i, data(*i, *loops)), axis=loops), name=name)

    total = over(lambda i, x: x, "total")
    squares = over(lambda i, x: (x - total(*i) * part) * (x - total(*i) * part), "squares")

    def value(*i: Any) -> Any:
        row, rest = i[:at], i[at:]
        scale = te.rsqrt(squares(*row) * part + eps)
        return (data(*i) - total(*row) * part) * scale * gamma(*rest) + beta(*rest)

    return compute(data.shape, value, name="layer_norm")

"""Converters of layers: products, attention, normalisations, softmax, embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod

import numpy as np

from loopwright import dtypes
from loopwright.errors import GraphError
from loopwright.graph.frontend.torch.node import Node, converter
from loopwright.graph.ir.expr import Call, Expr
from loopwright.graph.ir.visitor import called
from loopwright.graph.rounding import WIDE


@converter("_softmax", "_log_softmax", "softmax.int", "log_softmax.int")
def softmax(node: Node, x: Expr, dim: int, half_to_float: object = False) -> Expr:
    name = "nn.log_softmax" if "log" in node.operator else "nn.softmax"
    data = node.as_result(x)
    if not node.rank(x):
        return node.reshaped(node.call(name, node.reshaped(data, (1,)), axis=0), ())
    return node.call(name, data, axis=node.axis(dim, node.rank(x)))


#: A tensor that may be left out.
_Optional = Expr | None


@converter("_native_batch_norm_legit_no_training")
def batch_norm(
    node: Node, x: Expr, weight: _Optional, bias: _Optional, running_mean: Expr,
    running_var: Expr, momentum: float, eps: float,
) -> list[Expr | None]:  # fmt: skip
    scale = _scale(node, x, weight, bias, node.shape(x)[1:2])
    running = (node.cast(e, node.dtype(x)) for e in (running_mean, running_var))
    return [node.call("nn.batch_norm", x, *scale, *running, axis=1, epsilon=eps)]


def _scale(
    node: Node, x: Expr, weight: _Optional, bias: _Optional, shape: Sequence[int]
) -> list[Expr]:
    """A weight and a bias in the dtype of x, constants in their places where they are left out."""
    return [
        node.cast(node.number(np.full(shape, n), node.dtype(x)) if e is None else e, node.dtype(x))
        for e, n in ((weight, 1.0), (bias, 0.0))
    ]


@converter("native_layer_norm")
def layer_norm(
    node: Node, x: Expr, normalized_shape: Sequence[int],
    weight: _Optional, bias: _Optional, eps: float,
) -> list[Expr | None]:  # fmt: skip
    """Normalise over the last dimensions with their own mean and variance."""
    axis = node.rank(x) - len(normalized_shape)
    if any(node.used[1:]):
        raise GraphError("its mean and deviation, which only gradients need, are not supported")
    scale = _scale(node, x, weight, bias, normalized_shape)
    return [node.call("nn.layer_norm", x, *scale, axis=axis, epsilon=eps)]


@converter("native_group_norm")
def group_norm(
    node: Node, x: Expr, weight: _Optional, bias: _Optional,
    n: int, c: int, hxw: int, group: int, eps: float,
) -> list[Expr | None]:  # fmt: skip
    shape = node.shape(x)
    grouped = node.reshaped(x, (n, group, prod(shape[1:]) // group))
    result = node.reshaped(node.standardised(grouped, (2,), eps), shape)
    column = (c, *(1,) * (len(shape) - 2))
    for name, e in (("multiply", weight), ("add", bias)):
        result = result if e is None else node.call(name, result, node.reshaped(e, column))
    return [result]


@converter("embedding")
def embedding(
    node: Node, weight: Expr, indices: Expr, padding_idx: int = -1,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Expr:  # fmt: skip
    return node.call("take", weight, indices, axis=0)


@converter("native_dropout", "dropout")
def dropout(node: Node, x: Expr, p: float, train: bool | None) -> Expr:
    if train and p:
        raise GraphError("dropout in training is random; call model.eval()")
    return x


@converter("linear")
def linear(node: Node, x: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    """Rows times the transposed weight, with a bias."""
    require_one_dtype(node, x, weight, bias)
    if bias is None:
        return node.call("nn.dense", x, weight)
    rows = node.call("nn.dense", x, weight, out_dtype=wide_sums(node, x))
    return node.as_result(node.add(rows, node.cast(bias, node.dtype(rows))))


@converter("mm", "bmm", "matmul", "dot", "mv")
def product(node: Node, x: Expr, y: Expr, out_dtype: str = "") -> Expr:
    """The product of matrices; with a transposed matrix as a dense layer."""
    require_one_dtype(node, x, y)
    original = _untransposed(node, y) if node.rank(x) == 2 else None
    if original is not None:
        return node.call("nn.dense", x, original, out_dtype=out_dtype)
    return node.call("matmul", x, y, out_dtype=out_dtype)


def require_one_dtype(node: Node, *operands: Expr | None) -> None:
    """Raise GraphError unless operands have one dtype, as PyTorch does."""
    names = sorted({node.dtype(e) for e in operands if e is not None})
    if len(names) > 1:
        raise GraphError(f"its operands are of different dtypes: {', '.join(names)}")


def wide_sums(node: Node, x: Expr) -> str:
    """The dtype in which a 16-bit product is added to something before it is rounded."""
    return WIDE if node.dtype(x) in dtypes.HALVES else ""


def _untransposed(node: Node, y: Expr) -> Expr | None:
    """The matrix that another is the transpose of; None where it is none."""
    if not isinstance(y, Call) or called(y) != "transpose" or node.rank(y) != 2:
        return None
    axes = y.attrs["axes"]
    return y.args[0] if axes is None or tuple(a % 2 for a in axes) == (1, 0) else None


@converter("addmm", "baddbmm")
def added_product(
    node: Node, added: Expr, x: Expr, y: Expr, beta: float = 1, alpha: float = 1
) -> Expr:
    """beta * added + alpha * x y."""
    require_one_dtype(node, added, x, y)
    result = product(node, x, y, wide_sums(node, x))
    if alpha != 1:
        result = node.multiply(result, alpha)
    if beta == 0:
        return node.as_result(result)
    added = node.cast(added, node.dtype(result))
    if beta != 1:
        added = node.multiply(added, beta)
    return node.as_result(node.add(result, added))


@converter("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    node: Node, query: Expr, key: Expr, value: Expr, dropout_p: float = 0.0,
    is_causal: bool = False, attn_mask: _Optional = None, scale: float | None = None,
) -> list[Expr | None]:  # fmt: skip
    """Attention as PyTorch computes it on CPUs; the log-sum-exp output is not made."""
    return [attention(node, query, key, value, attn_mask, dropout_p, is_causal, scale), None]


@converter("scaled_dot_product_attention")
def attention(
    node: Node, query: Expr, key: Expr, value: Expr, attn_mask: _Optional = None,
    dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Expr:  # fmt: skip
    """softmax(query key' * scale + mask) value."""
    if dropout_p:
        raise GraphError("attention with dropout is of training; call model.eval()")
    q, k, v, mask = query, key, value, attn_mask
    if enable_gqa:
        k, v = (_repeated(node, e, node.shape(q)[-3]) for e in (k, v))
    rank, (rows, width), columns = node.rank(q), node.shape(q)[-2:], node.shape(k)[-2]
    turned = (*range(rank - 2), rank - 1, rank - 2)
    factor = 1 / math.sqrt(width) if scale is None else scale
    scores: Expr = node.call("matmul", q, node.call("transpose", k, axes=turned))
    scores = node.multiply(scores, factor)
    if is_causal:
        mask = node.number(np.tril(np.ones((rows, columns), "bool")), "bool")
    if mask is None or node.dtype(mask) != "bool":
        if mask is not None:
            scores = node.add(scores, node.cast(mask, node.dtype(q)))
        return node.call("matmul", node.call("nn.softmax", scores, axis=-1), v)
    # A row of which nothing is left gives 0. A finite bound keeps it free of NaN before that.
    least = node.number(np.float32(-1e30) if node.dtype(q) != "float16" else -6e4, node.dtype(q))
    weights = node.call("nn.softmax", node.where(mask, scores, least), axis=-1)
    return node.call("matmul", node.where(mask, weights, node.number(0, node.dtype(q))), v)


def _repeated(node: Node, x: Expr, heads: int) -> Expr:
    """Keys or values repeated, so that each head of the query has its own."""
    shape = node.shape(x)
    times, at = heads // shape[-3], len(shape) - 2
    wide = node.reshaped(x, (*shape[:at], 1, *shape[at:]))
    wide = node.call("broadcast_to", wide, shape=(*shape[:at], times, *shape[at:]))
    return node.reshaped(wide, (*shape[: at - 1], heads, *shape[at:]))

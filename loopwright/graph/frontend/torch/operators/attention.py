"""Converters of attention operators, which export leaves whole."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from loopwright.errors import GraphError
from loopwright.graph.frontend.torch.node import Node, converter
from loopwright.graph.ir.expr import Expr


@converter("scaled_dot_product_attention")
def attention(
    node: Node,
    query: Expr,
    key: Expr,
    value: Expr,
    attn_mask: Expr | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Expr:
    """softmax(query key' * scale + mask) value."""
    if dropout_p:
        raise GraphError("attention with dropout is of training; call model.eval()")
    if enable_gqa:
        query, key, value = _shared(node, query, key, value)
    return _attended(node, query, key, value, attn_mask, is_causal, scale)


@converter("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    node: Node,
    query: Expr,
    key: Expr,
    value: Expr,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Expr | None = None,
    scale: float | None = None,
) -> list[Expr | None]:
    """The same, as PyTorch computes it on CPUs; the log-sum-exp output is not made."""
    found = attention(node, query, key, value, attn_mask, dropout_p, is_causal, scale)
    assert isinstance(found, Expr)
    return [found, None]


def _attended(
    node: Node, q: Expr, k: Expr, v: Expr, mask: Expr | None, causal: bool, scale: float | None
) -> Expr:
    rank, (rows, width), columns = node.rank(q), node.shape(q)[-2:], node.shape(k)[-2]
    turned = (*range(rank - 2), rank - 1, rank - 2)
    factor = 1 / math.sqrt(width) if scale is None else scale
    scores: Expr = node.call("matmul", q, node.call("transpose", k, axes=turned))
    scores = node.call("multiply", scores, factor)
    if causal:
        mask = node.number(np.tril(np.ones((rows, columns), "bool")), "bool")
    if mask is not None and node.dtype(mask) != "bool":
        scores = node.call("add", scores, node.cast(mask, node.dtype(q)))
        return node.call("matmul", node.call("nn.softmax", scores, axis=-1), v)
    if mask is None:
        return node.call("matmul", node.call("nn.softmax", scores, axis=-1), v)
    # A row of which nothing is left gives 0. A finite bound keeps it free of NaN before that.
    least = node.number(np.float32(-1e30) if node.dtype(q) != "float16" else -6e4, node.dtype(q))
    weights = node.call("nn.softmax", node.call("where", mask, scores, least), axis=-1)
    zero = node.number(0, node.dtype(q))
    return node.call("matmul", node.call("where", mask, weights, zero), v)


def _shared(node: Node, *tensors: Expr) -> list[Any]:
    """Keys and values repeated, so that each head of the query has its own."""
    heads = node.shape(tensors[0])[-3]
    found = [tensors[0]]
    for t in tensors[1:]:
        shape = node.shape(t)
        times, at = heads // shape[-3], len(shape) - 2
        wide = node.reshaped(t, (*shape[:at], 1, *shape[at:]))
        wide = node.call("broadcast_to", wide, shape=(*shape[:at], times, *shape[at:]))
        found.append(node.reshaped(wide, (*shape[: at - 1], heads, *shape[at:])))
    return found

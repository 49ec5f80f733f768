"""Converters of normalisations, softmax, embeddings and other parts of layers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from loopwright.errors import GraphError
from loopwright.graph.frontend.torch.node import Node, converter
from loopwright.graph.ir.expr import Expr


@converter("_softmax", "_log_softmax", "softmax.int", "log_softmax.int")
def softmax(node: Node, x: Expr, dim: int, half_to_float: object = False) -> Expr:
    """The softmax or the log-softmax over a dimension."""
    name = "nn.log_softmax" if "log" in node.operator else "nn.softmax"
    data = node.as_result(x)
    if not node.rank(x):
        return node.reshaped(node.call(name, node.reshaped(data, (1,)), axis=0), ())
    return node.call(name, data, axis=node.axis(dim, node.rank(x)))


@converter("_native_batch_norm_legit_no_training")
def batch_norm(
    node: Node,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr,
    running_var: Expr,
    momentum: float,
    eps: float,
) -> list[Expr | None]:
    """Normalise with the running mean and variance."""
    channels, dtype = node.shape(x)[1], node.dtype(x)
    gamma = _filled(node, weight, 1.0, (channels,), dtype)
    beta = _filled(node, bias, 0.0, (channels,), dtype)
    mean, variance = node.cast(running_mean, dtype), node.cast(running_var, dtype)
    return [node.call("nn.batch_norm", x, gamma, beta, mean, variance, axis=1, epsilon=eps)]


def _filled(node: Node, e: Expr | None, value: float, shape: Sequence[int], dtype: str) -> Expr:
    """A weight, or a constant in its place where it is left out."""
    return node.number(np.full(shape, value), dtype) if e is None else node.cast(e, dtype)


@converter("native_layer_norm")
def layer_norm(
    node: Node,
    x: Expr,
    normalized_shape: Sequence[int],
    weight: Expr | None,
    bias: Expr | None,
    eps: float,
) -> list[Expr | None]:
    """Normalise over the last dimensions with their own mean and variance."""
    inner, dtype = tuple(normalized_shape), node.dtype(x)
    axis = node.rank(x) - len(inner)
    if any(node.used[1:]):
        raise GraphError("its mean and deviation, which only gradients need, are not supported")
    gamma = _filled(node, weight, 1.0, inner, dtype)
    beta = _filled(node, bias, 0.0, inner, dtype)
    return [node.call("nn.layer_norm", x, gamma, beta, axis=axis, epsilon=eps)]


@converter("native_group_norm")
def group_norm(
    node: Node,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    n: int,
    c: int,
    hxw: int,
    group: int,
    eps: float,
) -> list[Expr | None]:
    shape = node.shape(x)
    grouped = node.reshaped(x, (n, group, prod(shape[1:]) // group))
    found = node.reshaped(standardised(node, grouped, (2,), eps), shape)
    column = (c, *(1,) * (len(shape) - 2))
    for name, e in (("multiply", weight), ("add", bias)):
        found = found if e is None else node.call(name, found, node.reshaped(e, column))
    return [found]


def standardised(node: Node, x: Expr, axes: Sequence[int], epsilon: float) -> Expr:
    """A tensor minus its mean, divided by its standard deviation, over some dimensions."""
    over = tuple(axes)
    centred = node.call("subtract", x, node.call("mean", x, axis=over, keepdims=True))
    squares = node.call("multiply", centred, centred)
    variance = node.call("mean", squares, axis=over, keepdims=True)
    return node.call("multiply", centred, node.call("rsqrt", node.call("add", variance, epsilon)))


@converter("embedding")
def embedding(
    node: Node,
    weight: Expr,
    indices: Expr,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Expr:
    return node.call("take", weight, indices, axis=0)


_RANDOM = "dropout in training is random; call model.eval()"


@converter("native_dropout")
def native_dropout(node: Node, x: Expr, p: float, train: bool | None) -> list[Expr | None]:
    """The input itself; training is refused."""
    if train and p:
        raise GraphError(_RANDOM)
    return [x]


@converter("dropout")
def dropout(node: Node, x: Expr, p: float, train: bool) -> Expr:
    """The input itself; training is refused."""
    if train and p:
        raise GraphError(_RANDOM)
    return x

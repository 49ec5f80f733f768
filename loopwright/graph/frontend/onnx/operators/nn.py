"""Converters of products and normalisations, and of steps of training."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from loopwright.errors import GraphError
from loopwright.graph.frontend.conversion import moments, standardised
from loopwright.graph.frontend.onnx.node import Node, converter, one_call
from loopwright.graph.ir.expr import Expr, const

one_call("MatMul", "matmul")
one_call("Softmax", "nn.softmax", since=13, axis=("axis", -1))
one_call("LogSoftmax", "nn.log_softmax", since=13, axis=("axis", -1))
converter("Hardmax", 13)(lambda node: _hardmax(node, node[0], node.attr("axis", -1)))
converter("Einsum", 12)(lambda n: n.call("einsum", *n.given, equation=n.attr("equation")))


@converter("Gemm")
def gemm(node: Node) -> Expr:
    """alpha * A' B' + beta * C."""
    a = node.call("transpose", node[0]) if node.attr("transA", 0) else node[0]
    found: Expr = node.call("nn.dense" if node.attr("transB", 0) else "matmul", a, node[1])
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    if alpha != 1:
        found = node.call("multiply", found, alpha)
    added = node.optional(2)
    if added is None or beta == 0:
        return found
    if beta != 1:
        added = node.call("multiply", added, beta)
    return node.call("add", found, added)


@converter("BatchNormalization")
def batch_normalization(node: Node) -> Expr | list[Expr]:
    """Normalise with running mean and variance; in training with the batch's, which update them."""
    x, attrs = node[0], {"axis": 1, "epsilon": node.attr("epsilon", 1e-5)}
    if node.opset < 14 or not node.attr("training_mode", 0):
        if len([n for n in node.outputs if n]) > 1:
            raise GraphError("a model in training mode is not supported; export it for inference")
        args = [node[n] for n in range(5)]
        if not node.attr("spatial", 1):
            raise GraphError("a mean for each element, which opset 6 has, is not supported")
        return node.call("nn.batch_norm", *args, **attrs)
    axes, momentum = (0, *range(2, node.rank(x))), node.attr("momentum", 0.9)
    centred = node.call("subtract", x, node.call("mean", x, axis=axes, keepdims=True))
    squares = node.call("multiply", centred, centred)
    mean, variance = (node.call("mean", e, axis=axes, keepdims=False) for e in (x, squares))
    found: list[Expr] = [node.call("nn.batch_norm", x, node[1], node[2], mean, variance, **attrs)]
    for old, new in ((node[3], mean), (node[4], variance)):
        parts = (node.call("multiply", old, momentum), node.call("multiply", new, 1 - momentum))
        found.append(node.call("add", *parts))
    return found


@converter("InstanceNormalization")
def instance_normalization(node: Node) -> Expr:
    rank = node.rank(node[0])
    found = standardised(node.call, node[0], tuple(range(2, rank)), node.attr("epsilon", 1e-5))
    return _scaled_by_channel(node, found)


def _scaled_by_channel(node: Node, x: Expr) -> Expr:
    """A tensor times its scale, plus its bias: a number for each channel."""
    for n, name in ((1, "multiply"), (2, "add")):
        column = node.call("reshape", node[n], newshape=(-1, *(1,) * (node.rank(x) - 2)))
        x = node.call(name, x, column)
    return x


@converter("MeanVarianceNormalization", since=9)
def mean_variance_normalization(node: Node) -> Expr:
    """Standardise over some axes; 1e-9 is added to the standard deviation."""
    _, centred, variance = moments(node.call, node[0], node.attr("axes", (0, 2, 3)))
    deviation = node.call("sqrt", variance)
    return node.call("divide", centred, node.call("add", deviation, 1e-9))


@converter("GroupNormalization", since=21)
def group_normalization(node: Node) -> Expr:
    shape, groups = node.shape(node[0]), node.attr("num_groups")
    if shape[1] % groups:
        raise GraphError(f"{shape[1]} channels cannot be shared by {groups} groups")
    grouped = node.call("reshape", node[0], newshape=(shape[0], groups, -1))
    found = standardised(node.call, grouped, (2,), node.attr("epsilon", 1e-5))
    return _scaled_by_channel(node, node.call("reshape", found, newshape=shape))


@converter("LayerNormalization", since=17)
def layer_normalization(node: Node) -> list[Expr]:
    """Standardise over all dimensions from an axis on; also the mean and inverse deviation."""
    x, rank = node[0], node.rank(node[0])
    axis, epsilon = node.attr("axis", -1) % rank, node.attr("epsilon", 1e-5)
    dtype, bias = node.dtype(x), node.optional(2)
    if len([n for n in node.outputs if n]) == 1 and dtype == "float32":
        inner = node.shape(x, axis)
        beta = bias if bias is not None else const(np.zeros(inner, dtype))
        if node.shape(node[1]) == node.shape(beta) == inner:
            attrs = {"axis": axis, "epsilon": epsilon}
            return [node.call("nn.layer_norm", x, node[1], beta, **attrs)]
    axes = tuple(range(axis, rank))
    wide = x if dtype == "float64" else node.call("cast", x, dtype="float32")
    mean, centred, variance = moments(node.call, wide, axes)
    inverse = node.call("rsqrt", node.call("add", variance, epsilon))
    found: Expr = node.call("cast", node.call("multiply", centred, inverse), dtype=dtype)
    found = node.call("multiply", found, node[1])
    stash = (node.call("cast", e, dtype="float32") for e in (mean, inverse))
    return [found if bias is None else node.call("add", found, bias), *stash]


@converter("RMSNormalization", since=23)
def rms_normalization(node: Node) -> Expr:
    """Divide by the root mean square over all dimensions from an axis on."""
    x, dtype = node[0], node.dtype(node[0])
    axes = tuple(range(node.attr("axis", -1) % node.rank(x), node.rank(x)))
    wide = x if dtype == "float64" else node.call("cast", x, dtype="float32")
    squares = node.call("multiply", wide, wide)
    mean = node.call("mean", squares, axis=axes, keepdims=True)
    inverse = node.call("rsqrt", node.call("add", mean, node.attr("epsilon", 1e-5)))
    found = node.call("cast", node.call("multiply", wide, inverse), dtype=node.dtype(node[1]))
    return node.call("multiply", found, node[1])


@converter("LpNormalization")
def lp_normalization(node: Node) -> Expr:
    """Divide by the p-norm along an axis; vectors of norm 0 stay 0."""
    x, p, axis = node[0], node.attr("p", 2), node.attr("axis", -1)
    sizes = node.call("abs", x) if p == 1 else node.call("multiply", x, x)
    norm: Expr = node.call("sum", sizes, axis=axis, keepdims=True)
    norm = norm if p == 1 else node.call("sqrt", norm)
    empty = node.call("equal", norm, 0)
    return node.call("divide", x, node.call("where", empty, np.ones((), node.dtype(x)), norm))


@converter("LRN")
def local_response_normalization(node: Node) -> Expr:
    """Divide by sums of squares over neighbouring channels (Krizhevsky et al., 2012)."""
    x, size = node[0], node.attr("size")
    shape = node.shape(x)
    squares = node.call("multiply", x, x)
    flat = node.call("reshape", squares, newshape=(shape[0], 1, shape[1], -1))
    before = (size - 1) // 2
    pads = (before, 0, size - 1 - before, 0)
    total = node.call("nn.sum_pool", flat, pool_size=(size, 1), padding=pads)
    total = node.call("reshape", total, newshape=shape)
    scaled = node.call("multiply", total, node.attr("alpha", 1e-4) / size)
    base = node.call("add", scaled, node.attr("bias", 1.0))
    return node.call("divide", x, node.call("power", base, node.attr("beta", 0.75)))


def _hardmax(node: Node, x: Expr, axis: int) -> Expr:
    """1 at the first of the largest elements of an axis, else 0."""
    places = node.call("argmax", x, axis=axis, keepdims=False)
    values = np.array([0, 1], node.dtype(x))
    return node.call("one_hot", places, values, depth=node.shape(x)[axis], axis=axis)


@converter("Softmax")
@converter("LogSoftmax")
@converter("Hardmax")
def over_the_rest(node: Node) -> Expr:
    """Apply to all dimensions from an axis on, as one, as before opset 13."""
    shape = node.shape(node[0])
    axis = node.attr("axis", 1) % len(shape)
    rows = node.call("reshape", node[0], newshape=(prod(shape[:axis]), prod(shape[axis:])))
    name = {"Softmax": "nn.softmax", "LogSoftmax": "nn.log_softmax"}.get(node.operator)
    found = _hardmax(node, rows, 1) if name is None else node.call(name, rows, axis=1)
    return node.call("reshape", found, newshape=shape)


@converter("Dropout")
def dropout(node: Node) -> list[Expr]:
    """Nothing is dropped in inference; the mask is true everywhere."""
    training = node.known(2) if node.opset >= 12 else None
    if training is not None and training.reshape(-1)[0]:
        ratio = node.known(1)
        if ratio is None or ratio.reshape(-1)[0] != 0:
            raise GraphError("a model in training mode is not supported")
    dtype = "bool" if node.opset >= 10 else node.dtype(node[0])
    return [node[0], const(np.ones(node.shape(node[0]), dtype))]


_DOMAIN = "ai.onnx.preview.training"


# Converters of optimiser steps, whose results are weights and states. Inputs are the learning rate,
# the step number, then for all weights: the weights, their gradients, and one or two states.


def _of_each(name: str, states: int) -> Callable[[Callable[..., list[Expr]]], None]:
    """Register a step of one weight as a converter of a step of all of them."""

    def register(step: Callable[..., list[Expr]]) -> None:
        @converter(f"{_DOMAIN}::{name}")
        def convert(node: Node) -> list[Expr]:
            given = node.given[2:]
            count, rest = divmod(len(given), 2 + states)
            if rest or not count:
                raise GraphError(f"{len(given)} tensors are no weights, gradients and states")
            made = [step(node, *given[n::count]) for n in range(count)]
            return [results[n] for n in range(1 + states) for results in made]

    return register


def _times(node: Node, e: Expr, factor: float) -> Expr:
    return node.call("multiply", e, factor)


def _regularised(node: Node, x: Expr, gradient: Expr) -> Expr:
    """The gradient plus that of the squared norm of the weights."""
    factor = node.attr("norm_coefficient", 0.0)
    return gradient if not factor else node.call("add", _times(node, x, factor), gradient)


@_of_each("Momentum", 1)
def _momentum(node: Node, x: Expr, gradient: Expr, velocity: Expr) -> list[Expr]:
    gradient = _regularised(node, x, gradient)
    one, beta = (const(n, node.dtype(x)) for n in (1, node.attr("beta")))
    weight = node.call("where", node.call("greater", node[1], 0), beta, one)
    moved = _times(node, velocity, node.attr("alpha"))
    new = node.call("add", moved, node.call("multiply", gradient, weight))
    step = new
    if node.attr("mode") == "nesterov":
        step = node.call("add", gradient, _times(node, new, node.attr("alpha")))
    return [node.call("subtract", x, node.call("multiply", step, node[0])), new]


@_of_each("Adagrad", 1)
def _adagrad(node: Node, x: Expr, gradient: Expr, squares: Expr) -> list[Expr]:
    """Duchi, Hazan and Singer (2011)."""
    number = node.call("cast", node[1], dtype=node.dtype(node[0]))
    slower = node.call("add", _times(node, number, node.attr("decay_factor", 0.0)), 1)
    rate = node.call("divide", node[0], slower)
    gradient = _regularised(node, x, gradient)
    new = node.call("add", squares, node.call("multiply", gradient, gradient))
    size = node.call("add", node.call("sqrt", new), node.attr("epsilon", 1e-6))
    step = node.call("divide", node.call("multiply", gradient, rate), size)
    return [node.call("subtract", x, step), new]


@_of_each("Adam", 2)
def _adam(node: Node, x: Expr, gradient: Expr, first: Expr, second: Expr) -> list[Expr]:
    """Kingma and Ba (2015)."""
    alpha, beta = node.attr("alpha", 0.9), node.attr("beta", 0.999)
    gradient = _regularised(node, x, gradient)
    mean = node.call("add", _times(node, first, alpha), _times(node, gradient, 1 - alpha))
    square = _times(node, node.call("multiply", gradient, gradient), 1 - beta)
    variance = node.call("add", _times(node, second, beta), square)
    size = node.call("add", node.call("sqrt", variance), node.attr("epsilon", 1e-6))
    # The learning rate is corrected for moving averages that began at 0.
    number = node.call("cast", node[1], dtype=node.dtype(node[0]))
    corrected = node.call("multiply", node[0], node.call("sqrt", _weight(node, number, beta)))
    corrected = node.call("divide", corrected, _weight(node, number, alpha))
    rate = node.call("where", node.call("greater", node[1], 0), corrected, node[0])
    step = node.call("multiply", node.call("divide", mean, size), rate)
    after = 1 - node.attr("norm_coefficient_post", 0.0)
    return [_times(node, node.call("subtract", x, step), after), mean, variance]


def _weight(node: Node, number: Expr, base: float) -> Expr:
    """1 - base ** number: the weight of the steps so far in a moving average."""
    dtype = node.dtype(number)
    left = node.call("power", const(base, dtype), number)
    return node.call("subtract", const(1, dtype), left)

"""Converters of products and normalisations, and of steps of training."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx.files import check_elements
from loopwright.graph.frontend.onnx.node import Node, converter, one_call
from loopwright.graph.ir.expr import Expr, const
from loopwright.graph.op.shapes import axis_of

one_call("MatMul", "matmul")
one_call("Softmax", "nn.softmax", since=13, axis=("axis", -1))
one_call("LogSoftmax", "nn.log_softmax", since=13, axis=("axis", -1))
converter("Hardmax", 13)(lambda node: _hardmax(node, node[0], node.attr("axis", -1)))
converter("Einsum", 12)(lambda n: n.call("einsum", *n.given, equation=n.attr("equation")))


@converter("Gemm")
def gemm(node: Node) -> Expr:
    """alpha * A' B' + beta * C."""
    a = node.call("transpose", node[0]) if node.attr("transA", 0) else node[0]
    product: Expr = node.call("nn.dense" if node.attr("transB", 0) else "matmul", a, node[1])
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    if alpha != 1:
        product = node.multiply(product, alpha)
    added = node.optional(2)
    if added is None or beta == 0:
        return product
    if beta != 1:
        added = node.multiply(added, beta)
    return node.add(product, added)


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
    centred = node.subtract(x, node.call("mean", x, axis=axes, keepdims=True))
    squares = node.multiply(centred, centred)
    mean, variance = (node.call("mean", e, axis=axes, keepdims=False) for e in (x, squares))
    outputs: list[Expr] = [node.call("nn.batch_norm", x, node[1], node[2], mean, variance, **attrs)]
    for old, new in ((node[3], mean), (node[4], variance)):
        outputs.append(node.add(node.multiply(old, momentum), node.multiply(new, 1 - momentum)))
    return outputs


@converter("InstanceNormalization")
def instance_normalization(node: Node) -> Expr:
    rank = node.rank(node[0])
    standard = node.standardised(node[0], tuple(range(2, rank)), node.attr("epsilon", 1e-5))
    return _scaled_by_channel(node, standard)


def _scaled_by_channel(node: Node, x: Expr) -> Expr:
    """A tensor times its scale, plus its bias: a number for each channel."""
    for n, name in ((1, "multiply"), (2, "add")):
        column = node.reshape(node[n], newshape=(-1, *(1,) * (node.rank(x) - 2)))
        x = node.call(name, x, column)
    return x


@converter("MeanVarianceNormalization", since=9)
def mean_variance_normalization(node: Node) -> Expr:
    """Standardise over some axes; 1e-9 is added to the standard deviation."""
    _, centred, variance = node.moments(node[0], node.attr("axes", (0, 2, 3)))
    return node.divide(centred, node.add(node.call("sqrt", variance), 1e-9))


@converter("GroupNormalization", since=21)
def group_normalization(node: Node) -> Expr:
    shape, groups = node.shape(node[0]), node.attr("num_groups")
    if len(shape) < 2 or groups < 1:
        raise GraphError(f"{groups} groups are no part of the channels of shape {list(shape)}")
    if shape[1] % groups:
        raise GraphError(f"{shape[1]} channels cannot be shared by {groups} groups")
    grouped = node.reshape(node[0], newshape=(shape[0], groups, -1))
    standard = node.standardised(grouped, (2,), node.attr("epsilon", 1e-5))
    return _scaled_by_channel(node, node.reshape(standard, newshape=shape))


@converter("LayerNormalization", since=17)
def layer_normalization(node: Node) -> list[Expr]:
    """Standardise over all dimensions from an axis on; also the mean and inverse deviation."""
    x, rank = node[0], node.rank(node[0])
    axis, epsilon = node.axis(x, -1), node.attr("epsilon", 1e-5)
    dtype, bias = node.dtype(x), node.optional(2)
    if len([n for n in node.outputs if n]) == 1 and dtype == "float32":
        inner = node.shape(x, axis)
        check_elements(inner)
        beta = bias if bias is not None else const(np.zeros(inner, dtype))
        if node.shape(node[1]) == node.shape(beta) == inner:
            attrs = {"axis": axis, "epsilon": epsilon}
            return [node.call("nn.layer_norm", x, node[1], beta, **attrs)]
    axes = tuple(range(axis, rank))
    wide = x if dtype == "float64" else node.call("cast", x, dtype="float32")
    mean, centred, variance = node.moments(wide, axes)
    inverse = node.call("rsqrt", node.add(variance, epsilon))
    result: Expr = node.call("cast", node.multiply(centred, inverse), dtype=dtype)
    result = node.multiply(result, node[1])
    stash = (node.call("cast", e, dtype="float32") for e in (mean, inverse))
    return [result if bias is None else node.add(result, bias), *stash]


@converter("RMSNormalization", since=23)
def rms_normalization(node: Node) -> Expr:
    """Divide by the root mean square over all dimensions from an axis on."""
    x, dtype = node[0], node.dtype(node[0])
    axes = tuple(range(node.axis(x, -1), node.rank(x)))
    wide = x if dtype == "float64" else node.call("cast", x, dtype="float32")
    mean = node.call("mean", node.multiply(wide, wide), axis=axes, keepdims=True)
    inverse = node.call("rsqrt", node.add(mean, node.attr("epsilon", 1e-5)))
    result = node.call("cast", node.multiply(wide, inverse), dtype=node.dtype(node[1]))
    return node.multiply(result, node[1])


@converter("LpNormalization")
def lp_normalization(node: Node) -> Expr:
    """Divide by the p-norm along an axis; vectors of norm 0 stay 0."""
    x, p, axis = node[0], node.attr("p", 2), node.attr("axis", -1)
    if p not in (1, 2):
        raise GraphError(f"its p is {p}; give 1 or 2")
    sizes = node.call("abs", x) if p == 1 else node.multiply(x, x)
    norm: Expr = node.call("sum", sizes, axis=axis, keepdims=True)
    norm = norm if p == 1 else node.call("sqrt", norm)
    return node.divide(x, node.where(node.call("equal", norm, 0), np.ones((), node.dtype(x)), norm))


@converter("LRN")
def local_response_normalization(node: Node) -> Expr:
    """Divide by sums of squares over neighbouring channels (Krizhevsky et al., 2012)."""
    x, size = node[0], node.attr("size")
    shape = node.shape(x)
    if len(shape) < 2 or size < 1:
        raise GraphError(f"{size} channels are no part of those of shape {list(shape)}")
    flat = node.reshape(node.multiply(x, x), newshape=(shape[0], 1, shape[1], -1))
    before = (size - 1) // 2
    pads = (before, 0, size - 1 - before, 0)
    total = node.call("nn.sum_pool", flat, pool_size=(size, 1), padding=pads)
    total = node.reshape(total, newshape=shape)
    base = node.add(node.multiply(total, node.attr("alpha", 1e-4) / size), node.attr("bias", 1.0))
    return node.divide(x, node.call("power", base, node.attr("beta", 0.75)))


def _hardmax(node: Node, x: Expr, axis: int) -> Expr:
    """1 at the first of the largest elements of an axis, else 0."""
    places = node.call("argmax", x, axis=axis, keepdims=False)
    values = np.array([0, 1], node.dtype(x))
    depth = node.shape(x)[axis_of(axis, node.rank(x))]
    return node.call("one_hot", places, values, depth=depth, axis=axis)


@converter("Softmax")
@converter("LogSoftmax")
@converter("Hardmax")
def over_the_rest(node: Node) -> Expr:
    """Apply to all dimensions from an axis on, as one, as before opset 13."""
    shape = node.shape(node[0])
    axis = node.axis(node[0], 1)
    rows = node.reshape(node[0], newshape=(prod(shape[:axis]), prod(shape[axis:])))
    name = {"Softmax": "nn.softmax", "LogSoftmax": "nn.log_softmax"}.get(node.operator)
    result = _hardmax(node, rows, 1) if name is None else node.call(name, rows, axis=1)
    return node.reshape(result, newshape=shape)


@converter("Dropout")
def dropout(node: Node) -> list[Expr]:
    """Nothing is dropped in inference; the mask is true everywhere."""
    training = node.known(2) if node.opset >= 12 else None
    if training is not None and training.reshape(-1)[0]:
        ratio = node.known(1)
        if ratio is None or ratio.reshape(-1)[0] != 0:
            raise GraphError("a model in training mode is not supported")
    if len(node.outputs) < 2 or not node.outputs[1]:
        return [node[0]]
    dtype = "bool" if node.opset >= 10 else node.dtype(node[0])
    shape = node.shape(node[0])
    return [node[0], node.call("broadcast_to", const(np.ones((), dtype)), shape=shape)]


_DOMAIN = "ai.onnx.preview.training"


# Converters of optimiser steps, whose results are weights and states. Inputs are the learning rate,
# the step number, then for all weights: the weights, their gradients, and one or two states.


def _of_each(name: str, states: int) -> Callable[[Callable[..., list[Expr]]], None]:
    """Register a step of one weight as a converter of a step of all of them."""

    def register(step: Callable[..., list[Expr]]) -> None:
        @converter(f"{_DOMAIN}::{name}")
        def convert(node: Node) -> list[Expr]:
            tensors = node.given[2:]
            count, rest = divmod(len(tensors), 2 + states)
            if rest or not count:
                raise GraphError(f"{len(tensors)} tensors are no weights, gradients and states")
            steps = [step(node, *tensors[n::count]) for n in range(count)]
            return [results[n] for n in range(1 + states) for results in steps]

    return register


def _regularised(node: Node, x: Expr, gradient: Expr) -> Expr:
    """The gradient plus that of the squared norm of the weights."""
    factor = node.attr("norm_coefficient", 0.0)
    return gradient if not factor else node.add(node.multiply(x, factor), gradient)


@_of_each("Momentum", 1)
def _momentum(node: Node, x: Expr, gradient: Expr, velocity: Expr) -> list[Expr]:
    gradient = _regularised(node, x, gradient)
    one, beta = (const(n, node.dtype(x)) for n in (1, node.attr("beta")))
    weight = node.where(node.call("greater", node[1], 0), beta, one)
    new = node.add(node.multiply(velocity, node.attr("alpha")), node.multiply(gradient, weight))
    step = new
    if node.attr("mode") == "nesterov":
        step = node.add(gradient, node.multiply(new, node.attr("alpha")))
    return [node.subtract(x, node.multiply(step, node[0])), new]


@_of_each("Adagrad", 1)
def _adagrad(node: Node, x: Expr, gradient: Expr, squares: Expr) -> list[Expr]:
    """Duchi, Hazan and Singer (2011)."""
    number = node.call("cast", node[1], dtype=node.dtype(node[0]))
    slower = node.add(node.multiply(number, node.attr("decay_factor", 0.0)), 1)
    rate = node.divide(node[0], slower)
    gradient = _regularised(node, x, gradient)
    new = node.add(squares, node.multiply(gradient, gradient))
    size = node.add(node.call("sqrt", new), node.attr("epsilon", 1e-6))
    return [node.subtract(x, node.divide(node.multiply(gradient, rate), size)), new]


@_of_each("Adam", 2)
def _adam(node: Node, x: Expr, gradient: Expr, first: Expr, second: Expr) -> list[Expr]:
    """Kingma and Ba (2015)."""
    alpha, beta = node.attr("alpha", 0.9), node.attr("beta", 0.999)
    gradient = _regularised(node, x, gradient)
    mean = node.add(node.multiply(first, alpha), node.multiply(gradient, 1 - alpha))
    square = node.multiply(node.multiply(gradient, gradient), 1 - beta)
    variance = node.add(node.multiply(second, beta), square)
    size = node.add(node.call("sqrt", variance), node.attr("epsilon", 1e-6))
    # The learning rate is corrected for moving averages that began at 0.
    number = node.call("cast", node[1], dtype=node.dtype(node[0]))
    corrected = node.multiply(node[0], node.call("sqrt", _weight(node, number, beta)))
    corrected = node.divide(corrected, _weight(node, number, alpha))
    rate = node.where(node.call("greater", node[1], 0), corrected, node[0])
    step = node.multiply(node.divide(mean, size), rate)
    after = 1 - node.attr("norm_coefficient_post", 0.0)
    return [node.multiply(node.subtract(x, step), after), mean, variance]


def _weight(node: Node, number: Expr, base: float) -> Expr:
    """1 - base ** number: the weight of the steps so far in a moving average."""
    dtype = node.dtype(number)
    return node.subtract(const(1, dtype), node.call("power", const(base, dtype), number))

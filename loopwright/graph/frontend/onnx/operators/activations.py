"""Converters of elementwise activations."""

from __future__ import annotations

import numpy as np

from loopwright import dtypes
from loopwright.graph.frontend.onnx.node import Node, computed_in, converter
from loopwright.graph.ir.expr import Expr


@converter("LeakyRelu")
def leaky_relu(node: Node) -> Expr:
    """alpha * x where x is negative."""
    return node.call("nn.leaky_relu", node[0], alpha=node.attr("alpha", 0.01))


@converter("PRelu", since=7)
def prelu(node: Node) -> Expr:
    """x times a slope where x is negative; the slope is broadcast."""
    return node.call("nn.prelu", node[0], node[1])


@converter("PRelu")
def prelu_by_channel(node: Node) -> Expr:
    """The same with one slope for all, or one for each channel."""
    count = node.shape(node[1])[0] if node.rank(node[1]) else 1
    shape = (count, *(1,) * (node.rank(node[0]) - 2)) if count > 1 else ()
    return node.call("nn.prelu", node[0], node.call("reshape", node[1], newshape=shape))


@converter("Elu")
def elu(node: Node) -> Expr:
    """alpha * (exp(x) - 1) where x is negative."""
    return node.call("nn.elu", node[0], alpha=node.attr("alpha", 1.0))


@converter("Celu", since=12)
def celu(node: Node) -> Expr:
    """alpha * (exp(x / alpha) - 1) where x is negative."""
    alpha = node.attr("alpha", 1.0)
    return node.call("nn.elu", node[0], alpha=alpha, scale=alpha)


@converter("Selu")
def selu(node: Node) -> Expr:
    """gamma times an Elu; the defaults are those of its paper (Klambauer et al., 2017)."""
    alpha = node.attr("alpha", 1.67326319217681884765625)
    gamma = node.attr("gamma", 1.05070102214813232421875)
    return node.call("nn.elu", node[0], alpha=alpha, gamma=gamma)


@converter("Gelu", since=20)
def gelu(node: Node) -> Expr:
    """x times the normal distribution function of x."""
    return node.call("nn.gelu", node[0], approximate=node.attr("approximate", "none") == "tanh")


@converter("ThresholdedRelu")
def thresholded_relu(node: Node) -> Expr:
    """x where it is larger than alpha, else 0."""
    x = node[0]
    dtype = node.dtype(x)
    above = node.call("greater", x, node.attr("alpha", 1.0))
    return node.call("where", above, x, np.zeros((), dtype))


@converter("Softsign")
def softsign(node: Node) -> Expr:
    """x / (1 + abs(x))."""
    return node.call("divide", node[0], node.call("add", node.call("abs", node[0]), 1))


@converter("HardSigmoid")
def hard_sigmoid(node: Node) -> Expr:
    """clip(alpha * x + beta, 0, 1)."""
    return _hard_sigmoid(node, node.attr("alpha", 0.2), node.attr("beta", 0.5))


def _hard_sigmoid(node: Node, alpha: float, beta: float) -> Expr:
    line = node.call("add", node.call("multiply", node[0], alpha), beta)
    return node.call("clip", line, a_min=0.0, a_max=1.0)


@converter("HardSwish", since=14)
def hard_swish(node: Node) -> Expr:
    """x * clip(x / 6 + 1/2, 0, 1)."""
    return node.call("multiply", node[0], _hard_sigmoid(node, 1 / 6, 0.5))


@converter("Mish", since=18)
def mish(node: Node) -> Expr:
    """x * tanh(log(1 + exp(x)))."""
    inner = node.call("tanh", node.call("nn.softplus", node[0]))
    return node.call("multiply", node[0], inner)


@converter("Swish", since=24)
def swish(node: Node) -> Expr:
    """x * sigmoid(alpha * x)."""
    inner = node.call("multiply", node[0], node.attr("alpha", 1.0))
    return node.call("multiply", node[0], node.call("sigmoid", inner))


@converter("Shrink", since=9)
def shrink(node: Node) -> Expr:
    """x moved towards 0 by ``bias`` where abs(x) > ``lambd``, else 0."""
    if not dtypes.is_float(node.dtype(node[0])):
        return computed_in(node, shrink, "float64")
    x, bias, edge = node[0], node.attr("bias", 0.0), node.attr("lambd", 0.5)
    zero = np.zeros((), node.dtype(x))
    low = node.call("where", node.call("less", x, -edge), node.call("add", x, bias), zero)
    return node.call("where", node.call("greater", x, edge), node.call("subtract", x, bias), low)

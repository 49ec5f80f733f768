"""Converters of elementwise operators and activations."""

from __future__ import annotations

import numpy as np

from loopwright import dtypes
from loopwright.graph.frontend.onnx.node import Node, computed_in, converter, one_call
from loopwright.graph.ir.expr import Constant, Expr, const

#: Operators that are the same under another name.
_SAME = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Add": "add", "And": "logical_and",
    "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "BitwiseAnd": "bitwise_and", "BitwiseNot": "bitwise_not", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Div": "divide",
    "Equal": "equal", "Exp": "exp", "Floor": "floor", "Greater": "greater",
    "GreaterOrEqual": "greater_equal", "IsNaN": "isnan", "Less": "less",
    "LessOrEqual": "less_equal", "Log": "log", "Mul": "multiply", "Neg": "negative",
    "Not": "logical_not", "Or": "logical_or", "Relu": "nn.relu", "Round": "round",
    "Sigmoid": "sigmoid", "Sin": "sin", "Sinh": "sinh", "Softplus": "nn.softplus", "Sqrt": "sqrt",
    "Sub": "subtract", "Tan": "tan", "Tanh": "tanh", "Where": "where", "Xor": "not_equal",
}  # fmt: skip


for _name, _operator in _SAME.items():
    one_call(_name, _operator)
one_call("LeakyRelu", "nn.leaky_relu", alpha=("alpha", 0.01))
one_call("PRelu", "nn.prelu", since=7)  # whose slope is broadcast
one_call("Elu", "nn.elu", alpha=("alpha", 1.0))
# The defaults are those of its paper (Klambauer et al., 2017).
_ALPHA, _GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
one_call("Selu", "nn.elu", alpha=("alpha", _ALPHA), gamma=("gamma", _GAMMA))

converter("Identity")(lambda node: node[0])
converter("Reciprocal")(lambda n: n.divide(const(1, n.dtype(n[0])), n[0]))
converter("Softsign")(lambda n: n.divide(n[0], n.add(n.call("abs", n[0]), 1)))
converter("HardSigmoid")(lambda n: _hard_sigmoid(n, n.attr("alpha", 0.2), n.attr("beta", 0.5)))
converter("Gelu", 20)(
    lambda n: n.call("nn.gelu", n[0], approximate=n.attr("approximate", "none") == "tanh")
)
converter("Mish", 18)(lambda n: n.multiply(n[0], n.call("tanh", n.call("nn.softplus", n[0]))))
converter("Swish", 24)(
    lambda n: n.multiply(n[0], n.call("sigmoid", n.multiply(n[0], n.attr("alpha", 1.0))))
)
one_call("Celu", "nn.elu", since=12, alpha=("alpha", 1.0), scale=("alpha", 1.0))
converter("HardSwish", 14)(lambda n: n.multiply(n[0], _hard_sigmoid(n, 1 / 6, 0.5)))


@converter("Add")
@converter("Sub")
@converter("Mul")
@converter("Div")
def arithmetic(node: Node) -> Expr:
    """Before opset 7 the second input is broadcast on request, from an axis on."""
    x, other = node[0], node[1]
    axis = node.attr("axis")
    if node.opset < 7 and node.attr("broadcast", 0) and axis is not None:
        after = node.rank(x) - axis % node.rank(x) - node.rank(other)
        other = node.reshape(other, newshape=(*node.shape(other), *(1,) * after))
    return node.call(_SAME[node.operator], x, other)


_CHAINED = {"Max": "maximum", "Min": "minimum", "Sum": "add", "Mean": "add"}


@converter("Max")
@converter("Min")
@converter("Sum")
@converter("Mean")
def chained(node: Node) -> Expr:
    """One input after the other; the mean is the sum by their number."""
    total = node[0]
    for other in node.given[1:]:
        total = node.call(_CHAINED[node.operator], total, other)
    if node.operator == "Mean":
        return node.multiply(total, 1 / len(node.given))
    return total


@converter("Erf")
def erf(node: Node) -> Expr:
    """The error function; of integers truncated to their dtype."""
    if dtypes.is_float(node.dtype(node[0])):
        return node.call("erf", node[0])
    return computed_in(node, erf, "float32")


@converter("Pow")
def power(node: Node) -> Expr:
    """x ** y in the dtype of x; of integers exact, and wrapping. The dtype of x may not hold an
    exponent of another dtype: 2 ** 31 - 1 is odd.
    """
    dtype, other = node.dtype(node[0]), node.dtype(node[1])
    wide = dtypes.promote(dtype, other)
    exact = isinstance(node[1], Constant) and dtypes.is_float(dtype)
    if exact:  # the dtype of x holds a constant exponent exactly
        exponents = node.value(node[1], "exponent")
        exact = bool((exponents.astype(dtype).astype("float64") == exponents).all())
    if dtypes.is_float(wide) and dtype != other and not exact:
        wide = "float64"
    base, exponent = (node.cast(node[n], wide) for n in (0, 1))
    return node.cast(node.call("power", base, exponent), dtype)


@converter("Sign")
def sign(node: Node) -> Expr:
    """-1, 0 or 1; 0 of both zeros, NaN of NaN."""
    x, zero = node[0], const(0, node.dtype(node[0]))
    return node.where(node.call("equal", x, zero), zero, node.call("sign", x))


@converter("Mod")
def mod(node: Node) -> Expr:
    """The remainder with the sign of the divisor, or with ``fmod`` as C has it."""
    if node.attr("fmod", 0):
        return node.call("fmod", node[0], node[1])
    rest = node.call("mod", node[0], node[1])
    if not dtypes.is_float(node.dtype(rest)):
        return rest
    zero = const(0, node.dtype(rest))
    # A zero, too, has the sign of the divisor.
    return node.where(node.call("equal", rest, zero), node.divide(zero, node[1]), rest)


@converter("BitShift")
def bit_shift(node: Node) -> Expr:
    """Shift bits; 0 where the shift is at least the width of the dtype."""
    dtype = node.dtype(node[0])
    width = dtypes.bits(dtype)
    inside = node.call("less", node[1], width)
    if not dtypes.is_unsigned(dtype):  # a negative number of places is a large one
        inside = node.call("logical_and", inside, node.call("greater_equal", node[1], 0))
    held = node.where(inside, node[1], np.array(width - 1, dtype))
    if node.attr("direction") == "RIGHT" and not dtypes.is_unsigned(dtype):
        return node.call("right_shift", node[0], held)
    name = "left_shift" if node.attr("direction") == "LEFT" else "right_shift"
    return node.where(inside, node.call(name, node[0], held), np.zeros((), dtype))


@converter("IsInf")
def is_infinite(node: Node) -> Expr:
    """Whether x is infinite, of a sign that the attributes select."""
    zero, x = np.zeros((), node.dtype(node[0])), node[0]
    up, down = node.attr("detect_positive", 1), node.attr("detect_negative", 1)
    infinite = node.call("isinf", x)
    if up and down:
        return infinite
    if up or down:
        return node.call("logical_and", infinite, node.call("greater" if up else "less", x, zero))
    return node.call("logical_and", infinite, node.call("logical_not", infinite))


def _largest(dtype: str) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]


@converter("Clip")
def clip(node: Node) -> Expr:
    """Clip to attributes, by default the finite limits of float32."""
    most = _largest("float32")
    return node.call("clip", node[0], a_min=node.attr("min", -most), a_max=node.attr("max", most))


@converter("Clip", since=11)
def clip_by_inputs(node: Node) -> Expr:
    x, dtype = node[0], node.dtype(node[0])
    for n, name in ((1, "maximum"), (2, "minimum")):
        bound = node.optional(n)
        if bound is None and dtypes.is_float(dtype):
            bound = const(_largest(dtype) * (-1 if n == 1 else 1), dtype)
        x = x if bound is None else node.call(name, x, bound)
    return x


@converter("PRelu")
def prelu_by_channel(node: Node) -> Expr:
    """One slope for all, or one for each channel."""
    count = node.shape(node[1])[0] if node.rank(node[1]) else 1
    shape = (count, *(1,) * (node.rank(node[0]) - 2)) if count > 1 else ()
    return node.call("nn.prelu", node[0], node.reshape(node[1], newshape=shape))


@converter("ThresholdedRelu")
def thresholded_relu(node: Node) -> Expr:
    """x where it is larger than alpha, else 0."""
    above = node.call("greater", node[0], node.attr("alpha", 1.0))
    return node.where(above, node[0], np.zeros((), node.dtype(node[0])))


def _hard_sigmoid(node: Node, alpha: float, beta: float) -> Expr:
    """clip(alpha * x + beta, 0, 1)."""
    line = node.add(node.multiply(node[0], alpha), beta)
    return node.call("clip", line, a_min=0.0, a_max=1.0)


@converter("Shrink", since=9)
def shrink(node: Node) -> Expr:
    """x moved towards 0 by ``bias`` where abs(x) > ``lambd``, else 0."""
    if not dtypes.is_float(node.dtype(node[0])):
        return computed_in(node, shrink, "float64")
    x, bias, edge = node[0], node.attr("bias", 0.0), node.attr("lambd", 0.5)
    low = node.where(node.call("less", x, -edge), node.add(x, bias), np.zeros((), node.dtype(x)))
    return node.where(node.call("greater", x, edge), node.subtract(x, bias), low)

"""Converters of elementwise operators."""

from __future__ import annotations

import numpy as np

from loopwright import dtypes
from loopwright.graph.frontend.onnx.node import Node, computed_in, converter
from loopwright.graph.ir.expr import Constant, Expr, const

#: Operators that are the same under another name.
_SAME = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Add": "add",
    "And": "logical_and",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseAnd": "bitwise_and",
    "BitwiseNot": "bitwise_not",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Div": "divide",
    "Equal": "equal",
    "Exp": "exp",
    "Floor": "floor",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "IsNaN": "isnan",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Log": "log",
    "Mul": "multiply",
    "Neg": "negative",
    "Not": "logical_not",
    "Or": "logical_or",
    "Relu": "nn.relu",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "nn.softplus",
    "Sqrt": "sqrt",
    "Sub": "subtract",
    "Tan": "tan",
    "Tanh": "tanh",
    "Where": "where",
    "Xor": "not_equal",
}


def _same(name: str) -> None:
    @converter(name)
    def convert(node: Node) -> Expr:
        return node.call(_SAME[node.operator], *(node[n] for n in range(len(node.inputs))))


for _name in _SAME:
    _same(_name)


@converter("Add")
@converter("Sub")
@converter("Mul")
@converter("Div")
def along_an_axis(node: Node) -> Expr:
    """Before opset 7 the second input is broadcast on request, from an axis on."""
    found, other = node[0], node[1]
    axis = node.attr("axis")
    if node.attr("broadcast", 0) and axis is not None:
        after = node.rank(found) - axis % node.rank(found) - node.rank(other)
        shape = (*node.shape(other), *(1,) * after)
        other = node.call("reshape", other, newshape=shape)
    return node.call(_SAME[node.operator], found, other)


for _name in ("Add", "Sub", "Mul", "Div"):

    @converter(_name, since=7)
    def broadcast_by_numpy(node: Node) -> Expr:
        return node.call(_SAME[node.operator], node[0], node[1])


def _chained(name: str, operator: str) -> None:
    @converter(name)
    def convert(node: Node) -> Expr:
        found = node[0]
        for other in node.given[1:]:
            found = node.call(operator, found, other)
        return found


for _name, _operator in {"Max": "maximum", "Min": "minimum", "Sum": "add"}.items():
    _chained(_name, _operator)


@converter("Mean")
def mean(node: Node) -> Expr:
    found = node[0]
    for other in node.given[1:]:
        found = node.call("add", found, other)
    return node.call("multiply", found, 1 / len(node.given))


@converter("Identity")
def identity(node: Node) -> Expr:
    return node[0]


@converter("Erf")
def erf(node: Node) -> Expr:
    """The error function; of integers truncated to their dtype."""
    if dtypes.is_float(node.dtype(node[0])):
        return node.call("erf", node[0])
    return computed_in(node, erf, "float32")


@converter("Reciprocal")
def reciprocal(node: Node) -> Expr:
    return node.call("divide", const(1, node.dtype(node[0])), node[0])


@converter("Pow")
def power(node: Node) -> Expr:
    """x ** y in the dtype of x; of integers exact, and wrapping.

    The dtype of x may not hold an exponent of another dtype: 2 ** 31 - 1 is odd.
    """
    dtype, other = node.dtype(node[0]), node.dtype(node[1])
    wide = dtypes.promote(dtype, other)
    if dtypes.is_float(wide) and dtype != other and not _fits(node, dtype):
        wide = "float64"
    base, exponent = (_as(node, node[n], wide) for n in (0, 1))
    return _as(node, node.call("power", base, exponent), dtype)


def _fits(node: Node, dtype: str) -> bool:
    """Whether the exponent is a constant that the dtype of the base holds exactly."""
    exponent = node[1]
    if not isinstance(exponent, Constant) or not dtypes.is_float(dtype):
        return False
    return bool((exponent.data.astype(dtype).astype("float64") == exponent.data).all())


def _as(node: Node, e: Expr, dtype: str) -> Expr:
    return e if node.dtype(e) == dtype else node.call("cast", e, dtype=dtype)


@converter("Sign")
def sign(node: Node) -> Expr:
    """-1, 0 or 1; 0 of both zeros, NaN of NaN."""
    x, zero = node[0], const(0, node.dtype(node[0]))
    return node.call("where", node.call("equal", x, zero), zero, node.call("sign", x))


@converter("Mod")
def mod(node: Node) -> Expr:
    """The remainder with the sign of the divisor, or with ``fmod`` as C has it."""
    if node.attr("fmod", 0):
        return node.call("fmod", node[0], node[1])
    found = node.call("mod", node[0], node[1])
    if not dtypes.is_float(node.dtype(found)):
        return found
    zero = const(0, node.dtype(found))
    # A zero, too, has the sign of the divisor.
    signed = node.call("divide", zero, node[1])
    return node.call("where", node.call("equal", found, zero), signed, found)


@converter("BitShift")
def bit_shift(node: Node) -> Expr:
    """Shift bits; 0 where the shift is at least the width of the dtype."""
    dtype = node.dtype(node[0])
    width = dtypes.bits(dtype)
    inside = node.call("less", node[1], width)
    if not dtypes.is_unsigned(dtype):  # a negative number of places is a large one
        inside = node.call("logical_and", inside, node.call("greater_equal", node[1], 0))
    held = node.call("where", inside, node[1], np.array(width - 1, dtype))
    if node.attr("direction") == "RIGHT" and not dtypes.is_unsigned(dtype):
        return node.call("right_shift", node[0], held)
    name = "left_shift" if node.attr("direction") == "LEFT" else "right_shift"
    return node.call("where", inside, node.call(name, node[0], held), np.zeros((), dtype))


@converter("IsInf")
def is_infinite(node: Node) -> Expr:
    """Whether x is infinite, of a sign that the attributes select."""
    zero, x = np.zeros((), node.dtype(node[0])), node[0]
    up, down = node.attr("detect_positive", 1), node.attr("detect_negative", 1)
    found = node.call("isinf", x)
    if up and down:
        return found
    if not up and not down:
        return node.call("logical_and", found, node.call("logical_not", found))
    side = node.call("greater" if up else "less", x, zero)
    return node.call("logical_and", found, side)


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
    """Clip to inputs, by default the finite limits; the upper bound wins."""
    found, dtype = node[0], node.dtype(node[0])
    for n, name in ((1, "maximum"), (2, "minimum")):
        bound = node.optional(n)
        if bound is None and dtypes.is_float(dtype):
            bound = const(_largest(dtype) * (-1 if n == 1 else 1), dtype)
        found = found if bound is None else node.call(name, found, bound)
    return found

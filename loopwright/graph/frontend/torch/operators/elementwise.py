"""Converters of elementwise operators."""

from __future__ import annotations

from functools import reduce

from loopwright.errors import GraphError
from loopwright.graph.frontend.torch.node import Node, Operand, category, converter
from loopwright.graph.ir.expr import Expr

#: Functions of floats: what is no float becomes one before.
_FUNCTIONS = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "expm1"),
    *("log", "log10", "log1p", "log2", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh"),
)
#: Functions of any number, which is a whole number already where it is no float.
_KEEPING = ("abs", "ceil", "floor", "neg", "relu", "round", "trunc")
_RENAMED = {"neg": "negative", "relu": "nn.relu"}
#: Overloads of operators of two operands, by the second one.
_OTHERS = ("Tensor", "Scalar")
_ROUNDING = ("ceil", "floor", "round", "trunc")


@converter(*_FUNCTIONS, *_KEEPING)
def function(node: Node, x: Expr) -> Expr:
    if node.operator in _ROUNDING and category(node.dtype(x)) < 2:
        return x
    return node.call(_RENAMED.get(node.operator, node.operator), node.as_result(x))


@converter("isnan", "isinf")
def is_special(node: Node, x: Expr) -> Expr:
    return node.call(node.operator, x if category(node.dtype(x)) == 2 else node.cast(x, "float32"))


@converter("sign")
def sign(node: Node, x: Expr) -> Expr:
    """-1, 0 or 1; 0 of NaN, and of both zeros."""
    if node.dtype(x) == "bool":
        return x
    above, below = (node.as_result(node.call(name, x, 0)) for name in ("greater", "less"))
    return node.subtract(above, below)


@converter("logical_not", "bitwise_not")
def complement(node: Node, x: Expr) -> Expr:
    """The negation, or the complement of all bits; of a bool they are the same."""
    if node.operator == "logical_not" or node.dtype(x) == "bool":
        return node.call("logical_not", node.cast(x, "bool"))
    return node.call("bitwise_not", x)


@converter(*(f"{name}.{kind}" for name in ("add", "sub", "rsub") for kind in _OTHERS))
def total(node: Node, x: Operand, y: Operand, alpha: float = 1) -> Expr:
    """x + alpha * y, x - alpha * y, or y - alpha * x."""
    if node.operator.startswith("rsub"):
        x, y = y, x
    if node.result.dtype == "bool":
        return node.call("logical_or", node.as_result(x), node.as_result(y))
    added = node.as_result(y)
    if alpha != 1:
        added = node.multiply(added, alpha)
    name = "add" if node.operator.startswith("add") else "subtract"
    return node.call(name, node.as_result(x), added)


@converter("mul.Tensor", "mul.Scalar")
def mul(node: Node, x: Operand, y: Operand) -> Expr:
    name = "logical_and" if node.result.dtype == "bool" else "multiply"
    return node.call(name, node.as_result(x), node.as_result(y))


@converter("div.Tensor_mode", "div.Scalar_mode")
def div_mode(node: Node, x: Operand, y: Operand, rounding_mode: str | None = None) -> Expr:
    """The quotient, rounded towards zero or downwards."""
    a, b = node.as_result(x), node.as_result(y)
    floats = category(node.result.dtype) == 2
    if rounding_mode is None:
        return node.divide(a, b)
    if rounding_mode == "trunc":
        quotient = node.divide(a, b)
        return node.call("trunc", quotient) if floats else quotient
    if rounding_mode != "floor":
        raise GraphError(f"its rounding_mode is {rounding_mode!r}; there are trunc and floor")
    return node.call("floor_divide", a, b)


#: A remainder has the sign of the divisor, one of C (``fmod``) that of the dividend.
_ARITHMETIC = {"div": "divide", "remainder": "mod", "fmod": "fmod"}


@converter("maximum", "minimum", *(f"{name}.{kind}" for name in _ARITHMETIC for kind in _OTHERS))
def arithmetic(node: Node, x: Operand, y: Operand) -> Expr:
    name = node.operator.partition(".")[0]
    return node.call(_ARITHMETIC.get(name, name), node.as_result(x), node.as_result(y))


@converter("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(node: Node, x: Operand, y: Operand) -> Expr:
    """x to the power of y; small integer powers as products, as PyTorch has it."""
    base = node.as_result(x)
    if isinstance(y, Expr):
        return node.call("power", base, node.as_result(y))
    if y in (1, 2, 3):
        return reduce(node.multiply, [base] * int(y))
    if category(node.result.dtype) == 2 and y in (0.5, -0.5):
        return node.call("sqrt" if y > 0 else "rsqrt", base)
    if category(node.result.dtype) == 2 and y == -1:
        return node.divide(node.as_result(1.0), base)
    return node.call("power", base, node.as_result(y))


#: Comparisons: of what both are promoted to.
_COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}  # fmt: skip


@converter(*(f"{name}.{kind}" for name in _COMPARISONS for kind in _OTHERS))
def compare(node: Node, x: Expr, y: Operand) -> Expr:
    dtype = node.promoted(x, y)
    wide = "uint8" if dtype == "bool" else dtype
    name = _COMPARISONS[node.operator.partition(".")[0]]
    return node.call(name, node.cast(x, wide), node.cast(y, wide))


@converter("logical_and", "logical_or", "logical_xor")
@converter(*(f"bitwise_{name}.{kind}" for name in ("and", "or", "xor") for kind in _OTHERS))
def logical(node: Node, x: Expr, y: Operand) -> Expr:
    """A logical operation, or a bitwise one on integers; on bools they are the same."""
    name, whole = node.operator.partition(".")[0], node.result.dtype != "bool"
    if name.startswith("bitwise") and whole:
        return node.call(name, node.as_result(x), node.as_result(y))
    a, b = node.cast(x, "bool"), node.cast(y, "bool")
    if name.endswith("xor"):
        return node.call("not_equal", node.cast(a, "uint8"), node.cast(b, "uint8"))
    return node.call(name.replace("bitwise", "logical"), a, b)


@converter("where.self")
def where(node: Node, condition: Expr, x: Expr, y: Expr) -> Expr:
    return node.where(node.cast(condition, "bool"), node.as_result(x), node.as_result(y))


@converter("clamp")
def clamp(node: Node, x: Expr, min: float | None = None, max: float | None = None) -> Expr:
    bounds = [min, max]
    if category(node.result.dtype) < 2:
        bounds = [None if b is None else int(b) for b in bounds]
    return node.call("clip", node.as_result(x), a_min=bounds[0], a_max=bounds[1])


@converter("hardtanh")
def hardtanh(node: Node, x: Expr, min_val: float = -1, max_val: float = 1) -> Expr:
    """Clamp between two bounds; ReLU6 is one."""
    return clamp(node, x, min_val, max_val)


@converter("clamp.Tensor")
def clamp_tensor(node: Node, x: Expr, min: Expr | None = None, max: Expr | None = None) -> Expr:
    held = node.as_result(x)
    if min is not None:
        held = node.call("maximum", held, node.as_result(min))
    return held if max is None else node.call("minimum", held, node.as_result(max))


@converter("gelu")
def gelu(node: Node, x: Expr, approximate: str = "none") -> Expr:
    return node.call("nn.gelu", x, approximate=approximate == "tanh")


@converter("elu")
def elu(node: Node, x: Expr, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Expr:
    """scale * (x where it is positive, else alpha * (exp(input_scale * x) - 1))."""
    return node.call("nn.elu", x, alpha=alpha, scale=1 / input_scale, gamma=scale)


@converter("leaky_relu")
def leaky_relu(node: Node, x: Expr, negative_slope: float = 0.01) -> Expr:
    return node.call("nn.leaky_relu", x, alpha=negative_slope)


converter("silu")(lambda node, x: node.multiply(x, node.call("sigmoid", x)))
converter("reciprocal")(lambda node, x: node.divide(node.as_result(1.0), node.as_result(x)))

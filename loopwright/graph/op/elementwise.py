"""Elementwise operators: arithmetic, comparisons, functions, remainders, operations of bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from loopwright import dtypes, te
from loopwright.errors import GraphError
from loopwright.graph.op.shapes import broadcast, element
from loopwright.graph.registry import Op, Pattern, register_op
from loopwright.ops import compute


def unary(name: str, summary: str, f: Callable[[Any], Any]) -> Op:
    def define(data: te.Tensor) -> te.Tensor:
        return compute(data.shape, lambda *i: f(data(*i)), name=name.rpartition(".")[2])

    define.__doc__, define.__qualname__ = summary, name
    return register_op(name, Pattern.ELEMENTWISE)(define)


def binary(name: str, summary: str, f: Callable[[Any, Any], Any]) -> Op:
    """Register a function of two elements, whose tensors are broadcast."""

    def define(lhs: te.Tensor, rhs: te.Tensor) -> te.Tensor:
        if lhs.dtype != rhs.dtype:
            raise GraphError(f"the inputs are {lhs.dtype} and {rhs.dtype}; cast one of them")
        shape = broadcast(lhs.shape, rhs.shape)
        return compute(shape, lambda *i: f(element(lhs, i), element(rhs, i)), name=name)

    define.__doc__, define.__qualname__ = summary, name
    return register_op(name, Pattern.BROADCAST)(define)


relu = unary("nn.relu", "The input, 0 where it is negative.", lambda x: te.max(x, 0))
sigmoid = unary("sigmoid", "1 / (1 + exp(-x)).", te.sigmoid)
tanh = unary("tanh", "The hyperbolic tangent.", te.tanh)
exp = unary("exp", "e to the power of the input.", te.exp)
log = unary("log", "The natural logarithm.", te.log)
sqrt = unary("sqrt", "The square root.", te.sqrt)
rsqrt = unary("rsqrt", "1 divided by the square root.", te.rsqrt)
erf = unary("erf", "The error function.", te.erf)
sin = unary("sin", "The sine.", te.sin)
cos = unary("cos", "The cosine.", te.cos)
tan = unary("tan", "The tangent.", te.tan)
atan = unary("atan", "The arc tangent.", te.atan)
sinh = unary("sinh", "The hyperbolic sine.", te.sinh)
cosh = unary("cosh", "The hyperbolic cosine.", te.cosh)
floor = unary("floor", "The largest whole number that is not greater.", te.floor)
ceil = unary("ceil", "The smallest whole number that is not less.", te.ceil)
trunc = unary("trunc", "The number without its fraction.", te.trunc)
rounded = unary("round", "The nearest whole number, the even one of two.", te.nearbyint)
absolute = unary("abs", "The size without the sign.", te.abs)
negative = unary("negative", "The number with the other sign.", lambda x: -x)
sign = unary(
    "sign",
    "-1, 0 or 1 by the sign.",
    lambda x: te.select(x > 0, te.const(1, x.dtype), te.select(x < 0, te.const(-1, x.dtype), x)),
)
isnan = unary("isnan", "Whether it is no number.", te.isnan)
isinf = unary("isinf", "Whether it is infinite.", te.isinf)
logical_not = unary("logical_not", "True where the input is false.", te.logical_not)

add = binary("add", "The sum of two tensors, broadcast.", lambda a, b: a + b)
subtract = binary("subtract", "The difference of two tensors, broadcast.", lambda a, b: a - b)
multiply = binary("multiply", "The product of two tensors, broadcast.", lambda a, b: a * b)
maximum = binary("maximum", "The larger of two tensors, broadcast.", te.max)
minimum = binary("minimum", "The smaller of two tensors, broadcast.", te.min)
power = binary("power", "One tensor to the power of another, broadcast.", te.power)
equal = binary("equal", "Whether two tensors are equal, broadcast.", te.equal)
not_equal = binary("not_equal", "Whether two tensors differ, broadcast.", te.not_equal)
less = binary("less", "Whether one tensor is less, broadcast.", lambda a, b: a < b)
less_equal = binary("less_equal", "Whether one is not greater, broadcast.", lambda a, b: a <= b)
greater = binary("greater", "Whether one tensor is greater, broadcast.", lambda a, b: a > b)
greater_equal = binary("greater_equal", "Whether one is not less.", lambda a, b: a >= b)
logical_and = binary("logical_and", "Whether both are true, broadcast.", te.all)
logical_or = binary("logical_or", "Whether one of both is true, broadcast.", te.any)


divide = binary(
    "divide",
    "The quotient, broadcast; whole numbers towards zero.",
    # Integer division truncates, as in ONNX and C.
    lambda a, b: a / b if dtypes.is_float(a.dtype) else te.truncdiv(a, b),
)


@register_op("cast", Pattern.ELEMENTWISE)
def cast(data: te.Tensor, *, dtype: str) -> te.Tensor:
    """The input as another dtype."""
    to = dtypes.check(dtype)
    return compute(data.shape, lambda *i: data(*i).astype(to), name="cast")


@register_op("clip", Pattern.ELEMENTWISE)
def clip(data: te.Tensor, *, a_min: float | None, a_max: float | None) -> te.Tensor:
    """The input, held between two bounds; None is no bound.

    Bounds beyond an integer dtype are its limits.
    """
    if dtypes.is_int(data.dtype):
        low, high = dtypes.limits(data.dtype)
        a_min, a_max = (None if b is None else max(low, min(b, high)) for b in (a_min, a_max))

    def held(x: Any) -> Any:
        x = x if a_min is None else te.max(x, te.const(a_min, data.dtype))
        return x if a_max is None else te.min(x, te.const(a_max, data.dtype))

    return compute(data.shape, lambda *i: held(data(*i)), name="clip")


@register_op("nn.leaky_relu", Pattern.ELEMENTWISE)
def leaky_relu(data: te.Tensor, *, alpha: float = 0.01) -> te.Tensor:
    """The input, alpha times it where it is negative."""
    slope = te.const(alpha, data.dtype)

    def value(*i: Any) -> Any:
        x = data(*i)
        return te.if_then_else(x > 0, x, x * slope)

    return compute(data.shape, value, name="leaky_relu")


@register_op("where", Pattern.BROADCAST)
def where(condition: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """x where the condition is true, else y; all three are broadcast."""
    if x.dtype != y.dtype:
        raise GraphError(f"the values are {x.dtype} and {y.dtype}; cast one of them")
    shape = broadcast(condition.shape, broadcast(x.shape, y.shape))

    def chosen(*i: Any) -> Any:
        return te.if_then_else(element(condition, i), element(x, i), element(y, i))

    return compute(shape, chosen, name="where")


def _as_float(x: Any) -> Any:
    """Integers become float32, as they do in ``te.sqrt``."""
    return x if dtypes.is_float(x.dtype) else x.astype("float32")


def _asin(x: Any) -> Any:
    """Half-angle formula: nothing cancels near -1 and 1."""
    return te.const(2, x.dtype) * te.atan(x / (1 + te.sqrt((1 - x) * (1 + x))))


def _acos(x: Any) -> Any:
    x = _as_float(x)
    return te.const(2, x.dtype) * te.atan(te.sqrt((1 - x) / (1 + x)))


#: From here on sqrt(x * x + 1) is x, and asinh(x) and acosh(x) are log(x) + log(2).
_LARGE = {**dict.fromkeys((*dtypes.HALVES, "float32"), 2.0**13), "float64": 2.0**28}


def _odd(x: Any, size: Any) -> Any:
    """Give ``size`` the sign of x; zeros keep theirs."""
    return te.select(x < 0, -size, te.select(x > 0, size, x))


def _log1p_or_doubled(x: Any, small: Any) -> Any:
    """log(1 + small), or log(2 x) where x is large."""
    large = x > te.const(_LARGE[x.dtype], x.dtype)
    more = te.select(large, te.const(math.log(2), x.dtype), te.const(0, x.dtype))
    return te.log1p(te.select(large, x - 1, small)) + more


def _asinh(x: Any) -> Any:
    x = _as_float(x)
    size = te.abs(x)
    return _odd(x, _log1p_or_doubled(size, size + size * size / (1 + te.sqrt(size * size + 1))))


def _acosh(x: Any) -> Any:
    """Two roots, NaN wherever x < 1; the root of their product would be a number below -1."""
    x = _as_float(x)
    over = x - 1
    return _log1p_or_doubled(x, over + te.sqrt(over) * te.sqrt(over + 2))


def _atanh(x: Any) -> Any:
    """Half of log1p(2 |x| / (1 - |x|)), with the sign of x: near 1 nothing cancels."""
    x = _as_float(x)
    size = te.abs(x)
    return _odd(x, te.const(0.5, x.dtype) * te.log1p(2 * size / (1 - size)))


asin = unary("asin", "The arc sine.", _asin)
acos = unary("acos", "The arc cosine.", _acos)
asinh = unary("asinh", "The inverse of the hyperbolic sine.", _asinh)
acosh = unary("acosh", "The inverse of the hyperbolic cosine.", _acosh)
atanh = unary("atanh", "The inverse of the hyperbolic tangent.", _atanh)
log2 = unary("log2", "The logarithm to base 2.", te.log2)
log10 = unary("log10", "The logarithm to base 10.", te.log10)
log1p = unary("log1p", "The natural logarithm of 1 + x.", te.log1p)
expm1 = unary("expm1", "e to the power of x, less 1.", te.expm1)


softplus = unary(
    "nn.softplus",
    "log(1 + exp(x)), without overflow.",
    lambda x: te.max(x, 0) + te.log1p(te.exp(-te.abs(x))),
)

bitwise_and = binary("bitwise_and", "The bits that both have, broadcast.", te.bitwise_and)
bitwise_or = binary("bitwise_or", "The bits that one of both has, broadcast.", te.bitwise_or)
bitwise_xor = binary("bitwise_xor", "The bits that differ, broadcast.", te.bitwise_xor)
bitwise_not = unary("bitwise_not", "All bits the other way.", te.bitwise_not)
left_shift = binary("left_shift", "Bits moved up, broadcast.", te.shift_left)
right_shift = binary("right_shift", "Bits moved down, broadcast.", te.shift_right)


def _remainder(a: Any, b: Any) -> Any:
    if not dtypes.is_float(a.dtype):
        return te.floormod(a, b)
    rest = te.fmod(a, b)
    return te.if_then_else(_rounds_down(rest, b), rest + b, rest)


def _rounds_down(rest: Any, b: Any) -> Any:
    """Whether floor division by b is one less than truncating division with a remainder."""
    return te.all(te.not_equal(rest, 0), te.not_equal(rest < 0, b < 0))


def _floor_quotient(a: Any, b: Any) -> Any:
    """Floor division of floats as in Python: subtract the remainder, divide, round."""
    if not dtypes.is_float(a.dtype):
        return te.floordiv(a, b)
    zero, half, one = (te.const(n, a.dtype) for n in (0, 0.5, 1))
    rest = te.fmod(a, b)
    quotient = (a - rest) / b - te.select(_rounds_down(rest, b), one, zero)
    whole = te.floor(quotient)
    whole = te.select(quotient - whole > half, whole + one, whole)
    exact = te.select(te.equal(quotient, 0), a / b * zero, whole)
    return te.select(te.equal(b, 0), a / b, exact)


floor_divide = binary("floor_divide", "The quotient rounded downwards, broadcast.", _floor_quotient)
mod = binary("mod", "What a division leaves, with the sign of the divisor, broadcast.", _remainder)
fmod = binary(
    "fmod",
    "What a division leaves, with the sign of what is divided.",
    lambda a, b: te.fmod(a, b) if dtypes.is_float(a.dtype) else te.truncmod(a, b),
)


@register_op("nn.gelu", Pattern.ELEMENTWISE)
def gelu(data: te.Tensor, *, approximate: bool = False) -> te.Tensor:
    """x times the normal distribution function of x; or its approximation by tanh."""
    half = te.const(0.5, data.dtype)

    def value(x: Any) -> Any:
        if not approximate:
            return half * x * (1 + te.erf(x * te.const(math.sqrt(0.5), data.dtype)))
        inner = te.const(math.sqrt(2 / math.pi), data.dtype)
        return half * x * (1 + te.tanh(inner * (x + te.const(0.044715, data.dtype) * x * x * x)))

    return compute(data.shape, lambda *i: value(data(*i)), name="gelu")


@register_op("nn.elu", Pattern.ELEMENTWISE)
def elu(
    data: te.Tensor, *, alpha: float = 1.0, scale: float = 1.0, gamma: float = 1.0
) -> te.Tensor:
    """gamma times: x where it is positive, else alpha * (exp(x / scale) - 1)."""
    a, s, g = (te.const(v, data.dtype) for v in (alpha, scale, gamma))

    def value(x: Any) -> Any:
        result = te.if_then_else(x > 0, x, a * te.expm1(x if scale == 1 else x / s))
        return result if gamma == 1 else g * result

    return compute(data.shape, lambda *i: value(data(*i)), name="elu")


@register_op("nn.prelu", Pattern.BROADCAST)
def prelu(data: te.Tensor, slope: te.Tensor) -> te.Tensor:
    """x, times its slope where it is negative; the slope is broadcast."""
    shape = broadcast(data.shape, slope.shape)

    def value(*i: Any) -> Any:
        x = element(data, i)
        return te.if_then_else(x < 0, x * element(slope, i), x)

    return compute(shape, value, name="prelu")


@register_op("reinterpret", Pattern.ELEMENTWISE)
def reinterpret(data: te.Tensor, *, dtype: str) -> te.Tensor:
    """The same bits as another dtype of as many bits."""
    to = dtypes.check(dtype)
    return compute(data.shape, lambda *i: te.reinterpret(to, data(*i)), name="reinterpret")

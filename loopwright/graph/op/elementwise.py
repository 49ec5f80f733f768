"""Elementwise operators: functions, arithmetic, comparisons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopwright import dtypes, te
from loopwright.errors import GraphError
from loopwright.graph.op.shapes import broadcast, element
from loopwright.graph.registry import Op, Pattern, register_op


def unary(name: str, summary: str, f: Callable[[Any], Any]) -> Op:
    def compute(data: te.Tensor) -> te.Tensor:
        tensor: te.Tensor = te.compute(data.shape, lambda *i: f(data(*i)), name=_short(name))
        return tensor

    compute.__doc__, compute.__qualname__ = summary, name
    return register_op(name, Pattern.ELEMENTWISE)(compute)


def binary(name: str, summary: str, f: Callable[[Any, Any], Any]) -> Op:
    """Register a function of two elements, whose tensors are broadcast."""

    def compute(lhs: te.Tensor, rhs: te.Tensor) -> te.Tensor:
        if lhs.dtype != rhs.dtype:
            raise GraphError(f"the inputs are {lhs.dtype} and {rhs.dtype}; cast one of them")
        shape = broadcast(lhs.shape, rhs.shape)
        tensor: te.Tensor = te.compute(
            shape, lambda *i: f(element(lhs, i), element(rhs, i)), name=_short(name)
        )
        return tensor

    compute.__doc__, compute.__qualname__ = summary, name
    return register_op(name, Pattern.BROADCAST)(compute)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


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


def _quotient(a: Any, b: Any) -> Any:
    """Integer division truncates, as in ONNX and C."""
    return a / b if dtypes.is_float(a.dtype) else te.truncdiv(a, b)


divide = binary("divide", "The quotient, broadcast; whole numbers towards zero.", _quotient)


@register_op("cast", Pattern.ELEMENTWISE)
def cast(data: te.Tensor, *, dtype: str) -> te.Tensor:
    """The input as another dtype."""
    found = dtypes.check(dtype)
    tensor: te.Tensor = te.compute(data.shape, lambda *i: data(*i).astype(found), name="cast")
    return tensor


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

    tensor: te.Tensor = te.compute(data.shape, lambda *i: held(data(*i)), name="clip")
    return tensor


@register_op("nn.leaky_relu", Pattern.ELEMENTWISE)
def leaky_relu(data: te.Tensor, *, alpha: float = 0.01) -> te.Tensor:
    """The input, alpha times it where it is negative."""
    slope = te.const(alpha, data.dtype)

    def value(x: Any) -> Any:
        return te.if_then_else(x > 0, x, x * slope)

    tensor: te.Tensor = te.compute(data.shape, lambda *i: value(data(*i)), name="leaky_relu")
    return tensor


@register_op("where", Pattern.BROADCAST)
def where(condition: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """x where the condition is true, else y; all three are broadcast."""
    if x.dtype != y.dtype:
        raise GraphError(f"the values are {x.dtype} and {y.dtype}; cast one of them")
    shape = broadcast(condition.shape, broadcast(x.shape, y.shape))

    def chosen(*i: Any) -> Any:
        return te.if_then_else(element(condition, i), element(x, i), element(y, i))

    tensor: te.Tensor = te.compute(shape, chosen, name="where")
    return tensor

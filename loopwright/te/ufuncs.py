"""Functions of NumPy on expressions: ``np.exp(A[i])``, ``A[i] ** 2``, and ``A + B`` of tensors.

Results have NumPy's dtypes and values. On elements Python's operators keep TE's dtypes
(`loopwright.ir.expr.NUMPY`); of tensors they are NumPy's functions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from loopwright import dtypes
from loopwright.errors import TensorError
from loopwright.ir import expr as ir
from loopwright.te import math as te

_Function = Callable[..., Any]


def value(function: _Function, *operands: Any) -> Any:
    """The expression, or expressions, of a function of `FUNCTIONS` in NumPy's dtype for it.

    A number of Python takes the dtype of the other operand, where it fits.
    """
    kinds = [_kind(x) for x in operands]
    strong = [k for k in kinds if not isinstance(k, type)]
    if any(dtypes.is_float(k.name) for k in strong) and len(strong) < len(kinds):
        kinds = [strong[-1] if isinstance(k, type) else k for k in kinds]
    try:
        loop = _loop(function, kinds)
    except TypeError as e:
        raise TensorError(f"np.{function.__name__} of {_names(kinds)}: {e}") from e
    names = [d.name for d in loop]
    for name in names:
        if name not in dtypes.SUPPORTED:
            raise TensorError(f"np.{function.__name__} of {_names(kinds)} is of {name}: cast it")
    if function in _COMPARISONS and (sides := _beyond_limits(operands, names)) is not None:
        return FUNCTIONS[function](*sides)
    return FUNCTIONS[function](*map(_converted, operands, names))


def _loop(function: _Function, kinds: Sequence[Any]) -> tuple[np.dtype[Any], ...]:
    """The dtypes to which NumPy converts the operands."""
    if isinstance(function, np.ufunc):
        return function.resolve_dtypes((*kinds, *(None,) * function.nout))[: len(kinds)]
    default = [np.dtype("int64" if k is int else "float64") for k in kinds[1:]]
    kinds = default if all(isinstance(k, type) for k in kinds[1:]) else kinds[1:]
    return (np.dtype(bool), *_loop(np.maximum, kinds))


def _kind(x: object) -> Any:
    """The dtype of an operand, or the type of a Python number, which has none of its own."""
    if isinstance(x, bool):
        return np.dtype(bool)
    if type(x) in (int, float):
        return type(x)
    return x.dtype if isinstance(x, np.generic) else np.dtype(dtypes.check(ir.as_expr(x).dtype))


def _names(kinds: list[Any]) -> str:
    return " and ".join(k.__name__ if isinstance(k, type) else k.name for k in kinds)


def _converted(x: Any, dtype: str) -> ir.Expr:
    """An operand in the dtype of the loop; as a bool, what is not zero."""
    x = x.item() if isinstance(x, np.generic) else x
    if isinstance(x, int) and dtypes.is_int(dtype):
        lo, hi = dtypes.limits(dtype)
        if not lo <= x <= hi:
            raise TensorError(
                f"{x} does not fit {dtype}, the dtype of the other operand; cast that"
            )
    return _truth(x) if dtype == "bool" else ir.cast(x, dtype)


def _truth(x: ir.ExprLike) -> ir.Expr:
    e = ir.as_expr(x)
    return e if e.dtype == "bool" else ir.binary("!=", e, 0)


def _beyond_limits(operands: Sequence[Any], names: Sequence[str]) -> list[ir.Expr] | None:
    """Stand-ins for operands of a comparison of which one is a number beyond the other's limits."""
    for x, dtype in zip(operands, names, strict=True):
        lo, hi = dtypes.limits(dtype)
        if type(x) is int and not lo <= x <= hi:
            beyond = te.const(1 if x > hi else -1)
            return [beyond if y is x else te.const(0) for y in operands]
    return None


def _arithmetic(op: str, of_bools: str = "") -> Callable[[ir.Expr, ir.Expr], ir.Expr]:
    def f(a: ir.Expr, b: ir.Expr) -> ir.Expr:
        if a.dtype == "bool" and of_bools:
            return ir.Binary(of_bools, a, b, "bool")
        return ir.binary(op, a, b)

    return f


def _comparison(op: str) -> Callable[[ir.Expr, ir.Expr], ir.Expr]:
    def f(a: ir.Expr, b: ir.Expr) -> ir.Expr:
        if a.dtype == b.dtype:
            return ir.binary(op, a, b)
        # int64 beside uint64, the one pair of dtypes that NumPy compares as they are.
        signed = a if a.dtype == "int64" else b
        below = ir.binary(op, -1, 0) if signed is a else ir.binary(op, 0, -1)
        same = ir.binary(op, ir.cast(a, "uint64"), ir.cast(b, "uint64"))
        return te.select(signed < 0, below, same)

    return f


def _shift(op: str) -> Callable[[ir.Expr, ir.Expr], ir.Expr]:
    """A shift beyond the width leaves nothing but the sign."""

    def f(a: ir.Expr, b: ir.Expr) -> ir.Expr:
        width = dtypes.bits(a.dtype)
        inside = te.all(b >= 0, b < width)
        signed = op == ">>" and not dtypes.is_unsigned(a.dtype)
        beyond = ir.binary(">>", a, width - 1) if signed else ir.const(0, a.dtype)
        return te.select(inside, ir.binary(op, a, b), beyond)

    return f


def _floor_divide(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    return _divmod(a, b)[0]


def _remainder(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    return _divmod(a, b)[1]


def _divmod(a: ir.Expr, b: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    """Quotient rounded down, and remainder with the sign of the divisor; of floats as Python's."""
    zero = ir.const(0, a.dtype)
    if isinstance(b, ir.Const) and b.value == 0 and dtypes.is_int(a.dtype):
        return zero, zero
    if dtypes.is_int(a.dtype):
        return a // b, a % b
    rest = te.fmod(a, b)
    other_sign = te.all(rest != 0, ir.binary("!=", b < 0, rest < 0))
    whole = ir.Select(other_sign, (a - rest) / b - 1, (a - rest) / b, a.dtype)
    down = te.floor(whole)
    nearest = te.select(whole - down > 0.5, down + 1, down)
    quotient = te.select(whole != 0, nearest, a / b * 0)
    signed_zero = te.select(b < 0, ir.const(-0.0, a.dtype), zero)
    remainder = te.select(rest != 0, te.select(other_sign, rest + b, rest), signed_zero)
    return te.select(b == 0, a / b, quotient), te.select(b == 0, rest, remainder)


def _integer_fmod(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    return ir.const(0, a.dtype) if isinstance(b, ir.Const) and b.value == 0 else te.truncmod(a, b)


def _power(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    if isinstance(b, ir.Const) and dtypes.is_int(b.dtype) and b.value < 0:
        raise TensorError(
            f"{a.dtype} to the power {b.value}: integers have no negative powers; cast the base to "
            "a float, x.astype('float32')"
        )
    if isinstance(b, ir.Const) and b.value in (0, 1, 2):
        return (ir.const(1, a.dtype), a, a * a)[int(b.value)]
    if isinstance(b, ir.Const) and b.value == -1:
        return ir.binary("/", 1, a)
    return te.power(a, b)


def _sign(a: ir.Expr) -> ir.Expr:
    one, zero = ir.const(1, a.dtype), ir.const(0, a.dtype)
    if dtypes.is_unsigned(a.dtype):
        return te.select(a > 0, one, zero)
    unordered = te.select(a == 0, zero, a)
    return te.select(a > 0, one, te.select(a < 0, ir.const(-1, a.dtype), unordered))


def _of_numbers(larger: str) -> Callable[[ir.Expr, ir.Expr], ir.Expr]:
    """``np.fmax`` and ``np.fmin``, which pass NaN over."""

    numbers = _arithmetic(larger, "or" if larger == "max" else "and")

    def f(a: ir.Expr, b: ir.Expr) -> ir.Expr:
        if not dtypes.is_float(a.dtype):
            return numbers(a, b)
        return te.select(te.isnan(a), b, te.select(te.isnan(b), a, ir.binary(larger, a, b)))

    return f


def _of_floats(function: _Function, of_others: _Function) -> _Function:
    return lambda *xs: (function if dtypes.is_float(xs[0].dtype) else of_others)(*xs)


def _reciprocal(a: ir.Expr) -> ir.Expr:
    return te.div(ir.const(1, a.dtype), a)


_COMPARISONS: dict[np.ufunc, str] = {
    np.equal: "==", np.not_equal: "!=", np.less: "<", np.less_equal: "<=", np.greater: ">",
    np.greater_equal: ">=",
}  # fmt: skip
#: By function of NumPy: operands of the dtypes of its loop to its value.
FUNCTIONS: dict[_Function, _Function] = {
    np.add: _arithmetic("+", "or"),
    np.subtract: _arithmetic("-"),
    np.multiply: _arithmetic("*", "and"),
    np.true_divide: _arithmetic("/"),
    np.floor_divide: _floor_divide,
    np.remainder: _remainder,
    np.divmod: _divmod,
    np.fmod: _of_floats(te.fmod, _integer_fmod),
    np.power: _power,
    np.float_power: _power,
    np.negative: operator.neg,
    np.positive: operator.pos,
    np.absolute: lambda a: a if a.dtype == "bool" else te.abs(a),
    np.fabs: te.abs,
    np.sign: _sign,
    np.square: lambda a: a * a,
    np.reciprocal: _reciprocal,
    np.maximum: _arithmetic("max", "or"),
    np.minimum: _arithmetic("min", "and"),
    np.fmax: _of_numbers("max"),
    np.fmin: _of_numbers("min"),
    np.logical_and: lambda a, b: te.all(_truth(a), _truth(b)),
    np.logical_or: lambda a, b: te.any(_truth(a), _truth(b)),
    np.logical_xor: lambda a, b: te.not_equal(_truth(a), _truth(b)),
    np.logical_not: lambda a: te.logical_not(_truth(a)),
    np.bitwise_and: _arithmetic("&"),
    np.bitwise_or: _arithmetic("|"),
    np.bitwise_xor: _arithmetic("^"),
    np.invert: ir.invert,
    np.left_shift: _shift("<<"),
    np.right_shift: _shift(">>"),
    np.where: te.select,
    np.isnan: _of_floats(te.isnan, lambda a: te.const(False)),
    np.isinf: _of_floats(te.isinf, lambda a: te.const(False)),
    np.isfinite: _of_floats(te.isfinite, lambda a: te.const(True)),
    np.arctan: te.atan,
    **{f: _comparison(op) for f, op in _COMPARISONS.items()},
    **{
        getattr(np, name): getattr(te, name)
        for name in (
            "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan",
            "sinh", "cosh", "tanh",
        )
    },
    **{
        getattr(np, name): _of_floats(getattr(te, function), lambda a: a)
        for name, function in (
            ("floor", "floor"), ("ceil", "ceil"), ("trunc", "trunc"), ("rint", "round"),
        )
    },
}  # fmt: skip


def to_power(base: Any, exponent: Any) -> Any:
    """``base ** exponent``, of elements or tensors: as ``np.power``; 0.5 is the root."""
    if type(exponent) is float and exponent == 0.5 and dtypes.is_float(base.dtype):
        return np.sqrt(base)
    if type(exponent) is int and exponent == 2 and getattr(base, "dtype", "") == "bool":
        return np.square(base)
    return np.power(base, exponent)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    above = a if low is None else np.maximum(a, low)
    return above if high is None else np.minimum(above, high)


def _round(a: Any, decimals: int = 0) -> Any:
    if decimals != 0:
        raise TensorError(f"np.round with decimals={decimals}: to whole numbers only")
    return np.rint(a)


ir.NUMPY.update({f: partial(value, f) for f in FUNCTIONS if f not in ir.NUMPY})
ir.NUMPY[operator.pow] = to_power
ir.NUMPY[np.where] = lambda condition, x, y: value(np.where, condition, x, y)
ir.NUMPY.update({np.clip: _clip, np.round: _round, np.around: _round})

"""Operations of the IR on whole arrays of NumPy: what the interpreter does to scalars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loopwright import dtypes
from loopwright.ir.expr import SHIFTS
from loopwright.ir.interp.values import CALLS

Array = np.ndarray[Any, Any]
#: Operations that are one function of NumPy; ``and`` and ``or`` are of bools.
_FUNCTIONS: dict[str, np.ufunc] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide,
    "==": np.equal, "!=": np.not_equal,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "min": np.minimum, "max": np.maximum,
    "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
    "<<": np.left_shift, ">>": np.right_shift,
}  # fmt: skip


def binary(op: str, x: Array, y: Array) -> Array:
    if op in SHIFTS:
        y = y % y.dtype.type(8 * y.itemsize)
    function = _FUNCTIONS.get(op)
    return _divide(op, x, y) if function is None else np.asarray(function(x, y))


def _divide(op: str, x: Array, y: Array) -> Array:
    """A quotient or remainder; division by zero gives 0."""
    x, y = np.broadcast_arrays(x, y)
    zero = y == 0
    y = np.where(zero, np.ones((), y.dtype), y)
    if op == "tmod":
        out = np.fmod(x, y)
    elif op == "%":
        out = x % y
    else:
        out = x // y
        if op == "tdiv":
            out = out + ((np.fmod(x, y) != 0) & ((x < 0) != (y < 0))).astype(x.dtype)
    return np.where(zero, np.zeros((), x.dtype), out).astype(x.dtype)


def cast(x: Array, dtype: str) -> Array:
    """Convert; a float that becomes an integer is truncated and cut to its limits, NaN gives 0."""
    if dtype in dtypes.HALVES:
        return x.astype(np.float32).astype(dtype)
    if not (dtypes.is_int(dtype) and dtypes.is_float(x.dtype.name)):
        return x.astype(dtype)
    lo, hi = dtypes.limits(dtype)
    wide = np.trunc(x.astype(np.float64))
    low, high = wide <= float(lo), wide >= float(hi)
    inside = np.where(low | high | np.isnan(wide), 0.0, wide).astype(dtype)
    return np.where(high, np.array(hi, dtype), np.where(low, np.array(lo, dtype), inside))


def intrinsic(fn: str, args: Sequence[Array]) -> Array:
    """An intrinsic by NumPy, computed in float64 where that is more exact."""
    x = args[0]
    if fn == "fma":
        return _fma(*np.broadcast_arrays(*args))
    if fn == "pow" and dtypes.is_int(x.dtype.name):
        y = args[1]
        inverse = np.where(x == 1, 1, np.where(x + x.dtype.type(1) == 0, 1 - 2 * (y & 1), 0))
        return np.where(y < 0, inverse, np.power(x, np.maximum(y, 0)))
    function = CALLS.get(fn) or getattr(np, fn)
    if fn in ("abs", "floor", "ceil", "trunc", "round"):
        return np.asarray(function(x))
    return np.asarray(function(*(a.astype(np.float64) for a in args)), np.float64)


def _fma(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` in twice the precision; for float64 that of the platform's long double."""
    if a.dtype.itemsize == 2:
        return _fma(*(x.astype(np.float32) for x in (a, b, c))).astype(a.dtype)
    wide = np.longdouble if a.dtype == np.float64 else np.float64
    return np.asarray(a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(a.dtype)

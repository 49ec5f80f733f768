"""Scalar operations of the interpreter that NumPy does not have."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np


def shift_left(a: Any, b: Any) -> Any:
    """``a << b``, the amount modulo the width."""
    return np.left_shift(a, b & type(b)(8 * b.nbytes - 1))


def shift_right(a: Any, b: Any) -> Any:
    """``a >> b``, the amount modulo the width."""
    return np.right_shift(a, b & type(b)(8 * b.nbytes - 1))


def integer_power(x: Any, y: Any) -> Any:
    """``x ** y`` of integers, which wraps; of negative y ``1 / x ** -y`` cut to an integer."""
    if y < 0:
        return type(x)(int(x) ** (int(y) & 1) if abs(int(x)) == 1 else 0)
    return np.asarray(pow(int(x), int(y), 1 << (8 * x.nbytes)), np.uint64).astype(x.dtype)[()]


def fma(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` rounded once.

    A product of two float32 is exact in float64. Their sum is rounded there to odd, which makes the
    second rounding harmless (Boldo & Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    For float64 rational arithmetic is exact. float16 and bfloat16 are computed in float32.
    """
    if a.nbytes == 2:
        return np.asarray(fma(*map(np.float32, (a, b, c)))).astype(a.dtype)[()]
    wide = float(a) * float(b) + float(c)
    if not all(map(math.isfinite, (a, b, c))):
        return type(a)(wide)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:  # its sign is that of the sum
        return type(a)(wide)
    if isinstance(a, np.float64):
        return np.float64(_nearest(exact))
    rest = exact - Fraction(wide)
    odd = int(np.float64(wide).view(np.int64)) & 1
    if rest and not odd:
        wide = math.nextafter(wide, math.inf if rest > 0 else -math.inf)
    return type(a)(wide)


def _nearest(x: Fraction) -> float:
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf

"""pow: ``2 ** (y * log2(|x|))`` with a logarithm that has more digits than the result.

The product is as large as 1024, so the logarithm needs ten bits more. float32 computes it in
float64; float64 in pairs of numbers whose sum it is (Dekker's and Knuth's error-free sums and
products). Integers are multiplied, by the bits of the exponent.
"""

from __future__ import annotations

from typing import NamedTuple

from loopwright import dtypes
from loopwright.ir.expr import Binary, Expr, Var, cast, const
from loopwright.ir.math.definition import Body, Definition
from loopwright.ir.math.exponential import EXP2, Parts, scaled
from loopwright.ir.math.logarithm import reduced, tail

_INF = float("inf")
_NAN = float("nan")
#: (2 atanh(s) / s - 2) / z in z = s*s, for log to 2**-37.
_R_SHORT = (0.6666666564469523, 0.4000033537872345, 0.2853729567016952, 0.23582412989070314)
#: (2**r - 1) / r to 2**-34.
_EXP2_SHORT = (0.6931471805416141, 0.24022651076322044, 0.05550410962641805, 0.009618036834626897,
               0.0013333430758639842, 0.00015467136643807907, 1.531495031683652e-05)  # fmt: skip
#: ((2 atanh(s) / s - 2) / z - 2/3) / z, for log to 2**-73; 2/3, log2(e) in two pieces.
_Q = (0.3999999999999998, 0.2857142857144512, 0.22222222217534288, 0.18181818870596494,
      0.1538455685107649, 0.13336318204761305, 0.11674802261766992,
      0.11989150392198525)  # fmt: skip
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
_LOG2E = (1.4426950408889634, 2.0355273740931033e-17)
#: Products beyond are cut: the result is 0 or infinite.
_FAR = {"float32": 200.0, "float64": 1100.0}


class _Pair(NamedTuple):
    """An unevaluated sum; ``low`` is at most about a unit of ``high``."""

    high: Expr
    low: Expr


def _sum(b: Body, large: Expr, small: Expr, low: Expr) -> _Pair:
    """``large + small + low`` where ``large`` is 0 or not the smaller one."""
    high = b.let(large + small)
    return _Pair(high, b.let(b.let(b.let(large - high) + small) + low))


def _product(b: Body, x: _Pair, y: _Pair) -> _Pair:
    high = b.let(x.high * y.high)
    low = b.fma(x.high, y.high, -high)
    return _Pair(high, b.mad(x.high, y.low, b.mad(x.low, y.high, low)))


def _log2_pair(b: Body, a: Expr) -> _Pair:
    """log2 of a float64 > 0 with a relative error below 2**-64."""
    e, f = reduced(b, a)
    d = b.let(f + 2.0)
    d_low = b.let(f - b.let(d - 2.0))
    s = b.let(f / d)
    rest = b.let(b.fma(-s, d, f) - b.let(s * d_low))
    pair = _Pair(s, b.let(rest / d))
    z = _product(b, pair, pair)
    third = _sum(b, b.c(_TWO_THIRDS[0]), b.let(z.high * b.poly(z.high, _Q)), b.c(_TWO_THIRDS[1]))
    v = _product(b, pair, _product(b, z, third))
    ln = _sum(b, b.let(s + s), v.high, b.let(b.let(pair.low + pair.low) + v.low))
    y = _product(b, ln, _Pair(b.c(_LOG2E[0]), b.c(_LOG2E[1])))
    return _sum(b, e, y.high, y.low)


def _log2_short(w: Body, x: Expr) -> Expr:
    """log2 of a float64 > 0 that came from a float32, with a relative error below 2**-36."""
    e, f = reduced(w, x, denormal=False)
    h, s, hr = tail(w, f, _R_SHORT)
    ln = w.let(f - w.let(h - w.let(s * hr)))
    return w.fma(ln, 1.4426950408889634, e)


def _edges(b: Body, a: Expr, ln: Expr) -> Expr:
    """Logarithm of ``a >= 0``, from ``ln``, for zero, infinity and NaN too."""
    zero = Binary("==", a, b.c(0.0), "bool")
    edge = b.select(a > b.format.max, b.c(_INF), b.select(zero, b.c(-_INF), b.c(_NAN)))
    return b.select(Binary("and", a > 0.0, a <= b.format.max, "bool"), ln, edge)


def _size_float32(b: Body, a: Expr, y: Expr) -> Expr:
    """``a ** y`` for ``a >= 0``, in float64."""
    w = b.other("float64")
    x = w.let(cast(a, "float64"))
    ln = _edges(w, x, _log2_short(w, x))
    t = w.clamp(w.let(ln * cast(y, "float64")), -_FAR[b.dtype], _FAR[b.dtype])
    n, i = w.nearest(t)
    r = w.let(t - n)
    p = w.let(r * w.poly(r, _EXP2_SHORT))
    s = w.power_of_two(i)
    return b.let(cast(w.fma(p, s, s), b.dtype))


def _size_float64(b: Body, a: Expr, y: Expr) -> Expr:
    """``a ** y`` for ``a >= 0``, with the logarithm and the product as pairs."""
    ln = _log2_pair(b, a)
    high = _edges(b, a, ln.high)
    far = _FAR[b.dtype]
    t = b.let(high * y)
    near = Binary("and", t < far, t > -far, "bool")
    low = b.select(near, b.mad(ln.low, y, b.fma(high, y, -t)), 0.0)
    t = b.clamp(t, -far, far)
    n, i = b.nearest(t)
    r = b.let(b.let(t - n) + low)
    return scaled(b, Parts(i, b.let(r * b.poly(r, EXP2[b.dtype]))))


def power(b: Body, x: Expr, y: Expr) -> Expr:
    """``x ** y`` with the special cases of C99."""
    size = _size_float32 if b.dtype == "float32" else _size_float64
    return _power_cases(b, x, y, size(b, b.call("abs", x), y))


def _power_cases(b: Body, x: Expr, y: Expr, size: Expr) -> Expr:
    """``pow(x, y)`` from ``pow(|x|, y)``, which may be NaN for ``|x| = 1``."""
    a = b.call("abs", x)
    same = Binary("==", y, y, "bool")
    one = Binary("==", a, b.c(1.0), "bool")
    size = b.select(Binary("and", one, same, "bool"), 1.0, size)
    half = b.let(y * 0.5)
    whole = b.let(Binary("==", b.call("floor", y), y, "bool"))
    odd = Binary("and", whole, Binary("!=", b.call("floor", half), half, "bool"), "bool")
    sign = b.select(odd, b.sign(x), const(0, b.integer))
    broken = Binary("and", Binary("and", x < 0.0, x >= -b.format.max, "bool"), ~whole, "bool")
    out = b.select(broken, b.c(_NAN), b.with_sign(size, sign))
    trivial = Binary(
        "or",
        Binary("==", y, b.c(0.0), "bool"),
        Binary("==", x, b.c(1.0), "bool"),
        "bool",
    )
    return b.select(trivial, 1.0, out)


def integer_power(dtype: str) -> Definition:
    """``x ** y`` of integers, which wraps; negative y gives ``1 / x ** -y`` cut to an integer."""
    b = Body("float32")
    x, y = Var("x", dtype), Var("y", dtype)
    one, square = const(1, dtype), cast(x, dtype)
    size: Expr = one
    unsigned = dtypes.is_unsigned(dtype)
    for n in range(dtypes.bits(dtype) - (not unsigned)):
        square = b.let(square * square) if n else x
        has_bit = Binary("==", b.let((y >> n) & 1), one, "bool")
        size = b.select(has_bit, b.let(size * square), size)
    if unsigned:
        return b.finish("pow", (x, y), size)
    sign = b.let(one - ((y & 1) << 1))
    minus = b.select(Binary("==", x, const(-1, dtype), "bool"), sign, const(0, dtype))
    inverse = b.select(Binary("==", x, one, "bool"), one, minus)
    return b.finish("pow", (x, y), b.select(y < 0, inverse, size))

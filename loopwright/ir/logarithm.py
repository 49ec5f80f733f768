"""log, log2, log10, log1p and pow.

``x = 2**e * m`` with m in [sqrt(1/2), sqrt(2)), f = m - 1 (exact), s = f / (2 + f) and
``log(m) = 2 atanh(s) = f - (h - s * (h + R(s*s)))`` with h = f*f/2 (as in Sun's fdlibm), R by
Remez' exchange algorithm. Denormal x is scaled first. Logarithms to other bases carry the rounding
error of log(m) along as a second number (Dekker's sums, 1971).
"""

from __future__ import annotations

from loopwright.ir.definition import Body
from loopwright.ir.expr import Binary, Expr, cast, const

_INF = float("inf")
_NAN = float("nan")
#: (2 atanh(s) / s - 2) / z in z = s*s for |s| <= 0.1716; error of log below 2**-30 and 2**-59.
_R = {
    "float32": (0.6666677594184875, 0.39977532625198364, 0.2987198233604431),
    "float64": (0.6666666666666734, 0.3999999999941393, 0.2857142874257479, 0.2222219855227532,
                0.18183565491022818, 0.15314018898726375, 0.1479628387672067),
}  # fmt: skip
#: The same to 2**-37, for a logarithm in float64 that is rounded to float32 later.
_R_SHORT = (0.6666666564469523, 0.4000033537872345, 0.2853729567016952, 0.23582412989070314)
_LN2 = {
    "float32": (0.6931471824645996, -1.9046542121259336e-09),
    "float64": (0.6931471805599453, 2.3190468138462996e-17),
}
#: log_base(e) and log_base(2), each in two pieces.
_BASES = {
    (2, "float32"): ((1.4426950216293335, 1.925963033500011e-08), (1.0, 0.0)),
    (2, "float64"): ((1.4426950408889634, 2.0355273740931033e-17), (1.0, 0.0)),
    (10, "float32"): (
        (0.4342944920063019, -1.0103049952192578e-08), (0.3010300099849701, -1.432098883924482e-08),
    ),
    (10, "float64"): (
        (0.4342944819032518, 1.098319650216765e-17), (0.3010299956639812, -2.8037281277851704e-18),
    ),
}  # fmt: skip
#: Bits of sqrt(1/2).
_SQRT_HALF = {"float32": 0x3F3504F3, "float64": 0x3FE6A09E667F3BCD}
#: (2**r - 1) / r to 2**-34, for pow.
_EXP2_SHORT = (0.6931471805416141, 0.24022651076322044, 0.05550410962641805, 0.009618036834626897,
               0.0013333430758639842, 0.00015467136643807907, 1.531495031683652e-05)  # fmt: skip


def _reduce(b: Body, x: Expr, denormal: bool = True) -> tuple[Expr, Expr]:
    """``e`` (a float) and ``f`` of ``x = 2**e * (1 + f)``, for normal x > 0, or denormal ones."""
    f = b.format
    scale = float(2**f.mantissa)
    small = x < f.min_normal
    y = b.select(small, x * scale, x) if denormal else x
    low = const(_SQRT_HALF[b.dtype], f.integer)
    i = b.let(b.bits(y) - low)
    m = b.from_bits(b.let((i & ((1 << f.mantissa) - 1)) + low))
    e = b.to_float(i >> f.mantissa)
    if denormal:
        e = b.select(small, e - float(f.mantissa), e)
    return e, b.let(m - 1.0)


def _tail(b: Body, f: Expr, r: tuple[float, ...]) -> tuple[Expr, Expr, Expr]:
    """``h``, ``s`` and ``h + R`` of ``log(1 + f) = f - (h - s * (h + R))``."""
    s = b.let(f / b.let(f + 2.0))
    z = b.let(s * s)
    h = b.let(b.let(f * 0.5) * f)
    return h, s, b.fma(z, b.poly(z, r), h)


def _edges(b: Body, x: Expr, y: Expr) -> Expr:
    """A logarithm for all x, from its value ``y`` for finite x > 0."""
    below = b.select(Binary("==", x, b.c(0.0), "bool"), b.c(-_INF), b.c(_NAN))
    return b.select(x > 0.0, b.select(x > b.format.max, x, y), below)


def log(b: Body, x: Expr) -> Expr:
    """The natural logarithm."""
    e, f = _reduce(b, x)
    h, s, hr = _tail(b, f, _R[b.dtype])
    high, low = _LN2[b.dtype]
    t = b.fma(s, hr, b.let(e * low))
    return _edges(b, x, b.fma(e, high, b.let(f + b.let(t - h))))


def _based(b: Body, x: Expr, base: int) -> Expr:
    e, f = _reduce(b, x)
    h, s, hr = _tail(b, f, _R[b.dtype])
    t = b.let(h - b.let(s * hr))
    high = b.let(f - t)
    low = b.let(b.let(f - high) - t)
    (k, k_low), (two, two_low) = _BASES[base, b.dtype]
    y = b.let(high * k)
    rest = b.let(b.fma(high, k, -y) + b.fma(high, k_low, b.let(low * k)))
    if two_low:
        rest = b.fma(e, two_low, rest)
    w = b.fma(e, two, y)
    lost = b.let(b.fma(e, two, -w) + y)
    return _edges(b, x, b.let(w + b.let(lost + rest)))


def log2(b: Body, x: Expr) -> Expr:
    """The logarithm to base 2."""
    return _based(b, x, 2)


def log10(b: Body, x: Expr) -> Expr:
    """The logarithm to base 10."""
    return _based(b, x, 10)


def log1p(b: Body, x: Expr) -> Expr:
    """``log(u) + c / u`` with ``u + c = 1 + x`` exactly (Knuth's sum)."""
    u = b.let(x + 1.0)
    v = b.let(u - 1.0)
    c = b.let(b.let(b.c(1.0) - b.let(u - v)) + b.let(x - v))
    e, f = _reduce(b, u, denormal=False)
    h, s, hr = _tail(b, f, _R[b.dtype])
    high, low = _LN2[b.dtype]
    t = b.fma(s, hr, b.fma(e, low, b.let(c / u)))
    y = b.fma(e, high, b.let(f + b.let(t - h)))
    return b.select(b.call("abs", x) < b.format.tiny, x, _edges(b, u, y))


def _log2_in_float64(b: Body, a: Expr) -> tuple[Body, Expr]:
    """log2 of a float32 >= 0 as a float64 with a relative error below 2**-36."""
    w = b.other("float64")
    x = w.let(cast(a, "float64"))
    e, f = _reduce(w, x, denormal=False)
    h, s, hr = _tail(w, f, _R_SHORT)
    ln = w.let(f - w.let(h - w.let(s * hr)))
    return w, w.fma(ln, 1.4426950408889634, e)


def power(b: Body, x: Expr, y: Expr) -> Expr:
    """``2 ** (y * log2(|x|))`` in float64, and the special cases of C99."""
    f = b.format
    a = b.call("abs", x)
    w, ln = _log2_in_float64(b, a)
    zero = Binary("==", a, b.c(0.0), "bool")
    edge = w.select(a > f.max, w.c(_INF), w.select(zero, w.c(-_INF), w.c(_NAN)))
    inside = Binary("and", a > 0.0, a <= f.max, "bool")
    ln = w.select(inside, ln, edge)
    t = w.clamp(w.let(ln * cast(y, "float64")), -200.0, 200.0)
    n, i = w.nearest(t)
    r = w.let(t - n)
    p = w.let(r * w.poly(r, _EXP2_SHORT))
    s = w.power_of_two(i)
    return _power_cases(b, x, y, b.let(cast(w.fma(p, s, s), b.dtype)))


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

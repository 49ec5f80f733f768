"""log, log2, log10 and log1p.

``x = 2**e * m`` with m in [sqrt(1/2), sqrt(2)), f = m - 1 (exact), s = f / (2 + f) and
``log(m) = 2 atanh(s) = f - (h - s * (h + R(s*s)))`` with h = f*f/2 (as in Sun's fdlibm), R by
Remez' exchange algorithm. Denormal x is scaled first. Logarithms to other bases carry the rounding
error of log(m) along as a second number (Dekker's sums, 1971).
"""

from __future__ import annotations

from loopwright.ir.expr import Binary, Expr, const
from loopwright.ir.math.definition import Body

_INF = float("inf")
_NAN = float("nan")
#: (2 atanh(s) / s - 2) / z in z = s*s for |s| <= 0.1716; error of log below 2**-30 and 2**-59.
_R = {
    "float32": (0.6666677594184875, 0.39977532625198364, 0.2987198233604431),
    "float64": (0.6666666666666734, 0.3999999999941393, 0.2857142874257479, 0.2222219855227532,
                0.18183565491022818, 0.15314018898726375, 0.1479628387672067),
}  # fmt: skip
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


def reduced(b: Body, x: Expr, denormal: bool = True) -> tuple[Expr, Expr]:
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


def tail(b: Body, f: Expr, r: tuple[float, ...]) -> tuple[Expr, Expr, Expr]:
    """``h``, ``s`` and ``h + R`` of ``log(1 + f) = f - (h - s * (h + R))``."""
    s = b.let(f / b.let(f + 2.0))
    z = b.let(s * s)
    h = b.let(b.let(f * 0.5) * f)
    return h, s, b.mad(z, b.poly(z, r), h)


def _edges(b: Body, x: Expr, y: Expr) -> Expr:
    """A logarithm for all x, from its value ``y`` for finite x > 0."""
    below = b.select(Binary("==", x, b.c(0.0), "bool"), b.c(-_INF), b.c(_NAN))
    return b.select(x > 0.0, b.select(x > b.format.max, x, y), below)


def log(b: Body, x: Expr) -> Expr:
    e, f = reduced(b, x)
    h, s, hr = tail(b, f, _R[b.dtype])
    high, low = _LN2[b.dtype]
    t = b.mad(s, hr, b.let(e * low))
    return _edges(b, x, b.fma(e, high, b.let(f + b.let(t - h))))


def _based(b: Body, x: Expr, base: int) -> Expr:
    e, f = reduced(b, x)
    h, s, hr = tail(b, f, _R[b.dtype])
    t = b.let(h - b.let(s * hr))
    high = b.let(f - t)
    low = b.let(b.let(f - high) - t)
    (k, k_low), (two, two_low) = _BASES[base, b.dtype]
    y = b.let(high * k)
    rest = b.let(b.fma(high, k, -y) + b.mad(high, k_low, b.let(low * k)))
    if two_low:
        rest = b.mad(e, two_low, rest)
    w = b.fma(e, two, y)
    lost = b.let(b.fma(e, two, -w) + y)
    return _edges(b, x, b.let(w + b.let(lost + rest)))


def log2(b: Body, x: Expr) -> Expr:
    return _based(b, x, 2)


def log10(b: Body, x: Expr) -> Expr:
    return _based(b, x, 10)


def log1p(b: Body, x: Expr) -> Expr:
    """``log(u) + c / u`` with ``u + c = 1 + x`` exactly (Knuth's sum)."""
    u = b.let(x + 1.0)
    v = b.let(u - 1.0)
    c = b.let(b.let(b.c(1.0) - b.let(u - v)) + b.let(x - v))
    e, f = reduced(b, u, denormal=False)
    h, s, hr = tail(b, f, _R[b.dtype])
    high, low = _LN2[b.dtype]
    t = b.mad(s, hr, b.mad(e, low, b.let(c / u)))
    y = b.fma(e, high, b.let(f + b.let(t - h)))
    return b.select(b.call("abs", x) < b.format.tiny, x, _edges(b, u, y))

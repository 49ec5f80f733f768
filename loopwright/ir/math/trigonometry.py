"""sin, cos, tan and atan.

``x = n * pi/2 + r`` with r in [-pi/4, pi/4]: pi/2 is subtracted in three pieces with fma (Cody &
Waite) up to a limit; beyond it x is multiplied by as many digits of 2/pi as its exponent asks for,
and of every partial product only the rest modulo 4 is kept (Payne & Hanek, Radian reduction for
trigonometric functions, 1983), so that arguments of any size keep all their digits. sin(r) and
cos(r) are polynomials in r*r by Remez' exchange algorithm.
"""

from __future__ import annotations

from loopwright.ir.expr import Binary, Call, Expr, IfThenElse, cast, const
from loopwright.ir.math.definition import Body

_TWO_OVER_PI = 0.6366197723675814
#: pi/2 in three pieces, and pi/4 in two.
_HALF_PI = {
    "float32": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    "float64": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
_QUARTER_PI = {
    "float32": (0.7853981852531433, -2.1855694143368964e-08),
    "float64": (0.7853981633974483, 3.061616997868383e-17),
}
#: Up to here the three pieces do.
LIMIT = {"float32": 8192.0, "float64": 4194304.0}
#: (sin(r)/r - 1) / r**2 in r**2; error below 2**-37 and 2**-68 (2**-28 would cost 0.1 ulp).
_SIN = {
    "float32": (-0.1666666716337204, 0.008333329111337662, -0.00019839331798721105,
                2.718275254665059e-06),
    "float64": (-0.16666666666666666, 0.008333333333333323, -0.00019841269841255064,
                2.755731921418753e-06, -2.505210491081607e-08, 1.6058366527521092e-10,
                -7.578692841535703e-13),
}  # fmt: skip
#: (cos(r) - 1 + r**2/2) / r**4 in r**2; error below 2**-33 and 2**-64.
_COS = {
    "float32": (0.04166664555668831, -0.0013887364184483886, 2.4438102627755143e-05),
    "float64": (0.0416666666666666, -0.0013888888888874062, 2.480158728944281e-05,
                -2.755731434070357e-07, 2.087572165530048e-09, -1.1359561880616702e-11),
}  # fmt: skip
#: (atan(t)/t - 1) / t**2 in t**2 for |t| <= tan(pi/8); error below 2**-30 and 2**-64.
_ATAN = {
    "float32": (-0.33333316445350647, 0.19998487830162048, -0.14243830740451813,
                0.10595855116844177, -0.06083059310913086),
    "float64": (-0.33333333333333326, 0.1999999999999769, -0.14285714285390563,
                0.11111111088337312, -0.09090908150293237, 0.07692282889169007,
                -0.06666228686557744, 0.0587704070671614, -0.052185262159038036,
                0.04504045246503029, -0.03348601088826106, 0.015206899261474319),
}  # fmt: skip
#: 2/pi in digits of 29 bits, whose products with a float32 are exact in float64.
_DIGITS_29 = (0x145F306D, 0x19391054, 0x14FE13AB, 0x1D1F534D, 0x1B81B6C5, 0x5664F10, 0x1C820FF2)
#: 2/pi in digits of 53 bits.
_DIGITS_53 = (
    0x145F306DC9C882, 0x14A7F09D5F47D4, 0x1A6EE06DB14ACC, 0x13C439041FE516, 0x757BD778AC36E,
    0x91B8E909374B8, 0x324977504E8C, 0x121CFE1DEB1CB1, 0x534E7DD1046BE, 0x14BAED1213A671,
    0x18135A2FBF209C, 0x191D639835339F, 0x93908BF177BF2, 0xA0EC7FE25FFF7, 0x102CC07F79788C,
    0xB5A0A6D1F6D36, 0xFD9E4F96136E9, 0x1D18FD9A797FA8, 0x16BA93DD63F5F2, 0x1F17B3D0739F78,
    0x14A525D4D7F6BF, 0xC47E357421580, 0x198237E3DB5D5F, 0x10CFBC209AF436,
)  # fmt: skip
#: x is scaled down by so many bits and the digits up: neither product nor digit leaves the range.
_SCALE = 500
_TAN_EIGHTH, _TAN_THREE_EIGHTHS = 0.4142135623730951, 2.414213562373095


def _near(b: Body, x: Expr) -> tuple[Expr, Expr]:
    """``r`` and the integer ``n`` for |x| up to `LIMIT`."""
    f = b.format
    t = b.mad(x, _TWO_OVER_PI, f.magic)
    n = b.let(t - f.magic)
    r = x
    for piece in _HALF_PI[b.dtype]:
        r = b.fma(n, -piece, r)
    return r, b.bits(t)


def _far(b: Body, x: Expr) -> tuple[Expr, Expr]:
    """``r`` and ``n`` modulo 4 for any finite x; NaN for infinite ones."""
    w = b.other("float64")
    if b.dtype == "float32":
        wide = w.let(cast(x, "float64"))
        digits = [d * 2.0 ** (-29 * k - 29) for k, d in enumerate(_DIGITS_29)]
        terms = [_mod4(w, w.let(wide * d)) for d in digits]
    else:
        wide = w.let(x * 2.0**-_SCALE)
        terms = []
        for k, d in enumerate(_DIGITS_53):
            digit = d * 2.0 ** (_SCALE - 53 * k - 53)
            p = w.let(wide * digit)
            terms += [_mod4(w, p), _mod4(w, w.fma(wide, digit, -p))]
    high: Expr = terms[0]
    low: Expr = w.c(0.0)
    for t in terms[1:]:
        s = w.let(high + t)
        v = w.let(s - high)
        low = w.let(low + w.let(w.let(high - w.let(s - v)) + w.let(t - v)))
        high = s
    n, i = w.nearest(high)
    part = w.let(high - n)
    top, rest = _HALF_PI["float64"][:2]
    q = w.let(part + low)
    lost = w.let(w.let(part - q) + low)
    r = w.fma(q, top, w.fma(q, rest, w.let(lost * top)))
    return b.let(cast(r, b.dtype)), b.let(cast(i, b.integer))


def _mod4(b: Body, p: Expr) -> Expr:
    return b.fma(b.call("round", b.let(p * 0.25)), -4.0, p)


def _sin_cos(b: Body, r: Expr) -> tuple[Expr, Expr]:
    z = b.let(r * r)
    s = b.mad(b.let(r * z), b.poly(z, _SIN[b.dtype]), r)
    h = b.let(z * 0.5)
    w = b.let(b.c(1.0) - h)
    lost = b.let(b.let(b.c(1.0) - w) - h)
    return s, b.let(w + b.mad(b.let(z * z), b.poly(z, _COS[b.dtype]), lost))


def _wave(b: Body, r: Expr, n: Expr, shift: int) -> Expr:
    """``sin(r + (n + shift) * pi/2)``."""
    s, c = _sin_cos(b, r)
    n = b.let(n + const(shift, b.integer))
    y = b.select(Binary("==", b.let(n & 1), const(0, b.integer), "bool"), s, c)
    top = b.format.mantissa + b.exponent_bits
    return b.with_sign(y, b.let((n & 2) << (top - 1)))


def _tangent(b: Body, r: Expr, n: Expr) -> Expr:
    s, c = _sin_cos(b, r)
    even = b.let(Binary("==", b.let(n & 1), const(0, b.integer), "bool"))
    return b.let(b.select(even, s, -c) / b.select(even, c, s))


def _either(b: Body, x: Expr, large: str, y: Expr) -> Expr:
    """``y``, or another definition where x is beyond the limit."""
    big = b.call("abs", x) > LIMIT[b.dtype]
    return b.let(IfThenElse(big, Call(large, (x,), b.dtype), y, b.dtype))


def sin(b: Body, x: Expr) -> Expr:
    y = b.select(b.call("abs", x) < b.format.tiny, x, _wave(b, *_near(b, x), 0))
    return _either(b, x, "_sin_large", y)


def cos(b: Body, x: Expr) -> Expr:
    return _either(b, x, "_cos_large", _wave(b, *_near(b, x), 1))


def tan(b: Body, x: Expr) -> Expr:
    """The tangent: sin(r) / cos(r), or - cos(r) / sin(r) for odd n."""
    y = b.select(b.call("abs", x) < b.format.tiny, x, _tangent(b, *_near(b, x)))
    return _either(b, x, "_tan_large", y)


def sin_large(b: Body, x: Expr) -> Expr:
    return _wave(b, *_far(b, x), 0)


def cos_large(b: Body, x: Expr) -> Expr:
    return _wave(b, *_far(b, x), 1)


def tan_large(b: Body, x: Expr) -> Expr:
    return _tangent(b, *_far(b, x))


def atan(b: Body, x: Expr) -> Expr:
    """``atan(|x|) = base + atan(t)`` with t = a, (a - 1) / (a + 1) or -1 / a."""
    a = b.call("abs", x)
    middle, top = a > _TAN_EIGHTH, a > _TAN_THREE_EIGHTHS
    above = b.select(middle, b.let(a - 1.0), a)
    below = b.select(middle, b.let(a + 1.0), 1.0)
    t = b.let(b.select(top, -1.0, above) / b.select(top, a, below))
    high, low = _QUARTER_PI[b.dtype]
    base = b.select(top, 2 * high, b.select(middle, high, 0.0))
    rest = b.select(top, 2 * low, b.select(middle, low, 0.0))
    z = b.let(t * t)
    y = b.let(base + b.let(t + b.mad(b.let(t * z), b.poly(z, _ATAN[b.dtype]), rest)))
    return b.with_sign(y, b.sign(x))

"""Elementary functions of floats: exponentials, logarithms, powers, and those of angles."""

# Coefficients are by Remez' exchange algorithm (as in Muller, Elementary Functions, chapter 3),
# computed with 60 digits and then rounded to the format. ``fma`` is rounded once.

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from loopwright import dtypes
from loopwright.ir.expr import Binary, Call, Expr, IfThenElse, Var, cast, const
from loopwright.ir.math.definition import Definition, StepWriter

# ---------------------------------------------------------------- exp and its kin
#
# exp(x) = 2**n * exp(r) with n the nearest integer to x / ln 2 and r = x - n ln 2 in [-0.347,
# 0.347], where ln 2 is subtracted in two pieces with fma (Cody & Waite, Software Manual for the
# Elementary Functions, 1980). exp(r) = 1 + r + r*r*q(r), q with the weight r*r, so that the error
# counted is that of exp(r). 2**n is multiplied in two halves: overflow, and results that are
# denormal, come out rounded once.

_LOG2E = 1.4426950408889634
#: ln 2 in two pieces.
_LN2 = {
    "float32": (0.6931471824645996, -1.9046542121259336e-09),
    "float64": (0.6931471805599453, 2.3190468138462996e-17),
}
#: (exp(r) - 1 - r) / r**2 on [-ln2/2, ln2/2]; error of exp below 2**-28 and 2**-64.
_EXP = {
    "float32": (0.5, 0.166665181517601, 0.04166620224714279, 0.008368889801204205,
                0.0013950590509921312),
    "float64": (0.5, 0.16666666666666685, 0.04166666666666673, 0.00833333333331674,
                0.001388888888885868, 0.000198412698970532, 2.4801587373416604e-05,
                2.7557234242113982e-06, 2.7557233560560614e-07, 2.5112238128707057e-08,
                2.092689688819382e-09),
}  # fmt: skip
#: (2**r - 1) / r on [-1/2, 1/2]; error below 2**-28 and 2**-64.
EXP2 = {
    "float32": (0.6931471824645996, 0.24022650718688965, 0.055503278970718384,
                0.009618003852665424, 0.001340029644779861, 0.00015476407133974135),
    "float64": (0.6931471805599453, 0.24022650695910072, 0.0555041086648217, 0.009618129107628496,
                0.0013333558146390418, 0.00015403530393341035, 1.5252733856257484e-05,
                1.321548683311128e-06, 1.0178051200411979e-07, 7.054888230278157e-09,
                4.456675076107955e-10, 2.5741837392737697e-11),
}  # fmt: skip
#: Outside of these exp is 0 or infinite.
_EXP_RANGE = {"float32": (-104.5, 89.0), "float64": (-746.0, 710.0)}
_EXP2_RANGE = {"float32": (-150.5, 128.5), "float64": (-1075.5, 1024.5)}
#: From here on exp(x) - 1 and exp(x) + 1 are exp(x), and exp(-x) vanishes beside 1.
_LARGE = {"float32": 20.0, "float64": 40.0}
#: erf(x)/x - 1 in x**2 for |x| <= 0.9275; error below 2**-31 and 2**-65.
_ERF = {
    "float32": (0.12837916612625122, -0.37612634897232056, 0.11283696442842484,
                -0.026859406381845474, 0.00520097091794014, -0.0008141262223944068,
                8.361383515875787e-05),
    "float64": (0.1283791670955126, -0.37612638903183754, 0.11283791670955076,
                -0.02686617064511865, 0.005223977625273922, -0.0008548327010070907,
                0.00012055332298332256, -1.4925626934919129e-05, 1.646156374343597e-06,
                -1.6356925905078414e-07, 1.4708998140085972e-08, -1.1583288092992326e-09,
                6.350809209972791e-11),
}  # fmt: skip
#: log(erfc(x)) on [0.9275, 4] and [0.9275, 6]; error of erf below 2**-29 and 2**-63.
_LOG_ERFC = {
    "float32": (-0.0002187729551224038, -1.1275790929794312, -0.6373465657234192,
                -0.10378589481115341, 0.022155992686748505, -0.0030252609867602587,
                0.00019409117521718144),
    "float64": (2.6987227866476636e-08, -1.1283795147908111, -0.6366176580231123,
                -0.10278067812037021, 0.019150184743013096, 0.00016531304316244036,
                -0.0016272345660312804, 0.0005036537802124142, 6.193621643656687e-05,
                -0.00013734355207889343, 7.91810014181213e-05, -3.068486772760611e-05,
                9.109163795307799e-06, -2.1566828635398804e-06, 4.1205476425923624e-07,
                -6.338793197889701e-08, 7.755393285750157e-09, -7.377838901083562e-10,
                5.259994355732922e-11, -2.6428067174923305e-12, 8.338464262317219e-14,
                -1.2417009103749474e-15),
}  # fmt: skip
_ERF_SPLIT = 0.9275
#: From here on erf(x) rounds to 1.
_ERF_ONE = {"float32": 4.0, "float64": 6.0}


class ExpParts(NamedTuple):
    """``exp(x) = 2**n * (1 + m)``, n an integer."""

    n: Expr
    m: Expr


def _parts(b: StepWriter, x: Expr) -> ExpParts:
    f = b.format
    t = b.mad(x, _LOG2E, f.magic)
    n = b.let(t - f.magic)
    high, low = _LN2[b.dtype]
    r = b.mad(n, -low, b.fma(n, -high, x))
    q = b.poly(r, _EXP[b.dtype])
    m = b.mad(b.let(r * r), q, r)
    return ExpParts(b.let(b.bits(t) - const(f.magic_bits, f.integer)), m)


def scaled(b: StepWriter, p: ExpParts) -> Expr:
    """``2**n * (1 + m)`` for any n within twice the exponent's range."""
    half = b.let(p.n >> 1)
    s = b.power_of_two(half)
    return b.let(b.mad(p.m, s, s) * b.power_of_two(b.let(p.n - half)))


def exp(b: StepWriter, x: Expr) -> Expr:
    return scaled(b, _parts(b, b.clamp(x, *_EXP_RANGE[b.dtype])))


def exp2(b: StepWriter, x: Expr) -> Expr:
    """2 to the power x: the reduction is exact."""
    x = b.clamp(x, *_EXP2_RANGE[b.dtype])
    n, i = b.nearest(x)
    r = b.let(x - n)
    return scaled(b, ExpParts(i, b.let(r * b.poly(r, EXP2[b.dtype]))))


def _minus_one(b: StepWriter, p: ExpParts) -> Expr:
    """``exp(x) - 1`` for n below the largest exponent."""
    s = b.power_of_two(p.n)
    return b.mad(p.m, s, b.let(s - 1.0))


def expm1(b: StepWriter, x: Expr) -> Expr:
    """``exp(x) - 1 = 2 * (m * h + (h - 1/2))`` with ``h = 2**(n-1)``, which does not overflow."""
    p = _parts(b, b.clamp(x, -_LARGE[b.dtype], _EXP_RANGE[b.dtype][1]))
    h = b.power_of_two(b.let(p.n - 1))
    y = b.let(b.mad(p.m, h, b.let(h - 0.5)) * 2.0)
    return b.select(b.call("abs", x) < b.format.tiny, x, y)


def sigmoid(b: StepWriter, x: Expr) -> Expr:
    """``1 / (1 + e)`` or ``e / (1 + e)`` with ``e = exp(-|x|)``, which cannot overflow."""
    e = exp(b, b.let(-b.call("abs", x)))
    return b.let(b.select(x < 0.0, e, 1.0) / b.let(e + 1.0))


def tanh(b: StepWriter, x: Expr) -> Expr:
    """``m / (m + 2)`` with ``m = exp(2|x|) - 1``, and the sign of x."""
    a = b.call("abs", x)
    m = _minus_one(b, _parts(b, b.clamp(b.let(a + a), 0.0, _LARGE[b.dtype])))
    y = b.with_sign(b.let(m / b.let(m + 2.0)), b.sign(x))
    return b.select(a < b.format.tiny, x, y)


def _half_exp(b: StepWriter, a: Expr) -> tuple[ExpParts, Expr]:
    """The parts of ``exp(a)``, a >= 0, and half of it, which overflows later."""
    p = _parts(b, b.clamp(a, 0.0, _EXP_RANGE[b.dtype][1] + 1.0))
    return p, scaled(b, ExpParts(b.let(p.n - 1), p.m))


def sinh(b: StepWriter, x: Expr) -> Expr:
    """``(m + m / (m + 1)) / 2`` with ``m = exp(|x|) - 1``; exp(|x|) / 2 for large x."""
    a = b.call("abs", x)
    p, half = _half_exp(b, a)
    m = _minus_one(b, p)
    small = b.let((m + m / b.let(m + 1.0)) * 0.5)
    y = b.with_sign(b.select(a > _LARGE[b.dtype], half, small), b.sign(x))
    return b.select(a < b.format.tiny, x, y)


def cosh(b: StepWriter, x: Expr) -> Expr:
    """``h + 1 / (4 h)`` with ``h = exp(|x|) / 2``."""
    _, half = _half_exp(b, b.call("abs", x))
    return b.let(half + b.let(b.c(0.25) / half))


def erf(b: StepWriter, x: Expr) -> Expr:
    """``x * (1 + P(x*x))`` near 0; beyond, ``1 - exp(Q(|x|))`` with Q the logarithm of erfc."""
    a = b.call("abs", x)
    near = b.mad(x, b.poly(b.let(x * x), _ERF[b.dtype]), x)
    top = b.select(a > _ERF_ONE[b.dtype], _ERF_ONE[b.dtype], a)
    p = _parts(b, b.poly(top, _LOG_ERFC[b.dtype]))
    s = b.power_of_two(p.n)
    far = b.with_sign(b.let(b.c(1.0) - b.mad(p.m, s, s)), b.sign(x))
    return b.select(a < _ERF_SPLIT, near, far)


def rsqrt(b: StepWriter, x: Expr) -> Expr:
    """One division and one square root, both rounded."""
    return b.let(b.c(1.0) / b.let(Call("sqrt", (x,), b.dtype)))


# ---------------------------------------------------------------- logarithms
#
# x = 2**e * m with m in [sqrt(1/2), sqrt(2)), f = m - 1 (exact), s = f / (2 + f) and log(m) = 2
# atanh(s) = f - (h - s * (h + R(s*s))) with h = f*f/2 (as in Sun's fdlibm). Denormal x is scaled
# first. Logarithms to other bases carry the rounding error of log(m) along as a second number
# (Dekker's sums, 1971).

_INF = float("inf")
_NAN = float("nan")
#: (2 atanh(s) / s - 2) / z in z = s*s for |s| <= 0.1716; error of log below 2**-30 and 2**-59.
_R = {
    "float32": (0.6666677594184875, 0.39977532625198364, 0.2987198233604431),
    "float64": (0.6666666666666734, 0.3999999999941393, 0.2857142874257479, 0.2222219855227532,
                0.18183565491022818, 0.15314018898726375, 0.1479628387672067),
}  # fmt: skip
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


def reduced(b: StepWriter, x: Expr, denormal: bool = True) -> tuple[Expr, Expr]:
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


def tail(b: StepWriter, f: Expr, r: tuple[float, ...]) -> tuple[Expr, Expr, Expr]:
    """``h``, ``s`` and ``h + R`` of ``log(1 + f) = f - (h - s * (h + R))``."""
    s = b.let(f / b.let(f + 2.0))
    z = b.let(s * s)
    h = b.let(b.let(f * 0.5) * f)
    return h, s, b.mad(z, b.poly(z, r), h)


def _log_edges(b: StepWriter, x: Expr, y: Expr) -> Expr:
    """A logarithm for all x, from its value ``y`` for finite x > 0."""
    below = b.select(Binary("==", x, b.c(0.0), "bool"), b.c(-_INF), b.c(_NAN))
    return b.select(x > 0.0, b.select(x > b.format.max, x, y), below)


def log(b: StepWriter, x: Expr) -> Expr:
    e, f = reduced(b, x)
    h, s, hr = tail(b, f, _R[b.dtype])
    high, low = _LN2[b.dtype]
    t = b.mad(s, hr, b.let(e * low))
    return _log_edges(b, x, b.fma(e, high, b.let(f + b.let(t - h))))


def _based(b: StepWriter, x: Expr, base: int) -> Expr:
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
    return _log_edges(b, x, b.let(w + b.let(lost + rest)))


log2, log10 = partial(_based, base=2), partial(_based, base=10)


def log1p(b: StepWriter, x: Expr) -> Expr:
    """``log(u) + c / u`` with ``u + c = 1 + x`` exactly (Knuth's sum)."""
    u = b.let(x + 1.0)
    v = b.let(u - 1.0)
    c = b.let(b.let(b.c(1.0) - b.let(u - v)) + b.let(x - v))
    e, f = reduced(b, u, denormal=False)
    h, s, hr = tail(b, f, _R[b.dtype])
    high, low = _LN2[b.dtype]
    t = b.mad(s, hr, b.mad(e, low, b.let(c / u)))
    y = b.fma(e, high, b.let(f + b.let(t - h)))
    return b.select(b.call("abs", x) < b.format.tiny, x, _log_edges(b, u, y))


# ---------------------------------------------------------------- powers
#
# 2 ** (y * log2(|x|)) with a logarithm that has more digits than the result. The product is as
# large as 1024, so the logarithm needs ten bits more. float32 computes it in float64; float64 in
# pairs of numbers whose sum it is (Dekker's and Knuth's error-free sums and products). Integers are
# multiplied, by the bits of the exponent.

#: (2 atanh(s) / s - 2) / z in z = s*s, for log to 2**-37.
_R_SHORT = (0.6666666564469523, 0.4000033537872345, 0.2853729567016952, 0.23582412989070314)
#: (2**r - 1) / r to 2**-34.
_EXP2_SHORT = (0.6931471805416141, 0.24022651076322044, 0.05550410962641805, 0.009618036834626897,
               0.0013333430758639842, 0.00015467136643807907, 1.531495031683652e-05)  # fmt: skip
#: ((2 atanh(s) / s - 2) / z - 2/3) / z, for log to 2**-73; 2/3 in two pieces, and what
#: `_LOG2E` lacks of log2(e).
_Q = (0.3999999999999998, 0.2857142857144512, 0.22222222217534288, 0.18181818870596494,
      0.1538455685107649, 0.13336318204761305, 0.11674802261766992,
      0.11989150392198525)  # fmt: skip
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
_LOG2E_LOW = 2.0355273740931033e-17
#: Products beyond are cut: the result is 0 or infinite.
_FAR = {"float32": 200.0, "float64": 1100.0}


class _Pair(NamedTuple):
    """An unevaluated sum; ``low`` is at most about a unit of ``high``."""

    high: Expr
    low: Expr


def _sum(b: StepWriter, large: Expr, small: Expr, low: Expr) -> _Pair:
    """``large + small + low`` where ``large`` is 0 or not the smaller one."""
    high = b.let(large + small)
    return _Pair(high, b.let(b.let(b.let(large - high) + small) + low))


def _product(b: StepWriter, x: _Pair, y: _Pair) -> _Pair:
    high = b.let(x.high * y.high)
    low = b.fma(x.high, y.high, -high)
    return _Pair(high, b.mad(x.high, y.low, b.mad(x.low, y.high, low)))


def _log2_pair(b: StepWriter, a: Expr) -> _Pair:
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
    y = _product(b, ln, _Pair(b.c(_LOG2E), b.c(_LOG2E_LOW)))
    return _sum(b, e, y.high, y.low)


def _log2_short(w: StepWriter, x: Expr) -> Expr:
    """log2 of a float64 > 0 that came from a float32, with a relative error below 2**-36."""
    e, f = reduced(w, x, denormal=False)
    h, s, hr = tail(w, f, _R_SHORT)
    ln = w.let(f - w.let(h - w.let(s * hr)))
    return w.fma(ln, _LOG2E, e)


def _log_of_magnitude(b: StepWriter, a: Expr, ln: Expr) -> Expr:
    """Logarithm of ``a >= 0``, from ``ln``, for zero, infinity and NaN too."""
    zero = Binary("==", a, b.c(0.0), "bool")
    edge = b.select(a > b.format.max, b.c(_INF), b.select(zero, b.c(-_INF), b.c(_NAN)))
    return b.select(Binary("and", a > 0.0, a <= b.format.max, "bool"), ln, edge)


def _size_float32(b: StepWriter, a: Expr, y: Expr) -> Expr:
    """``a ** y`` for ``a >= 0``, in float64."""
    w = b.other("float64")
    x = w.let(cast(a, "float64"))
    ln = _log_of_magnitude(w, x, _log2_short(w, x))
    t = w.clamp(w.let(ln * cast(y, "float64")), -_FAR[b.dtype], _FAR[b.dtype])
    n, i = w.nearest(t)
    r = w.let(t - n)
    p = w.let(r * w.poly(r, _EXP2_SHORT))
    s = w.power_of_two(i)
    return b.let(cast(w.fma(p, s, s), b.dtype))


def _size_float64(b: StepWriter, a: Expr, y: Expr) -> Expr:
    """``a ** y`` for ``a >= 0``, with the logarithm and the product as pairs."""
    ln = _log2_pair(b, a)
    high = _log_of_magnitude(b, a, ln.high)
    far = _FAR[b.dtype]
    t = b.let(high * y)
    near = Binary("and", t < far, t > -far, "bool")
    low = b.select(near, b.mad(ln.low, y, b.fma(high, y, -t)), 0.0)
    t = b.clamp(t, -far, far)
    n, i = b.nearest(t)
    r = b.let(b.let(t - n) + low)
    return scaled(b, ExpParts(i, b.let(r * b.poly(r, EXP2[b.dtype]))))


def power(b: StepWriter, x: Expr, y: Expr) -> Expr:
    """``x ** y`` with the special cases of C99."""
    size = _size_float32 if b.dtype == "float32" else _size_float64
    return _power_cases(b, x, y, size(b, b.call("abs", x), y))


def _power_cases(b: StepWriter, x: Expr, y: Expr, size: Expr) -> Expr:
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
        "or", Binary("==", y, b.c(0.0), "bool"), Binary("==", x, b.c(1.0), "bool"), "bool"
    )
    return b.select(trivial, 1.0, out)


def integer_power(dtype: str) -> Definition:
    """``x ** y`` of integers, which wraps; negative y gives ``1 / x ** -y`` cut to an integer."""
    b = StepWriter("float32")
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


# ---------------------------------------------------------------- angles
#
# x = n * pi/2 + r with r in [-pi/4, pi/4]: pi/2 is subtracted in three pieces with fma (Cody &
# Waite) up to a limit; beyond it x is multiplied by as many digits of 2/pi as its exponent asks
# for, and of every partial product only the rest modulo 4 is kept (Payne & Hanek, Radian reduction
# for trigonometric functions, 1983), so that arguments of any size keep all their digits. sin(r)
# and cos(r) are polynomials in r*r.

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


def _near(b: StepWriter, x: Expr) -> tuple[Expr, Expr]:
    """``r`` and the integer ``n`` for |x| up to `LIMIT`."""
    f = b.format
    t = b.mad(x, _TWO_OVER_PI, f.magic)
    n = b.let(t - f.magic)
    r = x
    for piece in _HALF_PI[b.dtype]:
        r = b.fma(n, -piece, r)
    return r, b.bits(t)


def _far(b: StepWriter, x: Expr) -> tuple[Expr, Expr]:
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


def _mod4(b: StepWriter, p: Expr) -> Expr:
    return b.fma(b.call("round", b.let(p * 0.25)), -4.0, p)


def _sin_cos(b: StepWriter, r: Expr) -> tuple[Expr, Expr]:
    z = b.let(r * r)
    s = b.mad(b.let(r * z), b.poly(z, _SIN[b.dtype]), r)
    h = b.let(z * 0.5)
    w = b.let(b.c(1.0) - h)
    lost = b.let(b.let(b.c(1.0) - w) - h)
    return s, b.let(w + b.mad(b.let(z * z), b.poly(z, _COS[b.dtype]), lost))


def _wave(b: StepWriter, r: Expr, n: Expr, shift: int) -> Expr:
    """``sin(r + (n + shift) * pi/2)``."""
    s, c = _sin_cos(b, r)
    n = b.let(n + const(shift, b.integer))
    y = b.select(Binary("==", b.let(n & 1), const(0, b.integer), "bool"), s, c)
    return b.with_sign(y, b.let((n & 2) << (b.sign_bit - 1)))


def _tangent(b: StepWriter, r: Expr, n: Expr) -> Expr:
    s, c = _sin_cos(b, r)
    even = b.let(Binary("==", b.let(n & 1), const(0, b.integer), "bool"))
    return b.let(b.select(even, s, -c) / b.select(even, c, s))


def _either(b: StepWriter, x: Expr, large: str, y: Expr) -> Expr:
    """``y``, or another definition where x is beyond the limit."""
    big = b.call("abs", x) > LIMIT[b.dtype]
    return b.let(IfThenElse(big, Call(large, (x,), b.dtype), y, b.dtype))


def sin(b: StepWriter, x: Expr) -> Expr:
    y = b.select(b.call("abs", x) < b.format.tiny, x, _wave(b, *_near(b, x), 0))
    return _either(b, x, "_sin_large", y)


def cos(b: StepWriter, x: Expr) -> Expr:
    return _either(b, x, "_cos_large", _wave(b, *_near(b, x), 1))


def tan(b: StepWriter, x: Expr) -> Expr:
    """The tangent: sin(r) / cos(r), or - cos(r) / sin(r) for odd n."""
    y = b.select(b.call("abs", x) < b.format.tiny, x, _tangent(b, *_near(b, x)))
    return _either(b, x, "_tan_large", y)


def sin_large(b: StepWriter, x: Expr) -> Expr:
    return _wave(b, *_far(b, x), 0)


def cos_large(b: StepWriter, x: Expr) -> Expr:
    return _wave(b, *_far(b, x), 1)


def tan_large(b: StepWriter, x: Expr) -> Expr:
    return _tangent(b, *_far(b, x))


def atan(b: StepWriter, x: Expr) -> Expr:
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

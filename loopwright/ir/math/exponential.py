"""exp and its kin: exp2, expm1, sigmoid, tanh, sinh, cosh, erf.

``exp(x) = 2**n * exp(r)`` with n the nearest integer to x / ln 2 and r = x - n ln 2 in
[-0.347, 0.347], where ln 2 is subtracted in two pieces with fma (Cody & Waite, Software Manual for
the Elementary Functions, 1980). ``exp(r) = 1 + r + r*r*q(r)``, q by Remez' exchange algorithm (as
in Muller, Elementary Functions, chapter 3) with the weight r*r, so that the error counted is that
of exp(r). 2**n is multiplied in two halves: overflow, and results that are denormal, come out
rounded once. Coefficients were computed with 60 digits and then rounded to the format.
"""

from __future__ import annotations

from typing import NamedTuple

from loopwright.ir.expr import Call, Expr, const
from loopwright.ir.math.definition import Body

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


class Parts(NamedTuple):
    """``exp(x) = 2**n * (1 + m)``, n an integer."""

    n: Expr
    m: Expr


def _parts(b: Body, x: Expr) -> Parts:
    f = b.format
    t = b.mad(x, _LOG2E, f.magic)
    n = b.let(t - f.magic)
    high, low = _LN2[b.dtype]
    r = b.mad(n, -low, b.fma(n, -high, x))
    q = b.poly(r, _EXP[b.dtype])
    m = b.mad(b.let(r * r), q, r)
    return Parts(b.let(b.bits(t) - const(f.magic_bits, f.integer)), m)


def scaled(b: Body, p: Parts) -> Expr:
    """``2**n * (1 + m)`` for any n within twice the exponent's range."""
    half = b.let(p.n >> 1)
    s = b.power_of_two(half)
    return b.let(b.mad(p.m, s, s) * b.power_of_two(b.let(p.n - half)))


def exp(b: Body, x: Expr) -> Expr:
    return scaled(b, _parts(b, b.clamp(x, *_EXP_RANGE[b.dtype])))


def exp2(b: Body, x: Expr) -> Expr:
    """2 to the power x: the reduction is exact."""
    x = b.clamp(x, *_EXP2_RANGE[b.dtype])
    n, i = b.nearest(x)
    r = b.let(x - n)
    return scaled(b, Parts(i, b.let(r * b.poly(r, EXP2[b.dtype]))))


def _minus_one(b: Body, p: Parts) -> Expr:
    """``exp(x) - 1`` for n below the largest exponent."""
    s = b.power_of_two(p.n)
    return b.mad(p.m, s, b.let(s - 1.0))


def expm1(b: Body, x: Expr) -> Expr:
    """``exp(x) - 1 = 2 * (m * h + (h - 1/2))`` with ``h = 2**(n-1)``, which does not overflow."""
    p = _parts(b, b.clamp(x, -_LARGE[b.dtype], _EXP_RANGE[b.dtype][1]))
    h = b.power_of_two(b.let(p.n - 1))
    y = b.let(b.mad(p.m, h, b.let(h - 0.5)) * 2.0)
    return b.select(b.call("abs", x) < b.format.tiny, x, y)


def sigmoid(b: Body, x: Expr) -> Expr:
    """``1 / (1 + e)`` or ``e / (1 + e)`` with ``e = exp(-|x|)``, which cannot overflow."""
    e = exp(b, b.let(-b.call("abs", x)))
    return b.let(b.select(x < 0.0, e, 1.0) / b.let(e + 1.0))


def tanh(b: Body, x: Expr) -> Expr:
    """``m / (m + 2)`` with ``m = exp(2|x|) - 1``, and the sign of x."""
    a = b.call("abs", x)
    m = _minus_one(b, _parts(b, b.clamp(b.let(a + a), 0.0, _LARGE[b.dtype])))
    y = b.with_sign(b.let(m / b.let(m + 2.0)), b.sign(x))
    return b.select(a < b.format.tiny, x, y)


def _half_exp(b: Body, a: Expr) -> tuple[Parts, Expr]:
    """The parts of ``exp(a)``, a >= 0, and half of it, which overflows later."""
    p = _parts(b, b.clamp(a, 0.0, _EXP_RANGE[b.dtype][1] + 1.0))
    return p, scaled(b, Parts(b.let(p.n - 1), p.m))


def sinh(b: Body, x: Expr) -> Expr:
    """``(m + m / (m + 1)) / 2`` with ``m = exp(|x|) - 1``; exp(|x|) / 2 for large x."""
    a = b.call("abs", x)
    p, half = _half_exp(b, a)
    m = _minus_one(b, p)
    small = b.let((m + m / b.let(m + 1.0)) * 0.5)
    y = b.with_sign(b.select(a > _LARGE[b.dtype], half, small), b.sign(x))
    return b.select(a < b.format.tiny, x, y)


def cosh(b: Body, x: Expr) -> Expr:
    """``h + 1 / (4 h)`` with ``h = exp(|x|) / 2``."""
    _, half = _half_exp(b, b.call("abs", x))
    return b.let(half + b.let(b.c(0.25) / half))


def erf(b: Body, x: Expr) -> Expr:
    """``x * (1 + P(x*x))`` near 0; beyond, ``1 - exp(Q(|x|))`` with Q the logarithm of erfc."""
    a = b.call("abs", x)
    near = b.mad(x, b.poly(b.let(x * x), _ERF[b.dtype]), x)
    top = b.select(a > _ERF_ONE[b.dtype], _ERF_ONE[b.dtype], a)
    p = _parts(b, b.poly(top, _LOG_ERFC[b.dtype]))
    s = b.power_of_two(p.n)
    far = b.with_sign(b.let(b.c(1.0) - b.mad(p.m, s, s)), b.sign(x))
    return b.select(a < _ERF_SPLIT, near, far)


def rsqrt(b: Body, x: Expr) -> Expr:
    """One division and one square root, both rounded."""
    return b.let(b.c(1.0) / b.let(Call("sqrt", (x,), b.dtype)))

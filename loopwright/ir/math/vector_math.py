"""The functions of floats that code generators write out themselves, as definitions in the IR."""

# One definition serves scalar and vector code of every back end, so a result does not depend on the
# schedule. Their error bounds are in ``docs/math.md``; `fuzzing.ulp` measures them.

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from loopwright import dtypes
from loopwright.ir.expr import Binary, Expr, Var, cast, const
from loopwright.ir.math import elementary
from loopwright.ir.math.definition import FORMATS, Definition, StepWriter

_UNARY: dict[str, Callable[[StepWriter, Expr], Expr]] = {
    name: getattr(elementary, name.removeprefix("_"))
    for name in (
        "exp", "exp2", "expm1", "sigmoid", "tanh", "sinh", "cosh", "erf", "rsqrt", "log", "log2",
        "log10", "log1p", "sin", "cos", "tan", "atan", "_sin_large", "_cos_large", "_tan_large",
    )
}  # fmt: skip
#: Names that have a definition, by dtype; those with ``_`` are parts of others.
DEFINED = {"float32": (*_UNARY, "pow", "fma"), "float64": (*_UNARY, "pow")}


@lru_cache(maxsize=128)
def definition(fn: str, dtype: str) -> Definition | None:
    """The definition of a function (of ``fma`` for CPUs without it; of integers only ``pow``), or
    None."""
    if fn == "pow" and dtypes.is_int(dtype):
        return elementary.integer_power(dtype)
    if dtype not in FORMATS or fn not in DEFINED[dtype]:
        return None
    b = StepWriter(dtype)
    x = Var("x", dtype)
    if fn == "fma":
        return fused(b)
    if fn == "pow":
        y = Var("y", dtype)
        return b.finish(fn, (x, y), elementary.power(b, x, y))
    return b.finish(fn, (x,), _UNARY[fn](b, x))


def fused(b: StepWriter) -> Definition:
    """``a * b + c`` of float32 rounded once, by float64 (Boldo & Melquiond, 2008)."""
    # The product is exact. The sum is rounded to odd (when it is inexact its last bit is made 1),
    # after which rounding to float32 gives what rounding once would have.
    x, y, z = (Var(n, "float32") for n in "abc")
    w = b.other("float64")
    p, c = w.let(w.let(cast(x, "float64")) * cast(y, "float64")), w.let(cast(z, "float64"))
    s = w.let(p + c)
    v = w.let(s - p)
    lost = w.let(w.let(p - w.let(s - v)) + w.let(c - v))
    bits = w.bits(s)
    even = Binary("==", bits & 1, const(0, "int64"), "bool")
    inexact = Binary("or", lost > 0.0, lost < 0.0, "bool")
    away = Binary("==", lost > 0.0, s > 0.0, "bool")
    step = w.select(away, const(1, "int64"), const(-1, "int64"))
    odd = w.select(Binary("and", inexact, even, "bool"), w.let(bits + step), bits)
    return b.finish("fma", (x, y, z), b.let(cast(w.from_bits(odd), "float32")))


# ---------------------------------------------------------------- float16 and bfloat16
#
# Formats of storage, computed with in float32. A value of these dtypes is kept as the float32 that
# equals it; every operation rounds its float32 result to the format ("narrow"), to nearest even.
# These are the conversions for CPUs that lack the instructions, in terms of float32 and int32:
# ``narrow`` (float32 to the nearest value of the format, as a float32), ``pack`` (such a value to
# its bits) and ``unpack`` (bits to the value). NaN stays NaN; results beyond the largest value are
# infinite; denormals are kept.

#: Bits of float32 values: 2**-14, below which float16 is denormal; 2**16; infinity.
_DENORMAL, _TOO_LARGE, _INFINITY = 0x38800000, 0x47800000, 0x7F800000


def _i(value: int) -> Expr:
    return const(value, "int32")


def unpack_float16(b: StepWriter, h: Expr) -> Expr:
    """The exponent is moved by a multiplication, which takes care of denormals."""
    low = b.let((h & 0x7FFF) << 13)
    moved = b.bits(b.let(b.from_bits(low) * 2.0**112))
    special = Binary("==", b.let(h & 0x7C00), _i(0x7C00), "bool")
    size = b.select(special, b.let(low | _INFINITY), moved)
    return b.from_bits(b.let(size | ((h & 0x8000) << 16)))


def pack_float16(b: StepWriter, x: Expr) -> Expr:
    """Rounds as well; denormals are rounded by adding 1/2, whose last bit is their unit."""
    bits = b.bits(x)
    a = b.let(bits & 0x7FFFFFFF)
    small = b.let(b.bits(b.let(b.from_bits(a) + 0.5)) - 0x3F000000)
    odd = b.let((a >> 13) & 1)
    usual = b.let((a - (112 << 23) + 0xFFF + odd) >> 13)
    size = b.select(a < _DENORMAL, small, usual)
    size = b.select(a >= _TOO_LARGE, b.select(a > _INFINITY, _i(0x7E00), _i(0x7C00)), size)
    return b.let(size | ((bits >> 16) & 0x8000))


def narrow_float16(b: StepWriter, x: Expr) -> Expr:
    return unpack_float16(b, pack_float16(b, x))


def unpack_bfloat16(b: StepWriter, h: Expr) -> Expr:
    return b.from_bits(b.let(h << 16))


def pack_bfloat16(b: StepWriter, x: Expr) -> Expr:
    """The upper half of a value that is of the format."""
    return b.let(b.bits(x) >> 16)


def narrow_bfloat16(b: StepWriter, x: Expr) -> Expr:
    """Half a unit is added, less one bit where the last kept bit is 0."""
    bits = b.bits(x)
    up = b.let(bits + (((bits >> 16) & 1) + 0x7FFF))
    nan = Binary("!=", x, x, "bool")
    return b.from_bits(b.let(b.select(nan, b.let(bits | 0x400000), up) & -65536))


_CONVERSIONS: dict[tuple[str, str], Callable[[StepWriter, Expr], Expr]] = {
    ("unpack", "float16"): unpack_float16,
    ("pack", "float16"): pack_float16,
    ("narrow", "float16"): narrow_float16,
    ("unpack", "bfloat16"): unpack_bfloat16,
    ("pack", "bfloat16"): pack_bfloat16,
    ("narrow", "bfloat16"): narrow_bfloat16,
}


def conversion(what: str, dtype: str) -> Definition | None:
    """``"unpack"`` takes an int32, ``"pack"`` gives one; None for anything else."""
    if (what, dtype) not in _CONVERSIONS:
        return None
    b = StepWriter("float32")
    x = Var("x", "int32" if what == "unpack" else "float32")
    return b.finish(what, (x,), _CONVERSIONS[what, dtype](b, x))

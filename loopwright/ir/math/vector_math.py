"""The functions of floats that code generators write out themselves, as definitions in the IR.

One definition serves scalar and vector code of every back end, so a result does not depend on the
schedule. Their error bounds are in ``docs/math.md``; `fuzzing.ulp` measures them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from loopwright import dtypes
from loopwright.ir.expr import Binary, Expr, Var, cast, const
from loopwright.ir.math import exponential, logarithm, power, trigonometry
from loopwright.ir.math.definition import FORMATS, Body, Definition

_UNARY: dict[str, Callable[[Body, Expr], Expr]] = {
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "sigmoid": exponential.sigmoid,
    "tanh": exponential.tanh,
    "sinh": exponential.sinh,
    "cosh": exponential.cosh,
    "erf": exponential.erf,
    "rsqrt": exponential.rsqrt,
    "log": logarithm.log,
    "log2": logarithm.log2,
    "log10": logarithm.log10,
    "log1p": logarithm.log1p,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
    "tan": trigonometry.tan,
    "atan": trigonometry.atan,
    "_sin_large": trigonometry.sin_large,
    "_cos_large": trigonometry.cos_large,
    "_tan_large": trigonometry.tan_large,
}
#: Names that have a definition, by dtype; those with ``_`` are parts of others.
DEFINED = {
    "float32": (*_UNARY, "pow", "fma"),
    "float64": (*_UNARY, "pow"),
}


@lru_cache(maxsize=128)
def definition(fn: str, dtype: str) -> Definition | None:
    """The definition of a function for float32 or float64, or None where there is none.

    That of ``fma`` is for CPUs without the instruction. Integers have one of ``pow``.
    """
    if fn == "pow" and dtypes.is_int(dtype):
        return power.integer_power(dtype)
    if dtype not in FORMATS or fn not in DEFINED[dtype]:
        return None
    b = Body(dtype)
    x = Var("x", dtype)
    if fn == "fma":
        return fused(b)
    if fn == "pow":
        y = Var("y", dtype)
        return b.finish(fn, (x, y), power.power(b, x, y))
    return b.finish(fn, (x,), _UNARY[fn](b, x))


def fused(b: Body) -> Definition:
    """``a * b + c`` of float32 rounded once, by float64 (Boldo & Melquiond, 2008).

    The product is exact. The sum is rounded to odd (when it is inexact its last bit is made 1),
    after which rounding to float32 gives what rounding once would have.
    """
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

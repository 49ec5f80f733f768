"""Definitions of functions in the IR, and the tools that they are written with."""
# A `Definition` is parameters, let-bound steps and a result, all scalar expressions of the IR:
# arithmetic, comparison, ``select``, bit operations and the functions ``fma``, ``reinterpret``,
# ``round``, ``floor``, ``sqrt`` and ``abs``, which are instructions on every CPU that matters. A
# code generator writes it out for any number of lanes. Its rules:
#
# * where there is no instruction for ``fma``, `without_fma` writes it out;
# * every operation rounds by itself: no contraction of ``a * b + c``, no reassociation, no
#   assumption about NaN, whatever the flags of the program around it;
# * denormal numbers are kept;
# * ``IfThenElse`` is a choice that seldom falls on its first side: a branch, if any lane wants it;
# * a `Call` of a function that starts with ``_`` is another definition, of
#   `loopwright.ir.math.vector_math`.

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from loopwright.ir.expr import Call, Const, Expr, Select, Var, as_expr, cast, const, promote


@dataclass(frozen=True, eq=False, slots=True)
class Definition:
    name: str
    #: All of one dtype.
    params: tuple[Var, ...]
    #: Variables with their values, in order.
    steps: tuple[tuple[Var, Expr], ...]
    #: Its value, of the parameters' dtype.
    result: Expr
    #: Steps whose ``fma`` may round the product as well, where a CPU has no such instruction
    #: (`StepWriter.mad`).
    loose: frozenset[Var] = frozenset()


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary floating point format of IEEE 754."""

    dtype: str
    #: Integer dtype of its width.
    integer: str
    #: Bits after the point.
    mantissa: int
    bias: int
    #: Largest finite value.
    max: float
    #: Smallest normal value.
    min_normal: float
    #: Below this magnitude x itself is f(x) for every ``f(x) = x + O(x**2)`` here.
    tiny: float

    @property
    def magic(self) -> float:
        """Number whose addition rounds to an integer, which then stands in the low bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def magic_bits(self) -> int:
        return ((self.bias + self.mantissa) << self.mantissa) + (1 << (self.mantissa - 1))


FORMATS = {
    "float32": FloatFormat(
        "float32", "int32", 23, 127, (2 - 2.0**-23) * 2.0**127, 2.0**-126, 2.0**-26
    ),
    "float64": FloatFormat(
        "float64", "int64", 52, 1023, (2 - 2.0**-52) * 2.0**1023, 2.0**-1022, 2.0**-55
    ),
}


class StepWriter:
    def __init__(self, dtype: str) -> None:
        self.format = FORMATS[dtype]
        self.dtype, self.integer = dtype, self.format.integer
        self.steps: list[tuple[Var, Expr]] = []
        self.loose: set[Var] = set()

    def other(self, dtype: str) -> StepWriter:
        b = StepWriter(dtype)
        b.steps, b.loose = self.steps, self.loose
        return b

    def let(self, e: Expr | float) -> Expr:
        """Name a value, so that it is computed once."""
        value = as_expr(e)
        if isinstance(value, Var | Const):
            return value
        v = Var(f"t{len(self.steps)}", value.dtype)
        self.steps.append((v, value))
        return v

    def c(self, value: float) -> Const:
        return const(value, self.dtype)

    def fma(self, a: Expr | float, b: Expr | float, c: Expr | float) -> Expr:
        return self.let(Call("fma", tuple(as_expr(x, self.dtype) for x in (a, b, c)), self.dtype))

    def mad(self, a: Expr | float, b: Expr | float, c: Expr | float) -> Expr:
        """As `fma`, where it does not matter much whether the product is rounded by itself."""
        out = self.fma(a, b, c)
        if isinstance(out, Var):
            self.loose.add(out)
        return out

    def poly(self, x: Expr, coefficients: Sequence[float]) -> Expr:
        """A polynomial by Horner's rule; the constant coefficient stands first."""
        out: Expr = self.c(coefficients[-1])
        for k, c in reversed([*enumerate(coefficients[:-1])]):
            out = self.mad(out, x, c) if k else self.fma(out, x, c)
        return out

    def call(self, fn: str, x: Expr) -> Expr:
        return self.let(Call(fn, (x,), x.dtype))

    def select(self, cond: Expr, a: Expr | float, b: Expr | float) -> Expr:
        x, y, dtype = promote(*(self.c(v) if isinstance(v, float) else v for v in (a, b)))
        return self.let(Select(cond, x, y, dtype))

    def clamp(self, x: Expr, lo: float, hi: float) -> Expr:
        """Cut to [lo, hi]; NaN stays."""
        x = self.select(x > hi, hi, x)
        return self.select(x < lo, lo, x)

    def bits(self, x: Expr) -> Expr:
        return self.let(Call("reinterpret", (x,), self.integer))

    def from_bits(self, i: Expr) -> Expr:
        return self.let(Call("reinterpret", (i,), self.dtype))

    def power_of_two(self, n: Expr) -> Expr:
        """``2 ** n`` for an integer n in the range of normal numbers."""
        f = self.format
        return self.from_bits(self.let((n + f.bias) << f.mantissa))

    def to_float(self, i: Expr) -> Expr:
        """A small integer as a float; through int32, for which every CPU has an instruction."""
        return self.let(cast(cast(i, "int32"), self.dtype))

    def nearest(self, x: Expr) -> tuple[Expr, Expr]:
        """Nearest integer to ``x``, |x| < 2 ** (mantissa - 2), as a float and as an integer."""
        f = self.format
        t = self.let(x + f.magic)
        return self.let(t - f.magic), self.let(self.bits(t) - const(f.magic_bits, self.integer))

    def sign(self, x: Expr) -> Expr:
        return self.let(self.bits(x) & const(1 << self.sign_bit, self.integer))

    @property
    def sign_bit(self) -> int:
        return 31 if self.dtype == "float32" else 63

    def with_sign(self, magnitude: Expr, sign: Expr) -> Expr:
        """A value that is not negative, with a sign bit put on."""
        return self.from_bits(self.let(self.bits(magnitude) ^ sign))

    def finish(self, name: str, params: tuple[Var, ...], result: Expr) -> Definition:
        return Definition(name, params, tuple(self.steps), result, frozenset(self.loose))


# ---------------------------------------------------------------- without fused multiply-adds
#
# Steps that may round their product (`StepWriter.mad`, and products with a power of two, which are
# exact) are a product and a sum. Others keep the whole product: in float32 they are computed in
# float64, and a value that goes from one to the next stays there; in float64 the product's error is
# computed and added (Dekker, "A floating-point technique for extending the available precision",
# Numerische Mathematik 18, 1971; Knuth, The Art of Computer Programming 2, 4.2.2).

#: Multiplying by it cuts a float64 into two halves of 26 bits.
_SPLIT = 134217729.0


@lru_cache(maxsize=128)
def without_fma(d: Definition) -> Definition:
    """The same function of float32 or float64 without ``fma``, within the same error bounds."""
    steps = _Steps()
    is_float32 = d.params[0].dtype == "float32"
    for v, e in d.steps:
        match e:
            case Call(fn="fma", args=(a, b, c)) if v in d.loose or _is_power_of_two(b):
                steps.put(v, a * b + c)
            case Call(fn="fma", args=(a, b, c), dtype="float32"):
                steps.widened(v, a, b, c)
            # Steps in float64 of a function of float32: their second rounding does not matter.
            case Call(fn="fma", args=(a, b, c)) if is_float32:
                steps.put(v, a * b + c)
            case Call(fn="fma", args=(a, b, c)):
                steps.compensated(v, a, b, c)
            case _:
                steps.put(v, e)
    return Definition(d.name, d.params, tuple(steps.steps), d.result)


def _is_power_of_two(e: Expr) -> bool:
    """Whether ``e`` is a factor that multiplies without an error."""
    return isinstance(e, Const) and abs(math.frexp(float(e.value))[0]) == 0.5


class _Steps:
    """The steps so far; those that are new are called ``w0``, ``w1``, and so on."""

    def __init__(self) -> None:
        self.steps: list[tuple[Var, Expr]] = []
        self._wide: dict[Expr, Expr] = {}
        self._halves: dict[Expr, tuple[Expr, Expr]] = {}
        self._count = 0

    def put(self, v: Var, e: Expr) -> None:
        self.steps.append((v, e))

    def _let(self, e: Expr) -> Var:
        v = Var(f"w{self._count}", e.dtype)
        self._count += 1
        self.steps.append((v, e))
        return v

    def widened(self, v: Var, a: Expr, b: Expr, c: Expr) -> None:
        """``v = a * b + c`` of float32 in float64; other steps read ``v`` rounded."""
        wide = self._let(self._float64(a) * self._float64(b) + self._float64(c))
        self._wide[v] = wide
        self.put(v, cast(wide, "float32"))

    def _float64(self, e: Expr) -> Expr:
        if isinstance(e, Const):
            return const(e.value, "float64")
        if e not in self._wide:
            self._wide[e] = self._let(cast(e, "float64"))
        return self._wide[e]

    def compensated(self, v: Var, a: Expr, b: Expr, c: Expr) -> None:
        """``v = a * b + c`` of float64 with the errors of the product and of the sum."""
        p = self._let(a * b)
        (a1, a2), (b1, b2) = self._split(a), self._split(b)
        lost = self._let(a1 * b1 - p)
        lost = self._let(self._let(lost + a1 * b2) + a2 * b1)
        lost = self._let(lost + a2 * b2)
        s = self._let(p + c)
        t = self._let(s - p)
        cut = self._let(self._let(p - self._let(s - t)) + self._let(c - t))
        self.put(v, s + self._let(cut + lost))

    def _split(self, e: Expr) -> tuple[Expr, Expr]:
        """Two numbers of 26 bits whose sum it is."""
        if isinstance(e, Const):
            large = float(e.value) * _SPLIT
            high = large - (large - float(e.value))
            return const(high, "float64"), const(float(e.value) - high, "float64")
        if e not in self._halves:
            scaled = self._let(e * _SPLIT)
            top = self._let(scaled - self._let(scaled - e))
            self._halves[e] = top, self._let(e - top)
        return self._halves[e]

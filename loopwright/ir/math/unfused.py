"""Definitions for CPUs without fused multiply-adds: each is written out in products and sums.

Steps that may round their product (`Body.mad`, and products with a power of two, which are exact)
are a product and a sum. Others keep the whole product: in float32 they are computed in float64, and
a value that goes from one to the next stays there; in float64 the product's error is computed and
added (Dekker, "A floating-point technique for extending the available precision", Numerische
Mathematik 18, 1971; Knuth, The Art of Computer Programming 2, 4.2.2).
"""

from __future__ import annotations

import math
from functools import lru_cache

from loopwright.ir.expr import Call, Const, Expr, Var, cast, const
from loopwright.ir.math.definition import Definition

#: Multiplying by it cuts a float64 into two halves of 26 bits.
_SPLIT = 134217729.0


@lru_cache(maxsize=128)
def without_fma(d: Definition) -> Definition:
    """The same function without ``fma``, within the same error bounds.

    ``d`` is of float32 or float64. Where it computes a float32 in float64, the second rounding of
    those steps does not matter.
    """
    steps = _Steps()
    is_float32 = d.params[0].dtype == "float32"
    for v, e in d.steps:
        match e:
            case Call(fn="fma", args=(a, b, c)) if v in d.loose or _is_power_of_two(b):
                steps.put(v, a * b + c)
            case Call(fn="fma", args=(a, b, c), dtype="float32"):
                steps.widened(v, a, b, c)
            case Call(fn="fma", args=(a, b, c)) if is_float32:
                steps.put(v, a * b + c)
            case Call(fn="fma", args=(a, b, c)):
                steps.compensated(v, a, b, c)
            case _:
                steps.put(v, e)
    return Definition(d.name, d.params, tuple(steps.steps), d.result)


def _is_power_of_two(e: Expr) -> bool:
    """Whether it is a constant that multiplies without an error."""
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

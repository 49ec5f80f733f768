"""Random choices and arrays, and facts about the values of a random program."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from hypothesis import strategies as st

from loopwright import dtypes, te
from loopwright.ir.expr import Expr
from loopwright.testing.numpy_eval import Array

_MANTISSA = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
# Relative error of one rounded operation or library function, with room to spare.
_EPS = {"bfloat16": 1e-2, "float16": 1e-3, "float32": 1e-6, "float64": 1e-14}
_HUGE = 1e30

T = TypeVar("T")


class Info(NamedTuple):
    """Facts about every element of a value."""

    #: No order of operations can change a bit.
    exact: bool
    #: Largest magnitude (without NaN).
    bound: float
    #: A power of two of which every element is a multiple, where exact.
    quantum: float
    #: Largest distance of an element from the reference, where not exact.
    err: float

    def to(self, dtype: str) -> Info:
        """The same values rounded to ``dtype``."""
        if dtype not in _MANTISSA:
            return self
        fits = self.bound / self.quantum <= 2.0 ** _MANTISSA[dtype]
        if self.exact and fits:
            return self
        return Info(False, self.bound, 1.0, self.err + self.bound * _EPS[dtype])

    def _combined(self, other: Info, bound: float, quantum: float, err: float, dtype: str) -> Info:
        exact = self.exact and other.exact
        return Info(exact, min(bound, _HUGE), quantum if exact else 1.0, err).to(dtype)

    def add(self, other: Info, dtype: str) -> Info:
        """A sum or difference."""
        quantum = min(self.quantum, other.quantum)
        return self._combined(other, self.bound + other.bound, quantum, self.err + other.err, dtype)

    def mul(self, other: Info, dtype: str) -> Info:
        err = self.err * other.bound + other.err * self.bound + self.err * other.err
        bound, quantum = self.bound * other.bound, self.quantum * other.quantum
        return self._combined(other, bound, max(quantum, 1e-30), err, dtype)

    def div(self, other: Info, dtype: str) -> Info:
        """``self / (abs(other) + 1)``."""
        err = self.err + self.bound * (other.err + 2 * _EPS[dtype] * (1 + other.bound))
        return Info(False, self.bound, 1.0, err).to(dtype)

    def smooth(self, dtype: str, bound: float, slope: float) -> Info:
        """A function whose values and slope are bounded, computed with a few units of error."""
        return Info(False, bound, 1.0, slope * (self.err + self.bound * _EPS[dtype])).to(dtype)

    def join(self, other: Info) -> Info:
        """One or the other."""
        return Info(
            self.exact and other.exact,
            max(self.bound, other.bound),
            min(self.quantum, other.quantum),
            max(self.err, other.err),
        )

    def sum(self, n: int, dtype: str) -> Info:
        """A sum of n such values in any order."""
        rounding = 0.0 if self.exact or dtype not in _EPS else n * n * self.bound * _EPS[dtype]
        bound = min(self.bound * n, _HUGE)
        total = Info(self.exact, bound, self.quantum, self.err * n + rounding)
        rounded = total.to(dtype)
        return rounded if rounded.exact else rounded._replace(err=rounded.err * n)

    def power(self, n: int, dtype: str) -> Info:
        """A product of n such values in any order."""
        out = self
        for _ in range(n - 1):
            out = out.mul(self, dtype)
        return out if out.exact else out._replace(err=2 * out.err)

    def clamp(self, limit: float) -> Info:
        return Info(self.exact, min(self.bound, limit), min(self.quantum, 0.5), self.err)


def info_of_dtype(dtype: str) -> Info:
    if dtypes.is_float(dtype):
        return Info(True, 2.0, 0.25, 0.0)
    if dtype == "bool":
        return Info(True, 1.0, 1.0, 0.0)
    return Info(True, float(2 ** dtypes.bits(dtype)), 1.0, 0.0)


def constant(draw: Draw, dtype: str) -> tuple[Expr, Info]:
    if dtype == "bool":
        return te.const(draw.chance(50), "bool"), info_of_dtype("bool")
    if dtypes.is_float(dtype):
        v = draw.integer(-6, 6) / 4
        return te.const(v, dtype), Info(True, abs(v), 0.25, 0.0)
    low = 0 if dtypes.is_unsigned(dtype) else -5
    return te.const(draw.integer(low, 9), dtype), info_of_dtype(dtype)


class Draw:
    """The choices of one example as integers, which shrink towards the first or smallest."""

    def __init__(self, integer: Callable[[int, int], int]) -> None:
        self._integer = integer

    @staticmethod
    def hypothesis(draw: st.DrawFn) -> Draw:
        return Draw(lambda lo, hi: draw(st.integers(lo, hi)))

    @staticmethod
    def random(rng: random.Random) -> Draw:
        """Choices of a random generator: for long runs, distinguished by their seed."""
        return Draw(rng.randint)

    def integer(self, lo: int, hi: int) -> int:
        """An integer in [lo, hi]."""
        return self._integer(lo, hi) if hi > lo else lo

    def pick(self, items: Sequence[T]) -> T:
        return items[self.integer(0, len(items) - 1)]

    def chance(self, percent: int) -> bool:
        """True with this probability in percent."""
        return self.integer(0, 99) >= 100 - percent


def random_array(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str, nan: bool = False
) -> Array:
    """Quarters in [-2, 2] for floats; small integers, or any when ``rng`` says so."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtypes.is_float(dtype):
        out = rng.integers(-8, 9, shape).astype(dtype) / 4
        if nan:
            out = np.where(rng.random(shape) < 0.1, np.nan, out)
        return np.asarray(out, dtype)
    lo, hi = dtypes.limits(dtype)
    small = rng.integers(0 if lo == 0 else -9, 10, shape)
    if rng.random() < 0.7:
        return np.asarray(small, dtype)
    full = rng.integers(int(lo), int(hi), shape, dtype=np.int64, endpoint=True)
    edges = rng.choice(np.array([lo, hi, 0, 1], np.int64), shape)
    return np.asarray(np.where(rng.random(shape) < 0.3, edges, full), dtype)


def poison(shape: tuple[int, ...], dtype: str) -> Array:
    """Contents of outputs before a run: NaN, or a pattern."""
    if dtypes.is_float(dtype):
        return np.full(shape, np.nan, dtype)
    return np.full(shape, True if dtype == "bool" else 85, dtype)

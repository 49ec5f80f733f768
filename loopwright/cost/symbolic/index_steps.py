"""How indices move when loops do: sums of steps, and what dividing and wrapping make of them.

An index is ``const + sum(step * loop)``. Where it is divided, or wrapped (``i // 16``, ``i % 16``;
a fused loop has both), a loop that takes ``count`` steps of ``step`` becomes one of fewer, or
longer, steps. What the loop does then is exact where one of the two divides the other, as it is
wherever tiles are whole, and near elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopwright.cost.symbolic.symbols import Number, ceil_div, least, magnitude, most, total
from loopwright.ir.expr import Binary, Cast, Const, Expr, Unary, Var
from loopwright.ir.symbol import Symbol
from loopwright.schedule.state import StageId

#: A loop: its stage, and its id there.
LoopKey = tuple[StageId, str]


@dataclass(frozen=True, slots=True)
class Move:
    """While a loop runs, an index takes ``count`` values that are ``step`` apart."""

    loop: LoopKey
    step: Number
    count: Number


@dataclass(frozen=True, slots=True)
class Index:
    """``const + sum(moves)``."""

    const: Number
    moves: tuple[Move, ...]

    def __add__(self, other: Index) -> Index:
        return Index(self.const + other.const, self.moves + other.moves)

    def times(self, k: Number) -> Index:
        """All of it ``k`` times as far."""
        if not isinstance(k, Symbol) and k == 0:
            return Index(0, ())
        return Index(self.const * k, tuple(Move(m.loop, m.step * k, m.count) for m in self.moves))

    def digit(self, div: Number, mod: Number | None) -> Index:
        """``(index // div) % mod``; no limit where ``mod`` is None."""
        moves = tuple(digit_move(m, div, mod) for m in self.moves)
        const = self.const // div
        return Index(const if mod is None else const % mod, moves)

    def span(self) -> tuple[Number, Number]:
        """Least and largest value."""
        lo = hi = self.const
        for m in self.moves:
            reach = m.step * (m.count - 1)
            lo, hi = lo + least(reach, 0), hi + most(reach, 0)
        return lo, hi


def width(moves: Sequence[Move]) -> Number:
    """Distance of the extreme values of an index, plus one."""
    return 1 + total(magnitude(m.step) * (m.count - 1) for m in moves)


def digit_move(m: Move, div: Number, mod: Number | None) -> Move:
    """What a move of an index is to a digit of it.

    Steps below ``div`` let the digit stand for some iterations; steps of whole periods
    ``div * mod`` never change it.
    """
    size = magnitude(m.step)
    step = most(size // div, 1)
    count = ceil_div(m.count, ceil_div(div, most(size, 1)))
    if mod is not None:
        count = least(count, ceil_div(mod, step))
    return Move(m.loop, step, count)


def index_of(e: Expr, axes: Mapping[Var, Index]) -> Index | None:
    """An index expression as moves; None where it is no sum of steps (a gather, a selection)."""
    match e:
        case Symbol():
            return Index(e, ())
        case Var():
            return axes.get(e)
        case Const(value=int(v)):
            return Index(v, ())
        case Cast(value=v):
            return index_of(v, axes)
        case Unary(op="-", a=a):
            return _scaled(a, -1, axes)
        case Binary(op="+" | "-" as op, a=a, b=b):
            x = index_of(a, axes)
            y = _scaled(b, 1 if op == "+" else -1, axes)
            return None if x is None or y is None else x + y
        case Binary(op="*", a=a, b=b):
            k = number_of(b)
            return _scaled(a, k, axes) if k is not None else _scaled(b, number_of(a), axes)
        case Binary(op="//" | "%" as op, a=a, b=b):
            x, k = index_of(a, axes), number_of(b)
            if x is None or k is None or (not isinstance(k, Symbol) and k < 1):
                return None
            return x.digit(k, None) if op == "//" else x.digit(1, k)
    return None


def _scaled(e: Expr, k: Any, axes: Mapping[Var, Index]) -> Index | None:
    x = index_of(e, axes)
    return None if x is None or k is None else x.times(k)


def number_of(e: Any) -> Number | None:
    """The number that an expression without variables is, or None."""
    match e:
        case Symbol() | int():
            return e
        case Const(value=int(v)):
            return v
        case Cast(value=v):
            return number_of(v)
        case Binary(op="+" | "-" | "*" | "//" | "%" as op, a=a, b=b):
            x, y = number_of(a), number_of(b)
            if x is None or y is None:
                return None
            match op:
                case "+":
                    return x + y
                case "-":
                    return x - y
                case "*":
                    return x * y
                case "//":
                    return x // y
            return x % y
    return None

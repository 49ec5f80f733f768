"""Movement of indices with loops: sums of steps, also under division and modulo.

A `SteppedIndex` is ``const + sum(step * loop)``. Under ``i // 16`` or ``i % 16`` a loop becomes one
of fewer, or longer, steps: exact where tiles are whole, and near elsewhere.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace

from loopwright.cost.symbolic.symbols import Number, Sym, ceil_div, least, magnitude, most, total
from loopwright.errors import UsageError
from loopwright.ir.expr import Binary, Cast, Const, Dim, Expr, Unary, Var
from loopwright.schedule import LoopArithmetic, StageId

LoopKey = tuple[StageId, str]  #: a loop: its stage, and its id there


@dataclass(frozen=True, slots=True)
class Move:
    """Movement of an index with a loop: in iteration i it is ``step * ((i // run) % count)``.

    The set of touched elements does not depend on ``run``; what neighbouring threads touch does.
    """

    loop: LoopKey
    step: Number
    count: Number
    run: Number = 1


@dataclass(frozen=True, slots=True)
class SteppedIndex:
    const: Number
    moves: tuple[Move, ...]
    #: Distance of the extreme values, where better known than from the moves: the digits of a fused
    #: loop never leave their range.
    reach: Number | None = None

    def __add__(self, other: SteppedIndex) -> SteppedIndex:
        return SteppedIndex(self.const + other.const, self.moves + other.moves)

    @property
    def width(self) -> Number:
        """Distance of the extreme values, plus one."""
        return width(self.moves) if self.reach is None else self.reach + 1

    def times(self, k: Number) -> SteppedIndex:
        if not isinstance(k, Sym) and k == 0:
            return SteppedIndex(0, ())
        moves = tuple(Move(m.loop, m.step * k, m.count, m.run) for m in self.moves)
        return SteppedIndex(self.const * k, moves)

    def along(self, loops: Mapping[LoopKey, LoopKey]) -> SteppedIndex:
        """The index with some loops replaced."""
        moves = tuple(replace(m, loop=loops.get(m.loop, m.loop)) for m in self.moves)
        return SteppedIndex(self.const, moves, self.reach)

    def without(self, loops: Container[LoopKey]) -> SteppedIndex:
        """The index while ``loops`` stand at their beginning."""
        return SteppedIndex(self.const, tuple(m for m in self.moves if m.loop not in loops))

    def digit(self, div: Number, mod: Number | None) -> SteppedIndex:
        """``(index // div) % mod``; no limit where ``mod`` is None."""
        moves = tuple(digit_move(m, div, mod) for m in self.moves)
        const = self.const // div
        last = (self.width - 1) // div
        if mod is not None:
            return SteppedIndex(const % mod, moves, least(last, mod - 1))
        return SteppedIndex(const, moves, last)

    def span(self) -> tuple[Number, Number]:
        lo = hi = self.const
        for m in self.moves:
            reach = m.step * (m.count - 1)
            lo, hi = lo + least(reach, 0), hi + most(reach, 0)
        return lo, hi


def width(moves: Sequence[Move]) -> Number:
    """Distance of the extreme values of an index, plus one."""
    return 1 + total(magnitude(m.step) * (m.count - 1) for m in moves)


def digit_move(m: Move, div: Number, mod: Number | None) -> Move:
    """Move of a digit of an index, which stays for some iterations with steps below ``div``.

    Steps of whole periods ``div * mod`` never change it.
    """
    size = magnitude(m.step)
    step = most(size // div, 1)
    stands = ceil_div(div, most(size, 1))
    count = ceil_div(m.count, stands)
    if mod is not None:
        count = least(count, ceil_div(mod, step))
    return Move(m.loop, step, count, m.run * stands)


class SteppedArithmetic(LoopArithmetic[float | Sym, SteppedIndex]):
    """Loop arithmetic for extents of many candidates at once, without a branch on an extent."""

    def times(self, a: Number, b: Number) -> Number:
        return a * b

    def ceil_div(self, a: Number, b: Number) -> Number:
        return ceil_div(a, b)

    def clipped(self, factor: Number, n: Number) -> Number:
        """Minimum of a split factor, which may be a `Sym`, and an extent."""
        return least(factor, n)

    def split_value(
        self, loop: str, outer: SteppedIndex, length: Number, inner: SteppedIndex
    ) -> SteppedIndex:
        return outer.times(length) + inner

    def fused_values(
        self, loop: str, value: SteppedIndex, outer: Number, length: Number
    ) -> tuple[SteppedIndex, SteppedIndex]:
        """``value // length`` and ``value % length``.

        Where one loop makes the value, each part takes every one of its values, in steps of one.
        """
        if len(value.moves) != 1:
            whole = value.digit(length, None)
            # The overrun of the fused loop is guarded, and reaches no further.
            reach = least((value.width - 1) // length, outer - 1)
            return replace(whole, reach=reach), value.digit(1, length)
        x, run = value.moves[0].loop, value.moves[0].run
        return (
            SteppedIndex(0, (Move(x, 1, outer, run * length),)),
            SteppedIndex(0, (Move(x, 1, length, run),)),
        )


def index_of(e: Expr, axes: Mapping[Var, SteppedIndex]) -> SteppedIndex | None:
    """Index expression as moves; None where it is no sum of steps (a gather, a selection)."""
    match e:
        case Sym():
            return SteppedIndex(e, ())
        case Var():
            return axes.get(e)
        case Const(value=int(v)):
            return SteppedIndex(v, ())
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
            if x is None or k is None or (not isinstance(k, Sym) and k < 1):
                return None
            return x.digit(k, None) if op == "//" else x.digit(1, k)
    return None


def _scaled(e: Expr, k: Number | None, axes: Mapping[Var, SteppedIndex]) -> SteppedIndex | None:
    x = index_of(e, axes)
    return None if x is None or k is None else x.times(k)


def extent_of(e: Dim) -> Number:
    """Number of an extent. Sizes known only when the program runs raise `UsageError`."""
    number = number_of(e)
    if number is None:
        raise UsageError(f"the extent {e} depends on sizes that are known only at run time")
    return number


def number_of(e: Expr | int) -> Number | None:
    """Number of an expression without variables, or None."""
    match e:
        case Sym() | int():
            return e
        case Const(value=int(v)):
            return v
        case Cast(value=v):
            return number_of(v)
        case Binary(op="+" | "-" | "*" | "//" | "%" as op, a=a, b=b):
            x, y = number_of(a), number_of(b)
            return None if x is None or y is None else _OPERATIONS[op](x, y)
    return None


_OPERATIONS: dict[str, Callable[[Number, Number], Number]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}

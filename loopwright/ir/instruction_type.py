"""`Instruction`: name, operands and meaning of an instruction, for programs that use it.

Instructions of a warp are run by its 32 lanes together, and some operands are spread over the
registers of the lanes: fragments, whose buffers are of scope ``warp``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loopwright.ir.buffer import Load
from loopwright.ir.expr import Expr, Var, binary
from loopwright.ir.stmt import Stmt

#: ``index[dimension] // div % mod``, as in layouts of buffers.
FragmentDigit = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Fragment:
    """Lane and register that hold each element of a tile."""

    #: Digits of the element's indices that are the lane, see `loopwright.ir.kinds.WARP_LANES`.
    lane: tuple[FragmentDigit, FragmentDigit]
    #: Digits that are the register; several of them count row-major.
    registers: tuple[FragmentDigit, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand: elements without gaps, ``shape`` being its last dimensions."""

    #: For messages.
    name: str
    dtype: str
    shape: tuple[int, ...]
    #: Place in the lanes of a warp; None: it lies in memory.
    fragment: Fragment | None = None


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction, with its meaning as loops."""

    name: str
    operands: tuple[Operand, ...]
    #: Makes loops that do the same from the elements where the operands begin.
    plain: Callable[[Sequence[Load]], Stmt]
    #: For an instruction of a warp: makes the work of one lane from the elements where the operands
    #: begin, those of fragments in the registers of lane 0, and the number of the lane.
    lanes: Callable[[Sequence[Load], Var], Stmt] | None = None


def moved(x: Load, by: Sequence[int | Expr]) -> tuple[Expr, ...]:
    """Indices of the element that lies ``by`` further in the last dimensions."""
    kept = len(x.indices) - len(by)
    last = (binary("+", i, n) for i, n in zip(x.indices[kept:], by, strict=True))
    return (*x.indices[:kept], *last)

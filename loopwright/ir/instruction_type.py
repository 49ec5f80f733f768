"""`Instruction`: what programs know of an instruction, and of where its operands lie.

Those of a warp are run by its 32 lanes together, and some operands are spread over the registers of
the lanes: fragments, whose buffers are of scope ``warp``.
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
    """Which register of which lane holds an element of a tile.

    Attributes:
        lane: digits of the element's indices that are the lane, see `WARP_LANES` in
            `loopwright.ir.kinds`.
        registers: digits that are the register; several of them count row-major.
    """

    lane: tuple[FragmentDigit, FragmentDigit]
    registers: tuple[FragmentDigit, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand: elements of a dtype that lie without gaps, ``shape`` the last dimensions.

    Attributes:
        name: in messages.
        dtype: of the elements.
        shape: of the operand.
        fragment: where the lanes of a warp hold it; None: it lies in memory.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    fragment: Fragment | None = None


@dataclass(frozen=True, slots=True)
class Instruction:
    """What programs know of an instruction.

    Attributes:
        name: in programs.
        operands: in order.
        plain: from the elements where the operands begin to loops that do the same.
        lanes: of an instruction of a warp, what one lane does: from the elements where the operands
            begin, those of fragments in the registers of lane 0, and the number of the lane.
    """

    name: str
    operands: tuple[Operand, ...]
    plain: Callable[[Sequence[Load]], Stmt]
    lanes: Callable[[Sequence[Load], Var], Stmt] | None = None


def moved(x: Load, by: Sequence[int | Expr]) -> tuple[Expr, ...]:
    """Indices of the element that lies ``by`` further in the last dimensions."""
    kept = len(x.indices) - len(by)
    last = (binary("+", i, n) for i, n in zip(x.indices[kept:], by, strict=True))
    return (*x.indices[:kept], *last)

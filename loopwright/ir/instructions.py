"""Instructions that compilers do not find in loops, each with its meaning as loops.

The statement `IntrinsicCall` names an instruction and holds its meaning as loops. So a program with
instructions runs everywhere and gives equal results: a code generator writes the instruction where
it knows it and the CPU has it (`loopwright.codegen.llvm.instructions`), and the loops elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold

from loopwright.errors import TensorError, did_you_mean
from loopwright.ir.buffer import Load
from loopwright.ir.expr import Expr, Var, binary, cast
from loopwright.ir.instruction_type import Instruction, Operand, moved
from loopwright.ir.stmt import For, IntrinsicCall, Stmt, Store
from loopwright.ir.warp_instructions import WARP_INSTRUCTIONS

_INT8_GROUP = 4


def _dot(lanes: int) -> Instruction:
    """``c[j] += sum(a[k] * b[j, k] for k in range(4))`` for each lane j; sums wrap as int32 does.

    ``vpdpbusd`` of AVX-512 VNNI and AVX-VNNI.
    """

    def plain(given: Sequence[Load]) -> Stmt:
        c, a, b = given
        j = Var("lane")
        at = moved(c, (j,))

        def product(k: int) -> Expr:
            x = Load(a.buffer, moved(a, (k,)), a.dtype)
            y = Load(b.buffer, moved(b, (j, k)), b.dtype)
            return binary("*", cast(x, "int32"), cast(y, "int32"))

        added = fold(lambda p, q: binary("+", p, q), map(product, range(_INT8_GROUP)))
        body = Store(c.buffer, at, binary("+", Load(c.buffer, at, c.dtype), added))
        return For(j, lanes, "vectorized", body)

    return Instruction(
        f"dot_{lanes}x{_INT8_GROUP}_u8s8s32",
        (
            Operand("c", "int32", (lanes,)),
            Operand("a", "uint8", (_INT8_GROUP,)),
            Operand("b", "int8", (lanes, _INT8_GROUP)),
        ),
        plain,
    )


#: Instructions by name.
INSTRUCTIONS: dict[str, Instruction] = {
    **{x.name: x for x in map(_dot, (4, 8, 16))},
    **WARP_INSTRUCTIONS,
}


def call_instruction(name: str, operands: Sequence[object]) -> IntrinsicCall:
    """The statement that runs an instruction.

    Args:
        name: one of `INSTRUCTIONS`.
        operands: the element where each operand begins.

    Raises:
        TensorError: no such instruction; number, dtypes or dimensions of the operands are wrong.
    """
    instruction = INSTRUCTIONS.get(name)
    if instruction is None:
        families = dict.fromkeys(f"{known.partition('_')[0]}_..." for known in INSTRUCTIONS)
        raise TensorError(
            f"call_intrin: unknown instruction {name!r}{did_you_mean(name, INSTRUCTIONS)}; take "
            f"one of loopwright.ir.instructions.INSTRUCTIONS: {', '.join(families)}"
        )
    if len(operands) != len(instruction.operands):
        names = ", ".join(x.name for x in instruction.operands)
        raise TensorError(
            f"call_intrin: {name} takes {len(instruction.operands)} operands ({names}), got "
            f"{len(operands)}"
        )
    loads = [
        _checked(x, want, f"call_intrin: operand {want.name!r} of {name}")
        for x, want in zip(operands, instruction.operands, strict=True)
    ]
    return IntrinsicCall(name, tuple(loads), instruction.plain(loads))


def _checked(x: object, want: Operand, what: str) -> Load:
    """The element where an operand begins, if it can be that operand."""
    if not isinstance(x, Load):
        raise TensorError(f"{what} is the element where it begins, such as c[0]; got {x!r}")
    if x.dtype != want.dtype:
        raise TensorError(f"{what} is {want.dtype}, got an element of {x.dtype}")
    if len(x.indices) < len(want.shape):
        raise TensorError(
            f"{what} is {list(want.shape)}, the last dimensions of a buffer; "
            f"{x.buffer.name!r} has {len(x.indices)}"
        )
    return x

"""Instructions that compilers do not find in loops, each with its meaning as loops.

The statement `IntrinsicCall` names an instruction and holds its meaning as loops. So a program with
instructions runs everywhere and gives equal results: a code generator writes the instruction where
it knows it and the CPU has it (`loopwright.codegen.llvm.instructions`), and the loops elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce as fold

from loopwright import dtypes
from loopwright.errors import TensorError, did_you_mean
from loopwright.ir.buffer import Load
from loopwright.ir.expr import Expr, Var, binary, cast
from loopwright.ir.instruction_type import Instruction, Operand, moved
from loopwright.ir.stmt import For, IntrinsicCall, Stmt, Store
from loopwright.ir.warp_instructions import WARP_INSTRUCTIONS

#: Names of element types in names of instructions.
_SHORT = {"uint8": "u8", "int8": "s8", "bfloat16": "bf16"}
#: Lanes that dot products have, those of AVX-512 last.
DOT_LANES = (4, 8, 16)
#: Operands of dot products, the one that all lanes share first.
DOT_OPERANDS = (
    ("uint8", "int8"),
    ("int8", "uint8"),
    ("int8", "int8"),
    ("uint8", "uint8"),
    ("bfloat16", "bfloat16"),
)


@dataclass(frozen=True, slots=True)
class DotProduct:
    """A dot product of few elements for each lane: ``c[j] += sum(a[k] * b[j, k])``."""

    #: Element type of ``a``, which all lanes share.
    data: str
    #: Element type of ``b``.
    kernel: str
    #: Elements of ``c``.
    lanes: int

    @property
    def group(self) -> int:
        """Number of elements that are summed for a lane: as many as have 32 bits."""
        return 4 // dtypes.nbytes(self.data)

    @property
    def result(self) -> str:
        return "float32" if dtypes.is_float(self.data) else "int32"

    @property
    def name(self) -> str:
        result = "f32" if self.result == "float32" else "s32"
        operands = _SHORT[self.data] + _SHORT[self.kernel]
        return f"dot_{self.lanes}x{self.group}_{operands}{result}"


def _dot(dot: DotProduct) -> Instruction:
    """A dot product as an instruction; sums of integers wrap as int32 does.

    ``vpdpbusd`` of AVX-512 VNNI and AVX-VNNI for an unsigned and a signed operand, with a
    correction for two of one kind; ``vdpbf16ps`` of AVX-512 BF16, which adds the odd element first
    and takes denormal numbers for zeros.
    """

    def plain(given: Sequence[Load]) -> Stmt:
        c, a, b = given
        j = Var("lane")
        at = moved(c, (j,))

        def product(k: int) -> Expr:
            x = Load(a.buffer, moved(a, (k,)), a.dtype)
            y = Load(b.buffer, moved(b, (j, k)), b.dtype)
            return binary("*", cast(x, dot.result), cast(y, dot.result))

        old = Load(c.buffer, at, c.dtype)
        products = [product(k) for k in range(dot.group)]
        if dot.result == "float32":
            return For(j, dot.lanes, "vectorized", Store(c.buffer, at, _summed(old, products)))
        added = fold(lambda p, q: binary("+", p, q), products)
        return For(j, dot.lanes, "vectorized", Store(c.buffer, at, binary("+", old, added)))

    return Instruction(
        dot.name,
        (
            Operand("c", dot.result, (dot.lanes,)),
            Operand("a", dot.data, (dot.group,)),
            Operand("b", dot.kernel, (dot.lanes, dot.group)),
        ),
        plain,
    )


def _summed(old: Expr, products: Sequence[Expr]) -> Expr:
    """Sum to which the last product is added first."""
    return fold(lambda p, q: binary("+", p, q), [old, *reversed(products)])


#: Dot products by the names of their instructions.
DOT_PRODUCTS = {
    dot.name: dot
    for dot in (DotProduct(*given, lanes) for given in DOT_OPERANDS for lanes in DOT_LANES)
}
#: Instructions by name.
INSTRUCTIONS: dict[str, Instruction] = {
    **{name: _dot(dot) for name, dot in DOT_PRODUCTS.items()},
    **WARP_INSTRUCTIONS,
}


def call_instruction(name: str, operands: Sequence[object]) -> IntrinsicCall:
    """Statement that runs an instruction; operands are given by their first elements."""
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
    """First element of an operand, if it can be that operand."""
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

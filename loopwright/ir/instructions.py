"""Instructions that compilers do not find in loops, each with its meaning as loops."""

# The statement `IntrinsicCall` names an instruction and holds its meaning as loops. So a program
# with instructions runs everywhere and gives equal results: a code generator writes the instruction
# where it knows it and the CPU has it (`loopwright.codegen.llvm.instructions`), and the loops
# elsewhere. Instructions of a warp are run by its 32 lanes together, and some operands are spread
# over the registers of the lanes: fragments, whose buffers are of scope ``warp``.

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce as fold
from operator import add

from loopwright import dtypes
from loopwright.errors import TensorError, did_you_mean
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Call, Expr, Select, Var, binary, cast, const
from loopwright.ir.kinds import WARP_LANES
from loopwright.ir.stmt import Allocate, Barrier, For, IntrinsicCall, Let, Stmt, Store, seq

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


# ---------------------------------------------------------------- instructions of a warp
#
# Tensor cores, and loads of their operands, of NVIDIA's PTX. The work of the 32 lanes is written
# out lane by lane: a lane puts its registers where the others see them, all meet, and each computes
# its new registers from those of the others. So the interpreter runs an instruction as the hardware
# does: it notices when some lanes of a warp do not come, and when a lane has not written its
# registers. The place of an element follows the tables of "Parallel Thread Execution ISA", sections
# mma.m16n8k16, mma.m16n8k8 and ldmatrix. With ``g = lane // 4`` and ``t = lane % 4``:
#
# * A (row, k) of m16n8k16: ``g = row % 8``, ``t = k // 2 % 4``; registers by ``k // 8``,
#   ``row // 8``, ``k % 2``;
# * B (k, column): ``g = column``, ``t = k // 2 % 4``; registers by ``k // 8``, ``k % 2``;
# * C and D (row, column): ``g = row % 8``, ``t = column // 2``; registers by ``row // 8``,
#   ``column % 2``;
# * A (row, k) of m16n8k8 of tf32: ``g = row % 8``, ``t = k % 4``; registers by ``k // 4``,
#   ``row // 8``; B (k, column): ``g = column``, ``t = k % 4``; registers by ``k // 4``.
#
# An mma of tf32 takes float32 and rounds it, see `round_tf32`. The products are summed in order of
# k, in float32; tensor cores sum in an order of their own and round less often, so that results
# agree as those of two orders of a sum do.

#: Fragments of m16n8k16 by the order in which memory holds their indices.
FRAGMENT_A = Fragment(((0, 1, 8), (1, 2, 4)), ((1, 8, 2), (0, 8, 2), (1, 1, 2)))
FRAGMENT_B = Fragment(((1, 1, 8), (0, 2, 4)), ((0, 8, 2), (0, 1, 2)))
FRAGMENT_B_TRANSPOSED = Fragment(((0, 1, 8), (1, 2, 4)), ((1, 8, 2), (1, 1, 2)))
FRAGMENT_C = Fragment(((0, 1, 8), (1, 2, 4)), ((0, 8, 2), (1, 1, 2)))
#: Fragments of m16n8k8 of tf32; its C is that of m16n8k16.
FRAGMENT_A_TF32 = Fragment(((0, 1, 8), (1, 1, 4)), ((1, 4, 2), (0, 8, 2)))
FRAGMENT_B_TF32 = Fragment(((1, 1, 8), (0, 1, 4)), ((0, 4, 2),))
FRAGMENT_B_TF32_TRANSPOSED = Fragment(((0, 1, 8), (1, 1, 4)), ((1, 4, 2),))
#: Two of B beside each other, as one ldmatrix loads them.
_PAIR_OF_B = Fragment(FRAGMENT_B.lane, ((1, 8, 2), *FRAGMENT_B.registers))
_PAIR_OF_B_TRANSPOSED = Fragment(
    FRAGMENT_B_TRANSPOSED.lane, ((0, 8, 2), *FRAGMENT_B_TRANSPOSED.registers)
)
#: Names of dtypes in names of instructions.
SHORT = {"float16": "f16", "bfloat16": "bf16"}
#: Bits of a float32 below the mantissa of tf32, which has 10 bits.
_BELOW_TF32 = 13


def round_tf32(x: Expr) -> Expr:
    """The value of tf32 nearest to a float32, ties away from zero (``cvt.rna.tf32.f32`` of PTX), as
    a float32. Values beyond the largest become infinite, NaN stays NaN."""
    bits = Call("reinterpret", (x,), "int32")
    nearest = (bits + (1 << (_BELOW_TF32 - 1))) & (-1 << _BELOW_TF32)
    # The sum may carry the bits of a NaN into the sign.
    is_number = binary("==", x, x)
    return Select(is_number, Call("reinterpret", (nearest,), "float32"), x, "float32")


class _Loops:
    """Loops around a statement: ``over`` makes their variables, ``around`` puts them there."""

    def __init__(self) -> None:
        self.loops: list[tuple[Var, int]] = []

    def over(self, **extents: int) -> list[Var]:
        new = [(Var(name), n) for name, n in extents.items()]
        self.loops += new
        return [v for v, _ in new]

    def around(self, s: Stmt) -> Stmt:
        for v, n in reversed(self.loops):
            s = For(v, n, "serial", s)
        return s


class _Lane:
    def __init__(self, lane: Var) -> None:
        self.lane = lane
        #: First two indices of its registers.
        self.g, self.t = Var("g"), Var("t")

    def run(self, *stmts: Stmt) -> Stmt:
        width = WARP_LANES[1]
        return Let(self.g, self.lane // width, Let(self.t, self.lane % width, seq(*stmts)))

    def own(self, x: Load, registers: Sequence[int | Expr]) -> tuple[Expr, ...]:
        """Indices of a register of this lane, in the fragment that begins at ``x``."""
        return (self.g, self.t, *moved(x, registers)[2:])

    def show(
        self, x: Load, fragment: Fragment, shown: Callable[[Expr], Expr]
    ) -> tuple[Buffer, Stmt]:
        """Memory that all lanes read, and the statement that puts ``shown`` of this lane's
        registers there."""
        extents = [n for _, _, n in fragment.registers]
        seen = Buffer(f"{x.buffer.name}.seen", (*WARP_LANES, *extents), x.dtype, "warp")
        loops = _Loops()
        at = loops.over(**{f"r{k}": n for k, n in enumerate(extents)})
        value = Load(x.buffer, self.own(x, at), x.dtype)
        return seen, loops.around(Store(seen, (self.g, self.t, *at), shown(value)))


@dataclass(frozen=True, slots=True)
class _Multiplied:
    #: Name of the instructions, of which some transpose B.
    name: str
    #: Element type of A and B.
    dtype: str
    #: Steps of the reduction.
    steps: int
    a: Fragment
    b: Fragment
    b_nk: Fragment
    #: Number of successive steps whose elements lie in one lane.
    neighbours: int
    #: Makes of an element the factor that is multiplied, of its dtype.
    factor: Callable[[Expr], Expr]


_KINDS = (
    *(
        _Multiplied(
            f"mma_m16n8k16_{short}{short}f32",
            dtype,
            16,
            FRAGMENT_A,
            FRAGMENT_B,
            FRAGMENT_B_TRANSPOSED,
            2,
            lambda x: x,
        )
        for dtype, short in SHORT.items()
    ),
    _Multiplied(
        "mma_m16n8k8_tf32tf32f32",
        "float32",
        8,
        FRAGMENT_A_TF32,
        FRAGMENT_B_TF32,
        FRAGMENT_B_TF32_TRANSPOSED,
        1,
        round_tf32,
    ),
)


def _mma(kind: _Multiplied, transposed: bool) -> Instruction:
    """``C[i, j] += sum(A[i, k] * B[k, j] for k in range(steps))``, B[j, k] if ``transposed``."""
    b_fragment = kind.b_nk if transposed else kind.b

    def added(c: Load, at: tuple[Expr, ...], x: Expr, y: Expr) -> Stmt:
        product = cast(x, "float32") * cast(y, "float32")
        return Store(c.buffer, at, Load(c.buffer, at, c.dtype) + product)

    def plain(operands: Sequence[Load]) -> Stmt:
        c, a, b = operands
        loops = _Loops()
        i, j, k = loops.over(i=16, j=8, k=kind.steps)
        x = Load(a.buffer, moved(a, (i, k)), a.dtype)
        y = Load(b.buffer, moved(b, (j, k) if transposed else (k, j)), b.dtype)
        return loops.around(added(c, moved(c, (i, j)), kind.factor(x), kind.factor(y)))

    def lanes(operands: Sequence[Load], lane: Var) -> Stmt:
        c, a, b = operands
        me, loops = _Lane(lane), _Loops()
        of_a, show_a = me.show(a, kind.a, kind.factor)
        of_b, show_b = me.show(b, b_fragment, kind.factor)
        high, low, k_high, k_t = loops.over(high=2, low=2, k2=2, k1=4)
        k_low = loops.over(k0=kind.neighbours) if kind.neighbours > 1 else []
        column = me.t * 2 + low
        x = Load(of_a, (me.g, k_t, k_high, high, *k_low), a.dtype)
        y = Load(of_b, (column, k_t, k_high, *k_low), b.dtype)
        update = loops.around(added(c, me.own(c, (high, low)), x, y))
        body = seq(show_a, show_b, Barrier("warp"), update, Barrier("warp"))
        return me.run(Allocate(of_a, Allocate(of_b, body)))

    n = kind.steps
    operands = (
        Operand("c", "float32", (16, 8), FRAGMENT_C),
        Operand("a", kind.dtype, (16, n), kind.a),
        Operand("b", kind.dtype, (8, n) if transposed else (n, 8), b_fragment),
    )
    return Instruction(f"{kind.name}{'_nk' if transposed else ''}", operands, plain, lanes)


def _fill() -> Instruction:
    """``C[i, j] = 0``: the accumulators of an mma at the beginning."""

    def plain(operands: Sequence[Load]) -> Stmt:
        (c,) = operands
        loops = _Loops()
        return loops.around(Store(c.buffer, moved(c, loops.over(i=16, j=8)), const(0, c.dtype)))

    def lanes(operands: Sequence[Load], lane: Var) -> Stmt:
        (c,) = operands
        me, loops = _Lane(lane), _Loops()
        at = me.own(c, loops.over(high=2, low=2))
        return me.run(loops.around(Store(c.buffer, at, const(0, c.dtype))))

    operands = (Operand("c", "float32", (16, 8), FRAGMENT_C),)
    return Instruction("zero_m16n8_f32", operands, plain, lanes)


#: Fragments of each ldmatrix, and whether its four matrices of 8 x 8 go to the registers downwards
#: first; else to the right first.
_LDMATRIX = {
    "a": (FRAGMENT_A, True),
    "b_trans": (_PAIR_OF_B, True),
    "b": (_PAIR_OF_B_TRANSPOSED, False),
}


def ldmatrix_row(name: str, lane: Expr) -> tuple[Expr, Expr]:
    """First element of the row of 8, in the tile of 16 x 16, whose address a lane gives."""
    which = name.removeprefix("ldmatrix_x4_").rpartition("_")[0]
    matrix, row = lane // 8, lane % 8
    down, right = matrix % 2, matrix // 2
    if not _LDMATRIX[which][1]:
        down, right = right, down
    return down * 8 + row, right * 8


def _ldmatrix(which: str, dtype: str) -> Instruction:
    """``F[i, j] = S[i, j]``: a tile of 16 x 16 elements from shared memory into fragments."""
    # A lane reads 8 elements of one row; all lanes meet and take their two elements of each matrix,
    # with ``.trans`` from two rows.
    fragment, _ = _LDMATRIX[which]
    name = f"ldmatrix_x4_{which}_{SHORT[dtype]}"

    def plain(operands: Sequence[Load]) -> Stmt:
        f, s = operands
        loops = _Loops()
        i, j = loops.over(i=16, j=16)
        value = Load(s.buffer, moved(s, (i, j)), s.dtype)
        return loops.around(Store(f.buffer, moved(f, (i, j)), value))

    def lanes(operands: Sequence[Load], lane: Var) -> Stmt:
        f, s = operands
        me, reading, taking = _Lane(lane), _Loops(), _Loops()
        rows = Buffer(f"{s.buffer.name}.rows", (*WARP_LANES, 8), s.dtype, "warp")
        (e,) = reading.over(e=8)
        row, column = ldmatrix_row(name, lane)
        value = Load(s.buffer, moved(s, (row, column + e)), s.dtype)
        read = reading.around(Store(rows, (me.g, me.t, e), value))
        q1, q0, low = taking.over(q1=2, q0=2, low=2)
        pair = me.t * 2 + low
        of_row, element = (pair, me.g) if which.endswith("trans") else (me.g, pair)
        # The rows of matrix q are those of lanes 8 q to 8 q + 7: g is 2 q + row // 4.
        at = ((q1 * 2 + q0) * 2 + of_row // 4, of_row % 4, element)
        take = taking.around(Store(f.buffer, me.own(f, (q1, q0, low)), Load(rows, at, s.dtype)))
        return me.run(Allocate(rows, seq(read, Barrier("warp"), take, Barrier("warp"))))

    operands = (Operand("f", dtype, (16, 16), fragment), Operand("s", dtype, (16, 16)))
    return Instruction(name, operands, plain, lanes)


#: Instructions of a warp by name.
WARP_INSTRUCTIONS: dict[str, Instruction] = {
    x.name: x
    for x in (
        _fill(),
        *(_mma(kind, transposed) for kind in _KINDS for transposed in (False, True)),
        *(_ldmatrix(which, d) for d in SHORT for which in _LDMATRIX),
    )
}


# ---------------------------------------------------------------- dot products

#: Names of element types in names of instructions.
_SHORT = {"uint8": "u8", "int8": "s8", "int16": "s16", "bfloat16": "bf16"}
#: Lanes that dot products have, those of AVX-512 last.
DOT_LANES = (4, 8, 16)
#: Operands of dot products, the one that all lanes share first.
DOT_OPERANDS = (
    ("uint8", "int8"),
    ("int8", "uint8"),
    ("int8", "int8"),
    ("uint8", "uint8"),
    ("int16", "int16"),
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
    """A dot product as an instruction; sums of integers wrap as int32 does."""

    # ``vpdpbusd`` of AVX-512 VNNI and AVX-VNNI for an unsigned and a signed operand, with a
    # correction for two of one kind; ``vdpbf16ps`` of AVX-512 BF16, which adds the odd element
    # first and takes denormal numbers for zeros.
    def plain(operands: Sequence[Load]) -> Stmt:
        c, a, b = operands
        j = Var("lane")
        at = moved(c, (j,))

        def product(k: int) -> Expr:
            x = Load(a.buffer, moved(a, (k,)), a.dtype)
            y = Load(b.buffer, moved(b, (j, k)), b.dtype)
            return cast(x, dot.result) * cast(y, dot.result)

        old = Load(c.buffer, at, c.dtype)
        products = [product(k) for k in range(dot.group)]
        # Of floats the last product is added first.
        terms = (
            [old, *reversed(products)] if dot.result == "float32" else [old, fold(add, products)]
        )
        return For(j, dot.lanes, "vectorized", Store(c.buffer, at, fold(add, terms)))

    return Instruction(
        dot.name,
        (
            Operand("c", dot.result, (dot.lanes,)),
            Operand("a", dot.data, (dot.group,)),
            Operand("b", dot.kernel, (dot.lanes, dot.group)),
        ),
        plain,
    )


#: Dot products by the names of their instructions.
DOT_PRODUCTS = {
    dot.name: dot
    for dot in (DotProduct(*operands, lanes) for operands in DOT_OPERANDS for lanes in DOT_LANES)
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
        families = dict.fromkeys(f"{other.partition('_')[0]}_..." for other in INSTRUCTIONS)
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

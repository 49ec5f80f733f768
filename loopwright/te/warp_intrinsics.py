"""Tensor intrinsics of tensor cores, for ``s[C].tensorize`` in kernels for CUDA.

The 32 threads of a warp run them together; their operands lie in buffers of scope ``"warp"``, which
are spread over the registers of the lanes as `fragment_layout` says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

from loopwright.errors import TensorError, did_you_mean
from loopwright.ir.expr import Expr, ExprLike, as_expr
from loopwright.ir.instructions import (
    FRAGMENT_A,
    FRAGMENT_A_TF32,
    FRAGMENT_B,
    FRAGMENT_B_TF32,
    FRAGMENT_B_TF32_TRANSPOSED,
    FRAGMENT_B_TRANSPOSED,
    FRAGMENT_C,
    SHORT,
    Fragment,
)
from loopwright.ir.instructions import round_tf32 as rounded_to_tf32
from loopwright.ir.stmt import Stmt
from loopwright.te.computes import compute
from loopwright.te.ir_builder import BufferView, call_intrin, ir_builder
from loopwright.te.reducer import sum as te_sum
from loopwright.te.tensor import placeholder, reduce_axis
from loopwright.te.tensor_intrin import TensorIntrin, decl_tensor_intrin

#: Operand of an mma that a fragment is: ``b_nk`` is B with its rows and columns exchanged.
FragmentOperand = Literal["a", "b", "b_nk", "c"]
#: A fragment, extents of its tile, and whether tiles follow one another by columns last.
_Tiles = tuple[Fragment, tuple[int, int], bool]
_FRAGMENTS: dict[str, _Tiles] = {
    "a": (FRAGMENT_A, (16, 16), True),
    "b": (FRAGMENT_B, (16, 8), True),
    "b_nk": (FRAGMENT_B_TRANSPOSED, (8, 16), False),
    "c": (FRAGMENT_C, (16, 8), True),
}
_FRAGMENTS_TF32: dict[str, _Tiles] = {
    "a": (FRAGMENT_A_TF32, (16, 8), True),
    "b": (FRAGMENT_B_TF32, (8, 8), True),
    "b_nk": (FRAGMENT_B_TF32_TRANSPOSED, (8, 8), False),
    "c": _FRAGMENTS["c"],
}
#: Fragments of `mma_m16n8k16`, and of `mma_m16n8k8`.
_BY_DTYPE = {**dict.fromkeys(SHORT, _FRAGMENTS), "tf32": _FRAGMENTS_TF32}
#: A map from indices of an element to those of its place in a buffer.
IndexMap = Callable[..., tuple[Any, ...]]


def fragment_layout(operand: FragmentOperand, dtype: str = "float16") -> IndexMap:
    """The layout of a buffer of scope ``"warp"`` that holds tiles of an operand of an mma.

    The first two indices, of extents 8 and 4, are the lane; the last ones the registers of a tile;
    those between count tiles. The rows and columns of a tile are the last two indices of the
    tensor.

    Args:
        operand: ``"a"`` (16 rows, 16 steps of the reduction), ``"b"`` (16 steps, 8 columns),
            ``"b_nk"`` (8 columns, 16 steps) or ``"c"`` (16 rows, 8 columns).
        dtype: that of A and B: ``"float16"`` or ``"bfloat16"``, whose layouts are equal, for
            `mma_m16n8k16`; ``"tf32"``, with 8 steps for 16, for `mma_m16n8k8`.

    Returns:
        The index map, for ``s[T].transform_layout``.

    Raises:
        TensorError: another operand or dtype.

    Example:
        >>> print(te.intrinsics.fragment_layout("c")(9, 21))
        (1, 2, 0, 2, 1, 1)
    """
    if dtype not in _BY_DTYPE:
        raise TensorError(
            f"fragment_layout: the operands are {', '.join(SHORT)} or tf32, got {dtype!r}"
        )
    if operand not in _FRAGMENTS:
        raise TensorError(
            f"fragment_layout: unknown operand {operand!r}{did_you_mean(str(operand), _FRAGMENTS)};"
            f" use {', '.join(_FRAGMENTS)}"
        )
    fragment, tile, columns_last = _BY_DTYPE[dtype][operand]

    def index_map(*indices: Any) -> tuple[Any, ...]:
        *outer, row, column = indices
        tiles = [row // tile[0], column // tile[1]]
        return (
            *(_digit(indices, d) for d in fragment.lane),
            *outer,
            *(tiles if columns_last else reversed(tiles)),
            *(_digit(indices, d) for d in fragment.registers),
        )

    return index_map


def _digit(indices: tuple[Any, ...], digit: tuple[int, int, int]) -> Any:
    which, div, mod = digit
    x = indices[len(indices) - 2 + which]
    return (x // div if div > 1 else x) % mod


@lru_cache(maxsize=8)
def mma_m16n8k16(dtype: str = "float16", transposed: bool = False) -> TensorIntrin:
    """``C[i, j] = sum(A[i, k] * B[k, j])``, 16 x 8 x 16, 16-bit floats into float32.

    One instruction of tensor cores, ``mma.sync.aligned.m16n8k16``, of CUDA from compute capability
    8.0 on. All operands are buffers of scope ``"warp"`` in layouts of `fragment_layout`. The
    threads of threadIdx.x, 32 of them, run it together. The order of the sum, and its roundings,
    are the hardware's choice.

    Args:
        dtype: of A and B: ``"float16"`` or ``"bfloat16"``.
        transposed: whether B is read as ``B[j, k]``.

    Raises:
        TensorError: another dtype.

    Example:
        >>> print(te.intrinsics.mma_m16n8k16())
        TensorIntrin(mma_m16n8k16_float16)
    """
    short = _short(dtype, "mma_m16n8k16")
    suffix = "_nk" if transposed else ""
    name = f"mma_m16n8k16_{short}{short}f32{suffix}"
    title = f"mma_m16n8k16_{dtype}{suffix}"
    return _mma(name, title, 16, dtype, transposed, lambda x: x.astype("float32"))


@lru_cache(maxsize=8)
def mma_m16n8k8(transposed: bool = False) -> TensorIntrin:
    """``C[i, j] = sum(tf32(A[i, k]) * tf32(B[k, j]))``, 16 x 8 x 8, float32 in and out.

    One instruction of tensor cores, ``mma.sync.aligned.m16n8k8`` of tf32, of CUDA from compute
    capability 8.0 on. It keeps 11 significant bits of the 24 of each operand, which it rounds as
    `round_tf32` does; a stage that it makes has that in its expression. Products and sums are in
    float32. All operands are buffers of scope ``"warp"`` in layouts of `fragment_layout` for
    ``"tf32"``. The threads of threadIdx.x, 32 of them, run it together. The order of the sum,
    and its roundings, are the hardware's choice.

    Args:
        transposed: whether B is read as ``B[j, k]``.

    Example:
        >>> print(te.intrinsics.mma_m16n8k8())
        TensorIntrin(mma_m16n8k8_tf32)
    """
    suffix = "_nk" if transposed else ""
    name = f"mma_m16n8k8_tf32tf32f32{suffix}"
    return _mma(name, f"mma_m16n8k8_tf32{suffix}", 8, "float32", transposed, round_tf32)


def _mma(
    name: str,
    title: str,
    steps: int,
    dtype: str,
    transposed: bool,
    factor: Callable[[Any], Any],
) -> TensorIntrin:
    """Intrinsic of an instruction ``mma``, which multiplies ``factor`` of each element."""
    a = placeholder((16, steps), dtype, name="A")
    b = placeholder((8, steps) if transposed else (steps, 8), dtype, name="B")
    k = reduce_axis((0, steps), name="k")

    def product(i: Any, j: Any) -> Any:
        return te_sum(factor(a[i, k]) * factor(b[j, k] if transposed else b[k, j]), axis=k)

    c = compute((16, 8), product, name="C")

    def statements(ins: list[BufferView], outs: list[BufferView]) -> tuple[Stmt, Stmt, Stmt]:
        x, y = ins
        (z,) = outs
        zero = call_intrin("zero_m16n8_f32", z[0, 0])
        add = call_intrin(name, z[0, 0], x[0, 0], y[0, 0])
        whole = ir_builder()
        whole.emit(zero)
        whole.emit(add)
        return whole.get(), zero, add

    return decl_tensor_intrin(c.op, statements, name=title)


def round_tf32(x: ExprLike) -> Expr:
    """The value of tf32 that is nearest to a float32, ties away from zero, as a float32.

    tf32 has the range of float32 and 11 significant bits of its 24. The operands of
    `mma_m16n8k8` are rounded so (``cvt.rna.tf32.f32`` of PTX), on any target. Values beyond the
    largest become infinite, NaN stays NaN.

    Raises:
        TensorError: ``x`` is no float32.

    Example:
        >>> A = te.placeholder((2,), name="A")
        >>> B = te.compute((2,), lambda i: te.intrinsics.round_tf32(A[i]), name="B")
        >>> f = lw.build(te.create_schedule(B.op), [A, B])
        >>> b = np.empty(2, "float32")
        >>> f(np.array([1.0005, 1 + 2**-12], "float32"), b)
        >>> print(b)
        [1.0009766 1.       ]
    """
    e = as_expr(x)
    if e.dtype != "float32":
        raise TensorError(f"round_tf32: it is for float32, got {e.dtype}; cast it first")
    return rounded_to_tf32(e)


@lru_cache(maxsize=8)
def ldmatrix_x4(operand: str, dtype: str = "float16") -> TensorIntrin:
    """``F[i, j] = S[i, j]``: 16 x 16 elements of shared memory as fragments of `mma_m16n8k16`.

    One instruction, ``ldmatrix.sync.aligned.m8n8.x4``, of CUDA from compute capability 7.5 on. S
    lies in shared memory without a layout, its rows begin at multiples of 16 bytes.

    Args:
        operand: of which operand the fragments are: ``"a"``, ``"b"`` (two of them, loaded with
            ``.trans``) or ``"b_nk"`` (two of them).
        dtype: ``"float16"`` or ``"bfloat16"``.

    Raises:
        TensorError: another operand or dtype.

    Example:
        >>> print(te.intrinsics.ldmatrix_x4("a"))
        TensorIntrin(ldmatrix_x4_a_float16)
    """
    kinds = {"a": "a", "b": "b_trans", "b_nk": "b"}
    if operand not in kinds:
        raise TensorError(f"ldmatrix_x4: unknown operand {operand!r}; use {', '.join(kinds)}")
    name = f"ldmatrix_x4_{kinds[operand]}_{_short(dtype, 'ldmatrix_x4')}"
    s = placeholder((16, 16), dtype, name="S")
    f = compute((16, 16), lambda i, j: s[i, j], name="F")

    def statement(ins: list[BufferView], outs: list[BufferView]) -> Stmt:
        return call_intrin(name, outs[0][0, 0], ins[0][0, 0])

    return decl_tensor_intrin(f.op, statement, name=f"ldmatrix_x4_{operand}_{dtype}")


def _short(dtype: str, who: str) -> str:
    if dtype not in SHORT:
        raise TensorError(f"{who}: the operands are {' or '.join(SHORT)}, got {dtype!r}")
    return SHORT[dtype]


def warp_call_of(intrin: TensorIntrin) -> str:
    """Python text of an intrinsic of this file; empty for any other."""
    for transposed in (False, True):
        if intrin == mma_m16n8k8(transposed):
            return f"te.intrinsics.mma_m16n8k8({transposed})"
    for dtype in SHORT:
        for transposed in (False, True):
            if intrin == mma_m16n8k16(dtype, transposed):
                return f"te.intrinsics.mma_m16n8k16({dtype!r}, {transposed})"
        for operand in ("a", "b", "b_nk"):
            if intrin == ldmatrix_x4(operand, dtype):
                return f"te.intrinsics.ldmatrix_x4({operand!r}, {dtype!r})"
    return ""

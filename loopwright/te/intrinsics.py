"""Tensor intrinsics that come with loopwright, for ``s[C].tensorize``."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

from loopwright.errors import TensorError, did_you_mean
from loopwright.ir import instructions
from loopwright.ir.expr import Expr, ExprLike, as_expr
from loopwright.ir.stmt import Stmt, seq
from loopwright.te.computes import compute
from loopwright.te.ir_builder import BufferView, call_intrin, ir_builder
from loopwright.te.reducer import sum as te_sum
from loopwright.te.tensor import placeholder, reduce_axis
from loopwright.te.tensor_intrin import TensorIntrin, decl_tensor_intrin

__all__ = [
    "dot_products", "dot_uint8_int8_int32", "fragment_layout", "ldmatrix_x4", "mma_m16n8k8",
    "mma_m16n8k16", "round_tf32",
]  # fmt: skip

#: Operand of an mma that a fragment is: ``b_nk`` is B with its rows and columns exchanged.
FragmentOperand = Literal["a", "b", "b_nk", "c"]
#: A fragment, extents of its tile, and whether tiles follow one another by columns last.
_Tiles = tuple[instructions.Fragment, tuple[int, int], bool]
_FRAGMENTS: dict[str, _Tiles] = {
    "a": (instructions.FRAGMENT_A, (16, 16), True),
    "b": (instructions.FRAGMENT_B, (16, 8), True),
    "b_nk": (instructions.FRAGMENT_B_TRANSPOSED, (8, 16), False),
    "c": (instructions.FRAGMENT_C, (16, 8), True),
}
_FRAGMENTS_TF32: dict[str, _Tiles] = {
    "a": (instructions.FRAGMENT_A_TF32, (16, 8), True),
    "b": (instructions.FRAGMENT_B_TF32, (8, 8), True),
    "b_nk": (instructions.FRAGMENT_B_TF32_TRANSPOSED, (8, 8), False),
    "c": _FRAGMENTS["c"],
}
#: Fragments of `mma_m16n8k16`, and of `mma_m16n8k8`.
_BY_DTYPE = {**dict.fromkeys(instructions.SHORT, _FRAGMENTS), "tf32": _FRAGMENTS_TF32}
#: A map from indices of an element to those of its place in a buffer.
IndexMap = Callable[..., tuple[Any, ...]]


def fragment_layout(operand: FragmentOperand, dtype: str = "float16") -> IndexMap:
    """The index map for ``s[T].transform_layout`` to tiles of an operand of an mma.

    The buffer is of scope ``"warp"``. The first two indices, of extents 8 and 4, are the lane; the
    last ones the registers of a tile; those between count tiles. The rows and columns of a tile are
    the last two indices of the tensor.

    Args:
        operand: ``"a"`` (16 rows, 16 steps of the reduction), ``"b"`` (16 steps, 8 columns),
            ``"b_nk"`` (8 columns, 16 steps) or ``"c"`` (16 rows, 8 columns).
        dtype: that of A and B: ``"float16"`` or ``"bfloat16"``, whose layouts are equal, for
            `mma_m16n8k16`; ``"tf32"``, with 8 steps for 16, for `mma_m16n8k8`.

    Raises:
        TensorError: another operand or dtype.
    """
    if dtype not in _BY_DTYPE:
        dtypes = ", ".join(instructions.SHORT)
        raise TensorError(f"fragment_layout: the operands are {dtypes} or tf32, got {dtype!r}")
    if operand not in _FRAGMENTS:
        raise TensorError(
            f"fragment_layout: unknown operand {operand!r}{did_you_mean(str(operand), _FRAGMENTS)};"
            f" use {', '.join(_FRAGMENTS)}"
        )
    fragment, tile, columns_last = _BY_DTYPE[dtype][operand]

    def digit(indices: tuple[Any, ...], one: tuple[int, int, int]) -> Any:
        which, div, mod = one
        x = indices[len(indices) - 2 + which]
        return (x // div if div > 1 else x) % mod

    def index_map(*indices: Any) -> tuple[Any, ...]:
        *outer, row, column = indices
        tiles = [row // tile[0], column // tile[1]]
        return (
            *(digit(indices, d) for d in fragment.lane),
            *outer,
            *(tiles if columns_last else reversed(tiles)),
            *(digit(indices, d) for d in fragment.registers),
        )

    return index_map


@lru_cache(maxsize=8)
def mma_m16n8k16(dtype: str = "float16", transposed: bool = False) -> TensorIntrin:
    """``C[i, j] = sum(A[i, k] * B[k, j])``, 16 x 8 x 16, 16-bit floats into float32.

    One instruction of tensor cores, ``mma.sync.aligned.m16n8k16``, of CUDA from compute capability
    8.0 on. All operands are buffers of scope ``"warp"`` in layouts of `fragment_layout`. The
    threads of threadIdx.x, 32 of them, run it together. The order of the sum, and its roundings,
    are the hardware's choice.

    A and B are of ``dtype``, ``"float16"`` or ``"bfloat16"``, another is a TensorError;
    ``transposed`` reads B as ``B[j, k]``.
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

    ``transposed`` reads B as ``B[j, k]``.
    """
    suffix = "_nk" if transposed else ""
    name = f"mma_m16n8k8_tf32tf32f32{suffix}"
    return _mma(name, f"mma_m16n8k8_tf32{suffix}", 8, "float32", transposed, round_tf32)


def _mma(
    name: str, title: str, steps: int, dtype: str, transposed: bool, factor: Callable[[Any], Any]
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
        return seq(zero, add), zero, add

    return decl_tensor_intrin(c.op, statements, name=title)


def round_tf32(x: ExprLike) -> Expr:
    """The value of tf32 that is nearest to a float32, ties away from zero, as a float32.

    tf32 has the range of float32 and 11 significant bits of its 24. The operands of
    `mma_m16n8k8` are rounded so (``cvt.rna.tf32.f32`` of PTX), on any target. Values beyond the
    largest become infinite, NaN stays NaN.

    Another dtype is a TensorError.

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
    return instructions.round_tf32(e)


@lru_cache(maxsize=8)
def ldmatrix_x4(operand: str, dtype: str = "float16") -> TensorIntrin:
    """``F[i, j] = S[i, j]``: 16 x 16 elements of shared memory as fragments of `mma_m16n8k16`.

    One instruction, ``ldmatrix.sync.aligned.m8n8.x4``, of CUDA from compute capability 7.5 on. S
    lies in shared memory without a layout, its rows begin at multiples of 16 bytes.

    ``operand`` is that of the fragments: ``"a"``, ``"b"`` (two of them, loaded with ``.trans``) or
    ``"b_nk"`` (two of them), of ``"float16"`` or ``"bfloat16"``; all else is a TensorError.
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
    if dtype not in instructions.SHORT:
        raise TensorError(
            f"{who}: the operands are {' or '.join(instructions.SHORT)}, got {dtype!r}"
        )
    return instructions.SHORT[dtype]


_UNSIGNED_BY_SIGNED = ("uint8", "int8")


def call_of(intrin: TensorIntrin) -> str:
    """Python text of an intrinsic of this file, ``te.intrinsics.mma_m16n8k8(True)``, or ''."""
    calls: list[tuple[Callable[..., TensorIntrin], tuple[object, ...]]] = []
    for dot in instructions.DOT_PRODUCTS.values():
        if (dot.data, dot.kernel) == _UNSIGNED_BY_SIGNED:
            calls.append((dot_uint8_int8_int32, (dot.lanes,)))
        else:
            calls.append((dot_products, (dot.data, dot.kernel, dot.lanes)))
    calls += [(mma_m16n8k8, (transposed,)) for transposed in (False, True)]
    for dtype in instructions.SHORT:
        calls += [(mma_m16n8k16, (dtype, transposed)) for transposed in (False, True)]
        calls += [(ldmatrix_x4, (operand, dtype)) for operand in ("a", "b", "b_nk")]
    for make, args in calls:
        if intrin == make(*args):
            return f"te.intrinsics.{make.__name__}({', '.join(map(repr, args))})"
    return ""


def dot_uint8_int8_int32(lanes: int = 16) -> TensorIntrin:
    """``C[j] = sum(data[k] * kernel[j, k] for k in range(4))``, bytes into int32.

    One instruction (``vpdpbusd``) on CPUs with AVX-512 VNNI, and of 4 or 8 lanes with AVX-VNNI;
    plain code with the same results on others. Each operand lies without gaps in memory: the kernel
    of a matrix product is packed as ``[n // lanes, k // 4, n % lanes, k % 4]``.

    ``lanes``, elements of C, are 4, 8 or 16, else it is a TensorError.
    """
    return dot_products(*_UNSIGNED_BY_SIGNED, lanes)


@lru_cache(maxsize=32)
def dot_products(data: str, kernel: str, lanes: int = 16) -> TensorIntrin:
    """``C[j] = sum(data[k] * kernel[j, k])`` over the k that fill 32 bits.

    Four bytes each, or two int16, are summed into int32, two bfloat16 into float32.

    Bytes: one ``vpdpbusd`` for each 4, 8 or 16 lanes where one operand is unsigned and the other
    signed; where both are alike, one more and a subtraction, which most loops around share. int16:
    one ``vpmaddwd`` and an addition. Sums wrap as int32 does. bfloat16: ``vdpbf16ps`` on CPUs with
    AVX-512 BF16, which takes denormal numbers for zeros. Plain code with the same results (but for
    denormal numbers) on other CPUs. Each operand lies without gaps in memory.

    Args:
        data: the element type of what all lanes share: ``uint8``, ``int8``, ``int16`` or
            ``bfloat16``.
        kernel: that of what each lane has of its own: ``uint8`` or ``int8``, else the same.
        lanes: elements of C: 4, 8 or 16; others, and other types, are a TensorError.
    """
    if (data, kernel) not in instructions.DOT_OPERANDS or lanes not in instructions.DOT_LANES:
        operands = ", ".join(f"{a} by {b}" for a, b in instructions.DOT_OPERANDS)
        raise TensorError(
            f"dot_products: {lanes!r} lanes of {data} by {kernel}; there are 4, 8 and 16 lanes of "
            f"{operands}"
        )
    dot = instructions.DotProduct(data, kernel, lanes)
    a = placeholder((dot.group,), data, name="data")
    b = placeholder((lanes, dot.group), kernel, name="kernel")
    k = reduce_axis((0, dot.group), name="k")
    C = compute(
        (lanes,),
        lambda j: te_sum(a[k].astype(dot.result) * b[j, k].astype(dot.result), axis=k),
        name="C",
    )

    def statements(ins: list[BufferView], outs: list[BufferView]) -> tuple[Stmt, Stmt, Stmt]:
        (c,) = outs
        add = call_intrin(dot.name, c[0], ins[0][0], ins[1][0, 0])
        zero = ir_builder()
        with zero.for_range(lanes, "j", "vectorized") as j:
            zero.emit(c.store(j, 0))
        return seq(zero.get(), add), zero.get(), add

    name = f"dot_{lanes}x{dot.group}_{data}_{kernel}_{dot.result}"
    return decl_tensor_intrin(C.op, statements, name=name)

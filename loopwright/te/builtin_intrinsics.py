"""Tensor intrinsics that come with loopwright, for ``s[C].tensorize``."""

from __future__ import annotations

from functools import lru_cache

from loopwright.errors import TensorError
from loopwright.ir.instructions import DOT_LANES, DOT_OPERANDS, DOT_PRODUCTS, DotProduct
from loopwright.ir.stmt import Stmt
from loopwright.te.computes import compute
from loopwright.te.ir_builder import BufferView, call_intrin, ir_builder
from loopwright.te.reducer import sum as te_sum
from loopwright.te.tensor import placeholder, reduce_axis
from loopwright.te.tensor_intrin import TensorIntrin, decl_tensor_intrin
from loopwright.te.warp_intrinsics import (
    fragment_layout,
    ldmatrix_x4,
    mma_m16n8k8,
    mma_m16n8k16,
    round_tf32,
    warp_call_of,
)

__all__ = [
    "dot_products",
    "dot_uint8_int8_int32",
    "fragment_layout",
    "ldmatrix_x4",
    "mma_m16n8k8",
    "mma_m16n8k16",
    "round_tf32",
]

_UNSIGNED_BY_SIGNED = ("uint8", "int8")


def call_of(intrin: TensorIntrin) -> str:
    """Python text of an intrinsic of this file: ``te.intrinsics.dot_uint8_int8_int32(16)``.

    Empty for any other.
    """
    for dot in DOT_PRODUCTS.values():
        if intrin == dot_products(dot.data, dot.kernel, dot.lanes):
            if (dot.data, dot.kernel) == _UNSIGNED_BY_SIGNED:
                return f"te.intrinsics.dot_uint8_int8_int32({dot.lanes})"
            return f'te.intrinsics.dot_products("{dot.data}", "{dot.kernel}", {dot.lanes})'
    return warp_call_of(intrin)


def dot_uint8_int8_int32(lanes: int = 16) -> TensorIntrin:
    """``C[j] = sum(data[k] * kernel[j, k] for k in range(4))``, bytes into int32.

    One instruction (``vpdpbusd``) on CPUs with AVX-512 VNNI, and of 4 or 8 lanes with AVX-VNNI;
    plain code with the same results on others. Each operand lies without gaps in memory: the kernel
    of a matrix product is packed as ``[n // lanes, k // 4, n % lanes, k % 4]``.

    Args:
        lanes: elements of C: 4, 8 or 16.

    Raises:
        TensorError: another number of lanes.
    """
    return dot_products(*_UNSIGNED_BY_SIGNED, lanes)


@lru_cache(maxsize=32)
def dot_products(data: str, kernel: str, lanes: int = 16) -> TensorIntrin:
    """``C[j] = sum(data[k] * kernel[j, k])`` over the k that fill 32 bits.

    Four bytes each are summed into int32, two bfloat16 into float32.

    Bytes: one ``vpdpbusd`` for each 4, 8 or 16 lanes where one operand is unsigned and the other
    signed; where both are alike, one more and a subtraction, which most loops around share. Sums
    wrap as int32 does. bfloat16: ``vdpbf16ps`` on CPUs with AVX-512 BF16, which takes denormal
    numbers for zeros. Plain code with the same results (but for denormal numbers) on other CPUs.
    Each operand lies without gaps in memory.

    Args:
        data: the element type of what all lanes share: ``uint8``, ``int8`` or ``bfloat16``.
        kernel: that of what each lane has of its own: ``uint8`` or ``int8``, or ``bfloat16``.
        lanes: elements of C: 4, 8 or 16.

    Raises:
        TensorError: other element types, or another number of lanes.

    Example:
        >>> print(te.intrinsics.dot_products("bfloat16", "bfloat16").op.shape)
        (16,)
    """
    if (data, kernel) not in DOT_OPERANDS or lanes not in DOT_LANES:
        known = ", ".join(f"{a} by {b}" for a, b in DOT_OPERANDS)
        raise TensorError(
            f"dot_products: {lanes!r} lanes of {data} by {kernel}; there are 4, 8 and 16 lanes of "
            f"{known}"
        )
    dot = DotProduct(data, kernel, lanes)
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
        whole = ir_builder()
        whole.emit(zero.get())
        whole.emit(add)
        return whole.get(), zero.get(), add

    name = f"dot_{lanes}x{dot.group}_{data}_{kernel}_{dot.result}"
    return decl_tensor_intrin(C.op, statements, name=name)

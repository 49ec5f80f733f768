"""Tensor intrinsics that come with loopwright, for ``s[C].tensorize``."""

from __future__ import annotations

from functools import lru_cache

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
    "dot_uint8_int8_int32",
    "fragment_layout",
    "ldmatrix_x4",
    "mma_m16n8k8",
    "mma_m16n8k16",
    "round_tf32",
]

#: Lanes that `dot_uint8_int8_int32` has.
_LANES = (4, 8, 16)


def call_of(intrin: TensorIntrin) -> str:
    """How Python writes an intrinsic of this file: ``te.intrinsics.dot_uint8_int8_int32(16)``;
    empty for any other."""
    for lanes in _LANES:
        if intrin == dot_uint8_int8_int32(lanes):
            return f"te.intrinsics.dot_uint8_int8_int32({lanes})"
    return warp_call_of(intrin)


@lru_cache(maxsize=8)
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
    data = placeholder((4,), "uint8", name="data")
    kernel = placeholder((lanes, 4), "int8", name="kernel")
    k = reduce_axis((0, 4), name="k")
    C = compute(
        (lanes,),
        lambda j: te_sum(data[k].astype("int32") * kernel[j, k].astype("int32"), axis=k),
        name="C",
    )

    def statements(ins: list[BufferView], outs: list[BufferView]) -> tuple[Stmt, Stmt, Stmt]:
        a, b = ins
        (c,) = outs
        add = call_intrin(f"dot_{lanes}x4_u8s8s32", c[0], a[0], b[0, 0])
        zero = ir_builder()
        with zero.for_range(lanes, "j", "vectorized") as j:
            zero.emit(c.store(j, 0))
        whole = ir_builder()
        whole.emit(zero.get())
        whole.emit(add)
        return whole.get(), zero.get(), add

    return decl_tensor_intrin(C.op, statements, name=f"dot_{lanes}x4_uint8_int8_int32")

"""matmul in its four transpose forms, plain and batched."""

from __future__ import annotations

import numpy as np

from loopwright import te
from loopwright.ops import gpu, tiles
from loopwright.ops.gemm import (
    default_tiles,
    define_matmul_space,
    matmul_compute,
    schedule_matmul,
)
from loopwright.ops.operator import Array, Reference, register
from loopwright.schedule import Schedule
from loopwright.task import get_config, template


def _matmul_default(
    M: int, N: int, K: int, trans_a: bool, trans_b: bool, dtype: str
) -> dict[str, object]:
    return default_tiles(M, N, K, tiles.wide_dtype(dtype), trans_b=trans_b)


def _products(
    A: te.Tensor, B: te.Tensor, trans_a: bool, trans_b: bool
) -> tuple[te.Tensor, te.Tensor]:
    """``A @ B`` in the dtype of the sums, and in that of the result."""
    wide, final = tiles.wide_dtype(A.dtype), tiles.out_dtype(A.dtype)
    C = matmul_compute(A, B, trans_a, trans_b, out_dtype=wide)
    if final == wide:
        return C, C
    return C, te.compute(C.shape, lambda *i: C[i].astype(final), name="D")


def _product(
    A: te.Tensor, B: te.Tensor, trans_a: bool, trans_b: bool
) -> tuple[Schedule, list[te.Tensor]]:
    """``A @ B`` over the last two dimensions, scheduled by the configuration in force."""
    C, out = _products(A, B, trans_a, trans_b)
    s = te.create_schedule(out.op)
    cfg = get_config()
    *_, m, n = C.static_shape
    define_matmul_space(cfg, m, n, C.op.reduce_axis[0].count, C.dtype, trans_b)
    acc = s.cache_write(C, "local") if out is C else C
    schedule_matmul(cfg, s, out, acc, B, trans_b)
    return s, [A, B, out]


def _reference(trans_a: bool, trans_b: bool, dtype: str) -> Reference:
    def reference(a: Array, b: Array) -> Array:
        x, y = tiles.widen(a, dtype), tiles.widen(b, dtype)
        x = x.swapaxes(-1, -2) if trans_a else x
        y = y.swapaxes(-1, -2) if trans_b else y
        return tiles.narrow(np.matmul(x, y), dtype)

    return reference


def _matmul_reference(
    M: int, N: int, K: int, trans_a: bool, trans_b: bool, dtype: str
) -> Reference:
    return _reference(trans_a, trans_b, dtype)


@template("matmul", make_reference=_matmul_reference, default=_matmul_default)
def matmul(
    M: int, N: int, K: int, trans_a: bool = False, trans_b: bool = False, dtype: str = "float32"
) -> tuple[Schedule, list[te.Tensor]]:
    """C (M, N) = A (M, K) @ B (K, N); ``trans_a``: A is (K, M), ``trans_b``: B is (N, K).

    int8 and uint8 operands are accumulated and returned as int32; float16 and bfloat16 ones are
    accumulated as float32 and returned in their own dtype.

    Example:
        >>> s, args = lw.ops.matmul(8, 8, 8)
        >>> f = lw.build(s, args, "llvm")
        >>> a, b = np.eye(8, dtype="float32"), np.full((8, 8), 3, "float32")
        >>> c = np.empty((8, 8), "float32")
        >>> f(a, b, c)
        >>> print(c[0, :4])
        [3. 3. 3. 3.]
    """
    return _product(*_operands((), M, N, K, trans_a, trans_b, dtype), trans_a, trans_b)


def _operands(
    batch: tuple[int, ...], M: int, N: int, K: int, trans_a: bool, trans_b: bool, dtype: str
) -> tuple[te.Tensor, te.Tensor]:
    A = te.placeholder((*batch, K, M) if trans_a else (*batch, M, K), dtype, name="A")
    B = te.placeholder((*batch, N, K) if trans_b else (*batch, K, N), dtype, name="B")
    return A, B


@matmul.register("gpu")
def _matmul_gpu(
    M: int, N: int, K: int, trans_a: bool, trans_b: bool, dtype: str
) -> tuple[Schedule, list[te.Tensor]]:
    operands = _operands((), M, N, K, trans_a, trans_b, dtype)
    return gpu.scheduled(_products(*operands, trans_a, trans_b)[1], operands)


def _batch_default(
    B: int, M: int, N: int, K: int, trans_a: bool, trans_b: bool, dtype: str
) -> dict[str, object]:
    tiles.check_sizes(dtype, B=B)
    return default_tiles(M, N, K, tiles.wide_dtype(dtype), batch=B, trans_b=trans_b)


def _batch_reference(
    B: int,
    M: int,
    N: int,
    K: int,
    trans_a: bool,
    trans_b: bool,
    dtype: str,
) -> Reference:
    return _reference(trans_a, trans_b, dtype)


@template("batch_matmul", make_reference=_batch_reference, default=_batch_default)
def batch_matmul(
    B: int,
    M: int,
    N: int,
    K: int,
    trans_a: bool = False,
    trans_b: bool = False,
    dtype: str = "float32",
) -> tuple[Schedule, list[te.Tensor]]:
    """`matmul` for each of B pairs: C (B, M, N) = A (B, M, K) @ B (B, K, N).

    Example:
        >>> s, args = lw.ops.batch_matmul(2, 8, 8, 8)
        >>> f = lw.build(s, args, "llvm")
        >>> a, b = np.ones((2, 8, 8), "float32"), np.ones((2, 8, 8), "float32")
        >>> c = np.empty((2, 8, 8), "float32")
        >>> f(a, b, c)
        >>> print(c[0, 0, :4])
        [8. 8. 8. 8.]
    """
    return _product(*_operands((B,), M, N, K, trans_a, trans_b, dtype), trans_a, trans_b)


@batch_matmul.register("gpu")
def _batch_matmul_gpu(
    B: int, M: int, N: int, K: int, trans_a: bool, trans_b: bool, dtype: str
) -> tuple[Schedule, list[te.Tensor]]:
    operands = _operands((B,), M, N, K, trans_a, trans_b, dtype)
    return gpu.scheduled(_products(*operands, trans_a, trans_b)[1], operands)


register(matmul, "C = A @ B; A (M, K) or (K, M), B (K, N) or (N, K)")
register(
    batch_matmul,
    "C = A @ B for each of a batch; A (B, M, K) or (B, K, M), B (B, K, N) or (B, N, K)",
)

"""Matrix products: matmul in its four transpose forms, plain and batched, and dense layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright import te
from loopwright.errors import TensorError
from loopwright.ir.expr import Expr
from loopwright.ops import gpu, tiles
from loopwright.ops.gemm import (
    default_tiles,
    define_matmul_space,
    matmul_compute,
    schedule_matmul,
)
from loopwright.ops.operator import Array, Reference, compute, register
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


def _reference(*args: Any) -> Reference:
    *_, trans_a, trans_b, dtype = args

    def reference(a: Array, b: Array) -> Array:
        x, y = tiles.widen(a, dtype), tiles.widen(b, dtype)
        x = x.swapaxes(-1, -2) if trans_a else x
        y = y.swapaxes(-1, -2) if trans_b else y
        return tiles.narrow(np.matmul(x, y), dtype)

    return reference


@template("matmul", make_reference=_reference, default=_matmul_default)
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


@template("batch_matmul", make_reference=_reference, default=_batch_default)
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


def _dense_default(
    M: int, N: int, K: int, bias: bool, relu: bool, dtype: str, weight: str
) -> dict[str, object]:
    return default_tiles(M, N, K, tiles.wide_dtype(dtype), trans_b=weight == "NK")


def _dense_reference(
    M: int,
    N: int,
    K: int,
    bias: bool,
    relu: bool,
    dtype: str,
    weight: str,
) -> Reference:
    def reference(x: Array, w: Array, *b: Array) -> Array:
        x, w = tiles.widen(x, dtype), tiles.widen(w, dtype)
        y = x @ (w.T if weight == "NK" else w)
        y = y + b[0].astype(y.dtype, copy=False) if bias else y
        y = np.maximum(y, y.dtype.type(0)) if relu else y
        return tiles.narrow(y, dtype)

    return reference


@template("dense", make_reference=_dense_reference, default=_dense_default)
def dense(
    M: int,
    N: int,
    K: int,
    bias: bool = True,
    relu: bool = True,
    dtype: str = "float32",
    weight: str = "NK",
) -> tuple[Schedule, list[te.Tensor]]:
    """Y (M, N) = relu(X (M, K) @ W + bias (N)); W is (N, K), or (K, N) with ``weight="KN"``.

    Narrow operands are summed as in `matmul`; the bias has the dtype of the result.

    Example:
        >>> s, args = lw.ops.dense(4, 8, 16)
        >>> f = lw.build(s, args, "llvm")
        >>> x, w = np.ones((4, 16), "float32"), np.ones((8, 16), "float32")
        >>> bias, y = np.ones(8, "float32"), np.empty((4, 8), "float32")
        >>> f(x, w, bias, y)
        >>> print(y[0, :4])
        [17. 17. 17. 17.]
    """
    inputs, stages = _layer(M, N, K, bias, relu, dtype, weight)
    Z, out = stages[0], stages[-1]
    s = te.create_schedule(out.op)
    cfg = get_config()
    trans = weight == "NK"
    define_matmul_space(cfg, M, N, K, Z.dtype, trans)
    for stage in stages[1:-1]:
        s[stage].compute_inline()
    acc = s.cache_write(Z, "local") if out is Z else Z
    schedule_matmul(cfg, s, out, acc, inputs[1], trans)
    return s, [*inputs, out]


@dense.register("gpu")
def _dense_gpu(
    M: int, N: int, K: int, bias: bool, relu: bool, dtype: str, weight: str
) -> tuple[Schedule, list[te.Tensor]]:
    inputs, stages = _layer(M, N, K, bias, relu, dtype, weight)
    return gpu.scheduled(stages[-1], inputs)


def _layer(
    M: int, N: int, K: int, bias: bool, relu: bool, dtype: str, weight: str
) -> tuple[list[te.Tensor], list[te.Tensor]]:
    """The inputs of a layer, and its stages: the product first, the result last."""
    if weight not in ("NK", "KN"):
        raise TensorError(f"dense: weight is 'NK' or 'KN', got {weight!r}")
    trans = weight == "NK"
    X = te.placeholder((M, K), dtype, name="X")
    W = te.placeholder((N, K) if trans else (K, N), dtype, name="W")
    inputs = [X, W]
    wide, final = tiles.wide_dtype(dtype), tiles.out_dtype(dtype)
    Z = matmul_compute(X, W, trans_b=trans, name="Z", out_dtype=wide)
    stages = [Z]
    if bias:
        b = te.placeholder((N,), final, name="bias")
        inputs.append(b)
        stages.append(te.compute((M, N), lambda i, j: Z[i, j] + b[j].astype(wide), name="biased"))
    for wanted, name, f in (
        (relu, "Y", lambda x: te.max(x, 0)),
        (final != wide, "narrow", lambda x: x.astype(final)),
    ):
        if wanted:
            stages.append(_mapped(stages[-1], f, name))
    return inputs, stages


def _mapped(x: te.Tensor, f: Callable[[Expr], Expr], name: str) -> te.Tensor:
    return compute(x.shape, lambda i, j: f(x[i, j]), name=name)


register(dense, "Y = relu(X @ W + bias); X (M, K), W (N, K) or (K, N)")

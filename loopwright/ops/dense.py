"""dense: a matrix product with the weights of a layer, bias and relu."""

from __future__ import annotations

from collections.abc import Callable

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
from loopwright.ops.operator import Array, Reference, register
from loopwright.schedule import Schedule
from loopwright.task import get_config, template


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
    tensor: te.Tensor = te.compute(x.shape, lambda i, j: f(x[i, j]), name=name)
    return tensor


register(dense, "Y = relu(X @ W + bias); X (M, K), W (N, K) or (K, N)")

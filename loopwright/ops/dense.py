"""dense: a matrix product with the weights of a layer, bias and relu, for CPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright import te
from loopwright.errors import TensorError
from loopwright.ops.gemm import (
    default_tiles,
    define_matmul_space,
    matmul_compute,
    schedule_matmul,
)
from loopwright.ops.operator import REQUIRED, Operator, register
from loopwright.schedule import Schedule
from loopwright.task import get_config, template


def _dense_default(
    M: int, N: int, K: int, bias: bool, relu: bool, dtype: str, weight: str
) -> dict[str, Any]:
    return default_tiles(M, N, K, dtype, trans_b=weight == "NK")


def _dense_reference(
    M: int, N: int, K: int, bias: bool = True, relu: bool = True, dtype: str = "float32",
    weight: str = "NK",
) -> Callable[..., Any]:  # fmt: skip
    def reference(x: Any, w: Any, *b: Any) -> Any:
        y = x @ (w.T if weight == "NK" else w)
        y = y + b[0] if bias else y
        return np.maximum(y, y.dtype.type(0)) if relu else y

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
    """Y (M, N) = relu(X (M, K) @ W + bias (N)); W is (N, K), or (K, N) with ``weight="KN"``."""
    if weight not in ("NK", "KN"):
        raise TensorError(f"dense: weight is 'NK' or 'KN', got {weight!r}")
    trans = weight == "NK"
    X = te.placeholder((M, K), dtype, name="X")
    W = te.placeholder((N, K) if trans else (K, N), dtype, name="W")
    inputs = [X, W]
    Z = matmul_compute(X, W, trans_b=trans, name="Z")
    out = Z
    if bias:
        b = te.placeholder((N,), dtype, name="bias")
        inputs.append(b)
        out = te.compute((M, N), lambda i, j: Z[i, j] + b[j], name="biased")
    if relu:
        pre = out
        out = te.compute((M, N), lambda i, j: te.max(pre[i, j], 0), name="Y")
    s = te.create_schedule(out.op)
    cfg = get_config()
    define_matmul_space(cfg, M, N, K, out.dtype, trans)
    if bias and relu:
        s[pre].compute_inline()
    acc = s.cache_write(Z, "local") if out is Z else Z
    schedule_matmul(cfg, s, out, acc, W, trans)
    return s, [*inputs, out]


DENSE = register(
    Operator(
        "dense",
        dense,
        {
            **{k: REQUIRED for k in ("M", "N", "K")},
            "bias": True,
            "relu": True,
            "dtype": "float32",
            "weight": "NK",
        },
        _dense_reference,
        "Y = relu(X @ W + bias); X (M, K), W (N, K) or (K, N)",
    )
)

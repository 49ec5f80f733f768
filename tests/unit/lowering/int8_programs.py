"""Matrix products of bytes with packed weights, and their schedules, for tests of tensorize."""

from __future__ import annotations

from typing import Any

import numpy as np

from loopwright import te
from loopwright.schedule import Schedule


def packed_matmul(
    m: int, n: int, k: int, lanes: int = 16
) -> tuple[Schedule, list[te.Tensor], te.IterVar]:
    """C (m, n) of int32 = A (m, k) of uint8 @ W of int8.

    W is packed: W[n // lanes, k // 4, n % lanes, k % 4].
    """
    A = te.placeholder((m, k), "uint8", name="A")
    W = te.placeholder((-(-n // lanes), -(-k // 4), lanes, 4), "int8", name="W")
    rk = te.reduce_axis((0, k), name="k")

    def element(i: Any, j: Any) -> Any:
        w = W[j // lanes, rk // 4, j % lanes, rk % 4]
        return te.sum(A[i, rk].astype("int32") * w.astype("int32"), axis=rk)

    C = te.compute((m, n), element, name="C")
    return te.create_schedule(C.op), [A, W, C], rk


def tile(
    s: Schedule, C: te.Tensor, rows: int = 4, columns: int = 32, lanes: int = 16, group: int = 4
) -> Any:
    """A register tile whose lanes and groups stand innermost; gives stage and loop."""
    acc = s.cache_write(C, "local")
    i, j = s[C].op.axis
    _, jo, ii, ji = s[C].tile(i, j, rows, columns)
    s[C].vectorize(ji)
    s[C].unroll(ii)
    s[acc].compute_at(s[C], jo)
    ci, cj = s[acc].op.axis
    (k,) = s[acc].op.reduce_axis
    co, cl = s[acc].split(cj, factor=lanes)
    ko, ki = s[acc].split(k, factor=group)
    s[acc].reorder(ko, ci, co, cl, ki)
    s[acc].unroll(ci)
    s[acc].unroll(co)
    return acc, cl


def inputs(args: list[te.Tensor], seed: int = 0) -> tuple[list[Any], Any]:
    """Bytes over their whole range, and the product in int64 cut to int32."""
    A, W, C = args
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 256, A.shape, np.uint8)
    w = rng.integers(-128, 128, W.shape, np.int8)
    wide = w.transpose(1, 3, 0, 2).reshape(W.shape[1] * 4, -1)
    product = a.astype(np.int64) @ wide[: A.shape[1], : C.shape[1]].astype(np.int64)
    return [a, w], product.astype(np.int32)

"""matmul in its four transpose forms, and dense (with bias and relu), for CPUs.

The kernel is the one of Goto and van de Geijn (ACM TOMS 2008): a register tile of rows x vectors of
accumulators over the whole reduction, fed by a packed panel of the second operand that stays in the
second-level cache while all rows run against it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright import te
from loopwright.errors import TensorError
from loopwright.ops import tiles
from loopwright.ops.operator import REQUIRED, Operator, register
from loopwright.schedule import Schedule
from loopwright.task import get_config, template

_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)
_UNROLL = (1, 2, 4, 8)
#: Parallel tasks that the default schedule leaves at least, where the shape allows.
_MIN_TASKS = 8


def matmul_compute(
    A: te.Tensor, B: te.Tensor, trans_a: bool = False, trans_b: bool = False, name: str = "C"
) -> te.Tensor:
    """``C[i, j] = sum_k A[i, k] * B[k, j]``.

    Args:
        A: (M, K), or (K, M) with ``trans_a``.
        B: (K, N), or (N, K) with ``trans_b``.
        trans_a, trans_b: the operand is stored transposed.
        name: printed name of the result.

    Returns:
        (M, N), in the dtype of the operands.

    Raises:
        TensorError: the reduction extents or the dtypes differ.
    """
    m, ka = (A.shape[1], A.shape[0]) if trans_a else A.shape
    n, kb = B.shape if trans_b else (B.shape[1], B.shape[0])
    if ka != kb:
        raise TensorError(
            f"matmul: A is {list(A.shape)} and B {list(B.shape)}: reduction extents {ka} and {kb}"
        )
    if A.dtype != B.dtype:
        raise TensorError(f"matmul: A is {A.dtype} and B {B.dtype}; cast one of them")
    k = te.reduce_axis((0, ka), name="k")
    return te.compute(
        (m, n),
        lambda i, j: te.sum(
            (A[k, i] if trans_a else A[i, k]) * (B[j, k] if trans_b else B[k, j]), axis=k
        ),
        name=name,
        tag="matmul",
    )


def _tile_cost(M: int, N: int, rows: int, wide: int, lanes: int) -> float:
    """Loads and multiplications of a register tile for each useful multiplication."""
    vectors = wide // lanes
    covered = -(-M // rows) * rows * -(-N // wide) * wide
    return covered / (M * N) * (1 + (rows + vectors) / (2 * rows * vectors))


def _default_tiles(M: int, N: int, K: int, dtype: str) -> dict[str, Any]:
    """A schedule for shapes without a record.

    The register tile with the fewest loads and the least over-run; all rows run against one packed
    panel unless that leaves fewer than eight tasks for the threads.
    """
    tiles.check_sizes(dtype, M=M, N=N, K=K)
    rows, wide = min(
        (
            (r, w)
            for r in tiles.row_tiles(M, _ROWS)
            for w in tiles.column_tiles(N, dtype)
            if tiles.fits_registers(r, w, dtype)
        ),
        key=lambda tile: _tile_cost(M, N, tile[0], tile[1], tiles.lanes(dtype)),
        default=(1, tiles.lanes(dtype)),
    )
    count, panels = -(-M // rows), -(-N // wide)
    blocks = [b for b in (*tiles.BLOCKS, count) if b <= count]
    enough = [b for b in blocks if panels * -(-count // b) >= _MIN_TASKS]
    return {
        "tile_i": [-1, max(enough or [1]), rows],
        "tile_j": [-1, 1, wide],
        "unroll_k": min(K, 2),
    }


def _matmul_default(
    M: int, N: int, K: int, trans_a: bool, trans_b: bool, dtype: str
) -> dict[str, Any]:
    return _default_tiles(M, N, K, dtype)


def define_matmul_space(cfg: Any, M: int, N: int, K: int, dtype: str) -> None:
    """The knobs of `schedule_matmul`."""
    rows = tiles.row_tiles(M, _ROWS)
    columns = tiles.column_tiles(N, dtype)
    cfg.define_split(
        "tile_i", M, num_outputs=3, policy="candidate", candidate=tiles.blocked(M, rows)
    )
    cfg.define_split(
        "tile_j", N, num_outputs=3, policy="candidate", candidate=tiles.blocked(N, columns)
    )
    cfg.define_knob("unroll_k", [u for u in _UNROLL if u <= K], default=1)
    cfg.define_knob("order", ["ji", "ij"])
    cfg.define_knob("pack", ["panel", "block", "none"])
    cfg.multi_filter(
        lambda c: tiles.fits_registers(c["tile_i"].size[-1], c["tile_j"].size[-1], dtype)
    )


def schedule_matmul(
    cfg: Any, s: Schedule, out: te.Tensor, acc: te.Tensor, B: te.Tensor, trans_b: bool
) -> None:
    """Schedule ``out``, whose accumulation is the stage ``acc``, by the knobs of ``cfg``.

    Args:
        cfg: a configuration of `define_matmul_space`.
        s: the schedule.
        out: (M, N), elementwise over ``acc``.
        acc: the reduction; it becomes the register tile.
        B: the operand that is packed into panels.
        trans_b: B is stored (N, K).
    """
    i, j = s[out].op.axis
    i0, i1, i2 = cfg["tile_i"].apply(s, out, i)
    j0, j1, j2 = cfg["tile_j"].apply(s, out, j)
    first, second = (i0, j0) if cfg["order"].val == "ij" else (j0, i0)
    s[out].reorder(first, second, j1, i1, i2, j2)
    task = s[out].fuse(first, second)
    s[out].parallel(task)
    s[out].unroll(i2)
    s[out].vectorize(j2)
    s[acc].compute_at(s[out], i1)
    ci, cj = s[acc].op.axis
    (k,) = s[acc].op.reduce_axis
    ko, ki = s[acc].split(k, factor=cfg["unroll_k"].val)
    tiles.register_tile(s, acc, ci, cj, [ko, ki])
    s[acc].unroll(ki)
    if cfg["pack"].val != "none":
        packed = s.cache_read(B, "local", [acc])
        s[packed].compute_at(s[out], j1 if cfg["pack"].val == "panel" else task)
        _order_panels(s, packed, cfg["tile_j"].size[-1], trans_b)


def _order_panels(s: Schedule, packed: te.Tensor, width: int, trans_b: bool) -> None:
    """Store a copy of B as the register tile reads it: panels of ``width`` columns, k outside."""
    if trans_b:
        # Reads run along k, which lies together in memory; the writes stride.
        s[packed].transform_layout(lambda n, k: (n // width, k, n % width))
        return
    s[packed].transform_layout(lambda k, n: (n // width, k, n % width))
    rows, columns = s[packed].op.axis
    outer, inner = s[packed].split(columns, factor=width)
    s[packed].reorder(outer, rows, inner)
    s[packed].vectorize(inner)


def _matmul_reference(
    M: int, N: int, K: int, trans_a: bool = False, trans_b: bool = False, dtype: str = "float32"
) -> Callable[..., Any]:
    def reference(a: Any, b: Any) -> Any:
        return np.matmul(a.T if trans_a else a, b.T if trans_b else b)

    return reference


@template("matmul", make_reference=_matmul_reference, default=_matmul_default)
def matmul(
    M: int, N: int, K: int, trans_a: bool = False, trans_b: bool = False, dtype: str = "float32"
) -> tuple[Schedule, list[te.Tensor]]:
    """C (M, N) = A (M, K) @ B (K, N); ``trans_a``: A is (K, M), ``trans_b``: B is (N, K)."""
    A = te.placeholder((K, M) if trans_a else (M, K), dtype, name="A")
    B = te.placeholder((N, K) if trans_b else (K, N), dtype, name="B")
    C = matmul_compute(A, B, trans_a, trans_b)
    s = te.create_schedule(C.op)
    cfg = get_config()
    define_matmul_space(cfg, M, N, K, C.dtype)
    acc = s.cache_write(C, "local")
    schedule_matmul(cfg, s, C, acc, B, trans_b)
    return s, [A, B, C]


def _dense_default(
    M: int, N: int, K: int, bias: bool, relu: bool, dtype: str, weight: str
) -> dict[str, Any]:
    return _default_tiles(M, N, K, dtype)


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
    define_matmul_space(cfg, M, N, K, out.dtype)
    if bias and relu:
        s[pre].compute_inline()
    acc = s.cache_write(Z, "local") if out is Z else Z
    schedule_matmul(cfg, s, out, acc, W, trans)
    return s, [*inputs, out]


_SIZES = {"M": REQUIRED, "N": REQUIRED, "K": REQUIRED}
MATMUL = register(
    Operator(
        "matmul",
        matmul,
        {**_SIZES, "trans_a": False, "trans_b": False, "dtype": "float32"},
        _matmul_reference,
        "C = A @ B; A (M, K) or (K, M), B (K, N) or (N, K)",
    )
)
DENSE = register(
    Operator(
        "dense",
        dense,
        {**_SIZES, "bias": True, "relu": True, "dtype": "float32", "weight": "NK"},
        _dense_reference,
        "Y = relu(X @ W + bias); X (M, K), W (N, K) or (K, N)",
    )
)

"""Kernels of Triton for the cases, each tuned by Triton over a few configurations.

Products are tiled with groups of rows for the second-level cache, rows are held by one program:
what Triton's own tutorials do. Only a process that has Triton imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import triton
import triton.language as tl

from benchmarks.gpu.cases import Case

_EPS = 1e-5
#: Rows, columns and steps of a tile, warps, stages of a pipeline.
_TILES = (
    (128, 256, 64, 8, 3),
    (128, 128, 64, 8, 3),
    (128, 128, 32, 4, 4),
    (128, 128, 32, 8, 3),
    (128, 64, 32, 4, 4),
    (64, 128, 32, 4, 4),
    (64, 64, 32, 4, 5),
)
_WARPS = (4, 8, 16)
_GROUP = 8


def _products() -> list[Any]:
    return [
        triton.Config({"ROWS": m, "COLUMNS": n, "STEPS": k}, num_warps=warps, num_stages=stages)
        for m, n, k, warps, stages in _TILES
    ]


def _of_rows() -> list[Any]:
    return [triton.Config({}, num_warps=n) for n in _WARPS]


@triton.jit
def product(
    a, b, c, M, N, K,
    PRECISION: tl.constexpr, GROUP: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """A tile of C = A @ B, of the matrices of one batch, summed in float32."""
    tile, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    down, across = tl.cdiv(M, ROWS), tl.cdiv(N, COLUMNS)
    first = tile // (GROUP * across) * GROUP
    size = tl.minimum(down - first, GROUP)
    inside = tile % (GROUP * across)
    i = (first + inside % size) * ROWS + tl.arange(0, ROWS)
    j = inside // size * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, STEPS)
    # Tiles that overrun the matrix read rows and columns again, and do not store them.
    a_at = a + batch * M * K + (i % M)[:, None] * K + k[None, :]
    b_at = b + batch * K * N + k[:, None] * N + (j % N)[None, :]
    sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, STEPS)):
        left = K - step * STEPS
        x = tl.load(a_at, mask=k[None, :] < left, other=0.0)
        y = tl.load(b_at, mask=k[:, None] < left, other=0.0)
        sums = tl.dot(x, y, sums, input_precision=PRECISION)
        a_at += STEPS
        b_at += STEPS * N
    c_at = c + batch * M * N + i[:, None] * N + j[None, :]
    tl.store(c_at, sums, mask=(i[:, None] < M) & (j[None, :] < N))


@triton.jit
def softmax(x, y, N, WIDTH: tl.constexpr):
    """One row."""
    row = tl.program_id(0).to(tl.int64) * N
    j = tl.arange(0, WIDTH)
    values = tl.load(x + row + j, mask=j < N, other=-float("inf"))
    e = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row + j, e / tl.sum(e, axis=0), mask=j < N)


@triton.jit
def layer_norm(x, gamma, beta, y, N, eps, WIDTH: tl.constexpr):
    """One row."""
    row = tl.program_id(0).to(tl.int64) * N
    j = tl.arange(0, WIDTH)
    values = tl.load(x + row + j, mask=j < N, other=0.0)
    d = tl.where(j < N, values - tl.sum(values, axis=0) / N, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(d * d, axis=0) / N + eps)
    g = tl.load(gamma + j, mask=j < N, other=0.0)
    s = tl.load(beta + j, mask=j < N, other=0.0)
    tl.store(y + row + j, d * scale * g + s, mask=j < N)


def call(torch: Any, case: Case, t: Sequence[Any]) -> tuple[Callable[[], Any], str]:
    """The kernel of a case as a call, tuned when it is first made, and what is to be said of it.

    Args:
        torch: the module whose tensors are taken.
        case: what is computed.
        t: the inputs on the device.

    Raises:
        LookupError: there is no kernel for the case.
    """
    match case.template:
        case "matmul" | "batch_matmul" | "matmul_tensor_core":
            return _product_call(torch, case, *t), ""
        case "softmax":
            return _rows_call(torch, softmax, t[0], ()), ""
        case "layer_norm":
            return _rows_call(torch, layer_norm, t[0], tuple(t[1:])), ""
    raise LookupError(f"there is no kernel of Triton for {case.name}")


def _product_call(torch: Any, case: Case, a: Any, b: Any) -> Callable[[], Any]:
    tuned = triton.autotune(configs=_products(), key=["M", "N", "K"])(product)
    (m, k), n = a.shape[-2:], b.shape[-1]
    batch = a.shape[0] if a.ndim == 3 else 1
    c = torch.empty((*a.shape[:-1], n), dtype=torch.float32, device=a.device)
    precision = "tf32" if case.tf32 else "ieee"

    def grid(meta: dict[str, int]) -> tuple[int, int]:
        return triton.cdiv(m, meta["ROWS"]) * triton.cdiv(n, meta["COLUMNS"]), batch

    def run() -> Any:
        tuned[grid](a, b, c, m, n, k, PRECISION=precision, GROUP=_GROUP)
        return c

    return run


def _rows_call(torch: Any, kernel: Any, x: Any, more: Sequence[Any]) -> Callable[[], Any]:
    tuned = triton.autotune(configs=_of_rows(), key=["N"])(kernel)
    rows, n = x.shape
    y = torch.empty_like(x)
    width = triton.next_power_of_2(n)
    numbers = (n, _EPS) if more else (n,)

    def run() -> Any:
        tuned[(rows,)](x, *more, y, *numbers, WIDTH=width)
        return y

    return run

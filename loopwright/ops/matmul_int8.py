"""matmul_int8: unsigned by signed bytes into int32, with weights packed for AVX-512 VNNI.

The template stays since the derived space is slower where the last block of weights is not full
(untuned 0.35 of it at 1000x777x333, two threads), and for one row; at 512^3 it is 0.99 of it.
"""

from __future__ import annotations

import numpy as np

from loopwright import te
from loopwright.ir.expr import Expr
from loopwright.ops import gpu, tiles
from loopwright.ops.operator import Array, LoopOrIndex, Reference, register
from loopwright.schedule import Schedule
from loopwright.space import fits_registers, row_tiles
from loopwright.task import get_config, template

#: Columns of a block of packed weights, and elements of the reduction that lie together.
LANES, GROUP = 16, 4
_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14)
_COLUMNS = (16, 32, 48, 64)
_MIN_TASKS = 8
#: Time of a tile at the edge, which runs plain code, in whole tiles.
_CUT = 12


def pack_int8(weights: Array) -> Array:
    """Weights (K, N) of int8 as `matmul_int8` takes them.

    The result is (ceil(N / 16), ceil(K / 4), 16, 4), with zeros where the shape does not divide:
    ``packed[n // 16, k // 4, n % 16, k % 4] == weights[k, n]``.
    """
    k, n = weights.shape
    full = np.zeros((-(-k // GROUP) * GROUP, -(-n // LANES) * LANES), weights.dtype)
    full[:k, :n] = weights
    blocks = full.reshape(-1, GROUP, full.shape[1] // LANES, LANES)
    return np.ascontiguousarray(blocks.transpose(2, 0, 3, 1))


def unpack_int8(packed: Array, k: int, n: int) -> Array:
    """Inverse of `pack_int8`: the first ``k`` rows and ``n`` columns."""
    columns, groups, lanes, group = packed.shape
    return packed.transpose(1, 3, 0, 2).reshape(groups * group, columns * lanes)[:k, :n]


def _reference(M: int, N: int, K: int) -> Reference:
    def reference(a: Array, packed: Array) -> Array:
        # Exact: sums of products of bytes stay far below 2 ** 53.
        wide = a.astype(np.float64) @ unpack_int8(packed, K, N).astype(np.float64)
        return wide.astype(np.int64).astype(np.int32)

    return reference


def _default(M: int, N: int, K: int) -> dict[str, object]:
    tiles.check_sizes("int8", M=M, N=N, K=K)
    wide = -(-N // LANES) * LANES

    def cost(tile: tuple[int, int]) -> float:
        rows, columns = tile
        whole = (M // rows) * (wide // columns)
        cut = -(-M // rows) * -(-wide // columns) - whole
        vectors = columns // LANES
        loads = (rows + vectors) / (2 * rows * vectors) + 1 / (2 * rows)
        return (whole + _CUT * cut) * rows * columns * (1 + loads)

    fits = fits_registers("int32")
    shapes = [(r, c) for r in row_tiles(M, _ROWS) for c in _COLUMNS if fits(r, c)]
    rows, columns = min(shapes, key=cost, default=(1, LANES))
    count, panels = -(-M // rows), -(-N // columns)
    blocks = [b for b in (*tiles.BLOCKS, count) if count % b == 0]
    enough = [b for b in blocks if panels * -(-count // b) >= _MIN_TASKS]
    return {
        "tile_i": [-1, max(enough or [1]), rows],
        "tile_j": [-1, 1, columns],
        "unroll_k": 1,
        "intrinsic": N >= LANES and K >= GROUP,
    }


@template("matmul_int8", make_reference=_reference, default=_default)
def matmul_int8(M: int, N: int, K: int) -> tuple[Schedule, list[te.Tensor]]:
    """C (M, N) of int32 = A (M, K) of uint8 @ W of int8, packed by `pack_int8`.

    The knob ``intrinsic`` says whether tiles are made by `te.intrinsics.dot_uint8_int8_int32`, one
    instruction on CPUs with VNNI, or by loops over vectors.

    Example:
        >>> s, args = lw.ops.matmul_int8(4, 16, 8)
        >>> f = lw.build(s, args, "llvm")
        >>> a, w = np.ones((4, 8), "uint8"), np.ones((8, 16), "int8")
        >>> c = np.empty((4, 16), "int32")
        >>> f(a, lw.ops.pack_int8(w), c)
        >>> print(c[0, :4])
        [8 8 8 8]
    """
    A, W, C = _product(M, N, K)
    cfg = get_config()
    rows = row_tiles(M, _ROWS)
    columns = [c for c in _COLUMNS if c <= -(-N // LANES) * LANES]
    for name, extent, tile in (("tile_i", M, rows), ("tile_j", N, columns)):
        candidates = tiles.blocked(extent, tile)
        cfg.define_split(name, extent, num_outputs=3, policy="candidate", candidate=candidates)
    cfg.define_knob("unroll_k", [1, 2, 4], default=1)
    cfg.define_knob("order", ["ji", "ij"])
    # Where the shape has one whole tile of it.
    cfg.define_knob("intrinsic", [True, False] if N >= LANES and K >= GROUP else [False])
    fits = fits_registers("int32")
    cfg.multi_filter(lambda c: fits(c["tile_i"].size[-1], c["tile_j"].size[-1]))
    s = te.create_schedule(C.op)
    acc = s.cache_write(C, "local")
    i, j = s[C].op.axis
    i0, i1, i2 = cfg["tile_i"].apply(s, C, i)
    j0, j1, j2 = cfg["tile_j"].apply(s, C, j)
    first, second = (i0, j0) if cfg["order"].val == "ij" else (j0, i0)
    s[C].reorder(first, second, j1, i1, i2, j2)
    s[C].parallel(s[C].fuse(first, second))
    s[C].unroll(i2)
    s[C].vectorize(j2)
    s[acc].compute_at(s[C], i1)
    ci, cj = s[acc].op.axis
    (k,) = s[acc].op.reduce_axis
    blocks, lanes = s[acc].split(cj, factor=LANES)
    groups, four = s[acc].split(k, factor=GROUP)
    outer, inner = s[acc].split(groups, factor=cfg["unroll_k"].val)
    s[acc].unroll(inner)
    s[acc].unroll(ci)
    s[acc].unroll(blocks)
    if cfg["intrinsic"].val:
        s[acc].reorder(outer, inner, ci, blocks, lanes, four)
        s[acc].tensorize(lanes, te.intrinsics.dot_uint8_int8_int32(LANES))
        return s, [A, W, C]
    s[acc].reorder(outer, inner, four, ci, blocks, lanes)
    s[acc].vectorize(lanes)
    return s, [A, W, C]


@matmul_int8.register("gpu")
def _matmul_int8_gpu(M: int, N: int, K: int) -> tuple[Schedule, list[te.Tensor]]:
    A, W, C = _product(M, N, K)
    return gpu.scheduled(C, [A, W])


def _product(M: int, N: int, K: int) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    A = te.placeholder((M, K), "uint8", name="A")
    W = te.placeholder((-(-N // LANES), -(-K // GROUP), LANES, GROUP), "int8", name="W")
    k = te.reduce_axis((0, K), name="k")

    def element(i: LoopOrIndex, j: LoopOrIndex) -> Expr:
        w = W[j // LANES, k // GROUP, j % LANES, k % GROUP]
        value: Expr = te.sum(A[i, k].astype("int32") * w.astype("int32"), axis=k)
        return value

    return A, W, te.compute((M, N), element, name="C", tag="matmul")


register(matmul_int8, "C = A @ W in int32; A (M, K) of uint8, W int8 packed [N/16, K/4, 16, 4]")

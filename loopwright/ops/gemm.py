"""The matrix product that matmul, batch_matmul, dense and 1x1 convolutions share, for CPUs.

It is the kernel of Goto and van de Geijn (ACM TOMS 2008): a register tile of rows x vectors over
the whole reduction, fed by a packed panel that stays in the second-level cache. It stays as long as
the untuned choice of derived spaces is slower: 0.81 of it at 1024^3, 0.89 at 1000x777x333, 0.94 for
a dense layer of 128x3072x768, 0.91 for 12 batched products of 128x128x64 with both operands
transposed (two threads).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopwright import te
from loopwright.errors import TensorError
from loopwright.ir.expr import Expr
from loopwright.ops import tiles
from loopwright.ops.operator import LoopOrIndex, compute
from loopwright.schedule import Schedule
from loopwright.space import column_tiles, fits_registers, row_tiles, vector_lanes
from loopwright.task import TemplateConfig

_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24)
_UNROLL = (1, 2, 4, 8)
#: Rows up to which the default schedule does not pack, and up to which it takes dot products where
#: the second operand is transposed; side of the tile of these.
_UNPACKED_ROWS, _FEW_ROWS, _DOT_TILE = 16, 64, 4
#: Columns of a tile of dot products.
_DOT_COLUMNS = (1, 2, 3, 4, 6)
#: Parallel tasks that the default schedule leaves at least, where the shape allows.
_MIN_TASKS = 8


def matmul_compute(
    A: te.Tensor,
    B: te.Tensor,
    trans_a: bool = False,
    trans_b: bool = False,
    name: str = "C",
    out_dtype: str | None = None,
) -> te.Tensor:
    """``C[..., i, j] = sum_k A[..., i, k] * B[..., k, j]``.

    Args:
        A: (..., M, K), or (..., K, M) with ``trans_a``.
        B: (..., K, N), or (..., N, K) with ``trans_b``.
        out_dtype: dtype of products, sums and the result; default that of the operands.

    Raises:
        TensorError: the reduction extents, the leading dimensions or the dtypes differ.
    """
    *lead, _, ka = (*A.shape[:-2], *reversed(A.shape[-2:])) if trans_a else A.shape
    *lead_b, kb, _ = (*B.shape[:-2], *reversed(B.shape[-2:])) if trans_b else B.shape
    if ka != kb or lead != lead_b:
        raise TensorError(
            f"matmul: A is {list(A.shape)} and B {list(B.shape)}: reduction extents {ka} and {kb}, "
            f"leading dimensions {lead} and {lead_b}"
        )
    if A.dtype != B.dtype:
        raise TensorError(f"matmul: A is {A.dtype} and B {B.dtype}; cast one of them")
    return product(
        *(A, B, trans_a, trans_b),
        dtype=out_dtype or A.dtype,
        batch=lead,
        name=name,
        tag="matmul",
        axes=[*(f"b{d}" for d in range(len(lead))), "i", "j"],
    )


def product(
    A: te.Tensor,
    B: te.Tensor,
    trans_a: bool = False,
    trans_b: bool = False,
    *,
    dtype: str,
    batch: Sequence[int | te.Expr],
    read: Callable[[te.Tensor, Sequence[LoopOrIndex]], Expr] = lambda t, i: t(*i[-len(t.shape) :]),
    name: str,
    tag: str = "",
    axes: Sequence[str] | None = None,
) -> te.Tensor:
    """The product of matrices or vectors that fit, with leading extents ``batch``.

    ``read`` gives the element of an operand at the last indices of batch, row and column.
    """
    k = te.reduce_axis((0, A.shape[-2 if trans_a else -1]), name="k")
    rows = A.shape[-2:][1:] if trans_a else A.shape[-2:-1]
    columns = B.shape[-2:-1] if trans_b else B.shape[-2:][1:]
    first, second = len(batch), len(batch) + len(rows)

    def element(*at: LoopOrIndex) -> Expr:
        b, i, j = at[:first], at[first:second], at[second:]
        x = read(A, (*b, k, *i) if trans_a else (*b, *i, k))
        y = read(B, (*b, *j, k) if trans_b else (*b, k, *j))
        value: Expr = te.sum(x.astype(dtype) * y.astype(dtype), axis=k)
        return value

    shape = (*batch, *rows, *columns)
    return compute(shape, element, name=name, tag=tag, varargs_names=axes)


def _tile_cost(M: int, N: int, rows: int, wide: int, lanes: int) -> float:
    """Loads and multiplications of a register tile for each useful multiplication.

    A tile of few rows asks the second-level cache for more than it gives when pages of the panel
    share its sets (4 x 96 was measured at 88 or at 63 %).
    """
    vectors = wide // lanes
    covered = -(-M // rows) * rows * -(-N // wide) * wide
    loads = (rows + vectors) / (2 * rows * vectors) + 1 / (2 * rows)
    return covered / (M * N) * (1 + loads)


def default_tiles(
    M: int, N: int, K: int, dtype: str, batch: int = 1, trans_b: bool = False
) -> dict[str, object]:
    """Knobs for shapes without a record: the tile of the fewest loads and the least over-run.

    All rows run against one packed panel unless that leaves too few tasks. Few rows read the second
    operand as it is, along k where it is transposed: packing does not pay.
    """
    tiles.check_sizes(dtype, M=M, N=N, K=K)
    if trans_b and M <= _FEW_ROWS and vector_lanes(dtype) <= K and N >= _DOT_TILE:
        tile_i, tile_j = [-1, 1, min(M, _DOT_TILE)], [-1, 1, _DOT_TILE]
        return {"tile_i": tile_i, "tile_j": tile_j, "unroll_k": 1, "pack": "dot"}
    fits = fits_registers(dtype)
    rows, wide = min(
        ((r, w) for r in row_tiles(M, _ROWS) for w in column_tiles(N, dtype) if fits(r, w)),
        key=lambda tile: _tile_cost(M, N, tile[0], tile[1], vector_lanes(dtype)),
        default=(1, vector_lanes(dtype)),
    )
    count, panels = -(-M // rows), -(-N // wide)
    blocks = [b for b in (*tiles.BLOCKS, count) if b <= count]
    enough = [b for b in blocks if batch * panels * -(-count // b) >= _MIN_TASKS]
    return {
        "tile_i": [-1, max(enough or [1]), rows],
        "tile_j": [-1, 1, wide],
        "unroll_k": 1,
        "pack": "none" if M <= _UNPACKED_ROWS and not trans_b else "panel",
    }


def define_matmul_space(
    cfg: TemplateConfig, M: int, N: int, K: int, dtype: str, trans_b: bool = False
) -> None:
    """The knobs of `schedule_matmul`.

    With ``trans_b`` a tile may hold one vector of partial sums an element (``pack`` is "dot"): its
    width then counts elements, not vectors.
    """
    rows, columns, lanes = row_tiles(M, _ROWS), column_tiles(N, dtype), vector_lanes(dtype)
    if trans_b:
        columns = [w for w in _DOT_COLUMNS if w < min(lanes, N + 1)] + columns
    for name, extent, tiled in (("tile_i", M, rows), ("tile_j", N, columns)):
        candidates = tiles.blocked(extent, tiled)
        cfg.define_split(name, extent, num_outputs=3, policy="candidate", candidate=candidates)
    cfg.define_knob("unroll_k", [u for u in _UNROLL if u <= K], default=1)
    cfg.define_knob("order", ["ji", "ij"])
    cfg.define_knob("pack", ["panel", "block", "none", *(["dot"] if trans_b else [])])
    fits = fits_registers(dtype)

    def tile_fits(c: TemplateConfig) -> bool:
        high, wide = c["tile_i"].size[-1], c["tile_j"].size[-1]
        if c["pack"].val == "dot":
            return wide < lanes and fits(high, wide * lanes)
        return wide >= lanes and fits(high, wide)

    cfg.multi_filter(tile_fits)


def schedule_matmul(
    cfg: TemplateConfig, s: Schedule, out: te.Tensor, acc: te.Tensor, B: te.Tensor, trans_b: bool
) -> None:
    """Schedule ``out``, elementwise over the sum ``acc``, by knobs of `define_matmul_space`."""
    *batch, i, j = s[out].op.axis
    i0, i1, i2 = cfg["tile_i"].apply(s, out, i)
    j0, j1, j2 = cfg["tile_j"].apply(s, out, j)
    first, second = (i0, j0) if cfg["order"].val == "ij" else (j0, i0)
    s[out].reorder(*batch, first, second, j1, i1, i2, j2)
    task = s[out].fuse(*batch, first, second)
    s[out].parallel(task)
    s[out].unroll(i2)
    s[out].vectorize(j2)
    s[acc].compute_at(s[out], i1)
    *cb, ci, cj = s[acc].op.axis
    (k,) = s[acc].op.reduce_axis
    if cfg["pack"].val == "dot":
        ko, ki = s[acc].split(k, factor=vector_lanes(s[acc].op.output(0).dtype))
        s[acc].reorder(*cb, ko, ci, cj, ki)
        s[acc].unroll(ci)
        s[acc].unroll(cj)
        s[acc].vectorize(ki)
        return
    ko, ki = s[acc].split(k, factor=cfg["unroll_k"].val)
    s[acc].reorder(*cb, ko, ki, ci, cj)
    s[acc].unroll(ci)
    s[acc].vectorize(cj)
    s[acc].unroll(ki)
    if cfg["pack"].val != "none":
        packed = s.cache_read(B, "local", [acc])
        s[packed].compute_at(s[out], j1 if cfg["pack"].val == "panel" else task)
        _order_panels(s, packed, cfg["tile_j"].size[-1], trans_b)


def _order_panels(s: Schedule, packed: te.Tensor, width: int, trans_b: bool) -> None:
    """Store a copy of B as the register tile reads it: panels of ``width`` columns, k outside."""
    *_, rows, columns = s[packed].op.axis
    if not trans_b:
        s[packed].transform_layout(lambda *x: (*x[:-2], x[-1] // width, x[-2], x[-1] % width))
        outer, inner = s[packed].split(columns, factor=width)
        s[packed].reorder(outer, rows, inner)
        s[packed].vectorize(inner)
        return
    # Memory runs along k: squares of k and n are turned on the way.
    s[packed].transform_layout(lambda *x: (*x[:-2], x[-2] // width, x[-1], x[-2] % width))
    side = vector_lanes(packed.dtype)
    outer, inner = s[packed].split(rows, factor=side)
    k0, k1 = s[packed].split(columns, factor=side)
    s[packed].reorder(outer, k0, k1, inner)
    s[packed].unroll(k1)
    s[packed].vectorize(inner)

"""The template of reductions of a matrix, over its columns or its rows."""

from __future__ import annotations

from typing import Any

import loopwright as lw
from benchmarks.templates.rows import define_rows_space, schedule_rows
from benchmarks.templates.tiles import lanes
from loopwright import dtypes, te
from loopwright.schedule import Schedule

#: Bytes of a matrix that no cache holds.
_STREAMED = 1 << 26


@lw.template("baseline/reduce", make_reference=lw.ops.reduce.make_reference)
def reduce(
    M: int, N: int, kind: str = "sum", axis: int = 1, dtype: str = "float32"
) -> tuple[Schedule, list[te.Tensor]]:
    """Reduce (M, N) over its columns (axis 1) or rows (axis 0)."""
    X, Y = lw.ops.reduce(M, N, kind, axis, dtype)
    Z = Y if Y.op.reduce_axis else Y.op.input_tensors[0]
    s = te.create_schedule(Y.op)
    cfg = lw.get_config()
    if axis == 0:
        _schedule_columns(cfg, s, Y, s.cache_write(Z, "local") if Y is Z else Z, M)
        return s, [X, Y]
    # One vector at once keeps up with memory, and is 4 % faster there than four.
    streamed = M * N * dtypes.nbytes(dtype) >= _STREAMED and Z.dtype == dtype
    vectors = 1 if streamed and kind in ("sum", "prod") else 4
    define_rows_space(cfg, M, N, Z.dtype, vectors)
    schedule_rows(cfg, s, Y, [] if Y is Z else [Z], elementwise=False)
    return s, [X, Y]


def _schedule_columns(cfg: Any, s: Schedule, Y: te.Tensor, acc: te.Tensor, M: int) -> None:
    """Some rows at a time are added to a line of accumulators, which stays in the first cache.

    A task owns a run of columns, long enough that memory is read in long runs too.
    """
    (n,) = Y.static_shape
    w = lanes(acc.dtype)
    runs = [w * v for v in (1, 2, 4, 8, 16, 32, 64, 128, 256) if w * v < n] + [-(-n // w) * w]
    cfg.define_knob("columns", runs, default=max(r for r in runs if 2 * r <= n or r == runs[0]))
    rows = [u for u in (1, 2, 4, 8, 16) if u <= M]
    cfg.define_knob("rows", rows, default=max(r for r in rows if r <= 8))
    outer, run = s[Y].split(s[Y].op.axis[0], factor=cfg["columns"].val)
    _, lane = s[Y].split(run, factor=w)
    s[Y].parallel(outer)
    s[Y].vectorize(lane)
    s[acc].compute_at(s[Y], outer)
    k, again = s[acc].split(s[acc].op.reduce_axis[0], factor=cfg["rows"].val)
    along, lane = s[acc].split(s[acc].op.axis[0], factor=w)
    s[acc].reorder(k, along, again, lane)
    s[acc].unroll(again)
    s[acc].vectorize(lane)

"""Chains over the rows of a matrix: what a row needs is computed when its turn comes.

A task holds some rows, which lie in the first-level cache. Reductions run over vectors with several
accumulators, so that additions do not wait for one another.
"""

from __future__ import annotations

from typing import Any

from benchmarks.templates.tiles import lanes
from loopwright import te
from loopwright.schedule import Schedule


def define_rows_space(cfg: Any, M: int, N: int, dtype: str, vectors: int = 4) -> None:
    """The knobs of `schedule_rows`; by default so many vectors are worked on at once."""
    w = lanes(dtype)
    wide = [w * v for v in (1, 2, 4, 8) if w * v <= max(N, w)]
    cfg.define_knob("lanes", wide, default=max(x for x in wide if x <= vectors * w))
    counts = [r for r in (1, 2, 4, 8, 16, 32, 64, 128) if r <= M]
    cfg.define_knob("rows", counts, default=max(r for r in counts if -(-M // r) >= 8 or r == 1))
    cfg.define_knob("unroll", [1, 2, 4])


def schedule_rows(
    cfg: Any, s: Schedule, Y: te.Tensor, inner: list[te.Tensor], elementwise: bool = True
) -> None:
    """Compute everything that a row of ``Y`` needs in the loop over rows.

    Args:
        cfg: a configuration of `define_rows_space`.
        s: the schedule.
        Y: the result, (M, N) with ``elementwise``, else (M,) and a reduction itself.
        inner: what each row needs, in order: reductions (M,) and intermediate rows (M, N).
        elementwise: whether ``Y`` has a column axis to vectorize.
    """
    row = s[Y].op.axis[0]
    outer, row = s[Y].split(row, factor=cfg["rows"].val)
    s[Y].parallel(outer)
    for stage in inner:
        s[stage].compute_at(s[Y], row)
        _vectorize(cfg, s, stage)
    if elementwise or s[Y].op.reduce_axis:
        _vectorize(cfg, s, Y)


def _vectorize(cfg: Any, s: Schedule, stage: te.Tensor) -> None:
    """Vectors along the last loop of a stage, a reduction loop where it has one."""
    op = s[stage].op
    loops = [*op.axis[1:], *op.reduce_axis]
    if not loops:
        return
    out, lane = s[stage].split(loops[-1], factor=cfg["lanes"].val)
    if cfg["unroll"].val > 1:
        _, again = s[stage].split(out, factor=cfg["unroll"].val)
        s[stage].unroll(again)
    s[stage].vectorize(lane)

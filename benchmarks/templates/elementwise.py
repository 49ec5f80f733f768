"""The template of chains of elementwise steps."""

from __future__ import annotations

import loopwright as lw
from benchmarks.templates.tiles import lanes
from loopwright import te
from loopwright.schedule import Schedule


@lw.template("baseline/elementwise", make_reference=lw.ops.elementwise.make_reference)
def elementwise(
    M: int, N: int, chain: str = "scale,shift,add,relu", dtype: str = "float32"
) -> tuple[Schedule, list[te.Tensor]]:
    """A chain of elementwise steps on (M, N): everything inlined, vectors along a row."""
    *inputs, Y = lw.ops.elementwise(M, N, chain, dtype)
    s = te.create_schedule(Y.op)
    cfg = lw.get_config()
    w = lanes(dtype)
    widths = [w * v for v in (1, 2, 4, 8) if w * v <= max(N, w)]
    cfg.define_knob("lanes", widths, default=4 * w if 4 * w in widths and N % (4 * w) == 0 else w)
    counts = [r for r in (1, 2, 4, 8, 16, 32, 64) if r <= M]
    cfg.define_knob("rows", counts, default=max(r for r in counts if -(-M // r) >= 8 or r == 1))
    shares = any(len(t.shape) < 2 for t in inputs)
    together = [r for r in (1, 2, 4) if r <= M]
    cfg.define_knob("together", together, default=min(M, 2 if shares else 1))
    for stage in s.stages:
        if stage.op.input_tensors and not stage.is_output:
            stage.compute_inline()
    i, j = s[Y].op.axis
    outer, row = s[Y].split(i, factor=cfg["rows"].val)
    column, lane = s[Y].split(j, factor=cfg["lanes"].val)
    rows, row = s[Y].split(row, factor=min(cfg["together"].val, cfg["rows"].val))
    s[Y].reorder(outer, rows, column, row, lane)
    s[Y].parallel(outer)
    s[Y].unroll(row)
    s[Y].vectorize(lane)
    return s, [*inputs, Y]

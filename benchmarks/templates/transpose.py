"""The template of transposition."""

from __future__ import annotations

import loopwright as lw
from benchmarks.templates.tiles import lanes
from loopwright import te
from loopwright.schedule import Schedule

#: Squares of at most so many elements a side are turned in registers.
_SQUARE = 16


@lw.template("baseline/transpose", make_reference=lw.ops.transpose.make_reference)
def transpose(M: int, N: int, dtype: str = "float32") -> tuple[Schedule, list[te.Tensor]]:
    """Y (N, M) = X (M, N) transposed, by blocks that fit the first-level cache."""
    X, Y = lw.ops.transpose(M, N, dtype)
    s = te.create_schedule(Y.op)
    cfg = lw.get_config()
    w = min(lanes(dtype), _SQUARE)
    rows = [r for r in (4, 8, 16, 32, 64, 128) if r <= N] or [N]
    cfg.define_knob("rows", rows, default=max(r for r in rows if r <= 32))
    columns = [w * v for v in (1, 2, 4, 8) if w * v <= max(M, w)]
    cfg.define_knob("columns", columns, default=max(c for c in columns if c <= 4 * w))
    cfg.define_knob("block", ["local", "none"])
    i, j = s[Y].op.axis
    io, jo, ii, ji = s[Y].tile(i, j, cfg["rows"].val, cfg["columns"].val)
    s[Y].parallel(io)
    jm, lane = s[Y].split(ji, factor=w)
    s[Y].reorder(jm, ii, lane)
    s[Y].unroll(ii)
    s[Y].vectorize(lane)
    if cfg["block"].val == "local":
        block = s.cache_read(X, "local", [Y])
        s[block].compute_at(s[Y], jo)
        _, inner = s[block].split(s[block].op.axis[1], factor=w)
        s[block].vectorize(inner)
    return s, [X, Y]

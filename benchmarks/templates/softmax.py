"""The template of softmax."""

from __future__ import annotations

import loopwright as lw
from benchmarks.templates.rows import define_rows_space, schedule_rows
from loopwright import te
from loopwright.schedule import Schedule


@lw.template("baseline/softmax", make_reference=lw.ops.softmax.make_reference)
def softmax(M: int, N: int, dtype: str = "float32") -> tuple[Schedule, list[te.Tensor]]:
    """Softmax over each row of (M, N)."""
    X = te.placeholder((M, N), dtype, name="X")
    Y, inner = lw.ops.softmax_compute(X)
    s = te.create_schedule(Y.op)
    cfg = lw.get_config()
    define_rows_space(cfg, M, N, inner[0].dtype)
    schedule_rows(cfg, s, Y, inner)
    return s, [X, Y]

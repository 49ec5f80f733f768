"""The template of layer normalisation."""

from __future__ import annotations

import loopwright as lw
from benchmarks.templates.rows import define_rows_space, schedule_rows
from loopwright import te
from loopwright.schedule import Schedule


@lw.template("baseline/layer_norm", make_reference=lw.ops.layer_norm.make_reference)
def layer_norm(
    M: int, N: int, eps: float = 1e-5, dtype: str = "float32"
) -> tuple[Schedule, list[te.Tensor]]:
    """Layer normalisation of each row of (M, N)."""
    X = te.placeholder((M, N), dtype, name="X")
    gamma = te.placeholder((N,), dtype, name="gamma")
    beta = te.placeholder((N,), dtype, name="beta")
    Y, inner = lw.ops.layer_norm_compute(X, gamma, beta, eps)
    s = te.create_schedule(Y.op)
    cfg = lw.get_config()
    define_rows_space(cfg, M, N, inner[0].dtype)
    cfg.define_knob("centred", ["row", "inline"])
    if cfg["centred"].val == "inline":
        centred = inner.pop(2)
        s[centred].compute_inline()
    schedule_rows(cfg, s, Y, inner)
    return s, [X, gamma, beta, Y]

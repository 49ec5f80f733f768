"""The template of max and average pooling."""

from __future__ import annotations

import loopwright as lw
from benchmarks.templates.stencil import define_stencil_space, schedule_stencil
from loopwright import te
from loopwright.schedule import Schedule

OneOrTwo = int | tuple[int, int]


@lw.template("baseline/pool2d", make_reference=lw.ops.pool2d.make_reference)
def pool2d(
    N: int,
    C: int,
    H: int,
    W: int,
    KH: int,
    KW: int,
    stride: OneOrTwo = 1,
    pad: OneOrTwo = 0,
    kind: str = "max",
    count_include_pad: bool = False,
    dtype: str = "float32",
    layout: str = "NCHW",
) -> tuple[Schedule, list[te.Tensor]]:
    """The largest or the mean of each window."""
    X, Y = lw.ops.pool2d(*(N, C, H, W, KH, KW, stride, pad, kind, count_include_pad, dtype, layout))
    taken = Y if Y.op.reduce_axis else Y.op.input_tensors[0]
    s = te.create_schedule(Y.op)
    cfg = lw.get_config()
    define_stencil_space(cfg, Y, layout)
    acc = s.cache_write(taken, "local") if taken is Y else taken
    schedule_stencil(cfg, s, Y, acc, layout)
    return s, [X, Y]

"""The template of depthwise convolution."""

from __future__ import annotations

import loopwright as lw
from benchmarks.templates.stencil import define_stencil_space, schedule_stencil
from loopwright import te
from loopwright.schedule import Schedule

OneOrTwo = int | tuple[int, int]


@lw.template("baseline/depthwise_conv2d", make_reference=lw.ops.depthwise_conv2d.make_reference)
def depthwise_conv2d(
    N: int,
    C: int,
    H: int,
    W: int,
    KH: int,
    KW: int,
    stride: OneOrTwo = 1,
    pad: OneOrTwo = 0,
    dtype: str = "float32",
    dilation: OneOrTwo = 1,
    layout: str = "NCHW",
) -> tuple[Schedule, list[te.Tensor]]:
    """Each channel convolved with a kernel of its own."""
    X, weight, out = lw.ops.depthwise_conv2d(
        *(N, C, H, W, KH, KW, stride, pad, dtype, dilation, layout)
    )
    sums = out if out.op.reduce_axis else out.op.input_tensors[0]
    s = te.create_schedule(out.op)
    cfg = lw.get_config()
    define_stencil_space(cfg, sums, layout)
    acc = s.cache_write(sums, "local") if out is sums else sums
    schedule_stencil(cfg, s, out, acc, layout)
    return s, [X, weight, out]

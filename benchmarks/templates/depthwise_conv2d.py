"""The template of depthwise convolution.

A register tile of pixels stands over all taps. In NCHW its vectors run along x, in NHWC along the
channels; taps are unrolled, so that overlapping rows are loaded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import loopwright as lw
from benchmarks.templates.tiles import column_tiles, fitting, lanes, row_tiles
from loopwright import te
from loopwright.schedule import Schedule

T = TypeVar("T")
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
    _define(cfg, sums, layout)
    acc = s.cache_write(sums, "local") if out is sums else sums
    _schedule(cfg, s, out, acc, layout)
    return s, [X, weight, out]


def _define(cfg: Any, Y: te.Tensor, layout: str) -> None:
    _, c, oh, ow = _by_role(Y.static_shape, layout)
    along, across = (ow, oh) if layout == "NCHW" else (c, ow)
    widths = column_tiles(along, Y.dtype, (1, 2, 3, 4, 7, 8))
    cfg.define_knob("vectors", widths, default=max(w for w in widths if w <= 4 * widths[0]))
    heights = row_tiles(across, (1, 2, 3, 4, 6, 8))
    cfg.define_knob("tile", heights, default=max(h for h in heights if h <= 2))
    rows = [r for r in (1, 2, 4, 7, 8, 14, 16, 28, 56) if r < oh] + [oh]
    cfg.define_knob("rows", rows, default=rows[-1])
    cfg.define_knob("pad", ["inline", "task", "root"])
    fits = fitting(Y.dtype)
    cfg.multi_filter(lambda c: fits(c["tile"].val, c["vectors"].val))


def _schedule(cfg: Any, s: Schedule, Y: te.Tensor, acc: te.Tensor, layout: str) -> None:
    source = s[acc].op.input_tensors[0]
    n, c, y, x = _by_role(s[Y].op.axis, layout)
    yo, yi = s[Y].split(y, factor=cfg["rows"].val)
    if layout == "NCHW":
        to, ti = s[Y].split(yi, factor=cfg["tile"].val)
        vo, vi = s[Y].split(x, factor=cfg["vectors"].val)
        s[Y].reorder(n, c, yo, to, vo, ti, vi)
        task = s[Y].fuse(n, c, yo)
    else:
        to, ti = s[Y].split(x, factor=cfg["tile"].val)
        vo, vi = s[Y].split(c, factor=cfg["vectors"].val)
        s[Y].reorder(n, yo, yi, vo, to, ti, vi)
        task = s[Y].fuse(n, yo)
        vo = to
    s[Y].parallel(task)
    s[Y].unroll(ti)
    s[Y].vectorize(vi)
    s[acc].compute_at(s[Y], vo)
    an, ac, ay, ax = _by_role(s[acc].op.axis, layout)
    r, q = s[acc].op.reduce_axis
    rows, lane, rest = (ay, ax, [an, ac]) if layout == "NCHW" else (ax, ac, [an, ay])
    s[acc].reorder(*rest, r, q, rows, lane)
    s[acc].unroll(rows)
    s[acc].vectorize(lane)
    s[acc].unroll(q)
    if source.op.tag == "pad":
        _place_padding(cfg["pad"].val, s, Y, source, task)


def _place_padding(where: str, s: Schedule, Y: te.Tensor, P: te.Tensor, task: Any) -> None:
    if where == "inline":
        s[P].compute_inline()
        return
    outer, mid, *_, last = s[P].op.axis
    if where == "task":
        s[P].compute_at(s[Y], task)
    else:
        s[P].parallel(s[P].fuse(outer, mid))
    _, inner = s[P].split(last, factor=lanes(P.dtype))
    s[P].vectorize(inner)


def _by_role(axes: Sequence[T], layout: str) -> tuple[T, T, T, T]:
    """Four axes or extents as (n, channel, y, x)."""
    a, b, c, d = axes
    return (a, b, c, d) if layout == "NCHW" else (a, d, b, c)

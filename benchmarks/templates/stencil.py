"""Windows over one channel: what the templates of pooling and depthwise convolution share.

A register tile of pixels stands over all taps. In NCHW its vectors run along x, in NHWC along the
channels; taps are unrolled, so that overlapping rows are loaded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from benchmarks.templates.tiles import column_tiles, fitting, lanes, row_tiles
from loopwright import te
from loopwright.schedule import Schedule

T = TypeVar("T")


def define_stencil_space(cfg: Any, Y: te.Tensor, layout: str) -> None:
    """The knobs of `schedule_stencil`."""
    _, c, oh, ow = by_role(Y.static_shape, layout)
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


def schedule_stencil(cfg: Any, s: Schedule, Y: te.Tensor, acc: te.Tensor, layout: str) -> None:
    """Schedule a stencil by the knobs of ``cfg``.

    Args:
        cfg: a configuration of `define_stencil_space`.
        s: the schedule.
        Y: the result, elementwise over ``acc``.
        acc: the reduction over the taps, its last two reduction axes; what they read is placed too
            where it is padding.
        layout: of the data.
    """
    source = s[acc].op.input_tensors[0]
    n, c, y, x = by_role(s[Y].op.axis, layout)
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
    an, ac, ay, ax = by_role(s[acc].op.axis, layout)
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


def by_role(axes: Sequence[T], layout: str) -> tuple[T, T, T, T]:
    """Four axes or extents as (n, channel, y, x)."""
    a, b, c, d = axes
    return (a, b, c, d) if layout == "NCHW" else (a, d, b, c)

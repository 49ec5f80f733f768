"""The template of conv2d: direct, with vectors over output channels and weights packed in blocks.

The register tile holds pixels x channels; an input pixel is broadcast, a vector of packed weights
loaded, as in the direct convolutions of Georganas et al. (SC 2018). The padded input is a stage of
its own, so the inner loops test nothing.
"""

from __future__ import annotations

from typing import Any

import loopwright as lw
from benchmarks.templates.stencil import by_role
from benchmarks.templates.tiles import column_tiles, fitting, lanes, row_tiles
from loopwright import te
from loopwright.schedule import Schedule

OneOrTwo = int | tuple[int, int]
_PIXELS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)
#: Parallel tasks that the default schedule leaves at least, where the shape allows.
_MIN_TASKS = 8


@lw.template("baseline/conv2d", make_reference=lw.ops.conv2d.make_reference)
def conv2d(
    N: int,
    C: int,
    H: int,
    W: int,
    O: int,  # noqa: E741
    KH: int,
    KW: int,
    stride: OneOrTwo = 1,
    pad: OneOrTwo = 0,
    dtype: str = "float32",
    dilation: OneOrTwo = 1,
    groups: int = 1,
    layout: str = "NCHW",
) -> tuple[Schedule, list[te.Tensor]]:
    """Y = conv(X, W)."""
    X, weight, out = lw.ops.conv2d.former(
        *(N, C, H, W, O, KH, KW, stride, pad, dtype, dilation, groups, layout)
    )
    sums = out if out.op.reduce_axis else out.op.input_tensors[0]
    packed = next(t for t in sums.op.input_tensors if t.op.tag == "pack")
    s = te.create_schedule(out.op)
    cfg = lw.get_config()
    _define(cfg, sums, layout, groups)
    block = s.cache_write(sums, "local") if out is sums else sums
    _schedule(cfg, s, out, block, packed, layout, groups)
    return s, [X, weight, out]


def _define(cfg: Any, Y: te.Tensor, layout: str, groups: int) -> None:
    n, o, oh, ow = by_role(Y.static_shape, layout)
    widths = column_tiles(o // groups, Y.dtype, (1, 2, 3, 4))
    wide = widths[min(1, len(widths) - 1)]
    cfg.define_knob("tile_o", widths, default=wide)
    pixels = row_tiles(ow, _PIXELS)
    cfg.define_knob("tile_x", pixels, default=max(p for p in pixels if p <= 7))
    rows = [r for r in (1, 2, 4, 7, 8, 14, 28) if r <= oh] or [1]
    # A small map is one task, which packs its weights itself: nobody else reads them.
    whole = oh <= 7 and oh in rows and n * -(-o // wide) >= _MIN_TASKS
    cfg.define_knob("rows", rows, default=oh if whole else max(r for r in rows if r <= 4))
    cfg.define_knob("order", ["oy", "yo"])
    cfg.define_knob("unroll", ["none", "s", "rs"])
    cfg.define_knob("pad", ["root", "rows"])
    cfg.define_knob("pack", ["root", "task"], default="task" if whole else "root")
    fits = fitting(Y.dtype)
    cfg.multi_filter(lambda c: fits(c["tile_x"].val, c["tile_o"].val))


def _schedule(
    cfg: Any,
    s: Schedule,
    Y: te.Tensor,
    block: te.Tensor,
    packed: te.Tensor,
    layout: str,
    groups: int,
) -> None:
    acc = s.cache_write(block, "local")
    source = s[acc].op.input_tensors[0]
    width = cfg["tile_o"].val
    n, o, y, x = by_role(s[Y].op.axis, layout)
    outermost = []
    if groups > 1:
        # A tile lies in one group: which one is then known outside of it.
        g, o = s[Y].split(o, nparts=groups)
        outermost = [g]
    oo, oi = s[Y].split(o, factor=width)
    yo, yi = s[Y].split(y, factor=cfg["rows"].val)
    xo, xi = s[Y].split(x, factor=cfg["tile_x"].val)
    outer = (oo, yo) if cfg["order"].val == "oy" else (yo, oo)
    pixel_last = layout == "NCHW"
    s[Y].reorder(n, *outermost, *outer, yi, xo, *((oi, xi) if pixel_last else (xi, oi)))
    task = s[Y].fuse(n, *outermost, *outer)
    s[Y].parallel(task)
    s[Y].vectorize(xi if pixel_last else oi)
    for stage in (block, acc):
        s[stage].compute_at(s[Y], xo)
        n_, o_, y_, x_ = by_role(s[stage].op.axis, layout)
        if pixel_last:
            s[stage].transform_layout(lambda n, o, y, x: (n, y, x, o))
        s[stage].reorder(n_, y_, *s[stage].op.reduce_axis, x_, o_)
        s[stage].unroll(x_)
        s[stage].vectorize(o_)
    _, r, q = s[acc].op.reduce_axis
    if cfg["unroll"].val in ("s", "rs"):
        s[acc].unroll(q)
    if cfg["unroll"].val == "rs":
        s[acc].unroll(r)
    _pack_weights(cfg, s, Y, packed, task, width, layout)
    if source.op.tag == "pad":
        _place_padding(cfg, s, Y, source, task)


def _pack_weights(
    cfg: Any, s: Schedule, Y: te.Tensor, packed: te.Tensor, task: Any, width: int, layout: str
) -> None:
    """Weights as (O / width, C * KH * KW, width): what the register tile reads is contiguous."""
    s[packed].transform_layout(lambda o, p: (o // width, p, o % width))
    o, p = s[packed].op.axis
    outermost = []
    if cfg["pack"].val == "task":
        s[packed].compute_at(s[Y], task)
    else:
        block, o = s[packed].split(o, factor=width)
        s[packed].parallel(block)
        outermost = [block]
    oo, oi = s[packed].split(o, factor=lanes(packed.dtype))
    if layout == "NCHW":
        # Memory runs along p: squares of p and o are turned on the way.
        po, pi = s[packed].split(p, factor=lanes(packed.dtype))
        s[packed].reorder(*outermost, oo, po, pi, oi)
        s[packed].unroll(pi)
    else:
        s[packed].reorder(*outermost, p, oo, oi)
    s[packed].vectorize(oi)


def _place_padding(cfg: Any, s: Schedule, Y: te.Tensor, P: te.Tensor, task: Any) -> None:
    if cfg["pad"].val == "rows":
        s[P].compute_at(s[Y], task)
    outer, mid, *_, last = s[P].op.axis
    if cfg["pad"].val == "root":
        s[P].parallel(s[P].fuse(outer, mid))
    _, inner = s[P].split(last, factor=lanes(P.dtype))
    s[P].vectorize(inner)

"""conv2d in NCHW and NHWC.

On CPUs it is direct, with vectors over output channels and weights packed in blocks. The register
tile holds pixels x channels; an input pixel is broadcast, a vector of packed weights loaded, as in
the direct convolutions of Georganas et al. (SC 2018). The padded input is a stage of its own, so
the inner loops test nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright import te
from loopwright.errors import TensorError
from loopwright.ir.expr import Expr, IterVar
from loopwright.ops import gpu, tiles
from loopwright.ops.conv import (
    Window,
    by_role,
    check_groups,
    check_layout,
    pad_compute,
    pair,
    windows,
)
from loopwright.ops.operator import Array, LoopOrIndex, OneOrTwo, Reference, register
from loopwright.schedule import Schedule
from loopwright.task import get_config, template
from loopwright.task.template_config import TemplateConfig
from loopwright.te.tensor import static_shape

_PIXELS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)
#: Parallel tasks that the default schedule leaves at least, where the shape allows.
_MIN_TASKS = 8


def conv2d_compute(
    X: te.Tensor,
    W: te.Tensor,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    layout: str = "NCHW",
    name: str = "Y",
) -> te.Tensor:
    """``Y[n, o, y, x] = sum_{c, r, s} P[n, c, y*sh + r*dh, x*sw + s*dw] * W[o, c, r, s]``.

    Args:
        X: (N, C, H, W), or (N, H, W, C) with ``layout="NHWC"``.
        W: (O, C / groups, KH, KW), or (KH, KW, C / groups, O).
        stride: steps in y and x, positive.
        pad: zeros at each side in y and x; P is the padded input.
        dilation: distance of taps in y and x, positive.
        groups: output channel o reads input channels of group ``o // (O / groups)`` only.
        layout: "NCHW" or "NHWC".
        name: printed name of the result.

    Returns:
        (N, O, OH, OW), or (N, OH, OW, O); ``OH = (H + 2 ph - dh (KH - 1) - 1) // sh + 1``. int8 and
        uint8 give int32.

    Raises:
        TensorError: channels or dtypes differ, the kernel does not fit, a stride is not positive,
            the groups do not divide the channels.

    Example:
        >>> X, W = te.placeholder((1, 4, 8, 8), name="X"), te.placeholder((6, 4, 3, 3), name="W")
        >>> print(lw.ops.conv2d_compute(X, W, pad=(1, 1)))
        Tensor(Y: float32[1, 6, 8, 8])
    """
    window, out = _geometry(X, W, stride, pad, dilation, groups, layout)
    nchw = layout == "NCHW"
    weight = (lambda f, c, r, q: W[f, c, r, q]) if nchw else (lambda f, c, r, q: W[r, q, c, f])
    return _accumulate(X, weight, out, window, groups, layout, name)


def _geometry(
    X: te.Tensor,
    W: te.Tensor,
    stride: tuple[int, int],
    pad: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    layout: str,
) -> tuple[Window, tuple[int, int, int]]:
    """The window and (O, OH, OW) of a convolution whose operands fit together."""
    check_layout(layout)
    _, *image = by_role(X.shape, layout)
    c, h, w = static_shape(image)
    weight = W.static_shape
    o, cw, kh, kw = weight if layout == "NCHW" else (weight[3], weight[2], *weight[:2])
    check_groups(groups, c, o)
    if c != cw * groups:
        per = f" in each of {groups} groups" if groups > 1 else ""
        raise TensorError(f"conv2d: the input has {c} channels, the weight {cw}{per}")
    if X.dtype != W.dtype:
        raise TensorError(f"conv2d: the input is {X.dtype}, the weight {W.dtype}; cast one")
    window = Window((kh, kw), stride, pad, dilation)
    return window, (o, *window.out((h, w), "conv2d"))


def _accumulate(
    X: te.Tensor,
    weight: Callable[[LoopOrIndex, LoopOrIndex, LoopOrIndex, LoopOrIndex], Expr],
    out: tuple[int, int, int],
    window: Window,
    groups: int,
    layout: str,
    name: str,
) -> te.Tensor:
    """The convolution with weights read by ``weight(o, c, r, s)``; ``out`` is (O, OH, OW)."""
    P = pad_compute(X, window.pad, layout)
    per_group = by_role(X.shape, layout)[1] // groups
    rc = te.reduce_axis((0, per_group), name="c")
    ry = te.reduce_axis((0, window.kernel[0]), name="r")
    rx = te.reduce_axis((0, window.kernel[1]), name="s")
    wide = tiles.wide_dtype(X.dtype)
    o, oh, ow = out

    def element(b: LoopOrIndex, f: LoopOrIndex, y: LoopOrIndex, x: LoopOrIndex) -> Expr:
        py, px = window.at(y, x, ry, rx)
        ch = rc if groups == 1 else f // (o // groups) * per_group + rc
        tap = P[b, ch, py, px] if layout == "NCHW" else P[b, py, px, ch]
        value: Expr = te.sum(
            tap.astype(wide) * weight(f, rc, ry, rx).astype(wide), axis=[rc, ry, rx]
        )
        return value

    if layout == "NCHW":
        tensor: te.Tensor = te.compute(
            (X.shape[0], o, oh, ow), element, name=name, tag="conv2d_nchw"
        )
        return tensor
    tensor = te.compute(
        (X.shape[0], oh, ow, o),
        lambda b, y, x, f: element(b, f, y, x),
        name=name,
        tag="conv2d_nhwc",
    )
    return tensor


def define_conv2d_space(
    cfg: TemplateConfig, Y: te.Tensor, layout: str = "NCHW", groups: int = 1
) -> None:
    """The knobs of `schedule_conv2d`."""
    n, o, oh, ow = by_role(Y.static_shape, layout)
    widths = tiles.column_tiles(o // groups, Y.dtype, (1, 2, 3, 4))
    wide = widths[min(1, len(widths) - 1)]
    cfg.define_knob("tile_o", widths, default=wide)
    pixels = tiles.row_tiles(ow, _PIXELS)
    cfg.define_knob("tile_x", pixels, default=max(p for p in pixels if p <= 7))
    rows = [r for r in (1, 2, 4, 7, 8, 14, 28) if r <= oh] or [1]
    # A small map is one task, which packs its weights itself: nobody else reads them.
    whole = oh <= 7 and oh in rows and n * -(-o // wide) >= _MIN_TASKS
    cfg.define_knob("rows", rows, default=oh if whole else max(r for r in rows if r <= 4))
    cfg.define_knob("order", ["oy", "yo"])
    cfg.define_knob("unroll", ["none", "s", "rs"])
    cfg.define_knob("pad", ["root", "rows"])
    cfg.define_knob("pack", ["root", "task"], default="task" if whole else "root")
    fits = tiles.fitting(Y.dtype)
    cfg.multi_filter(lambda c: fits(c["tile_x"].val, c["tile_o"].val))


def schedule_conv2d(
    cfg: TemplateConfig,
    s: Schedule,
    Y: te.Tensor,
    block: te.Tensor,
    packed: te.Tensor,
    layout: str = "NCHW",
    groups: int = 1,
) -> None:
    """Schedule a convolution by the knobs of ``cfg``.

    Args:
        cfg: a configuration of `define_conv2d_space`.
        s: the schedule.
        Y: the result, elementwise over ``block``.
        block: the reduction; it becomes a tile of the result, in the order of the registers.
        packed: the weights as `pack_compute` gives them.
        layout: of the data.
        groups: as in `conv2d_compute`.
    """
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
        tiles.register_tile(s, stage, x_, o_, [n_, y_, *s[stage].op.reduce_axis])
    _, r, q = s[acc].op.reduce_axis
    if cfg["unroll"].val in ("s", "rs"):
        s[acc].unroll(q)
    if cfg["unroll"].val == "rs":
        s[acc].unroll(r)
    _pack_weights(cfg, s, Y, packed, task, width, layout)
    if source.op.tag == "pad":
        _place_padding(cfg, s, Y, source, task, layout)


def pack_compute(W: te.Tensor, layout: str = "NCHW", name: str = "packed") -> te.Tensor:
    """The weights as a matrix (O, C * KH * KW), for a stage that orders them for the registers."""
    nchw = layout == "NCHW"
    o, c, kh, kw = W.shape if nchw else (W.shape[3], W.shape[2], *W.shape[:2])

    def element(f: LoopOrIndex, p: LoopOrIndex) -> Expr:
        rest, r, q = p // (kh * kw), p // kw % kh, p % kw
        value: Expr = W[f, rest, r, q] if nchw else W[r, q, rest, f]
        return value

    tensor: te.Tensor = te.compute((o, c * kh * kw), element, name=name, tag="pack")
    return tensor


def _pack_weights(
    cfg: TemplateConfig,
    s: Schedule,
    Y: te.Tensor,
    packed: te.Tensor,
    task: IterVar,
    width: int,
    layout: str,
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
    oo, oi = s[packed].split(o, factor=tiles.lanes(packed.dtype))
    if layout == "NCHW":
        # Memory runs along p: squares of p and o are turned on the way.
        po, pi = s[packed].split(p, factor=tiles.lanes(packed.dtype))
        s[packed].reorder(*outermost, oo, po, pi, oi)
        s[packed].unroll(pi)
    else:
        s[packed].reorder(*outermost, p, oo, oi)
    s[packed].vectorize(oi)


def _place_padding(
    cfg: TemplateConfig, s: Schedule, Y: te.Tensor, P: te.Tensor, task: IterVar, layout: str
) -> None:
    if cfg["pad"].val == "rows":
        s[P].compute_at(s[Y], task)
    outer, mid, *_, last = s[P].op.axis
    if cfg["pad"].val == "root":
        s[P].parallel(s[P].fuse(outer, mid))
    _, inner = s[P].split(last, factor=tiles.lanes(P.dtype))
    s[P].vectorize(inner)


def _conv2d_reference(
    N: int,
    C: int,
    H: int,
    W: int,
    O: int,  # noqa: E741
    KH: int,
    KW: int,
    stride: OneOrTwo,
    pad: OneOrTwo,
    dtype: str,
    dilation: OneOrTwo,
    groups: int,
    layout: str,
) -> Reference:
    window = Window((KH, KW), pair(stride, "stride"), pair(pad, "pad"), pair(dilation, "dilation"))

    def reference(x: Array, w: Array) -> Array:
        x, w = tiles.widen(x, dtype), tiles.widen(w, dtype)
        if layout == "NHWC":
            x, w = x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)
        taps = windows(x, window)
        n, _, oh, ow = taps.shape[:4]
        # im2col, one product a group
        columns = taps.transpose(0, 1, 4, 5, 2, 3).reshape(n, groups, -1, oh * ow)
        y = np.matmul(w.reshape(groups, O // groups, -1), columns).reshape(n, O, oh, ow)
        y = y.transpose(0, 2, 3, 1) if layout == "NHWC" else y
        return tiles.narrow(y, dtype)

    return reference


@template("conv2d", make_reference=_conv2d_reference)
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
    """Y = conv(X, W); stride, pad and dilation: one or a pair; see `conv2d_compute`.

    Example:
        >>> s, args = lw.ops.conv2d(1, 4, 8, 8, 4, 3, 3, pad=1)
        >>> f = lw.build(s, args, "llvm")
        >>> x, w = np.ones((1, 4, 8, 8), "float32"), np.ones((4, 4, 3, 3), "float32")
        >>> y = np.empty((1, 4, 8, 8), "float32")
        >>> f(x, w, y)
        >>> print(y[0, 0, :2, :3])
        [[16. 24. 24.]
         [24. 36. 36.]]
    """
    X, weight = _inputs(N, C, H, W, O, KH, KW, dtype, groups, layout)
    window, sizes = _geometry(
        X,
        weight,
        pair(stride, "stride"),
        pair(pad, "pad"),
        pair(dilation, "dilation"),
        groups,
        layout,
    )
    packed = pack_compute(weight, layout)
    Y = _accumulate(
        X, lambda f, c, r, q: packed[f, (c * KH + r) * KW + q], sizes, window, groups, layout, "Y"
    )
    final = tiles.out_dtype(dtype)
    out = Y
    if final != Y.dtype:
        out = te.compute(Y.shape, lambda *i: Y[i].astype(final), name="Z")
    s = te.create_schedule(out.op)
    cfg = get_config()
    define_conv2d_space(cfg, Y, layout, groups)
    block = s.cache_write(Y, "local") if out is Y else Y
    schedule_conv2d(cfg, s, out, block, packed, layout, groups)
    return s, [X, weight, out]


@conv2d.register("gpu")
def _conv2d_gpu(*args: Any) -> tuple[Schedule, list[te.Tensor]]:
    n, c, h, w, o, kh, kw, stride, pad, dtype, dilation, groups, layout = args
    X, weight = _inputs(n, c, h, w, o, kh, kw, dtype, groups, layout)
    steps = pair(stride, "stride"), pair(pad, "pad"), pair(dilation, "dilation")
    Y = conv2d_compute(X, weight, *steps, groups, layout)
    final = tiles.out_dtype(dtype)
    if final != Y.dtype:
        sums = Y
        Y = te.compute(sums.shape, lambda *i: sums[i].astype(final), name="Z")
    return gpu.scheduled(Y, [X, weight])


def _inputs(
    N: int,
    C: int,
    H: int,
    W: int,
    O: int,  # noqa: E741
    KH: int,
    KW: int,
    dtype: str,
    groups: int,
    layout: str,
) -> tuple[te.Tensor, te.Tensor]:
    """The image and the weights."""
    check_layout(layout)
    check_groups(groups, C, O)
    nchw = layout == "NCHW"
    per = C // groups
    X = te.placeholder((N, C, H, W) if nchw else (N, H, W, C), dtype, name="X")
    return X, te.placeholder((O, per, KH, KW) if nchw else (KH, KW, per, O), dtype, name="W")


register(conv2d, "Y = conv(X, W); X (N, C, H, W) and W (O, C/groups, KH, KW), or NHWC and HWIO")

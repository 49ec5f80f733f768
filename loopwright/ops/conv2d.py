"""conv2d in NCHW for CPUs: direct, vectors over output channels, weights packed in blocks.

The register tile holds pixels x channels; an input pixel is broadcast, a vector of packed weights
loaded, as in the direct convolutions of Georganas et al. (SC 2018). The padded input is a stage of
its own, so the inner loops test nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright import te
from loopwright.errors import TensorError
from loopwright.ops import tiles
from loopwright.ops.operator import REQUIRED, Operator, register
from loopwright.schedule import Schedule
from loopwright.task import get_config, template

_PIXELS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)


def pad_compute(X: te.Tensor, pad: tuple[int, int], name: str = "pad") -> te.Tensor:
    """Zeros around the last two dimensions of (N, C, H, W)."""
    ph, pw = pad
    n, c, h, w = X.shape
    return te.compute(
        (n, c, h + 2 * ph, w + 2 * pw),
        lambda b, ch, y, x: te.if_then_else(
            te.all(y >= ph, y < h + ph, x >= pw, x < w + pw), X[b, ch, y - ph, x - pw], 0
        ),
        name=name,
        tag="pad",
    )


def conv2d_compute(
    X: te.Tensor,
    W: te.Tensor,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int] = (0, 0),
    name: str = "Y",
) -> te.Tensor:
    """``Y[n, o, y, x] = sum_{c, r, s} P[n, c, y*sh + r, x*sw + s] * W[o, c, r, s]``.

    Args:
        X: (N, C, H, W).
        W: (O, C, KH, KW).
        stride: steps in y and x, positive.
        pad: zeros at each side in y and x; P is the padded input.
        name: printed name of the result.

    Returns:
        (N, O, (H + 2 ph - KH) // sh + 1, (W + 2 pw - KW) // sw + 1).

    Raises:
        TensorError: channels or dtypes differ, the kernel does not fit, a stride is not positive.
    """
    n, c, h, w = X.shape
    o, cw, kh, kw = W.shape
    (sh, sw), (ph, pw) = stride, pad
    if c != cw:
        raise TensorError(f"conv2d: the input has {c} channels, the weight {cw}")
    if X.dtype != W.dtype:
        raise TensorError(f"conv2d: the input is {X.dtype}, the weight {W.dtype}; cast one")
    if min(sh, sw) < 1 or min(ph, pw) < 0:
        raise TensorError(
            f"conv2d: stride {stride} must be positive and padding {pad} not negative"
        )
    if kh > h + 2 * ph or kw > w + 2 * pw:
        raise TensorError(f"conv2d: a {kh}x{kw} kernel does not fit {h}x{w} padded by {pad}")
    P = pad_compute(X, pad) if ph or pw else X
    rc = te.reduce_axis((0, c), name="c")
    ry = te.reduce_axis((0, kh), name="r")
    rx = te.reduce_axis((0, kw), name="s")
    return te.compute(
        (n, o, (h + 2 * ph - kh) // sh + 1, (w + 2 * pw - kw) // sw + 1),
        lambda b, f, y, x: te.sum(
            P[b, rc, y * sh + ry, x * sw + rx] * W[f, rc, ry, rx], axis=[rc, ry, rx]
        ),
        name=name,
        tag="conv2d_nchw",
    )


def _pair(v: Any, what: str) -> tuple[int, int]:
    pair = (v, v) if isinstance(v, int) else tuple(v)
    if len(pair) != 2 or not all(isinstance(x, int) and not isinstance(x, bool) for x in pair):
        raise TensorError(f"conv2d: {what} is an integer or a pair of integers, got {v!r}")
    return pair[0], pair[1]


def define_conv2d_space(cfg: Any, Y: te.Tensor, kernel: tuple[int, int]) -> None:
    """The knobs of `schedule_conv2d`."""
    _, o, oh, ow = Y.shape
    widths = tiles.column_tiles(o, Y.dtype, (1, 2, 3, 4))
    cfg.define_knob("tile_o", widths, default=widths[min(1, len(widths) - 1)])
    pixels = tiles.row_tiles(ow, _PIXELS)
    cfg.define_knob("tile_x", pixels, default=max(p for p in pixels if p <= 7))
    rows = [r for r in (1, 2, 4, 7, 8, 14, 28) if r <= oh] or [1]
    cfg.define_knob("rows", rows, default=max(r for r in rows if r <= 4))
    cfg.define_knob("order", ["oy", "yo"])
    cfg.define_knob("unroll", ["s", "rs", "none"])
    cfg.define_knob("pad", ["root", "rows"])
    cfg.define_knob("pack", ["root", "task"])
    cfg.multi_filter(lambda c: tiles.fits_registers(c["tile_x"].val, c["tile_o"].val, Y.dtype))


def schedule_conv2d(cfg: Any, s: Schedule, Y: te.Tensor, W: te.Tensor) -> None:
    """Schedule a convolution by the knobs of ``cfg``."""
    block = s.cache_write(Y, "local")
    acc = s.cache_write(block, "local")
    source = s[acc].op.input_tensors[0]
    width = cfg["tile_o"].val
    n, o, y, x = s[Y].op.axis
    oo, oi = s[Y].split(o, factor=width)
    yo, yi = s[Y].split(y, factor=cfg["rows"].val)
    xo, xi = s[Y].split(x, factor=cfg["tile_x"].val)
    outer = (oo, yo) if cfg["order"].val == "oy" else (yo, oo)
    s[Y].reorder(n, *outer, yi, xo, oi, xi)
    task = s[Y].fuse(n, *outer)
    s[Y].parallel(task)
    s[Y].vectorize(xi)
    for stage in (block, acc):
        s[stage].compute_at(s[Y], xo)
    s[block].transform_layout(lambda n, o, y, x: (n, y, x, o))
    bn, bo, by, bx = s[block].op.axis
    tiles.register_tile(s, block, bx, bo, [bn, by])
    an, ao, ay, ax = s[acc].op.axis
    c, r, q = s[acc].op.reduce_axis
    s[acc].transform_layout(lambda n, o, y, x: (n, y, x, o))
    tiles.register_tile(s, acc, ax, ao, [an, ay, c, r, q])
    if cfg["unroll"].val in ("s", "rs"):
        s[acc].unroll(q)
    if cfg["unroll"].val == "rs":
        s[acc].unroll(r)
    _pack_weights(cfg, s, Y, acc, W, task, width)
    if source.op.tag == "pad":
        _place_padding(cfg, s, Y, source, task)


def _pack_weights(
    cfg: Any, s: Schedule, Y: te.Tensor, acc: te.Tensor, W: te.Tensor, task: Any, width: int
) -> None:
    """Weights as (O / width, C, KH, KW, width): what the register tile reads is contiguous."""
    packed = s.cache_read(W, "local", [acc])
    s[packed].transform_layout(lambda o, c, r, q: (o // width, c, r, q, o % width))
    if cfg["pack"].val == "task":
        s[packed].compute_at(s[Y], task)
        return
    o, *_ = s[packed].op.axis
    oo, _ = s[packed].split(o, factor=width)
    s[packed].parallel(oo)


def _place_padding(cfg: Any, s: Schedule, Y: te.Tensor, P: te.Tensor, task: Any) -> None:
    if cfg["pad"].val == "rows":
        s[P].compute_at(s[Y], task)
    n, c, _, x = s[P].op.axis
    if cfg["pad"].val == "root":
        s[P].parallel(s[P].fuse(n, c))
    _, xi = s[P].split(x, factor=tiles.lanes(P.dtype))
    s[P].vectorize(xi)


def _conv2d_reference(
    N: int, C: int, H: int, W: int, O: int, KH: int, KW: int, stride: Any = 1, pad: Any = 0,  # noqa: E741
    dtype: str = "float32",
) -> Callable[..., Any]:  # fmt: skip
    (sh, sw), (ph, pw) = _pair(stride, "stride"), _pair(pad, "pad")

    def reference(x: Any, w: Any) -> Any:
        padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
        views = np.lib.stride_tricks.sliding_window_view(padded, (KH, KW), (2, 3))
        views = views[:, :, ::sh, ::sw]
        n, c, oh, ow = views.shape[:4]
        columns = views.transpose(0, 1, 4, 5, 2, 3).reshape(n, c * KH * KW, oh * ow)
        return np.matmul(w.reshape(O, -1), columns).reshape(n, O, oh, ow)

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
    stride: Any = 1,
    pad: Any = 0,
    dtype: str = "float32",
) -> tuple[Schedule, list[te.Tensor]]:
    """Y (N, O, OH, OW) = conv(X (N, C, H, W), W (O, C, KH, KW)); stride, pad: one or a pair."""
    X = te.placeholder((N, C, H, W), dtype, name="X")
    weight = te.placeholder((O, C, KH, KW), dtype, name="W")
    Y = conv2d_compute(X, weight, _pair(stride, "stride"), _pair(pad, "pad"))
    s = te.create_schedule(Y.op)
    cfg = get_config()
    define_conv2d_space(cfg, Y, (C, KH))
    schedule_conv2d(cfg, s, Y, weight)
    return s, [X, weight, Y]


CONV2D = register(
    Operator(
        "conv2d",
        conv2d,
        {
            **{k: REQUIRED for k in ("N", "C", "H", "W", "O", "KH", "KW")},
            "stride": 1,
            "pad": 0,
            "dtype": "float32",
        },
        _conv2d_reference,
        "Y = conv(X, W) in NCHW; X (N, C, H, W), W (O, C, KH, KW)",
    )
)

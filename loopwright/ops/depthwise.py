"""depthwise conv2d in NCHW and NHWC."""

from __future__ import annotations

import numpy as np

from loopwright import te
from loopwright.errors import TensorError
from loopwright.ir.expr import Expr
from loopwright.ops import tiles
from loopwright.ops.conv import Window, by_role, check_layout, pad_compute, pair, windows
from loopwright.ops.operator import Array, LoopOrIndex, OneOrTwo, Reference, definition
from loopwright.te.tensor import static_shape

_NAME = "depthwise_conv2d"


def depthwise_conv2d_compute(
    X: te.Tensor,
    W: te.Tensor,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    layout: str = "NCHW",
    name: str = "Y",
) -> te.Tensor:
    """``Y[n, c, y, x] = sum_{r, s} P[n, c, y*sh + r*dh, x*sw + s*dw] * W[c, 0, r, s]``.

    Args:
        X: (N, C, H, W), or (N, H, W, C) with ``layout="NHWC"``.
        W: (C, 1, KH, KW), or (KH, KW, C, 1).
        stride, pad, dilation: in y and x; P is the input with zeros around it.
        layout: "NCHW" or "NHWC".
        name: printed name of the result.

    Returns:
        (N, C, OH, OW), or (N, OH, OW, C).

    Raises:
        TensorError: channels or dtypes differ, the kernel does not fit, a stride is not positive.

    Example:
        >>> X, W = te.placeholder((1, 4, 8, 8), name="X"), te.placeholder((4, 1, 3, 3), name="W")
        >>> print(lw.ops.depthwise_conv2d_compute(X, W))
        Tensor(Y: float32[1, 4, 6, 6])
    """
    check_layout(layout, _NAME)
    first = layout == "NCHW"
    n, c, h, w = by_role(X.shape, layout)
    weight = W.static_shape
    cw, one, kh, kw = weight if first else (*weight[2:], *weight[:2])
    if cw != c or one != 1:
        raise TensorError(
            f"{_NAME}: the input has {c} channels, the weight {cw} x {one}, not {c} x 1"
        )
    if X.dtype != W.dtype:
        raise TensorError(f"{_NAME}: the input is {X.dtype}, the weight {W.dtype}; cast one")
    window = Window((kh, kw), stride, pad, dilation)
    h, w = static_shape((h, w))
    oh, ow = window.out((h, w), _NAME)
    P = pad_compute(X, pad, layout)
    r = te.reduce_axis((0, kh), name="r")
    q = te.reduce_axis((0, kw), name="s")
    wide = tiles.wide_dtype(X.dtype)

    def element(b: LoopOrIndex, ch: LoopOrIndex, y: LoopOrIndex, x: LoopOrIndex) -> Expr:
        py, px = window.at(y, x, r, q)
        tap = P[b, ch, py, px] if first else P[b, py, px, ch]
        weight = W[ch, 0, r, q] if first else W[r, q, ch, 0]
        value: Expr = te.sum(tap.astype(wide) * weight.astype(wide), axis=[r, q])
        return value

    if first:
        tensor: te.Tensor = te.compute(
            (n, c, oh, ow), element, name=name, tag="depthwise_conv2d_nchw"
        )
        return tensor
    tensor = te.compute(
        (n, oh, ow, c), lambda b, y, x, ch: element(b, ch, y, x), name=name,
        tag="depthwise_conv2d_nhwc",
    )  # fmt: skip
    return tensor


def _depthwise_reference(
    N: int,
    C: int,
    H: int,
    W: int,
    KH: int,
    KW: int,
    stride: OneOrTwo,
    pad: OneOrTwo,
    dtype: str,
    dilation: OneOrTwo,
    layout: str,
) -> Reference:
    steps, around = pair(stride, "stride", _NAME), pair(pad, "pad", _NAME)
    window = Window((KH, KW), steps, around, pair(dilation, "dilation", _NAME))

    def reference(x: Array, w: Array) -> Array:
        x, w = tiles.widen(x, dtype), tiles.widen(w, dtype)
        if layout == "NHWC":
            x, w = x.transpose(0, 3, 1, 2), w.transpose(2, 3, 0, 1)
        taps = windows(x, window)
        y = np.zeros(taps.shape[:4], taps.dtype)
        for r in range(KH):
            for q in range(KW):
                y += taps[..., r, q] * w[:, 0, r, q][:, None, None]
        y = y.transpose(0, 2, 3, 1) if layout == "NHWC" else y
        return tiles.narrow(y, dtype)

    return reference


@definition(
    _NAME,
    "each channel with its own kernel; X (N, C, H, W) and W (C, 1, KH, KW), or NHWC and HWC1",
    _depthwise_reference,
)
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
) -> list[te.Tensor]:
    """Each channel convolved with a kernel of its own; see `depthwise_conv2d_compute`.

    Example:
        >>> s, args = lw.ops.depthwise_conv2d(1, 4, 8, 8, 3, 3, pad=1)
        >>> f = lw.build(s, args, "llvm")
        >>> x, w = np.ones((1, 4, 8, 8), "float32"), np.ones((4, 1, 3, 3), "float32")
        >>> y = np.empty((1, 4, 8, 8), "float32")
        >>> f(x, w, y)
        >>> print(y[0, 0, :2, :3])
        [[4. 6. 6.]
         [6. 9. 9.]]
    """
    check_layout(layout, _NAME)
    nchw = layout == "NCHW"
    X = te.placeholder((N, C, H, W) if nchw else (N, H, W, C), dtype, name="X")
    weight = te.placeholder((C, 1, KH, KW) if nchw else (KH, KW, C, 1), dtype, name="W")
    steps, around = pair(stride, "stride", _NAME), pair(pad, "pad", _NAME)
    Y = depthwise_conv2d_compute(
        X, weight, steps, around, pair(dilation, "dilation", _NAME), layout
    )
    final = tiles.out_dtype(dtype)
    if final == Y.dtype:
        return [X, weight, Y]
    return [X, weight, te.compute(Y.shape, lambda *i: Y[i].astype(final), name="Z")]

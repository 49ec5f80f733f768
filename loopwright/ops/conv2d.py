"""conv2d in NCHW and NHWC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright import te
from loopwright.errors import TensorError
from loopwright.ir.expr import Expr
from loopwright.ops import tiles
from loopwright.ops.conv import (
    Window,
    by_role,
    check_groups,
    check_layout,
    pad_compute,
    pair,
    windows,
)
from loopwright.ops.operator import Array, LoopOrIndex, OneOrTwo, Reference, definition
from loopwright.te.tensor import static_shape


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
    check_layout(layout)
    check_groups(groups, C, O)
    nchw = layout == "NCHW"
    per = C // groups
    X = te.placeholder((N, C, H, W) if nchw else (N, H, W, C), dtype, name="X")
    return X, te.placeholder((O, per, KH, KW) if nchw else (KH, KW, per, O), dtype, name="W")


def _narrowed(Y: te.Tensor, dtype: str) -> te.Tensor:
    """Sums in the dtype of the result."""
    final = tiles.out_dtype(dtype)
    if final == Y.dtype:
        return Y
    narrow: te.Tensor = te.compute(Y.shape, lambda *i: Y[i].astype(final), name="Z")
    return narrow


def _packed(*args: Any) -> list[te.Tensor]:
    """The expression of the former template for CPUs, which made the weights a matrix first."""
    n, c, h, w, o, kh, kw, stride, pad, dtype, dilation, groups, layout = args
    X, weight = _inputs(n, c, h, w, o, kh, kw, dtype, groups, layout)
    steps = pair(stride, "stride"), pair(pad, "pad"), pair(dilation, "dilation")
    window, sizes = _geometry(X, weight, *steps, groups, layout)
    nchw = layout == "NCHW"

    def element(f: LoopOrIndex, p: LoopOrIndex) -> Expr:
        rest, r, q = p // (kh * kw), p // kw % kh, p % kw
        value: Expr = weight[f, rest, r, q] if nchw else weight[r, q, rest, f]
        return value

    packed = te.compute((o, c // groups * kh * kw), element, name="packed", tag="pack")
    Y = _accumulate(
        X, lambda f, c, r, q: packed[f, (c * kh + r) * kw + q], sizes, window, groups, layout, "Y"
    )
    return [X, weight, _narrowed(Y, dtype)]


@definition(
    "conv2d",
    "Y = conv(X, W); X (N, C, H, W) and W (O, C/groups, KH, KW), or NHWC and HWIO",
    _conv2d_reference,
    former=_packed,
)
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
) -> list[te.Tensor]:
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
    steps = pair(stride, "stride"), pair(pad, "pad"), pair(dilation, "dilation")
    return [X, weight, _narrowed(conv2d_compute(X, weight, *steps, groups, layout), dtype)]

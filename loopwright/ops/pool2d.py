"""max and average pooling in NCHW and NHWC."""

from __future__ import annotations

import numpy as np

from loopwright import dtypes, te
from loopwright.errors import TensorError
from loopwright.ir.expr import Expr
from loopwright.ops import tiles
from loopwright.ops.conv import Window, by_role, check_layout, pad_compute, pair, windows
from loopwright.ops.operator import Array, LoopOrIndex, OneOrTwo, Reference, definition
from loopwright.te.tensor import static_shape

KINDS = ("max", "avg")


def pool2d_compute(
    X: te.Tensor,
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int] = (0, 0),
    kind: str = "max",
    count_include_pad: bool = False,
    layout: str = "NCHW",
    name: str = "Y",
) -> tuple[te.Tensor, te.Tensor]:
    """The largest, or the mean, of each window.

    Args:
        X: (N, C, H, W), or (N, H, W, C) with ``layout="NHWC"``; floats for averages.
        kernel: extents of a window in y and x.
        stride: steps in y and x.
        pad: at each side in y and x, at most half of the kernel; a maximum never takes it.
        kind: "max" or "avg".
        count_include_pad: whether an average divides by the extent of the whole window.
        layout: "NCHW" or "NHWC".
        name: printed name of the result.

    Returns:
        The reduction over the window and the result (the same tensor for maxima).

    Raises:
        TensorError: unknown kind, averages of integers, a window that does not fit or that may
            lie in the padding alone.

    Example:
        >>> X = te.placeholder((1, 4, 8, 8), name="X")
        >>> print(lw.ops.pool2d_compute(X, (2, 2), stride=(2, 2)))
        (Tensor(Y: float32[1, 4, 4, 4]), Tensor(Y: float32[1, 4, 4, 4]))
    """
    check_layout(layout, "pool2d")
    if kind not in KINDS:
        raise TensorError(f"pool2d: kind is one of {', '.join(KINDS)}, got {kind!r}")
    if kind == "avg" and not dtypes.is_float(X.dtype):
        raise TensorError(f"pool2d: an average of {X.dtype} is not an integer; cast the input")
    if any(2 * p > k for p, k in zip(pad, kernel, strict=True)):
        raise TensorError(f"pool2d: padding {pad} is more than half of the kernel {kernel}")
    n, c, h, w = by_role(X.shape, layout)
    window = Window(kernel, stride, pad)
    h, w = static_shape((h, w))
    oh, ow = window.out((h, w), "pool2d")
    lowest = te.min_value(X.dtype) if kind == "max" else 0
    P = pad_compute(X, pad, layout, lowest)
    r = te.reduce_axis((0, kernel[0]), name="r")
    q = te.reduce_axis((0, kernel[1]), name="s")
    reducer, wide = (te.max, X.dtype) if kind == "max" else (te.sum, tiles.wide_dtype(X.dtype))
    shape = (n, c, oh, ow) if layout == "NCHW" else (n, oh, ow, c)
    names = [x.lower() for x in layout]

    def taken(*at: LoopOrIndex) -> Expr:
        b, ch, y, x = by_role(at, layout)
        py, px = window.at(y, x, r, q)
        tap = P[b, ch, py, px] if layout == "NCHW" else P[b, py, px, ch]
        value: Expr = reducer(tap.astype(wide), axis=[r, q])
        return value

    def count(i: LoopOrIndex, d: int) -> Expr:
        """Taps of a window that lie in the image."""
        start = i * stride[d] - pad[d]
        taps: Expr = te.min(start + kernel[d], (h, w)[d]) - te.max(start, 0)
        return taps

    def mean(*at: LoopOrIndex) -> Expr:
        _, _, y, x = by_role(at, layout)
        whole = count_include_pad or pad == (0, 0)
        over = te.const(kernel[0] * kernel[1], wide) if whole else count(y, 0) * count(x, 1)
        value: Expr = (total[at] / over.astype(wide)).astype(X.dtype)
        return value

    if kind == "max":
        best = te.compute(shape, taken, name=name, tag="pool_max", varargs_names=names)
        return best, best
    total = te.compute(shape, taken, name="total", tag="pool_sum", varargs_names=names)
    return total, te.compute(shape, mean, name=name, tag="pool_avg", varargs_names=names)


def _pool2d_reference(
    N: int,
    C: int,
    H: int,
    W: int,
    KH: int,
    KW: int,
    stride: OneOrTwo,
    pad: OneOrTwo,
    kind: str,
    count_include_pad: bool,
    dtype: str,
    layout: str,
) -> Reference:
    window = Window((KH, KW), pair(stride, "stride", "pool2d"), pair(pad, "pad", "pool2d"))

    def reference(x: Array) -> Array:
        x = x.transpose(0, 3, 1, 2) if layout == "NHWC" else x
        if kind == "max":
            y = windows(x, window, dtypes.limits(dtype)[0]).max((-1, -2))
        else:
            total = windows(tiles.widen(x, dtype), window).sum((-1, -2))
            ones = np.ones((1, 1, H, W), total.dtype)
            inside = windows(ones, window).sum((-1, -2))
            y = total / (total.dtype.type(KH * KW) if count_include_pad else inside)
        y = y.transpose(0, 2, 3, 1) if layout == "NHWC" else y
        return tiles.narrow(y, dtype)

    return reference


@definition(
    "pool2d",
    "largest (max) or mean (avg) of windows; X (N, C, H, W) or (N, H, W, C)",
    _pool2d_reference,
)
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
) -> list[te.Tensor]:
    """The largest ("max") or the mean ("avg") of each window; see `pool2d_compute`.

    Example:
        >>> s, args = lw.ops.pool2d(1, 1, 4, 4, 2, 2, stride=2)
        >>> f = lw.build(s, args, "llvm")
        >>> x = np.arange(16, dtype="float32").reshape(1, 1, 4, 4)
        >>> y = np.empty((1, 1, 2, 2), "float32")
        >>> f(x, y)
        >>> print(y[0, 0])
        [[ 5.  7.]
         [13. 15.]]
    """
    check_layout(layout, "pool2d")
    X = te.placeholder((N, C, H, W) if layout == "NCHW" else (N, H, W, C), dtype, name="X")
    steps, around = pair(stride, "stride", "pool2d"), pair(pad, "pad", "pool2d")
    _, Y = pool2d_compute(X, (KH, KW), steps, around, kind, count_include_pad, layout)
    return [X, Y]

"""Definitions over sliding windows: convolutions, depthwise ones, and pools.

Data is (N, C, H, W) for ``"NCHW"`` and (N, H, W, C) for ``"NHWC"``; weights are (O, C / groups, KH,
KW) and (KH, KW, C / groups, O).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from loopwright import dtypes, te
from loopwright.errors import TensorError
from loopwright.ir.expr import Expr, ExprLike
from loopwright.ops import tiles
from loopwright.ops.operator import Array, LoopOrIndex, OneOrTwo, Reference, definition
from loopwright.te.tensor import static_shape

LAYOUTS = ("NCHW", "NHWC")
T = TypeVar("T")


def pair(v: object, what: str, op: str = "conv2d") -> tuple[int, int]:
    """``v`` if it is a pair, else ``(v, v)``; ``what`` and ``op`` are for messages."""
    both = (v, v) if isinstance(v, int) else v
    if not isinstance(both, list | tuple) or len(both) != 2 or not all(map(_is_int, both)):
        raise TensorError(f"{op}: {what} is an integer or a pair of integers, got {v!r}")
    return both[0], both[1]


def _is_int(x: object) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def check_layout(layout: str, op: str = "conv2d") -> None:
    if layout not in LAYOUTS:
        raise TensorError(f"{op}: layout is one of {', '.join(LAYOUTS)}, got {layout!r}")


def check_groups(groups: int, c: int, o: int) -> None:
    """Refuse groups that do not divide the channels."""
    whole = isinstance(groups, int) and not isinstance(groups, bool) and groups > 0
    if not whole or c % groups or o % groups:
        raise TensorError(
            f"conv2d: {groups} groups do not divide {c} input and {o} output channels"
        )


def by_role(axes: Sequence[T], layout: str) -> tuple[T, T, T, T]:
    """Four axes (or extents) in the order of a layout as (n, channel, y, x)."""
    a, b, c, d = axes
    return (a, b, c, d) if layout == "NCHW" else (a, d, b, c)


@dataclass(frozen=True)
class Window:
    """Sliding window of a kernel: its extents, and pairs (y, x) of stride, padding and dilation."""

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    def out(self, size: tuple[int, int], op: str) -> tuple[int, int]:
        if min(*self.stride, *self.dilation) < 1 or min(self.pad) < 0:
            raise TensorError(
                f"{op}: stride {self.stride} and dilation {self.dilation} must be positive, "
                f"padding {self.pad} not negative"
            )
        (oh, ow) = (
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, p, d, k, s in zip(
                size, self.pad, self.dilation, self.kernel, self.stride, strict=True
            )
        )
        if min(oh, ow) < 1:
            kernel = "x".join(map(str, self.kernel))
            wide = "" if self.dilation == (1, 1) else f" dilated by {self.dilation}"
            raise TensorError(
                f"{op}: a {kernel} kernel{wide} does not fit {size[0]}x{size[1]} padded by "
                f"{self.pad}"
            )
        return oh, ow

    def at(
        self, y: LoopOrIndex, x: LoopOrIndex, r: LoopOrIndex, q: LoopOrIndex
    ) -> tuple[Expr, Expr]:
        """Place in the padded image of tap (r, q) for the result at (y, x)."""
        (sh, sw), (dh, dw) = self.stride, self.dilation
        return y * sh + r * dh, x * sw + q * dw


def pad_compute(
    X: te.Tensor,
    pad: tuple[int, int],
    layout: str = "NCHW",
    value: ExprLike = 0,
    name: str = "pad",
) -> te.Tensor:
    """``value`` around the two spatial dimensions; X itself where there is nothing to add."""
    if pad == (0, 0):
        return X
    first = layout.index("H")
    extents = {first: (pad[0], X.shape[first]), first + 1: (pad[1], X.shape[first + 1])}
    shape = [n + 2 * extents[d][0] if d in extents else n for d, n in enumerate(X.shape)]

    def element(*at: ExprLike) -> Expr:
        tests = [c for d, (p, n) in extents.items() for c in (at[d] >= p, at[d] < n + p)]
        source = [i - extents[d][0] if d in extents else i for d, i in enumerate(at)]
        return te.if_then_else(te.all(*tests), X[tuple(source)], value)

    names = [c.lower() for c in layout]
    padded: te.Tensor = te.compute(shape, element, name=name, tag="pad", varargs_names=names)
    return padded


def windows(x: Array, w: Window, value: float = 0) -> Array:
    """NumPy view (N, C, OH, OW, KH, KW) of the taps of an NCHW image."""
    (ph, pw), (dh, dw), (sh, sw) = w.pad, w.dilation, w.stride
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)), constant_values=value)
    reach = (dh * (w.kernel[0] - 1) + 1, dw * (w.kernel[1] - 1) + 1)
    views = np.lib.stride_tricks.sliding_window_view(padded, reach, (2, 3))
    return views[:, :, ::sh, ::sw, ::dh, ::dw]


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

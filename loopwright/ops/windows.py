"""Definitions over sliding windows: convolutions and pools of any rank in every layout.

Models compute `convolution`, `pool` and `mean_pool`, and with ``as_workload`` so do the workloads.
By the way in which these write the same sums, records of either name their expression: a workload
tests both sides of padding, sums over channels first, and divides by counts.

Images are (N, C, ...) in ``"NCHW"``, (N, ..., C) in ``"NHWC"``, (N, C / c, ..., c) in ``"NCHWc"``;
weights (O, C / groups, ...), (..., C / groups, O), (O / o, C / c, ..., c, o).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from loopwright import dtypes, te
from loopwright.errors import TensorError
from loopwright.ops import tiles
from loopwright.ops.operator import Array, OneOrTwo, Reference, compute, definition
from loopwright.te import static_shape

Size: TypeAlias = "int | te.Expr"
#: The first dimension of the image in each layout.
IMAGE = {"NCHW": 2, "NHWC": 1, "NCHWc": 2}


@dataclass(frozen=True)
class Window:
    """Sliding window over an image: a number, or a pair, for each of its dimensions."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]  # elements before and after the image
    dilation: tuple[int, ...]

    def __post_init__(self) -> None:
        numbers = (*self.stride, *self.dilation)
        if any(n < 1 for n in numbers) or any(p < 0 for pair in self.pads for p in pair):
            raise TensorError(
                f"stride {self.stride} and dilation {self.dilation} must be positive, padding "
                f"{self.pads} not negative"
            )

    def positions(self, image: Sequence[Size]) -> tuple[Size, ...]:
        counts: list[Size] = []
        for n, k, s, d in zip(image, self.kernel, self.stride, self.dilation, strict=True):
            reach = (k - 1) * d + 1
            if isinstance(n, int) and n < reach:
                kernel, size = ("x".join(map(str, x)) for x in (self.kernel, image))
                raise TensorError(
                    f"a {kernel} kernel does not fit {size}, padding included; its dilation is "
                    f"{self.dilation}"
                )
            symbolic = not isinstance(n, int)
            counts.append(te.indexdiv(n - reach, s) + 1 if symbolic else (n - reach) // s + 1)
        return tuple(counts)

    def taps(self, names: str = "") -> list[te.IterVar]:
        """A loop for each dimension of the window, called r0, r1, ... by default."""
        loops = names or [f"r{d}" for d in range(len(self.kernel))]
        return [te.reduce_axis((0, n), name=x) for n, x in zip(self.kernel, loops, strict=True)]

    def at(self, place: Sequence[Any], taps: Sequence[Any]) -> list[Any]:
        """Index in the padded image of a tap for the result at a place."""
        steps = zip(place, self.stride, taps, self.dilation, strict=True)
        return [y * s + r * d for y, s, r, d in steps]


def padded(
    data: te.Tensor,
    pads: Sequence[tuple[int, int]],
    first: int,
    value: Any = 0,
    as_workload: bool = False,
    axes: Sequence[str] | None = None,
) -> te.Tensor:
    """The data with ``value`` around dimensions from ``first`` on; itself without padding."""
    if all(p == (0, 0) for p in pads):
        return data
    behind = len(data.shape) - first - len(pads)
    every = [(0, 0)] * first + list(pads) + [(0, 0)] * behind
    shape = [n + low + high for n, (low, high) in zip(data.shape, every, strict=True)]
    fill = te.const(value, data.dtype)

    def inside(*i: Any) -> Any:
        at = [x - low for x, (low, _) in zip(i, every, strict=True)]
        tests = []
        for d, (low, high) in enumerate(pads, first):
            if as_workload:
                tests += [i[d] >= low, i[d] < data.shape[d] + low]
            else:
                tests += [at[d] >= 0] if low else []
                tests += [at[d] < data.shape[d]] if high else []
        return te.if_then_else(te.all(*tests), data(*at), fill)

    tag = "pad" if as_workload else ""
    return compute(tuple(shape), inside, name="pad", tag=tag, varargs_names=axes)


def numbered(names: Sequence[str], rank: int) -> list[str]:
    """Names of some axes: the given ones, then i2, i3, ... by their place."""
    return [*names, *(f"i{d}" for d in range(len(names), rank))]


def convolution(
    data: te.Tensor,
    weight: te.Tensor,
    window: Window,
    layout: str = "NCHW",
    *,
    dtype: str,
    source: str = "",
    groups: int = 1,
    by_channel: bool = False,
    weight_at: Callable[..., Any] | None = None,
    as_workload: bool = False,
    name: str = "conv",
) -> te.Tensor:
    """The sums of products of an image with windows of weights, in ``dtype``.

    ``source`` is the layout of the data, NCHW or that of the result; output o reads the channels of
    group ``o // (O / groups)``. ``by_channel`` weights have one channel and one output for each of
    the image: (C, 1, ...), (..., C, 1), or (C / c, 1, ..., 1, c). TensorError where channels
    differ, the groups do not divide them, or the window does not fit.
    """
    source = source or layout
    first, rank, blocked = IMAGE[source], len(window.kernel), layout == "NCHWc"
    letters = [*layout.lower()] if as_workload else None
    x = padded(data, window.pads, first, as_workload=as_workload, axes=letters)
    size = window.positions(x.shape[first : first + rank])
    taps, read = window.taps("rs" if as_workload else ""), weight_at or weight
    at_end = layout != "NCHW"
    outputs, inner = weight.shape[:2] if layout != "NHWC" else weight.shape[:-3:-1]
    outputs = inner if by_channel and layout == "NHWC" else outputs
    c = te.reduce_axis((0, inner), name="c")
    lanes, width = weight.shape[-2:] if blocked else (1, 1)
    lane = te.reduce_axis((0, lanes), name="ci")
    inside: list[Any] = [lane] if blocked and source == layout else []
    if not by_channel and not blocked:
        check_channels(data.shape[-1 if source == "NHWC" else 1], inner, outputs, groups)

    def group_of(o: Any) -> Any:
        if groups == 1:
            return 0
        if layout == "NHWC" and outputs == groups and not as_workload:
            return o * inner
        return te.indexdiv(o, outputs // groups) * inner

    def value(*i: Any) -> Any:
        n, *place = i
        outer: Any = place.pop(0) if layout != "NHWC" else 0
        o: Any = place.pop() if at_end else outer
        at = window.at(place, taps)
        if blocked and by_channel:
            element, factor = x(n, outer, *at, o), read(outer, 0, *taps, 0, o)
        elif blocked:
            element = x(n, c, *at, *inside)
            factor = read(outer, c, *taps, *(inside or [0]), o)
        else:
            channel = o if by_channel else group_of(o) + c
            element = x(n, *at, channel) if source == "NHWC" else x(n, channel, *at)
            index = (o, 0) if by_channel else (o, c)
            if at_end:
                factor = read(*taps, *(index if by_channel else index[::-1]))
            else:
                factor = read(*index, *taps)
        return te.sum(element.astype(dtype) * factor.astype(dtype), axis=loops)

    loops = taps if by_channel else [c, *taps, *inside]
    if layout == "NHWC" and not as_workload:
        loops = [*taps, c]
    shape = {
        "NCHW": (data.shape[0], outputs, *size),
        "NHWC": (data.shape[0], *size, outputs),
        "NCHWc": (data.shape[0], outputs, *size, width),
    }[layout]
    if as_workload:
        axes, channel = ["b", "y", "x"], "ch" if by_channel else "f"
        axes.insert(3 if at_end else 1, channel)
        tag = f"{'depthwise_' if by_channel else ''}conv2d_{layout.lower()}"
    else:
        names = {"NCHW": ["n", "o"], "NHWC": ["n"], "NCHWc": ["n", "outer"]}
        axes, tag = numbered(names[layout], len(shape)), ""
    return compute(shape, value, name=name, tag=tag, varargs_names=axes)


def check_channels(channels: Size, inner: Size, outputs: Size, groups: int) -> None:
    """Refuse an image and a weight whose channels differ, and groups that do not divide these."""
    if groups < 1:
        raise TensorError(
            f"{groups} groups do not divide {channels} input and {outputs} output channels"
        )
    if repr(channels) != repr(inner * groups):
        per = f" in each of {groups} groups" if groups > 1 else ""
        raise TensorError(f"the input has {channels} channels, the weight {inner}{per}")
    if isinstance(outputs, int) and outputs % groups:
        raise TensorError(f"{groups} groups do not divide {outputs} output channels")


def pool(
    data: te.Tensor,
    window: Window,
    first: int,
    reduce: Callable[..., Any],
    name: str,
    dtype: str = "",
    *,
    as_workload: bool = False,
    axes: Sequence[str] | None = None,
) -> te.Tensor:
    """A reduction, in ``dtype``, over the windows of an image that is padded already."""
    end = first + len(window.kernel)
    size, taps = window.positions(data.shape[first:end]), window.taps("rs" if as_workload else "")

    def value(*i: Any) -> Any:
        at = window.at(i[first:end], taps)
        return reduce(data(*i[:first], *at, *i[end:]).astype(dtype or data.dtype), axis=taps)

    shape = (*data.shape[:first], *size, *data.shape[end:])
    tag = ("pool_sum" if reduce is te.sum else "pool_max") if as_workload else ""
    return compute(shape, value, name=name, tag=tag, varargs_names=axes)


def mean_pool(
    data: te.Tensor,
    summed: te.Tensor,
    window: Window,
    first: int,
    count_include_pad: bool,
    *,
    name: str,
    as_workload: bool = False,
    axes: Sequence[str] | None = None,
) -> te.Tensor:
    """The means of windows whose sums are known; a workload gives them the dtype of the data."""
    end, area = first + len(window.kernel), math.prod(window.kernel)
    bounded = not count_include_pad and any(p != (0, 0) for p in window.pads)

    def mean(*i: Any) -> Any:
        total = summed(*i)
        if bounded:
            count: Any = 1
            steps = zip(
                i[first:end],
                window.stride,
                window.kernel,
                window.pads,
                data.shape[first:end],
                strict=True,
            )
            for y, s, w, (low, _), extent in steps:
                count = count * (te.min(y * s - low + w, extent) - te.max(y * s - low, 0))
            average = total / count.astype(summed.dtype)
        elif as_workload:
            average = total / te.const(area, summed.dtype)
        else:
            average = total * te.const(1 / area, summed.dtype)
        return average.astype(data.dtype) if as_workload else average

    tag = "pool_avg" if as_workload else ""
    return compute(summed.shape, mean, name=name, tag=tag, varargs_names=axes)


# ---------------------------------------------------------------- workloads


@contextmanager
def _named(op: str) -> Iterator[None]:
    """Errors begin with the name of the workload."""
    try:
        yield
    except TensorError as exc:
        text = str(exc)
        raise TensorError(text if text.startswith(f"{op}: ") else f"{op}: {text}") from exc


def pair(v: object, what: str) -> tuple[int, int]:
    """``v`` if it is a pair, else ``(v, v)``; ``what`` is for messages."""
    both = (v, v) if isinstance(v, int) else v
    if not isinstance(both, list | tuple) or [type(x) for x in both] != [int, int]:
        raise TensorError(f"{what} is an integer or a pair of integers, got {v!r}")
    return both[0], both[1]


def _window(kernel: tuple[int, int], stride: object, pad: object, dilation: object = 1) -> Window:
    around = [(p, p) for p in pair(pad, "pad")]
    return Window(kernel, pair(stride, "stride"), tuple(around), pair(dilation, "dilation"))


def _shaped(layout: str, n: int, c: int, *image: int) -> tuple[int, ...]:
    if layout not in ("NCHW", "NHWC"):
        raise TensorError(f"layout is one of NCHW, NHWC, got {layout!r}")
    return (n, c, *image) if layout == "NCHW" else (n, *image, c)


def _narrowed(Y: te.Tensor, dtype: str) -> te.Tensor:
    final = tiles.out_dtype(dtype)
    if final == Y.dtype:
        return Y
    return compute(Y.shape, lambda *i: Y[i].astype(final), name="Z")


def _taps(x: Array, w: Window, value: float = 0) -> Array:
    """NumPy view (N, C, OH, OW, KH, KW) of the taps of an NCHW image."""
    (dh, dw), (sh, sw) = w.dilation, w.stride
    around = np.pad(x, ((0, 0), (0, 0), *w.pads), constant_values=value)
    reach = (dh * (w.kernel[0] - 1) + 1, dw * (w.kernel[1] - 1) + 1)
    views = np.lib.stride_tricks.sliding_window_view(around, reach, (2, 3))
    return views[:, :, ::sh, ::sw, ::dh, ::dw]


def _reference(
    window: Window, outputs: int, groups: int, dtype: str, layout: str, turn: tuple[int, ...]
) -> Reference:
    """A convolution as im2col and one product a group; ``turn`` makes the weight of NHWC that of
    NCHW."""

    def reference(x: Array, w: Array) -> Array:
        x, w = tiles.widen(x, dtype), tiles.widen(w, dtype)
        if layout == "NHWC":
            x, w = x.transpose(0, 3, 1, 2), w.transpose(turn)
        taps = _taps(x, window)
        n, _, oh, ow = taps.shape[:4]
        columns = taps.transpose(0, 1, 4, 5, 2, 3).reshape(n, groups, -1, oh * ow)
        y = np.matmul(w.reshape(groups, outputs // groups, -1), columns)
        y = y.reshape(n, outputs, oh, ow)
        return tiles.narrow(y.transpose(0, 2, 3, 1) if layout == "NHWC" else y, dtype)

    return reference


@_named("conv2d")
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
        stride, dilation: steps, and distance of taps, in y and x, positive.
        pad: zeros at each side in y and x; P is the padded input.
        groups: output channel o reads input channels of group ``o // (O / groups)`` only.

    Returns:
        (N, O, OH, OW), or (N, OH, OW, O); ``OH = (H + 2 ph - dh (KH - 1) - 1) // sh + 1``. int8 and
        uint8 give int32.

    Raises:
        TensorError: channels or dtypes differ, the kernel does not fit, a stride is not positive,
            the groups do not divide the channels.
    """
    _shaped(layout, 1, 1, 1, 1)
    kernel = W.static_shape[2:] if layout == "NCHW" else W.static_shape[:2]
    window = Window(kernel, stride, ((pad[0], pad[0]), (pad[1], pad[1])), dilation)
    return _conv2d(X, W, window, layout, name, groups=groups)


def _conv2d(
    X: te.Tensor, W: te.Tensor, window: Window, layout: str, name: str = "Y", **options: Any
) -> te.Tensor:
    """`convolution` of a workload; ``options`` are its further ones."""
    first = IMAGE[layout]
    static_shape(X.shape[first : first + 2])
    if X.dtype != W.dtype:
        raise TensorError(f"the input is {X.dtype}, the weight {W.dtype}; cast one")
    return convolution(
        *(X, W, window, layout),
        dtype=tiles.wide_dtype(X.dtype),
        as_workload=True,
        name=name,
        **options,
    )


def _conv2d_reference(*args: Any) -> Reference:
    _, _, _, _, o, kh, kw, stride, pad, dtype, dilation, groups, layout = args
    window = _window((kh, kw), stride, pad, dilation)
    return _reference(window, o, groups, dtype, layout, (3, 2, 0, 1))


@_named("conv2d")
def _conv2d_inputs(*args: Any) -> tuple[te.Tensor, te.Tensor, Window]:
    n, c, h, w, o, kh, kw, stride, pad, dtype, dilation, groups, layout = args
    if type(groups) is not int or groups < 1 or c % groups or o % groups:
        raise TensorError(f"{groups} groups do not divide {c} input and {o} output channels")
    X = te.placeholder(_shaped(layout, n, c, h, w), dtype, name="X")
    per = c // groups
    weight = (o, per, kh, kw) if layout == "NCHW" else (kh, kw, per, o)
    return X, te.placeholder(weight, dtype, name="W"), _window((kh, kw), stride, pad, dilation)


def _packed(*args: Any) -> list[te.Tensor]:
    """The expression of the former template for CPUs, which made the weights a matrix first."""
    *_, dtype, _, groups, layout = args
    X, W, window = _conv2d_inputs(*args)
    kh, kw = window.kernel
    outputs = args[4]

    def element(f: Any, p: Any) -> Any:
        rest, r, q = p // (kh * kw), p // kw % kh, p % kw
        return W[f, rest, r, q] if layout == "NCHW" else W[r, q, rest, f]

    packed = te.compute((outputs, args[1] // groups * kh * kw), element, name="packed", tag="pack")

    def read(*i: Any) -> Any:
        f, c, r, q = i if layout == "NCHW" else (i[3], i[2], i[0], i[1])
        return packed[f, (c * kh + r) * kw + q]

    with _named("conv2d"):
        Y = _conv2d(X, W, window, layout, groups=groups, weight_at=read)
    return [X, W, _narrowed(Y, dtype)]


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
    args = (N, C, H, W, O, KH, KW, stride, pad, dtype, dilation, groups, layout)
    X, weight, window = _conv2d_inputs(*args)
    with _named("conv2d"):
        Y = _conv2d(X, weight, window, layout, groups=groups)
    return [X, weight, _narrowed(Y, dtype)]


@_named("depthwise_conv2d")
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

    Raises:
        TensorError: channels or dtypes differ, the kernel does not fit, a stride is not positive.
    """
    _shaped(layout, 1, 1, 1, 1)
    weight, nchw = W.static_shape, layout == "NCHW"
    channels, one, *kernel = weight if nchw else (*weight[2:], *weight[:2])
    c = X.shape[1 if nchw else 3]
    if channels != c or one != 1:
        raise TensorError(f"the input has {c} channels, the weight {channels} x {one}, not {c} x 1")
    window = Window(tuple(kernel), stride, ((pad[0], pad[0]), (pad[1], pad[1])), dilation)
    return _conv2d(X, W, window, layout, name, by_channel=True)


def _depthwise_reference(*args: Any) -> Reference:
    _, c, _, _, kh, kw, stride, pad, dtype, dilation, layout = args
    window = _window((kh, kw), stride, pad, dilation)
    return _reference(window, c, c, dtype, layout, (2, 3, 0, 1))


@definition(
    "depthwise_conv2d",
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
    """Each channel convolved with a kernel of its own; see `depthwise_conv2d_compute`."""
    with _named("depthwise_conv2d"):
        X = te.placeholder(_shaped(layout, N, C, H, W), dtype, name="X")
        sizes = pair(stride, "stride"), pair(pad, "pad"), pair(dilation, "dilation")
    weight = (C, 1, KH, KW) if layout == "NCHW" else (KH, KW, C, 1)
    kernel = te.placeholder(weight, dtype, name="W")
    return [X, kernel, _narrowed(depthwise_conv2d_compute(X, kernel, *sizes, layout), dtype)]


@_named("pool2d")
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
        kernel, stride: extents, and steps, of a window in y and x.
        pad: at each side in y and x, at most half of the kernel; a maximum never takes it.
        kind: "max" or "avg".
        count_include_pad: whether an average divides by the extent of the whole window.

    Returns:
        The reduction over the window and the result (the same tensor for maxima).

    Raises:
        TensorError: unknown kind, averages of integers, a window that does not fit or that may
            lie in the padding alone.
    """
    _shaped(layout, 1, 1, 1, 1)
    if kind not in ("max", "avg"):
        raise TensorError(f"kind is one of max, avg, got {kind!r}")
    if kind == "avg" and not dtypes.is_float(X.dtype):
        raise TensorError(f"an average of {X.dtype} is not an integer; cast the input")
    if any(2 * p > k for p, k in zip(pad, kernel, strict=True)):
        raise TensorError(f"padding {pad} is more than half of the kernel {kernel}")
    first, axes = IMAGE[layout], [*layout.lower()]
    static_shape(X.shape[first : first + 2])
    window = Window(kernel, stride, ((pad[0], pad[0]), (pad[1], pad[1])), (1, 1))
    lowest = te.min_value(X.dtype) if kind == "max" else 0
    P = padded(X, window.pads, first, lowest, as_workload=True, axes=axes)
    if kind == "max":
        best = pool(P, window, first, te.max, name, as_workload=True, axes=axes)
        return best, best
    total = pool(
        P, window, first, te.sum, "total", tiles.wide_dtype(X.dtype), as_workload=True, axes=axes
    )
    mean = mean_pool(
        X, total, window, first, count_include_pad, name=name, as_workload=True, axes=axes
    )
    return total, mean


def _pool2d_reference(*args: Any) -> Reference:
    _, _, h, w, kh, kw, stride, pad, kind, count_include_pad, dtype, layout = args
    window = _window((kh, kw), stride, pad)

    def reference(x: Array) -> Array:
        x = x.transpose(0, 3, 1, 2) if layout == "NHWC" else x
        if kind == "max":
            y = _taps(x, window, dtypes.limits(dtype)[0]).max((-1, -2))
        else:
            total = _taps(tiles.widen(x, dtype), window).sum((-1, -2))
            ones = np.ones((1, 1, h, w), total.dtype)
            inside = _taps(ones, window).sum((-1, -2))
            y = total / (total.dtype.type(kh * kw) if count_include_pad else inside)
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
        >>> x, y = np.arange(16, dtype="float32"), np.empty((1, 1, 2, 2), "float32")
        >>> lw.build(s, args)(x.reshape(1, 1, 4, 4), y)
        >>> print(y[0, 0].tolist())
        [[5.0, 7.0], [13.0, 15.0]]
    """
    with _named("pool2d"):
        X = te.placeholder(_shaped(layout, N, C, H, W), dtype, name="X")
        sizes = pair(stride, "stride"), pair(pad, "pad")
    return [X, pool2d_compute(X, (KH, KW), *sizes, kind, count_include_pad, layout)[1]]

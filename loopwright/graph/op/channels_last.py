"""Convolutions and pools whose channels are contiguous in memory: (N, ..., C).

Vectors along channels fit every image, however narrow, and a weight (..., C / groups, O) is read
front to back. `ConvertLayout` writes them in place of those with channels before the image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from loopwright import te
from loopwright.errors import GraphError
from loopwright.graph.op.nn import Numbers, padded, steps
from loopwright.graph.op.shapes import accumulator, pads_of, require_same, several
from loopwright.graph.registry import Pattern, register_op
from loopwright.graph.rounding import as_dtype

#: Suffix of the names of these operators.
CHANNELS_LAST = "_channels_last"

_LAYOUTS = ("channels_last", "channels_first")


@register_op("nn.conv_channels_last", Pattern.OUT_ELEMENTWISE_FUSABLE)
def conv_channels_last(
    data: te.Tensor,
    weight: te.Tensor,
    *,
    strides: Numbers = 1,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
    out_dtype: str = "",
    data_layout: str = "channels_last",
) -> te.Tensor:
    """A convolution: (N, ..., C), or (N, C, ...), with (..., C / groups, O) to (N, ..., O)."""
    rank = len(data.shape) - 2
    if rank < 1 or len(weight.shape) != rank + 2:
        raise GraphError("conv_channels_last takes data of rank + 2 and a weight (..., C, O)")
    if data_layout not in _LAYOUTS:
        raise GraphError(f"data_layout is {data_layout!r}; there are {', '.join(_LAYOUTS)}")
    last = data_layout == "channels_last"
    *window, channels, outputs = weight.shape
    taps_of = [n for n in window if isinstance(n, int)]
    if len(taps_of) < rank:
        raise GraphError("the window of a convolution must be numbers")
    if isinstance(outputs, int) and outputs % groups:
        raise GraphError(f"{outputs} output channels cannot be shared by {groups} groups")
    given = data.shape[-1] if last else data.shape[1]
    require_same(given, channels * groups, "the channels of data and weight times groups")
    stride, spread = several(strides, rank, "strides"), several(dilation, rank, "dilation")
    pads = pads_of(padding, rank)
    x = padded(data, [*pads, (0, 0)] if last else pads)
    image = x.shape[1:-1] if last else x.shape[2:]
    size = steps(image, [(n - 1) * d + 1 for n, d in zip(taps_of, spread, strict=True)], stride)
    wide = out_dtype or accumulator(data.dtype)
    c = te.reduce_axis((0, channels), name="c")
    taps = [te.reduce_axis((0, n), name=f"r{d}") for d, n in enumerate(taps_of)]

    def value(n: Any, *i: Any) -> Any:
        *place, o = i
        at = [y * s + r * d for y, s, r, d in zip(place, stride, taps, spread, strict=True)]
        channel = c if groups == 1 else _first_channel(o, channels, outputs, groups) + c
        element = x(n, *at, channel) if last else x(n, channel, *at)
        return te.sum(element.astype(wide) * weight(*taps, c, o).astype(wide), axis=[*taps, c])

    tensor: te.Tensor = te.compute((data.shape[0], *size, outputs), value, name="conv")
    return as_dtype(tensor, out_dtype or data.dtype)


def _first_channel(o: Any, channels: Any, outputs: Any, groups: int) -> Any:
    """The first channel of the data that an output channel reads."""
    if outputs == groups:
        return o * channels
    return te.indexdiv(o, outputs // groups) * channels


def windows(
    data: te.Tensor,
    window: Sequence[int],
    stride: Sequence[int],
    spread: Sequence[int],
    reduce: Callable[..., Any],
    name: str,
) -> te.Tensor:
    """A reduction over the windows of data that is padded already.

    The last dimension is that of channels, preceded by as many image dimensions as the window has.
    """
    reach = [(n - 1) * d + 1 for n, d in zip(window, spread, strict=True)]
    rank = len(window)
    size = steps(data.shape[-1 - rank : -1], reach, stride)
    taps = [te.reduce_axis((0, n), name=f"r{d}") for d, n in enumerate(window)]

    def value(*i: Any) -> Any:
        outer, place, c = i[: -1 - rank], i[-1 - rank : -1], i[-1]
        at = [y * s + r * d for y, s, r, d in zip(place, stride, taps, spread, strict=True)]
        return reduce(data(*outer, *at, c), axis=taps)

    shape = (*data.shape[: -1 - rank], *size, data.shape[-1])
    tensor: te.Tensor = te.compute(shape, value, name=name)
    return tensor


@register_op("nn.max_pool_channels_last", Pattern.OUT_ELEMENTWISE_FUSABLE)
def max_pool_channels_last(
    data: te.Tensor,
    *,
    pool_size: Numbers,
    strides: Numbers = 1,
    padding: Numbers = 0,
    dilation: Numbers = 1,
) -> te.Tensor:
    """The largest element of each window over the dimensions between the first and the last."""
    rank = len(data.shape) - 2
    pads = [*pads_of(padding, rank), (0, 0)]
    return windows(
        padded(data, pads, te.min_value(data.dtype)),
        several(pool_size, rank, "pool_size"),
        several(strides, rank, "strides"),
        several(dilation, rank, "dilation"),
        te.max,
        "max_pool",
    )


@register_op("nn.avg_pool_channels_last", Pattern.OUT_ELEMENTWISE_FUSABLE)
def avg_pool_channels_last(
    data: te.Tensor,
    *,
    pool_size: Numbers,
    strides: Numbers = 1,
    padding: Numbers = 0,
    count_include_pad: bool = False,
) -> te.Tensor:
    """The mean of each window over the dimensions between the first and the last."""
    rank = len(data.shape) - 2
    window, stride = several(pool_size, rank, "pool_size"), several(strides, rank, "strides")
    return means(data, window, stride, pads_of(padding, rank), count_include_pad)


def means(
    data: te.Tensor,
    window: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[tuple[int, int]],
    count_include_pad: bool,
) -> te.Tensor:
    """The means of windows over the dimensions before the last one, which is of channels."""
    rank = len(window)
    wide = as_dtype(padded(data, [*pads, (0, 0)]), accumulator(data.dtype))
    summed = windows(wide, window, stride, (1,) * rank, te.sum, "pool_sum")
    bounded = not count_include_pad and any(p != (0, 0) for p in pads)

    def mean(*i: Any) -> Any:
        if not bounded:
            return summed(*i) * te.const(1 / math.prod(window), summed.dtype)
        count: Any = 1
        place, extents = i[-1 - rank : -1], data.shape[-1 - rank : -1]
        for y, s, w, (low, _), extent in zip(place, stride, window, pads, extents, strict=True):
            first, last = te.max(y * s - low, 0), te.min(y * s - low + w, extent)
            count = count * (last - first)
        return summed(*i) / count.astype(summed.dtype)

    tensor: te.Tensor = te.compute(summed.shape, mean, name="avg_pool")
    return as_dtype(tensor, data.dtype)

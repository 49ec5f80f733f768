"""Convolutions and pools of every layout, transposed convolutions, pools of sums and of indices.

Channels are contiguous in memory in (N, ..., C): vectors along channels fit every image, however
narrow, and a weight (..., C / groups, O) is read front to back. In blocks, (N, C / c, ..., c),
called NCHWc, a block is contiguous and is read as a vector; the blocks of an image follow each
other, so that a kernel which computes one block reads few rows of memory at a time (Liu et al.,
USENIX ATC 2019). `ConvertLayout` and `AlterOpLayout` write them in place of channels first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from loopwright import te
from loopwright.errors import GraphError
from loopwright.graph.op.nn import Numbers, padded, steps
from loopwright.graph.op.shapes import (
    accumulator,
    pads_of,
    require_same,
    several,
    static_shape,
)
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


#: Suffix of the names of these operators.
CHANNELS_BLOCKED = "_channels_blocked"

_BLOCKED_LAYOUTS = ("channels_blocked", "channels_first")


@register_op("nn.conv_channels_blocked", Pattern.OUT_ELEMENTWISE_FUSABLE)
def conv_channels_blocked(
    data: te.Tensor,
    weight: te.Tensor,
    *,
    strides: Numbers = 1,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
    out_dtype: str = "",
    data_layout: str = "channels_blocked",
) -> te.Tensor:
    """A convolution: (N, C / c, ..., c), or (N, C, ...), with (O / o, C / c, ..., c, o) to blocks.

    The result is (N, O / o, ..., o). With ``channels_first`` c is 1. Of groups there is one, or one
    for each channel: the weight is (C / c, 1, ..., 1, c) then.
    """
    if data_layout not in _BLOCKED_LAYOUTS:
        raise GraphError(f"data_layout is {data_layout!r}; there are {', '.join(_BLOCKED_LAYOUTS)}")
    split = data_layout == "channels_blocked"
    rank = len(data.shape) - 2 - split
    if rank < 1 or len(weight.shape) != rank + 4:
        raise GraphError("conv_channels_blocked takes a weight of two more dimensions than blocks")
    blocks, inner, *window, lanes, width = weight.shape
    numbers = [n for n in window if isinstance(n, int)]
    if len(numbers) < rank:
        raise GraphError("the window of a convolution must be numbers")
    if groups == 1:
        require_same(data.shape[1], inner, "the blocks of channels of data and weight")
        require_same(data.shape[-1] if split else 1, lanes, "the channels in a block of both")
    else:
        _check_by_channel(data, weight, groups, split)
    stride, spread = several(strides, rank, "strides"), several(dilation, rank, "dilation")
    pads = pads_of(padding, rank)
    x = padded(data, [*pads, (0, 0)] if split else pads)
    image = x.shape[2 : 2 + rank]
    size = steps(image, [(n - 1) * d + 1 for n, d in zip(numbers, spread, strict=True)], stride)
    wide = out_dtype or accumulator(data.dtype)
    block, lane = te.reduce_axis((0, inner), name="c"), te.reduce_axis((0, lanes), name="ci")
    taps = [te.reduce_axis((0, n), name=f"r{d}") for d, n in enumerate(numbers)]

    def value(n: Any, outer: Any, *i: Any) -> Any:
        *place, o = i
        at = [y * s + r * d for y, s, r, d in zip(place, stride, taps, spread, strict=True)]
        if groups > 1:
            product = x(n, outer, *at, o).astype(wide) * weight(outer, 0, *taps, 0, o).astype(wide)
            return te.sum(product, axis=taps)
        element = x(n, block, *at, lane) if split else x(n, block, *at)
        c = lane if split else 0
        product = element.astype(wide) * weight(outer, block, *taps, c, o).astype(wide)
        return te.sum(product, axis=[block, *taps, lane] if split else [block, *taps])

    shape = (data.shape[0], blocks, *size, width)
    tensor: te.Tensor = te.compute(shape, value, name="conv")
    return as_dtype(tensor, out_dtype or data.dtype)


def _check_by_channel(data: te.Tensor, weight: te.Tensor, groups: int, split: bool) -> None:
    blocks, inner, *_, lanes, width = weight.shape
    if not split or (inner, lanes) != (1, 1) or blocks * width != groups:
        raise GraphError(
            f"conv_channels_blocked of {groups} groups takes blocks of {groups} channels, and a "
            "weight of one channel for each"
        )
    require_same(data.shape[1], blocks, "the blocks of channels of data and weight")
    require_same(data.shape[-1], width, "the channels in a block of both")


@register_op("nn.max_pool_channels_blocked", Pattern.OUT_ELEMENTWISE_FUSABLE)
def max_pool_channels_blocked(
    data: te.Tensor,
    *,
    pool_size: Numbers,
    strides: Numbers = 1,
    padding: Numbers = 0,
    dilation: Numbers = 1,
) -> te.Tensor:
    """The largest element of each window over the dimensions between the blocks and the last."""
    rank = len(data.shape) - 3
    pads = [*pads_of(padding, rank), (0, 0)]
    return windows(
        padded(data, pads, te.min_value(data.dtype)),
        several(pool_size, rank, "pool_size"),
        several(strides, rank, "strides"),
        several(dilation, rank, "dilation"),
        te.max,
        "max_pool",
    )


@register_op("nn.avg_pool_channels_blocked", Pattern.OUT_ELEMENTWISE_FUSABLE)
def avg_pool_channels_blocked(
    data: te.Tensor,
    *,
    pool_size: Numbers,
    strides: Numbers = 1,
    padding: Numbers = 0,
    count_include_pad: bool = False,
) -> te.Tensor:
    """The mean of each window over the dimensions between the blocks and the last."""
    rank = len(data.shape) - 3
    window, stride = several(pool_size, rank, "pool_size"), several(strides, rank, "strides")
    return means(data, window, stride, pads_of(padding, rank), count_include_pad)


def _spread(data: te.Tensor, stride: Sequence[int], low: Sequence[int], size: Sequence[int]) -> Any:
    """The data with zeros between its elements and around them, along the last dimensions."""
    rank = len(stride)
    old = data.shape[-rank:]
    zero = te.const(0, data.dtype)

    def value(*i: Any) -> Any:
        outer, inner = i[:-rank], i[-rank:]
        tests, at = [], []
        for x, s, before, n in zip(inner, stride, low, old, strict=True):
            y = x - before
            tests += [y >= 0, y <= (n - 1) * s]
            tests += [te.equal(te.floormod(y, s), 0)] if s > 1 else []
            at.append(te.max(te.min(te.floordiv(y, s) if s > 1 else y, n - 1), 0))
        return te.if_then_else(te.all(*tests), data(*outer, *at), zero)

    return te.compute((*data.shape[:-rank], *size), value, name="spread")


@register_op("nn.conv_transpose", Pattern.OUT_ELEMENTWISE_FUSABLE)
def conv_transpose(
    data: te.Tensor,
    weight: te.Tensor,
    *,
    strides: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> te.Tensor:
    """A transposed convolution: (N, C, ...) with (C, O / groups, ...) to (N, O, ...)."""
    rank = len(data.shape) - 2
    if rank < 1 or len(weight.shape) != rank + 2:
        raise GraphError("conv_transpose takes data (N, C, ...), a weight (C, O / groups, ...)")
    inputs, outputs, *window = static_shape(weight, "conv_transpose")
    image = static_shape(data, "conv_transpose")[2:]
    require_same(data.shape[1], inputs, "the channels of data and weight")
    stride, spread = several(strides, rank, "strides"), several(dilation, rank, "dilation")
    extra = several(output_padding, rank, "output_padding")
    reach = [(k - 1) * d for k, d in zip(window, spread, strict=True)]
    pads = pads_of(padding, rank)
    size = [
        (n - 1) * s + r + 1 - low - high + e
        for n, s, r, (low, high), e in zip(image, stride, reach, pads, extra, strict=True)
    ]
    if any(n < 1 for n in size):
        raise GraphError(f"the result has extents {size}")
    low = [r - p[0] for r, p in zip(reach, pads, strict=True)]
    x = _spread(data, stride, low, [n + r for n, r in zip(size, reach, strict=True)])
    wide = accumulator(data.dtype)
    c = te.reduce_axis((0, inputs // groups), name="c")
    taps = [te.reduce_axis((0, n), name=f"r{d}") for d, n in enumerate(window)]

    def value(n: Any, o: Any, *i: Any) -> Any:
        at = [y + r * d for y, r, d in zip(i, taps, spread, strict=True)]
        first = 0 if groups == 1 else te.indexdiv(o, outputs) * (inputs // groups)
        own = o if groups == 1 else te.indexmod(o, outputs)
        flipped = [w - 1 - r for w, r in zip(window, taps, strict=True)]
        product = x(n, first + c, *at).astype(wide) * weight(first + c, own, *flipped).astype(wide)
        return te.sum(product, axis=[c, *taps])

    shape = (data.shape[0], outputs * groups, *size)
    tensor: te.Tensor = te.compute(shape, value, name="conv_transpose")
    return as_dtype(tensor, data.dtype)


@register_op("nn.sum_pool", Pattern.OUT_ELEMENTWISE_FUSABLE)
def sum_pool(
    data: te.Tensor,
    *,
    pool_size: Numbers,
    strides: Numbers = 1,
    padding: Numbers = 0,
    dilation: Numbers = 1,
) -> te.Tensor:
    """The sum of each window over the dimensions after the first two."""
    rank = len(data.shape) - 2
    window, stride = several(pool_size, rank, "pool_size"), several(strides, rank, "strides")
    spread = several(dilation, rank, "dilation")
    x = padded(data, pads_of(padding, rank))
    size = steps(
        x.shape[2:], [(n - 1) * d + 1 for n, d in zip(window, spread, strict=True)], stride
    )
    taps = [te.reduce_axis((0, n), name=f"r{d}") for d, n in enumerate(window)]

    def value(n: Any, c: Any, *i: Any) -> Any:
        at = [y * s + r * d for y, s, r, d in zip(i, stride, taps, spread, strict=True)]
        return te.sum(x(n, c, *at).astype(accumulator(data.dtype)), axis=taps)

    tensor: te.Tensor = te.compute((*data.shape[:2], *size), value, name="sum_pool")
    return as_dtype(tensor, data.dtype)


@register_op("nn.max_pool_places", Pattern.OPAQUE)
def max_pool_places(
    data: te.Tensor,
    *,
    pool_size: Numbers,
    strides: Numbers = 1,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    column_major: bool = False,
) -> tuple[te.Tensor, te.Tensor]:
    """The largest element of each window, and its place in the whole tensor, counted flat."""
    rank = len(data.shape) - 2
    batch, channels, *image = static_shape(data, "max_pool_places")
    window, stride = several(pool_size, rank, "pool_size"), several(strides, rank, "strides")
    spread = several(dilation, rank, "dilation")
    pads = pads_of(padding, rank)
    x = padded(data, pads, te.min_value(data.dtype))
    size = steps(
        x.shape[2:], [(n - 1) * d + 1 for n, d in zip(window, spread, strict=True)], stride
    )
    taps = [te.reduce_axis((0, n), name=f"r{d}") for d, n in enumerate(window)]

    def value(n: Any, c: Any, *i: Any) -> Any:
        at = [y * s + r * d for y, s, r, d in zip(i, stride, taps, spread, strict=True)]
        places = [y - low for y, (low, _) in zip(at, pads, strict=True)]
        flat: Any = n * channels + c
        order = list(zip(places, image, strict=True))
        inner: Any = 0
        for y, extent in reversed(order) if column_major else order:
            inner = inner * extent + y
        for extent in image:
            flat = flat * extent
        return te.argmax((flat + inner, x(n, c, *at)), axis=taps)

    places, largest = te.compute((batch, channels, *size), value, name="max_pool")
    numbers: te.Tensor = te.compute(
        places.shape, lambda *i: places(*i).astype("int64"), name="places"
    )
    return largest, numbers

"""Convolutions and pools whose channels are in blocks: (N, C / c, ..., c), called NCHWc.

A block is contiguous and is read as a vector; the blocks of an image follow each other, so that a
kernel which computes one block reads few rows of memory at a time (Liu et al., USENIX ATC 2019).
`AlterOpLayout` writes them where that was chosen.
"""

from __future__ import annotations

from typing import Any

from loopwright import te
from loopwright.errors import GraphError
from loopwright.graph.op.channels_last import means, windows
from loopwright.graph.op.nn import Numbers, padded, steps
from loopwright.graph.op.shapes import accumulator, pads_of, require_same, several
from loopwright.graph.registry import Pattern, register_op
from loopwright.graph.rounding import as_dtype

#: Suffix of the names of these operators.
CHANNELS_BLOCKED = "_channels_blocked"

_LAYOUTS = ("channels_blocked", "channels_first")


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
    if data_layout not in _LAYOUTS:
        raise GraphError(f"data_layout is {data_layout!r}; there are {', '.join(_LAYOUTS)}")
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

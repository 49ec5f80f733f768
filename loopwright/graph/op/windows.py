"""Convolutions and pools of every layout, transposed convolutions, pools of sums and of indices.

Vectors run along channels where these are last, (N, ..., C), however narrow the image; in blocks,
(N, C / c, ..., c), called NCHWc, a kernel that computes one block reads few rows of memory at a
time (Liu et al., USENIX ATC 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from loopwright import te
from loopwright.errors import GraphError
from loopwright.graph.op.shapes import accumulator, pads_of, require_same, several
from loopwright.graph.registry import Op, Pattern, register_op, register_workload_form
from loopwright.graph.rounding import as_dtype
from loopwright.ops import IMAGE, Window, convolution, mean_pool, numbered, padded, pool

#: One number for every dimension of an image, or one for each.
Numbers = int | Sequence[int]
#: Suffixes of the names of operators whose channels are last, or in blocks.
CHANNELS_LAST, CHANNELS_BLOCKED = "_channels_last", "_channels_blocked"
#: Layouts by the suffixes of operators.
_LAYOUTS = {"": "NCHW", CHANNELS_LAST: "NHWC", CHANNELS_BLOCKED: "NCHWc"}


def window_of(
    kernel: Numbers, strides: Numbers, padding: Numbers, dilation: Numbers, rank: int
) -> Window:
    return Window(
        several(kernel, rank, "pool_size"),
        several(strides, rank, "strides"),
        pads_of(padding, rank),
        several(dilation, rank, "dilation"),
    )


def _convolved(
    data: te.Tensor,
    weight: te.Tensor,
    layout: str,
    strides: Numbers,
    padding: Numbers,
    dilation: Numbers,
    groups: int,
    out_dtype: str,
    data_layout: str = "",
    *,
    as_workload: bool = False,
) -> te.Tensor:
    """A convolution with its result in a layout; of the data it is ``data_layout``."""
    names = {"NCHW": "channels_first", "NHWC": "channels_last", "NCHWc": "channels_blocked"}
    layouts = {names[layout]: layout, "channels_first": "NCHW"}
    if data_layout and data_layout not in layouts:
        raise GraphError(f"data_layout is {data_layout!r}; there are {', '.join(layouts)}")
    source = layouts[data_layout] if data_layout else layout
    blocks = 2 if layout == "NCHWc" else 0
    rank = len(weight.shape) - 2 - blocks
    if rank < 1 or len(data.shape) != rank + (3 if source == "NCHWc" else 2):
        weights = {
            "NCHW": "(O, C / groups, ...)",
            "NHWC": "(..., C / groups, O)",
            "NCHWc": "(O / o, C / c, ..., c, o)",
        }
        raise GraphError(
            f"a convolution of data with {len(data.shape)} dimensions in {source} has no weight of "
            f"{len(weight.shape)}; give a weight {weights[layout]} with as many image dimensions "
            "as the data"
        )
    as_workload = as_workload and rank == 2  # workloads are of two-dimensional images
    first = 0 if layout == "NHWC" else 2
    kernel = tuple(n for n in weight.shape[first : first + rank] if isinstance(n, int))
    if len(kernel) < rank:
        raise GraphError("the window of a convolution must be numbers")
    by_channel = bool(blocks) and groups != 1
    if as_workload and layout == "NCHW":  # that is depthwise_conv2d
        by_channel = 1 < groups == data.shape[1] == weight.shape[0]
    if blocks and by_channel:
        _check_by_channel(data, weight, groups, source)
    elif blocks:
        require_same(data.shape[1], weight.shape[1], "the blocks of channels of data and weight")
        lanes = data.shape[-1] if source == layout else 1
        require_same(lanes, weight.shape[-2], "the channels in a block of both")
    tensor = convolution(
        data,
        weight,
        window_of(kernel, strides, padding, dilation, rank),
        layout,
        dtype=out_dtype or accumulator(data.dtype),
        source=source,
        groups=groups,
        by_channel=by_channel,
        as_workload=as_workload,
    )
    return as_dtype(tensor, out_dtype or data.dtype)


def _check_by_channel(data: te.Tensor, weight: te.Tensor, groups: int, source: str) -> None:
    blocks, inner, *_, lanes, width = weight.shape
    if source != "NCHWc" or (inner, lanes) != (1, 1) or blocks * width != groups:
        raise GraphError(
            f"conv_channels_blocked of {groups} groups takes blocks of {groups} channels, and a "
            "weight of one channel for each"
        )
    require_same(data.shape[1], blocks, "the blocks of channels of data and weight")
    require_same(data.shape[-1], width, "the channels in a block of both")


@register_op("nn.conv", Pattern.OUT_ELEMENTWISE_FUSABLE)
def conv(
    data: te.Tensor,
    weight: te.Tensor,
    *,
    strides: Numbers = 1,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
    out_dtype: str = "",
) -> te.Tensor:
    """A convolution of any rank: (N, C, ...) with (O, C / groups, ...) to (N, O, ...)."""
    return _convolved(data, weight, "NCHW", strides, padding, dilation, groups, out_dtype)


def _register_conv(suffix: str, summary: str) -> Op:
    def define(
        data: te.Tensor,
        weight: te.Tensor,
        *,
        strides: Numbers = 1,
        padding: Numbers = 0,
        dilation: Numbers = 1,
        groups: int = 1,
        out_dtype: str = "",
        data_layout: str = suffix.removeprefix("_"),
    ) -> te.Tensor:
        numbers = strides, padding, dilation, groups
        return _convolved(data, weight, _LAYOUTS[suffix], *numbers, out_dtype, data_layout)

    define.__doc__, define.__qualname__ = summary, f"nn.conv{suffix}"
    return register_op(f"nn.conv{suffix}", Pattern.OUT_ELEMENTWISE_FUSABLE)(define)


_register_conv(
    CHANNELS_LAST,
    "A convolution: (N, ..., C), or (N, C, ...), with (..., C / groups, O) to (N, ..., O).",
)
# The result is (N, O / o, ..., o). With ``channels_first`` c is 1. Of groups there is one, or one
# for each channel: the weight is (C / c, 1, ..., 1, c) then.
_register_conv(
    CHANNELS_BLOCKED,
    "A convolution: (N, C / c, ..., c), or (N, C, ...), with (O / o, C / c, ..., c, o) to blocks.",
)


for _name, _layout in (("nn.conv", "NCHW"), ("nn.conv_channels_last", "NHWC")):
    register_workload_form(_name, partial(_convolved, layout=_layout, as_workload=True))


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
    inputs, outputs, *window = weight.static_shape
    image = data.static_shape[2:]
    require_same(data.shape[1], inputs, "the channels of data and weight")
    if groups < 1 or inputs % groups:
        raise GraphError(f"{groups} groups do not divide {inputs} channels")
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
    return as_dtype(te.compute(shape, value, name="conv_transpose"), data.dtype)


def _axes(layout: str, rank: int) -> list[str]:
    return numbered("nc" if layout == "NCHW" else "", rank)


def _register_pools(suffix: str, image: str) -> tuple[Op, Op]:
    layout = _LAYOUTS[suffix]
    first, others = IMAGE[layout], 3 if layout == "NCHWc" else 2

    def max_pool(
        data: te.Tensor,
        *,
        pool_size: Numbers,
        strides: Numbers = 1,
        padding: Numbers = 0,
        dilation: Numbers = 1,
    ) -> te.Tensor:
        rank = len(data.shape)
        window = window_of(pool_size, strides, padding, dilation, rank - others)
        x = padded(data, window.pads, first, te.min_value(data.dtype))
        return pool(x, window, first, te.max, "max_pool", axes=_axes(layout, rank))

    def avg_pool(
        data: te.Tensor,
        *,
        pool_size: Numbers,
        strides: Numbers = 1,
        padding: Numbers = 0,
        count_include_pad: bool = False,
    ) -> te.Tensor:
        rank, wide = len(data.shape), accumulator(data.dtype)
        window = window_of(pool_size, strides, padding, 1, rank - others)
        axes = _axes(layout, rank)
        x = padded(data, window.pads, first)
        x = x if layout == "NCHW" else as_dtype(x, wide)
        summed = pool(x, window, first, te.sum, "pool_sum", wide, axes=axes)
        mean = mean_pool(data, summed, window, first, count_include_pad, name="avg_pool", axes=axes)
        return as_dtype(mean, data.dtype)

    max_pool.__doc__ = f"The largest element of each window over {image}."
    avg_pool.__doc__ = f"The mean of each window over {image}."
    makers = []
    for name, compute in (("nn.max_pool", max_pool), ("nn.avg_pool", avg_pool)):
        compute.__qualname__ = f"{name}{suffix}"
        makers.append(register_op(f"{name}{suffix}", Pattern.OUT_ELEMENTWISE_FUSABLE)(compute))
    return makers[0], makers[1]


max_pool, avg_pool = _register_pools("", "the dimensions after the first two")
_register_pools(CHANNELS_LAST, "the dimensions between the first and the last")
_register_pools(CHANNELS_BLOCKED, "the dimensions between the blocks and the last")


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
    rank = len(data.shape)
    window = window_of(pool_size, strides, padding, dilation, rank - 2)
    x, wide = padded(data, window.pads, 2), accumulator(data.dtype)
    summed = pool(x, window, 2, te.sum, "sum_pool", wide, axes=_axes("NCHW", rank))
    return as_dtype(summed, data.dtype)


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
    batch, channels, *image = data.static_shape
    window = window_of(pool_size, strides, padding, dilation, len(image))
    x = padded(data, window.pads, 2, te.min_value(data.dtype))
    taps = window.taps()

    def value(n: Any, c: Any, *i: Any) -> Any:
        at = window.at(i, taps)
        order = [(y - low, n) for y, (low, _), n in zip(at, window.pads, image, strict=True)]
        inner: Any = 0
        for y, extent in reversed(order) if column_major else order:
            inner = inner * extent + y
        flat: Any = n * channels + c
        for extent in image:
            flat = flat * extent
        return te.argmax((flat + inner, x(n, c, *at)), axis=taps)

    shape = (batch, channels, *window.positions(x.shape[2:]))
    places, largest = te.compute(shape, value, name="max_pool")
    numbers: te.Tensor = te.compute(
        places.shape, lambda *i: places(*i).astype("int64"), name="places"
    )
    return largest, numbers

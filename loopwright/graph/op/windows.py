"""Transposed convolutions, pools that return indices, and pools of sums."""

from __future__ import annotations

from collections.abc import Sequence
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

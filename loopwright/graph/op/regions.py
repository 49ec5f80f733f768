"""Image sampling between elements: regions of interest, and deformable convolutions.

RoiAlign is that of He et al. (2017); the columns are those of deformable convolutions (Dai et al.,
2017; with weights, Zhu et al., 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopwright import te
from loopwright.errors import GraphError
from loopwright.graph.op.indexing import held
from loopwright.graph.op.shapes import pads_of, require_same, several, static_shape
from loopwright.graph.registry import Pattern, register_op


def _wide(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def _whole(x: Any, extent: int) -> Any:
    """A number as an index, clipped to its dimension."""
    return te.max(te.min(x, extent - 1.0), 0.0).astype("int32")


@register_op("nn.roi_align", Pattern.OPAQUE)
def roi_align(
    data: te.Tensor,
    rois: te.Tensor,
    batches: te.Tensor,
    *,
    pooled_size: Sequence[int],
    samples: int,
    spatial_scale: float = 1.0,
    mode: str = "avg",
    half_pixel: bool = True,
) -> te.Tensor:
    """Boxes (x1, y1, x2, y2) of images cut into bins: the mean, or the largest, of samples of each.

    A sample is read by bilinear interpolation, ``samples`` squared in each bin. The largest is that
    of weighted elements, as ONNX has it. Without ``half_pixel`` a box has an extent of 1 at least.
    """
    if mode not in ("avg", "max") or samples < 1:
        raise GraphError(f"mode is {mode!r} with {samples} samples; give avg or max, 1 or more")
    count, channels, height, width = static_shape(data, "roi_align")
    require_same(rois.shape[-1], 4, "the numbers of a box and 4")
    wide, size = _wide(data.dtype), several(pooled_size, 2, "pooled_size")
    offset = 0.5 if half_pixel else 0.0

    def place(n: Any, side: int, bin_number: Any, sample: Any) -> Any:
        """The position of a sample along an axis: 0 is that of rows."""
        begin, end = (
            rois(n, corner).astype(wide) * spatial_scale - offset
            for corner in ((1, 3) if side == 0 else (0, 2))
        )
        extent = end - begin if half_pixel else te.max(end - begin, 1.0)
        step = extent / float(size[side])
        return begin + bin_number * step + (sample + 0.5) * step / float(samples)

    def weighted(n: Any, c: Any, i: Any, j: Any, a: Any, b: Any) -> list[Any]:
        y, x = place(n, 0, i, a), place(n, 1, j, b)
        inside = te.all(y >= -1.0, y <= float(height), x >= -1.0, x <= float(width))
        image = held(batches(n).astype("int32"), count)
        parts = []
        for row, down in _neighbours(y, height):
            for column, across in _neighbours(x, width):
                value = data(image, c, row, column).astype(wide) * (down * across)
                parts.append(te.if_then_else(inside, value, te.const(0, wide)))
        return parts

    a, b = (te.reduce_axis((0, samples), name=name) for name in "ab")

    def pooled(n: Any, c: Any, i: Any, j: Any) -> Any:
        one, two, three, four = weighted(n, c, i, j, a, b)
        if mode == "avg":
            return te.sum(one + two + three + four, axis=[a, b])
        return te.max(te.max(te.max(one, two), te.max(three, four)), axis=[a, b])

    shape = (rois.shape[0], channels, *size)
    total = te.compute(shape, pooled, name="pooled")
    part = te.const(1 / samples**2 if mode == "avg" else 1, wide)
    tensor: te.Tensor = te.compute(
        shape, lambda *i: (total(*i) * part).astype(data.dtype), name="roi_align"
    )
    return tensor


def _neighbours(x: Any, extent: int) -> list[tuple[Any, Any]]:
    """Both elements beside a clipped position, and their weights."""
    x = te.max(te.min(x, extent - 1.0), 0.0)
    low = te.floor(x)
    rest = x - low
    return [(_whole(low, extent), 1 - rest), (_whole(low + 1, extent), rest)]


@register_op("nn.deformable_columns", Pattern.OPAQUE)
def deformable_columns(
    data: te.Tensor,
    offset: te.Tensor,
    mask: te.Tensor | None = None,
    *,
    kernel_size: Sequence[int],
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    offset_groups: int = 1,
) -> te.Tensor:
    """The elements that a kernel reads: (N, channels * rows * columns of the kernel, ...).

    ``offset`` (N, groups * elements of the kernel * 2, rows, columns) shifts the positions,
    ``mask`` (N, groups * elements of the kernel, rows, columns) weighs them. Outside of the image
    there are zeros.
    """
    n, channels, *image = static_shape(data, "deformable_columns")
    rows, columns = several(kernel_size, 2, "kernel_size")
    step, spread = several(strides, 2, "strides"), several(dilation, 2, "dilation")
    pads, wide = pads_of(padding, 2), _wide(data.dtype)
    require_same(offset.shape[1], 2 * offset_groups * rows * columns, "the offsets of a place")
    if channels % offset_groups:
        raise GraphError(f"{channels} channels cannot be shared by {offset_groups} groups")
    each = channels // offset_groups

    def value(b: Any, at: Any, i: Any, j: Any) -> Any:
        channel = te.indexdiv(at, rows * columns)
        tap = te.indexmod(at, rows * columns)
        number = te.indexdiv(channel, each) * (rows * columns) + tap
        taps = (te.indexdiv(tap, columns), te.indexmod(tap, columns))
        places = [
            o * step[d] - pads[d][0] + taps[d] * spread[d]
            + offset(b, number * 2 + d, i, j).astype(wide)
            for d, o in enumerate((i, j))
        ]  # fmt: skip
        found: Any = te.const(0, wide)
        for row, down in _around(places[0], image[0]):
            for column, across in _around(places[1], image[1]):
                found = found + data(b, channel, row, column).astype(wide) * (down * across)
        if mask is not None:
            found = found * mask(b, number, i, j).astype(wide)
        return found.astype(data.dtype)

    shape = (n, channels * rows * columns, *offset.shape[2:])
    tensor: te.Tensor = te.compute(shape, value, name="columns")
    return tensor


def _around(x: Any, extent: int) -> list[tuple[Any, Any]]:
    """Both elements beside a position, and their weights: 0 outside."""
    low = te.floor(x)
    rest = x - low
    found = []
    for place, weight in ((low, 1 - rest), (low + 1, rest)):
        inside = te.all(place >= 0.0, place <= extent - 1.0)
        found.append((_whole(place, extent), te.if_then_else(inside, weight, weight * 0)))
    return found

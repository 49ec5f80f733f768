"""Images sampled at positions that another tensor gives: grids, regions, deformable windows.

RoiAlign is that of He et al. (2017); the columns are those of deformable convolutions (Dai et al.,
2017; with weights, Zhu et al., 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from operator import mul
from typing import Any

from loopwright import te
from loopwright.errors import GraphError
from loopwright.graph.op.indexing import held
from loopwright.graph.op.shapes import pads_of, require_same, several
from loopwright.graph.registry import Pattern, register_op
from loopwright.ops import compute

_MODES = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")
#: Parameter a of the kernel of Keys (1981), as in PyTorch and ONNX.
_CUBIC = -0.75


def _wide(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def _clipped(x: Any, extent: int) -> Any:
    return te.max(te.min(x, extent - 1.0), 0.0)


@register_op("nn.grid_sample", Pattern.OPAQUE)
def grid_sample(
    data: te.Tensor,
    grid: te.Tensor,
    *,
    mode: str = "linear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> te.Tensor:
    """(N, C, ...) sampled at places (N, ..., rank), from -1 to 1, whose last one is the first."""
    if mode not in _MODES or padding_mode not in _PADDINGS:
        raise GraphError(f"modes are {_MODES} and {_PADDINGS}, got {mode!r} and {padding_mode!r}")
    image = data.static_shape[2:]
    require_same(grid.shape[-1], len(image), "the numbers of a place and the image's dimensions")
    require_same(grid.shape[0], data.shape[0], "how many images and grids there are")
    wide = _wide(data.dtype)

    def value(n: Any, c: Any, *o: Any) -> Any:
        taps = []
        for d, extent in enumerate(image):
            x = grid(n, *o, len(image) - 1 - d).astype(wide)
            x = (x + 1) * ((extent - 1) / 2) if align_corners else ((x + 1) * extent - 1) / 2
            taps.append(_taps(x, extent, mode, padding_mode, align_corners))
        parts = []
        for chosen in product(*taps):
            numbers, weights, inside = zip(*chosen, strict=True)
            element = data(n, c, *numbers).astype(wide)
            if padding_mode == "zeros":  # not times 0, which infinity is not
                element = te.if_then_else(te.all(*inside), element, te.const(0, wide))
            parts.append(element * reduce(mul, weights))
        return reduce(lambda a, b: a + b, parts).astype(data.dtype)

    return compute((*data.shape[:2], *grid.shape[1:-1]), value, name="grid_sample")


def _ends(extent: int, align_corners: bool) -> tuple[float, float]:
    return (0.0, extent - 1.0) if align_corners else (-0.5, extent - 0.5)


def _reflected(x: Any, extent: int, align_corners: bool) -> Any:
    """A position reflected at both ends, as often as it takes."""
    low, high = _ends(extent, align_corners)
    span = high - low
    if span == 0:
        return x * 0
    size = te.abs(x - low)
    turns = te.floor(size / span)
    rest = size - turns * span
    odd = turns - te.floor(turns / 2) * 2
    return te.if_then_else(odd > 0.5, high - rest, rest + low)


def _taps(
    x: Any, extent: int, mode: str, padding_mode: str, align_corners: bool
) -> list[tuple[Any, Any, Any]]:
    """Elements along a dimension, their weights, and whether they are inside the image."""
    x = te.nearbyint(x) if mode == "nearest" else x
    if mode != "cubic" and padding_mode != "zeros":
        low, high = _ends(extent, align_corners)
        outside = te.any(x < low, x > high)
        x = te.if_then_else(outside, _inside(x, extent, padding_mode, align_corners), x)
    if mode == "nearest":
        return [_tap(x, te.const(1, x.dtype), extent, padding_mode, align_corners)]
    first = te.floor(x)
    t = x - first
    if mode == "linear":
        weights = [1 - t, t]
        places = [first, first + 1]
    else:
        weights = [_far(t + 1), _near(t), _near(1 - t), _far(2 - t)]
        places = [first + n for n in range(-1, 3)]
    pairs = zip(places, weights, strict=True)
    return [_tap(p, w, extent, padding_mode, align_corners) for p, w in pairs]


def _inside(x: Any, extent: int, padding_mode: str, align_corners: bool) -> Any:
    if padding_mode == "reflection":
        return _reflected(x, extent, align_corners)
    return _clipped(x, extent)


def _tap(
    place: Any, weight: Any, extent: int, padding_mode: str, align_corners: bool
) -> tuple[Any, Any, Any]:
    inside = te.all(place >= 0, place <= extent - 1)
    if padding_mode != "zeros":
        place = _inside(place, extent, padding_mode, align_corners)
    return _whole(place, extent), weight, inside


def _near(x: Any) -> Any:
    return ((_CUBIC + 2) * x - (_CUBIC + 3)) * x * x + 1


def _far(x: Any) -> Any:
    return ((_CUBIC * x - 5 * _CUBIC) * x + 8 * _CUBIC) * x - 4 * _CUBIC


def _whole(x: Any, extent: int) -> Any:
    """A number as an index, clipped to its dimension."""
    return _clipped(x, extent).astype("int32")


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
    count, channels, height, width = data.static_shape
    require_same(rois.shape[-1], 4, "the numbers of a box and 4")
    wide, size = _wide(data.dtype), several(pooled_size, 2, "pooled_size")
    offset = 0.5 if half_pixel else 0.0

    def place(n: Any, side: int, bin_number: Any, sample: Any) -> Any:
        """The position of a sample along an axis: 0 is that of rows."""
        begin, end = (
            rois(n, corner).astype(wide) * spatial_scale - offset
            for corner in ((1, 3) if side == 0 else (0, 2))
        )
        step = (end - begin if half_pixel else te.max(end - begin, 1.0)) / float(size[side])
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
    return compute(shape, lambda *i: (total(*i) * part).astype(data.dtype), name="roi_align")


def _neighbours(x: Any, extent: int) -> list[tuple[Any, Any]]:
    """Both elements beside a clipped position, and their weights."""
    x = _clipped(x, extent)
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
    n, channels, *image = data.static_shape
    rows, columns = several(kernel_size, 2, "kernel_size")
    step, spread = several(strides, 2, "strides"), several(dilation, 2, "dilation")
    pads, wide = pads_of(padding, 2), _wide(data.dtype)
    require_same(offset.shape[1], 2 * offset_groups * rows * columns, "the offsets of a place")
    if offset_groups < 1 or channels % offset_groups:
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
        total: Any = te.const(0, wide)
        for row, down in _around(places[0], image[0]):
            for column, across in _around(places[1], image[1]):
                total = total + data(b, channel, row, column).astype(wide) * (down * across)
        if mask is not None:
            total = total * mask(b, number, i, j).astype(wide)
        return total.astype(data.dtype)

    return compute((n, channels * rows * columns, *offset.shape[2:]), value, name="columns")


def _around(x: Any, extent: int) -> list[tuple[Any, Any]]:
    """Both elements beside a position, and their weights: 0 outside."""
    low = te.floor(x)
    rest = x - low
    pairs = []
    for place, weight in ((low, 1 - rest), (low + 1, rest)):
        inside = te.all(place >= 0.0, place <= extent - 1.0)
        pairs.append((_whole(place, extent), te.if_then_else(inside, weight, weight * 0)))
    return pairs

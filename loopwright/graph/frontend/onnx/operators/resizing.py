"""Converters of interpolation and of regions of images.

Each axis is interpolated by itself, as weighted sums of few elements. Positions and
weights are computed when the model is imported, by the rules of ONNX's Resize: for float64 in
float64, else in float32 as in ONNX Runtime, where that decides which element is nearest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from loopwright import dtypes
from loopwright.errors import GraphError, shown
from loopwright.graph.frontend.onnx.files import check_elements
from loopwright.graph.frontend.onnx.node import Node, computed_in, converter, one_call
from loopwright.graph.frontend.onnx.operators.windows import biased, window_of
from loopwright.graph.ir.expr import Expr, const
from loopwright.graph.op.shapes import axis_of

Array = np.ndarray[Any, Any]
_MODES = ("nearest", "linear", "cubic")


@dataclass(frozen=True)
class _Axis:
    axis: int
    old: int  # extent
    new: int  # extent of the result
    scale: Array  # new elements for each old one, in the dtype that positions are computed in
    #: begin and end of the part that is taken, as fractions of the axis
    region: tuple[float, float] = (0.0, 1.0)

    def places(self, how: str) -> Array:
        x = np.arange(self.new, dtype=self.scale.dtype)
        match how:
            case "half_pixel":
                return (x + 0.5) / self.scale - 0.5
            case "half_pixel_symmetric":
                length = self.scale * self.old
                offset = self.old / 2 * (1 - self.new / length)
                return offset + (x + 0.5) / self.scale - 0.5
            case "pytorch_half_pixel":
                return (x + 0.5) / self.scale - 0.5 if self.new > 1 else np.zeros(self.new)
            case "asymmetric":
                return x / self.scale
            case "tf_half_pixel_for_nn":
                return (x + 0.5) / self.scale
            case "align_corners":
                length = self.scale * self.old
                return x * (self.old - 1) / (length - 1) if self.new > 1 else np.zeros(self.new)
            case "tf_crop_and_resize":
                (begin, end), last = self.region, self.old - 1
                if self.new == 1:
                    return np.full(1, 0.5 * (begin + end) * last)
                return begin * last + x * (end - begin) * last / (self.new - 1)
        raise GraphError(f"its coordinate_transformation_mode is {how!r}, which is not known")


def _rounded(axis: _Axis, places: Array, how: str) -> Array:
    if how == "outwards":
        how = "ceil" if axis.scale < 1 else "floor"
    ways = {
        "round_prefer_floor": np.ceil(places - 0.5),
        "round_prefer_ceil": np.floor(places + 0.5),
        "floor": np.floor(places),
        "ceil": np.ceil(places),
    }
    if how not in ways:
        raise GraphError(f"its nearest_mode is {how!r}, which is not known")
    return ways[how]


def _triangle(distance: Array) -> Array:
    return np.asarray(np.maximum(1 - np.abs(distance), 0))


def _cubic(distance: Array, a: float) -> Array:
    """The kernel of Keys, "Cubic Convolution Interpolation for Digital Image Processing" (1981)."""
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _taps(
    axis: _Axis, places: Array, kernel: Callable[[Array], Array], reach: int, antialias: bool,
    exclude_outside: bool,
) -> tuple[Array, Array]:  # fmt: skip
    """Indices of old elements, and their weights, for each new one."""
    stretch = max(1.0, float(1 / axis.scale)) if antialias else 1.0
    check_elements((len(places), math.ceil(2 * reach * stretch) + 1))
    first = np.floor(places - reach * stretch).astype("int64") + 1
    count = int(np.ceil(2 * reach * stretch)) + (1 if antialias else 0)
    numbers = first[:, None] + np.arange(count)
    weights = kernel((numbers - places[:, None]) / stretch)
    inside = (numbers >= 0) & (numbers < axis.old)
    if exclude_outside:
        weights = np.where(inside, weights, 0)
    weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(numbers, 0, axis.old - 1), weights


def _resized(node: Node, axes: Sequence[_Axis], defaults: dict[str, Any]) -> Expr:
    mode = node.attr("mode", "nearest")
    if mode != "nearest" and not dtypes.is_float(node.dtype(node[0])):
        rounds = mode == "cubic" or node.attr("antialias", 0)

        def convert(wide: Node) -> Expr:
            image = _resized(wide, axes, defaults)
            return wide.call("round", image) if rounds else image

        return computed_in(node, convert, "float32")
    if mode not in _MODES:
        raise GraphError(f"its mode is {mode!r}; there are {', '.join(_MODES)}")
    how = node.attr("coordinate_transformation_mode", defaults["coordinates"])
    image, dtype = node[0], node.dtype(node[0])
    outside = []
    for axis in axes:
        places = axis.places(how)
        outside.append((axis, (places < 0) | (places > axis.old - 1)))
        if mode == "nearest":
            rounding = node.attr("nearest_mode", defaults["nearest"])
            numbers = _rounded(axis, places.astype("float64"), rounding)
            whole = np.clip(numbers, 0, axis.old - 1).astype("int64")
            image = node.call("take", image, whole, axis=axis.axis)
            continue
        kernel, reach = _triangle, 1
        if mode == "cubic":
            kernel, reach = partial(_cubic, a=node.attr("cubic_coeff_a", -0.75)), 2
        antialias = bool(node.attr("antialias", 0) and axis.scale < 1)
        exclude = bool(node.attr("exclude_outside", 0))
        numbers, weights = _taps(axis, places, kernel, reach, antialias, exclude)
        image = node.call("nn.resample", image, numbers, weights.astype(dtype), axis=axis.axis)
    if how != "tf_crop_and_resize":
        return image
    rank = node.rank(image)  # elements outside of the old image have the extrapolation value
    beyond = np.zeros((1,) * rank, "bool")
    for axis, flags in outside:
        beyond = beyond | flags.reshape([-1 if d == axis.axis else 1 for d in range(rank)])
    value = np.array(node.attr("extrapolation_value", 0.0), node.dtype(image))
    return node.where(const(beyond), value, image)


def _axes(node: Node, scales: Array | None, sizes: Sequence[int] | None) -> list[_Axis]:
    old = node.shape(node[0])
    real = "float64" if node.dtype(node[0]) == "float64" else "float32"
    named = [axis_of(a, len(old)) for a in node.attr("axes", range(len(old)))]
    regions = [(0.0, 1.0)] * len(named)
    if node.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        region = node.known(1)
        if region is None or region.size != 2 * len(named) or not np.isfinite(region).all():
            raise GraphError("its region of interest does not fit its axes")
        values = region.astype("float64").tolist()
        regions = list(zip(values[: len(named)], values[len(named) :], strict=True))
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    axes = []
    if sizes is not None:
        if len(sizes) != len(named) or min(sizes) < 1:
            raise GraphError(f"its sizes are {shown(sizes)} for {len(named)} axes, from 1 on")
        ratios = [np.asarray(n / old[a], real) for n, a in zip(sizes, named, strict=True)]
        if policy != "stretch":
            one = min(ratios) if policy == "not_larger" else max(ratios)
            ratios = [one] * len(named)
            sizes = [int(np.floor(one * old[a] + 0.5)) for a in named]
        parts = zip(named, sizes, ratios, regions, strict=True)
        axes = [_Axis(a, old[a], n, s, r) for a, n, s, r in parts]
    elif scales is not None:
        if scales.shape != (len(named),) or not ((scales > 0) & (scales < np.inf)).all():
            raise GraphError(f"its scales are {shown(scales.tolist())} for {len(named)} axes")
        for a, s, (begin, end) in zip(named, scales, regions, strict=True):
            new = int(np.floor(old[a] * (end - begin) * s))
            axes.append(_Axis(a, old[a], new, np.asarray(s, real), (begin, end)))
    else:
        raise GraphError("it has neither scales nor sizes")
    for x in axes:
        check_elements((x.new,))
    return [x for x in axes if x.new != x.old or x.scale != 1 or x.region != (0.0, 1.0)]


@converter("Resize", since=11)
def resize(node: Node) -> Expr:
    scales, sizes = node.known(2), node.numbers(3)
    axes = _axes(node, scales if scales is not None and scales.size else None, sizes or None)
    return _resized(node, axes, {"coordinates": "half_pixel", "nearest": "round_prefer_floor"})


@converter("Resize", since=10)
@converter("Upsample", since=7)
def upsample(node: Node) -> Expr:
    """Resize by scales, which of Upsample are an input from opset 9 on."""
    scales = node.known(1) if node.opset >= 9 else np.array(node.attr("scales"), "float32")
    if scales is None:
        raise GraphError("its scales are missing")
    axes = _axes(node, scales, None)
    return _resized(node, axes, {"coordinates": "asymmetric", "nearest": "outwards"})


@converter("GridSample", since=16)
def grid_sample(node: Node) -> Expr:
    attrs = {
        "mode": node.attr("mode", "linear").removeprefix("bi"),
        "padding_mode": node.attr("padding_mode", "zeros"),
        "align_corners": bool(node.attr("align_corners", 0)),
    }
    return node.call("nn.grid_sample", node[0], node[1], **attrs)


@converter("RoiAlign", since=10)
def roi_align(node: Node) -> Expr:
    """Boxes begin and end at elements; from opset 16 on, by default, between them."""
    samples = node.attr("sampling_ratio", 0)
    if samples < 1:
        raise GraphError("how many samples it takes depends on data; give it a sampling_ratio")
    mode = node.attr("coordinate_transformation_mode", "half_pixel")
    attrs = {
        "pooled_size": (node.attr("output_height", 1), node.attr("output_width", 1)),
        "samples": samples,
        "spatial_scale": node.attr("spatial_scale", 1.0),
        "mode": node.attr("mode", "avg"),
        "half_pixel": node.opset >= 16 and mode == "half_pixel",
    }
    return node.call("nn.roi_align", node[0], node[1], node[2], **attrs)


@converter("DeformConv", since=19)
def deformable_convolution(node: Node) -> Expr:
    """Columns that the kernel elements read, then a convolution with a kernel of one element."""
    x, w = node[0], node[1]
    if node.rank(x) != 4:
        raise GraphError(f"images of {node.rank(x) - 2} dimensions are not supported; 2 are")
    rows, inner, *kernel = node.shape(w)
    attrs = window_of(node, tuple(kernel), node.shape(x, 2)).attrs
    attrs |= {"kernel_size": kernel, "offset_groups": node.attr("offset_group", 1)}
    mask = [] if node.optional(4) is None else [node[4]]
    columns = node.call("nn.deformable_columns", x, node[2], *mask, **attrs)
    flat = node.reshape(w, newshape=(rows, inner * kernel[0] * kernel[1], 1, 1))
    return biased(node, node.call("nn.conv", columns, flat, groups=node.attr("group", 1)), 3)


one_call("Det", "det", since=11)

"""Converters of image sampling between elements, and of determinants."""

from __future__ import annotations

from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx.node import Node, converter
from loopwright.graph.frontend.onnx.operators.windows import window_of
from loopwright.graph.ir.expr import Expr


def _roi_align(node: Node, half_pixel: bool) -> Expr:
    samples = node.attr("sampling_ratio", 0)
    if samples < 1:
        raise GraphError("how many samples it takes depends on data; give it a sampling_ratio")
    return node.call(
        "nn.roi_align",
        node[0],
        node[1],
        node[2],
        pooled_size=(node.attr("output_height", 1), node.attr("output_width", 1)),
        samples=samples,
        spatial_scale=node.attr("spatial_scale", 1.0),
        mode=node.attr("mode", "avg"),
        half_pixel=half_pixel,
    )


@converter("RoiAlign", since=10)
def roi_align_by_corners(node: Node) -> Expr:
    """Boxes begin and end at elements."""
    return _roi_align(node, half_pixel=False)


@converter("RoiAlign", since=16)
def roi_align(node: Node) -> Expr:
    """Boxes begin and end between elements by default."""
    mode = node.attr("coordinate_transformation_mode", "half_pixel")
    return _roi_align(node, half_pixel=mode == "half_pixel")


@converter("DeformConv", since=19)
def deformable_convolution(node: Node) -> Expr:
    """Columns that the kernel elements read, then a convolution with a kernel of one element."""
    x, w = node[0], node[1]
    if node.rank(x) != 4:
        raise GraphError(f"images of {node.rank(x) - 2} dimensions are not supported; 2 are")
    rows, inner, *kernel = node.shape(w)
    window = window_of(node, tuple(kernel), node.shape(x, 2))
    mask = [] if node.optional(4) is None else [node[4]]
    columns = node.call(
        "nn.deformable_columns",
        x,
        node[2],
        *mask,
        kernel_size=kernel,
        strides=window.attrs["strides"],
        padding=window.attrs["padding"],
        dilation=window.attrs["dilation"],
        offset_groups=node.attr("offset_group", 1),
    )
    flat = node.call("reshape", w, newshape=(rows, inner * kernel[0] * kernel[1], 1, 1))
    found = node.call("nn.conv", columns, flat, groups=node.attr("group", 1))
    bias = node.optional(3)
    return found if bias is None else node.call("nn.bias_add", found, bias, axis=1)


@converter("Det", since=11)
def determinant(node: Node) -> Expr:
    return node.call("det", node[0])

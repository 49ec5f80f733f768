"""Converters of operators that move and index elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from loopwright.errors import GraphError, shown
from loopwright.graph.frontend.onnx.files import check_elements
from loopwright.graph.frontend.onnx.node import Node, converter, one_call
from loopwright.graph.frontend.onnx.node import constant as known_array
from loopwright.graph.frontend.onnx.operators.quantized import dtype_of
from loopwright.graph.ir.expr import Constant, Expr, TupleGetItem, const
from loopwright.graph.op.shapes import axis_of, same

one_call("Reshape", "reshape", newshape=("shape", None))
one_call("Transpose", "transpose", axes=("perm", None))
one_call("Squeeze", "squeeze", axis=("axes", None))
one_call("Unsqueeze", "expand_dims", axis=("axes", None))
one_call("Gather", "take", axis=("axis", 0))
one_call("GatherElements", "gather_elements", axis=("axis", 0))
one_call("GatherND", "gather_nd", batch_dims=("batch_dims", 0))
for _name in ("Scatter", "ScatterElements"):
    one_call(_name, "scatter_elements", axis=("axis", 0), reduction=("reduction", "none"))
one_call("ScatterND", "scatter_nd", reduction=("reduction", "none"))
_AXES = {"batch_axis": ("batch_axis", 1), "time_axis": ("time_axis", 0)}
one_call("ReverseSequence", "reverse_sequence", since=10, **_AXES)

converter("Size")(lambda node: const(np.int64(prod(node.shape(node[0])))))
converter("Squeeze", 13)(lambda node: node.call("squeeze", node[0], axis=node.numbers(1)))
converter("Unsqueeze", 13)(lambda node: node.call("expand_dims", node[0], axis=node.needed(1)))
converter("Split")(lambda node: _split(node, node.moved("split", 1, 13)))
converter("TopK")(lambda node: _topk(node, node.attr("k")))
converter("TopK", 10)(lambda node: _topk(node, node.whole(1)))

#: Attributes that hold the array of a `Constant`.
_VALUES = ("value", "sparse_value", "value_int", "value_ints", "value_float", "value_floats")


@converter("Constant")
def constant(node: Node) -> Expr:
    for name, value in node.attrs.items():
        if name in _VALUES:
            dtype = "int64" if "int" in name else "float32" if "float" in name else None
            return known_array(node.types, np.asarray(value, dtype))
    raise GraphError(f"its value is {', '.join(node.attrs)}; tensors and numbers are supported")


@converter("ConstantOfShape", since=9)
def constant_of_shape(node: Node) -> Expr:
    shape = node.needed(0)
    value = np.asarray(node.attr("value", np.zeros(1, "float32")))
    if value.size != 1:
        raise GraphError(f"its value has {value.size} elements; one is needed")
    value = value.reshape(())
    return node.call("broadcast_to", const(value), shape=shape) if shape else const(value)


@converter("Shape")
def shape_of(node: Node) -> Expr:
    shape = node.shape(node[0])
    return const(np.array(shape[node.attr("start", 0) : node.attr("end", len(shape))], "int64"))


@converter("Range", since=11)
def number_range(node: Node) -> Expr:
    start, limit, delta = (node.known(n) for n in range(3))
    if start is None or limit is None or delta is None:
        raise GraphError("one of its three inputs is missing")
    if not start.size == limit.size == delta.size == 1:
        raise GraphError("its inputs are no single numbers")
    numbers = begin, end, step = start.item(), limit.item(), delta.item()
    if step == 0 or not np.isfinite(np.array(numbers, "float64")).all():
        raise GraphError(f"it counts from {begin} to {end} by {step}, which never ends")
    check_elements((max(math.ceil((end - begin) / step), 0),))
    return const(np.arange(*numbers).astype(start.dtype))


@converter("Reshape", since=5)
def reshape(node: Node) -> Expr:
    shape = node.needed(1)
    if node.attr("allowzero", 0) and 0 in shape:
        raise GraphError("tensors without elements are not supported")
    return node.reshape(node[0], newshape=shape)


@converter("Flatten")
def flatten(node: Node) -> Expr:
    """Reshape to two dimensions: those before an axis, and the others."""
    axis, rank = node.attr("axis", 1), node.rank(node[0])
    if not -rank <= axis <= rank:
        raise GraphError(f"its axis is {axis}, and its input has {rank} dimensions")
    axis = axis + rank if axis < 0 else axis
    if axis == 1 and not node.type_of(node[0]).static:
        return node.call("nn.batch_flatten", node[0])
    old = node.shape(node[0])
    return node.reshape(node[0], newshape=(prod(old[:axis]), prod(old[axis:])))


@converter("DepthToSpace")
@converter("SpaceToDepth")
def blocks(node: Node) -> Expr:
    """Move blocks of an image to its channels, or back."""
    shape = node.shape(node[0])
    b, by_columns = node.attr("blocksize"), node.attr("mode", "DCR") == "DCR"
    if len(shape) != 4 or b < 1:
        raise GraphError(f"blocks of {b} are no part of images of shape {list(shape)}")
    n, c, h, w = shape
    if node.operator == "DepthToSpace":
        inner = c // (b * b)
        split = (n, b, b, inner, h, w) if by_columns else (n, inner, b, b, h, w)
        order = (0, 3, 4, 1, 5, 2) if by_columns else (0, 1, 4, 2, 5, 3)
        shape = (n, inner, h * b, w * b)
    else:
        if h % b or w % b:
            raise GraphError(f"blocks of {b} do not fill an image of {h} by {w}")
        split = (n, c, h // b, b, w // b, b)
        order = (0, 3, 5, 1, 2, 4) if by_columns else (0, 1, 3, 5, 2, 4)
        shape = (n, c * b * b, h // b, w // b)
    parts = node.reshape(node[0], newshape=split)
    return node.reshape(node.call("transpose", parts, axes=order), newshape=shape)


@converter("Concat")
def concat(node: Node) -> Expr:
    parts = [e for e in node.given if 0 not in node.type_of(e).shape]
    if not parts:
        raise GraphError("tensors without elements are not supported")
    return node.call("concatenate", *parts, axis=node.attr("axis", 1))


@converter("Expand", since=8)
def expand(node: Node) -> Expr:
    old, new = node.shape(node[0]), node.needed(1)
    rank = max(len(old), len(new))
    pairs = zip((1,) * (rank - len(old)) + old, (1,) * (rank - len(new)) + new, strict=True)
    return node.call("broadcast_to", node[0], shape=tuple(b if a == 1 else a for a, b in pairs))


@converter("Tile", since=6)
def tile(node: Node) -> Expr:
    repeats, old = node.needed(1), node.shape(node[0])
    if len(repeats) != len(old):
        raise GraphError(f"it repeats {len(repeats)} dimensions of {len(old)}")
    split = tuple(n for extent in old for n in (1, extent))
    wide = tuple(n for pair in zip(repeats, old, strict=True) for n in pair)
    apart = node.reshape(node[0], newshape=split)
    shape = tuple(r * n for r, n in zip(repeats, old, strict=True))
    return node.reshape(node.call("broadcast_to", apart, shape=wide), newshape=shape)


def sliced(node: Node, e: Expr, begin: Any, end: Any, axes: Any, steps: Any = None) -> Expr:
    """A slice of some axes of an expression; a constant where it has no elements."""
    named = tuple(range(len(begin))) if axes is None else axes
    strides = (1,) * len(begin) if steps is None else steps
    if not len(named) == len(begin) == len(end) == len(strides):
        counts = len(begin), len(end), len(named), len(strides)
        raise GraphError("it has {} begins, {} ends, {} axes and {} steps".format(*counts))
    extents = list(node.type_of(e).shape)
    for a, *bounds in zip(named, begin, end, strides, strict=True):
        if not -len(extents) <= a < len(extents) or not bounds[2]:
            break  # which the operator refuses
        extent = extents[a]
        if isinstance(extent, int):
            extents[a] = len(range(extent)[slice(*bounds)])
    if any(same(n, 0) for n in extents):
        numbers = [n for n in extents if isinstance(n, int)]
        if len(numbers) < len(extents):
            raise GraphError("its result has no elements, and an extent that is not known")
        return const(np.empty(numbers, node.dtype(e)))
    return node.call("strided_slice", e, begin=begin, end=end, strides=strides, axes=named)


@converter("Slice")
def slice_(node: Node) -> Expr:
    """Bounds are inputs from opset 10 on, and there are steps."""
    if node.opset < 10:
        return sliced(node, node[0], node.attr("starts"), node.attr("ends"), node.attr("axes"))
    axes, steps = node.numbers(3), node.numbers(4)
    return sliced(node, node[0], node.needed(1), node.needed(2), axes, steps)


def _split(node: Node, parts: Sequence[int] | None) -> list[Expr]:
    axis = node.axis(node[0], 0)
    extent, count = node.shape(node[0], axis)[0], len(node.outputs)
    wanted = node.attr("num_outputs", count)
    if not count:
        raise GraphError("it has no outputs")
    if parts is None:
        each = -(-extent // count)
        parts = [max(min(each, extent - n * each), 0) for n in range(count)]
        if node.opset < 18 and extent % count:
            raise GraphError(f"{extent} elements are no {count} equal parts; give their extents")
    if sum(parts) != extent or min(parts, default=0) < 0:
        raise GraphError(f"parts of {list(parts)} do not fill {extent} elements")
    if not count == wanted == len(parts):
        raise GraphError(f"it has {count} outputs for {max(wanted, len(parts))} parts")
    return parts_of_axis(node, parts, axis)


def parts_of_axis(node: Node, extents: Sequence[int], axis: int) -> list[Expr]:
    """The first input in parts along an axis."""
    bounds = zip(extents, np.cumsum(extents).tolist(), strict=True)
    return [sliced(node, node[0], (end - n,), (end,), (axis,)) for n, end in bounds]


#: Padding modes, named as NumPy names them.
_MODES = ("constant", "reflect", "edge", "wrap")


def _padded(node: Node, pads: Sequence[int], value: Expr, axes: Sequence[int] | None) -> Expr:
    old = node.shape(node[0])
    mode = node.attr("mode", "constant")
    if mode not in _MODES:
        raise GraphError(f"its mode is {mode!r}; there are {', '.join(_MODES)}")
    named = [axis_of(a, len(old)) for a in (range(len(old)) if axes is None else axes)]
    if len(pads) != 2 * len(named):
        raise GraphError(f"its pads are {shown(pads)}; give {2 * len(named)} numbers")
    width = [(0, 0)] * len(old)
    for a, low, high in zip(named, pads[: len(named)], pads[len(named) :], strict=True):
        width[a] = (low, high)
    if mode == "constant":
        return _surrounded(node, width, value)
    x = node[0]
    for a, (low, high) in enumerate(width):
        if (low, high) == (0, 0):
            continue
        check_elements((old[a] + max(low, 0) + max(high, 0),))
        whole = np.pad(np.arange(old[a]), (max(low, 0), max(high, 0)), mode=mode)
        numbers = whole[max(-low, 0) : len(whole) - max(-high, 0)]
        x = node.call("take", x, numbers.astype("int64"), axis=a)
    return x


def _surrounded(node: Node, width: Sequence[tuple[int, int]], value: Expr) -> Expr:
    """Pad with one value, or crop where a width is negative."""
    x, old = node[0], node.shape(node[0])
    if any(n < 0 for pair in width for n in pair):
        begin = [max(-low, 0) for low, _ in width]
        end = [n - max(-high, 0) for n, (_, high) in zip(old, width, strict=True)]
        x = sliced(node, x, begin, end, None)
    pads = [(max(low, 0), max(high, 0)) for low, high in width]
    if node.types.tensor(value).shape == () and not isinstance(value, Constant):
        extents = node.shape(x)
        check_elements([n + sum(pair) for n, pair in zip(extents, pads, strict=True)])
        inside = np.pad(np.ones(extents, "bool"), pads)
        return node.where(const(inside), node.call("nn.pad", x, pad_width=pads), value)
    fill = node.value(value, "padding").reshape(-1)[0].item()
    return node.call("nn.pad", x, pad_width=pads, pad_value=fill)


@converter("Pad")
def pad(node: Node) -> Expr:
    """The padding and its value are inputs from opset 11 on."""
    if node.opset < 11:
        return _padded(node, node.attr("pads"), const(node.attr("value", 0.0)), None)
    value = node.optional(2)
    return _padded(node, node.needed(1), const(0) if value is None else value, node.numbers(3))


@converter("Compress")
def compress(node: Node) -> Expr:
    """The elements whose condition is true; the condition must be known."""
    numbers = np.flatnonzero(node.value(node[1], "input 1"))
    if not numbers.size:
        raise GraphError("no element is chosen; tensors without elements are not supported")
    data, axis = node[0], node.attr("axis")
    if axis is None:
        data, axis = node.reshape(data, newshape=(-1,)), 0
    return node.call("take", data, numbers.astype("int64"), axis=axis)


@converter("OneHot", since=9)
def one_hot(node: Node) -> Expr:
    """The on value where the new axis has the given index, else the off value."""
    depth, indices = node.whole(1), node[0]
    if not node.dtype(indices).startswith("int"):
        indices = node.call("cast", indices, dtype="int64")
    return node.call("one_hot", indices, node[2], depth=depth, axis=node.attr("axis", -1))


def _topk(node: Node, k: int) -> list[Expr]:
    attrs = {"axis": node.attr("axis", -1), "largest": bool(node.attr("largest", 1))}
    both = node.call("topk", node[0], k=k, **attrs)
    return [TupleGetItem(both, 0), TupleGetItem(both, 1)]


@converter("TensorScatter", since=24)
def tensor_scatter(node: Node) -> Expr:
    """A cache with an update written at an index of its axis, separate for each batch."""
    cache, update = node[0], node[1]
    shape, axis = node.shape(cache), node.axis(cache, -2)
    if node.rank(update) != len(shape):
        raise GraphError(f"its update has {node.rank(update)} dimensions, its cache {len(shape)}")
    length = node.shape(update)[axis]
    begins = node.optional(2)
    if begins is None:
        begins = const(np.zeros(shape[0], "int64"))
    column = node.reshape(begins, newshape=(-1, *(1,) * (len(shape) - 1)))
    row = np.arange(length).reshape([length if d == axis else 1 for d in range(len(shape))])
    places = node.add(column, row)
    if node.attr("mode", "linear") == "circular":
        places = node.call("mod", places, shape[axis])
    places = node.call("broadcast_to", places, shape=node.shape(update))
    return node.call("scatter_elements", cache, places, update, axis=axis)


@converter("EyeLike", since=9)
def eye_like(node: Node) -> Expr:
    if node.rank(node[0]) != 2:
        raise GraphError(f"its input has {node.rank(node[0])} dimensions; 2 are needed")
    rows, columns = node.shape(node[0])
    number = node.attr("dtype")
    dtype = node.dtype(node[0]) if number is None else dtype_of(number)
    check_elements((rows, columns))
    return const(np.eye(rows, columns, node.attr("k", 0)).astype(dtype))


@converter("Trilu", since=14)
def trilu(node: Node) -> Expr:
    k, upper = node.numbers(1) or (0,), bool(node.attr("upper", 1))
    return node.call("triangle", node[0], k=k[0], upper=upper)

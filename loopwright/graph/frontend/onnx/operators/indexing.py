"""Converters of operators that read and write at indices held in other tensors."""

from __future__ import annotations

import numpy as np

from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx.node import Node, converter
from loopwright.graph.frontend.onnx.operators.casts import dtype_of
from loopwright.graph.ir.expr import Expr, TupleGetItem, const


@converter("Gather")
def gather(node: Node) -> Expr:
    return node.call("take", node[0], node[1], axis=node.attr("axis", 0))


@converter("GatherElements")
def gather_elements(node: Node) -> Expr:
    """Elements at the positions of the indices, but for one axis."""
    return node.call("gather_elements", node[0], node[1], axis=node.attr("axis", 0))


@converter("GatherND")
def gather_nd(node: Node) -> Expr:
    return node.call("gather_nd", node[0], node[1], batch_dims=node.attr("batch_dims", 0))


@converter("Scatter")
@converter("ScatterElements")
def scatter_elements(node: Node) -> Expr:
    """Updates replace or reduce elements at the positions of the indices, but for one axis."""
    how = {"axis": node.attr("axis", 0), "reduction": node.attr("reduction", "none")}
    return node.call("scatter_elements", node[0], node[1], node[2], **how)


@converter("ScatterND")
def scatter_nd(node: Node) -> Expr:
    return node.call(
        "scatter_nd", node[0], node[1], node[2], reduction=node.attr("reduction", "none")
    )


@converter("Compress")
def compress(node: Node) -> Expr:
    """The elements whose condition is true; the condition must be known."""
    condition = node.known(1)
    if condition is None:
        raise GraphError("its input 1 is missing")
    numbers = np.flatnonzero(condition)
    if not numbers.size:
        raise GraphError("no element is chosen; tensors without elements are not supported")
    data, axis = node[0], node.attr("axis")
    if axis is None:
        data, axis = node.call("reshape", data, newshape=(-1,)), 0
    return node.call("take", data, numbers.astype("int64"), axis=axis)


@converter("OneHot", since=9)
def one_hot(node: Node) -> Expr:
    """The on value where the new axis has the given index, else the off value."""
    depth = node.needed(1)[0]
    indices = node[0]
    if not node.dtype(indices).startswith("int"):
        indices = node.call("cast", indices, dtype="int64")
    return node.call("one_hot", indices, node[2], depth=depth, axis=node.attr("axis", -1))


@converter("ReverseSequence", since=10)
def reverse_sequence(node: Node) -> Expr:
    """The first elements of each batch reversed."""
    axes = {"batch_axis": node.attr("batch_axis", 1), "time_axis": node.attr("time_axis", 0)}
    return node.call("reverse_sequence", node[0], node[1], **axes)


def _topk(node: Node, k: int) -> list[Expr]:
    largest = bool(node.attr("largest", 1))
    found = node.call("topk", node[0], k=k, axis=node.attr("axis", -1), largest=largest)
    return [TupleGetItem(found, 0), TupleGetItem(found, 1)]


@converter("TopK")
def topk(node: Node) -> list[Expr]:
    return _topk(node, node.attr("k"))


@converter("TopK", since=10)
def topk_by_input(node: Node) -> list[Expr]:
    """The same, with k as an input."""
    return _topk(node, node.needed(1)[0])


@converter("Hardmax", since=13)
def hardmax(node: Node) -> Expr:
    """1 at the first of the largest elements of an axis, else 0."""
    return _hardmax(node, node[0], node.attr("axis", -1))


@converter("Hardmax")
def hardmax_over_the_rest(node: Node) -> Expr:
    """Hardmax over all dimensions from an axis on, as one."""
    shape = node.shape(node[0])
    axis = node.attr("axis", 1) % len(shape)
    before = int(np.prod(shape[:axis], dtype=np.int64))
    rows = node.call("reshape", node[0], newshape=(before, -1))
    return node.call("reshape", _hardmax(node, rows, 1), newshape=shape)


def _hardmax(node: Node, x: Expr, axis: int) -> Expr:
    places = node.call("argmax", x, axis=axis, keepdims=False)
    values = np.array([0, 1], node.dtype(x))
    return node.call("one_hot", places, values, depth=node.shape(x)[axis], axis=axis)


@converter("TensorScatter", since=24)
def tensor_scatter(node: Node) -> Expr:
    """A cache with an update written at an index of its axis, separate for each batch."""
    cache, update = node[0], node[1]
    shape, axis = node.shape(cache), node.attr("axis", -2) % node.rank(cache)
    length = node.shape(update)[axis]
    begins = node.optional(2)
    if begins is None:
        begins = const(np.zeros(shape[0], "int64"))
    places = node.call(
        "add",
        node.call("reshape", begins, newshape=_only(0, -1, len(shape))),
        np.arange(length).reshape(_only(axis, length, len(shape))),
    )
    if node.attr("mode", "linear") == "circular":
        places = node.call("mod", places, shape[axis])
    places = node.call("broadcast_to", places, shape=node.shape(update))
    return node.call("scatter_elements", cache, places, update, axis=axis)


def _only(axis: int, extent: int, rank: int) -> tuple[int, ...]:
    """A shape of ones but for one axis."""
    return tuple(extent if d == axis else 1 for d in range(rank))


@converter("EyeLike", since=9)
def eye_like(node: Node) -> Expr:
    rows, columns = node.shape(node[0])
    number = node.attr("dtype")
    dtype = node.dtype(node[0]) if number is None else dtype_of(number)
    return const(np.eye(rows, columns, node.attr("k", 0)).astype(dtype))


@converter("Trilu", since=14)
def trilu(node: Node) -> Expr:
    k = node.numbers(1)
    return node.call(
        "triangle", node[0], k=0 if k is None else k[0], upper=bool(node.attr("upper", 1))
    )

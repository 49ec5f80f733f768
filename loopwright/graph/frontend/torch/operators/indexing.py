"""Converters of operators that read and write at indices held in other tensors."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.errors import GraphError
from loopwright.graph.frontend.torch.node import Node, converter
from loopwright.graph.ir.expr import Expr


@converter("gather")
def gather(node: Node, x: Expr, dim: int, index: Expr, sparse_grad: bool = False) -> Expr:
    """For each position of the index the element with that index on a dimension."""
    at = node.axis(dim, node.rank(x))
    inner, outer = node.shape(index), node.shape(x)
    if not outer:
        return node.reshaped(x, node.extents())
    if any(n != m for d, (n, m) in enumerate(zip(inner, outer, strict=True)) if d != at):
        end = [m if d == at else n for d, (n, m) in enumerate(zip(inner, outer, strict=True))]
        x = node.call("strided_slice", x, begin=(0,) * len(end), end=end)
    return node.call("gather_elements", x, index, axis=at)


@converter("index_select")
def index_select(node: Node, x: Expr, dim: int, index: Expr) -> Expr:
    rank = node.rank(x)
    if not rank:
        return x
    found = index if node.rank(index) else node.reshaped(index, (1,))
    return node.call("take", x, found, axis=node.axis(dim, rank))


@converter("index.Tensor")
def index(node: Node, x: Expr, indices: Sequence[Expr | None]) -> Expr:
    """Elements by index tensors for one dimension, or for several consecutive ones."""
    given = [(d, e) for d, e in enumerate(indices) if e is not None]
    if any(node.dtype(e) in ("bool", "uint8") for _, e in given):
        raise GraphError("how many elements a mask leaves depends on data")
    first, tensors = given[0][0], [e for _, e in given]
    if len(given) == 1:
        return node.call("take", x, tensors[0], axis=first)
    if [d for d, _ in given] != list(range(first, first + len(given))):
        raise GraphError("indices of dimensions that do not follow each other are not supported")
    outer = node.rank(x) - len(given)
    shape = node.extents()[first : len(node.extents()) - (outer - first)]
    columns = []
    for d, e in given:
        wide = node.cast(e, "int64")
        extent = node.number(node.shape(x)[d], "int64")
        wide = node.call("where", node.call("less", wide, 0), node.call("add", wide, extent), wide)
        if node.shape(wide) != shape:
            wide = node.call("broadcast_to", wide, shape=shape)
        columns.append(node.reshaped(wide, (*shape, 1)))
    rows = node.call("concatenate", *columns, axis=len(shape))
    if first == 0:
        return node.call("gather_nd", x, rows)
    order = (*range(first, first + len(given)), *range(first))
    order = (*order, *range(first + len(given), node.rank(x)))
    found = node.call("gather_nd", node.call("transpose", x, axes=order), rows)
    inner = len(shape)
    back = (*range(inner, inner + first), *range(inner), *range(inner + first, inner + outer))
    return node.call("transpose", found, axes=back)


#: Reductions of ATen by the names that they have here.
_MEETINGS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


@converter("scatter.src", "scatter_add")
def scatter(node: Node, x: Expr, dim: int, index: Expr, src: Expr) -> Expr:
    """The tensor with elements replaced, or added to, at the positions of an index."""
    how = "add" if node.operator == "scatter_add" else "none"
    return _scattered(node, x, dim, index, src, how)


@converter("scatter.value")
def scatter_value(node: Node, x: Expr, dim: int, index: Expr, value: float) -> Expr:
    """The tensor with one number at the positions of an index."""
    number = node.as_result(value)
    src = node.call("broadcast_to", number, shape=node.shape(index))
    return _scattered(node, x, dim, index, src, "none")


@converter("scatter_reduce.two")
def scatter_reduce(
    node: Node, x: Expr, dim: int, index: Expr, src: Expr, reduce: str, include_self: bool = True
) -> Expr:
    """The tensor, reduced with others at the positions of an index."""
    if reduce not in _MEETINGS or not include_self:
        raise GraphError(f"a reduction by {reduce} without the elements there is not supported")
    return _scattered(node, x, dim, index, src, _MEETINGS[reduce])


def _scattered(node: Node, x: Expr, dim: int, index: Expr, src: Expr, how: str) -> Expr:
    shape, rank = node.shape(index), node.rank(x)
    if rank != len(shape) or not rank:
        raise GraphError("an index without dimensions is not supported")
    if node.shape(src) != shape:
        src = node.call("strided_slice", src, begin=(0,) * rank, end=shape)
    updates = node.as_result(src)
    return node.call(
        "scatter_elements", x, index, updates, axis=node.axis(dim, rank), reduction=how
    )

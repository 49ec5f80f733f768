"""Converters of operators that move and index elements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from loopwright.errors import GraphError
from loopwright.graph.frontend.torch.node import Node, Operand, converter
from loopwright.graph.ir.expr import Expr


@converter("view", "view_copy", "reshape", "_unsafe_view", "_reshape_copy", "flatten.using_ints")
@converter("squeeze", "squeeze.dim", "squeeze.dims", "unsqueeze")
def reshape(node: Node, x: Expr, *_: object) -> Expr:
    return node.reshaped(x, node.extents())


@converter(
    "alias", "clone", "contiguous", "detach", "lift_fresh_copy", "_to_copy", "to.dtype", "copy"
)
def same(node: Node, x: Expr, source: object = None, **_: object) -> Expr:
    """The same elements, in the dtype of the result; of a copy those that are copied."""
    if node.operator != "copy":
        return node.as_result(x)
    assert isinstance(source, Expr)
    return expand(node, node.as_result(source))


@converter("expand")
def expand(node: Node, x: Expr, *_: object, **__: object) -> Expr:
    """The elements in the shape of the result, which PyTorch has worked out."""
    shape = node.extents()
    return x if node.shape(x) == shape else node.call("broadcast_to", x, shape=shape)


@converter("permute")
def permute(node: Node, x: Expr, dims: Sequence[int]) -> Expr:
    order = tuple(node.axis(d, node.rank(x)) for d in dims)
    return x if order == tuple(range(len(order))) else node.call("transpose", x, axes=order)


@converter("transpose.int")
def transpose(node: Node, x: Expr, dim0: int, dim1: int) -> Expr:
    order = list(range(node.rank(x)))
    a, b = node.axis(dim0, len(order)), node.axis(dim1, len(order))
    if a == b:
        return x
    order[a], order[b] = order[b], order[a]
    return node.call("transpose", x, axes=tuple(order))


converter("t")(lambda node, x: transpose(node, x, 0, 1) if node.rank(x) == 2 else x)


@converter("cat")
def cat(node: Node, tensors: Sequence[Expr], dim: int = 0) -> Expr:
    """Concatenate; tensors without elements, which are no expressions, add nothing."""
    parts = [node.as_result(e) for e in tensors if isinstance(e, Expr)]
    return parts[0] if len(parts) == 1 else node.call("concatenate", *parts, axis=dim)


@converter("stack")
def stack(node: Node, tensors: Sequence[Expr], dim: int = 0) -> Expr:
    shape = list(node.extents())
    at = node.axis(dim, len(shape))
    shape[at] = 1
    parts = [node.reshaped(node.as_result(e), shape) for e in tensors]
    return parts[0] if len(parts) == 1 else node.call("concatenate", *parts, axis=at)


#: A bound of a slice; None is that of the dimension.
Bound = int | None


@converter("slice.Tensor")
def slice_(
    node: Node, x: Expr, dim: int = 0, start: Bound = None, end: Bound = None, step: int = 1
) -> Expr:
    at = node.axis(dim, node.rank(x))
    first, last, _ = slice(start, end, step).indices(node.shape(x)[at])
    return _cut(node, x, at, first, last, step)


def _cut(node: Node, x: Expr, axis: int, begin: int, end: int, step: int = 1) -> Expr:
    if (begin, step) == (0, 1) and end >= node.shape(x)[axis]:
        return x
    attrs = {"begin": (begin,), "end": (end,), "strides": (step,), "axes": (axis,)}
    return node.call("strided_slice", x, **attrs)


@converter("select.int")
def select(node: Node, x: Expr, dim: int, index: int) -> Expr:
    """Select one index along ``dim`` and drop the dimension."""
    at = node.axis(dim, node.rank(x))
    place = index % node.shape(x)[at]
    return node.reshaped(_cut(node, x, at, place, place + 1), node.extents())


@converter("split_with_sizes")
def split_with_sizes(node: Node, x: Expr, split_sizes: Sequence[int], dim: int = 0) -> list[Expr]:
    at, ends = node.axis(dim, node.rank(x)), accumulate(split_sizes)
    return [_cut(node, x, at, e - n, e) for n, e in zip(split_sizes, ends, strict=True)]


@converter("split.Tensor")
def split(node: Node, x: Expr, split_size: int, dim: int = 0) -> list[Expr]:
    """Parts of one size, the last of which may be smaller."""
    extent = node.shape(x)[node.axis(dim, node.rank(x))]
    sizes = [min(split_size, extent - begin) for begin in range(0, extent, split_size)]
    return split_with_sizes(node, x, sizes, dim)


@converter("unbind.int")
def unbind(node: Node, x: Expr, dim: int = 0) -> list[Expr]:
    shape = list(node.shape(x))
    at = node.axis(dim, len(shape))
    extent = shape.pop(at)
    return [node.reshaped(_cut(node, x, at, n, n + 1), shape) for n in range(extent)]


@converter("repeat")
def repeat(node: Node, x: Expr, repeats: Sequence[int]) -> Expr:
    old = (1,) * (len(repeats) - node.rank(x)) + node.shape(x)
    apart = [n for pair in zip((1,) * len(old), old, strict=True) for n in pair]
    wide = [n for pair in zip(repeats, old, strict=True) for n in pair]
    repeated = node.call("broadcast_to", node.reshaped(x, apart), shape=tuple(wide))
    return node.reshaped(repeated, node.extents())


@converter("flip")
def flip(node: Node, x: Expr, dims: Sequence[int]) -> Expr:
    flipped, shape = x, node.shape(x)
    for d in dims if shape else ():
        at = node.axis(d, len(shape))
        flipped = _cut(node, flipped, at, shape[at] - 1, -shape[at] - 1, -1)
    return flipped


@converter("tril", "triu")
def triangle(node: Node, x: Expr, diagonal: int = 0) -> Expr:
    return node.call("triangle", x, k=diagonal, upper=node.operator == "triu")


@converter("full_like", "fill.Scalar", "full", "new_full")
def full_like(node: Node, x: object, *values: Operand, **_: object) -> Expr:
    return expand(node, node.as_result(values[-1]))


@converter("slice_scatter")
def slice_scatter(
    node: Node, x: Expr, source: Expr, dim: int = 0,
    start: Bound = None, end: Bound = None, step: int = 1,
) -> Expr:  # fmt: skip
    """The tensor with other elements in a slice of a dimension."""
    at = node.axis(dim, node.rank(x))
    extent = node.shape(x)[at]
    first, last, _ = slice(start, end, step).indices(extent)
    if step != 1:
        raise GraphError("a slice that leaves elements out is not written into")
    parts = [_cut(node, x, at, 0, first)] if first else []
    parts += [node.as_result(source)] if first < last else []
    parts += [_cut(node, x, at, max(first, last), extent)] if last < extent else []
    return parts[0] if len(parts) == 1 else node.call("concatenate", *parts, axis=at)


@converter("select_scatter")
def select_scatter(node: Node, x: Expr, source: Expr, dim: int, index: int) -> Expr:
    """The tensor with other elements at one index of a dimension."""
    at = node.axis(dim, node.rank(x))
    shape = list(node.shape(x))
    place = index % shape[at]
    shape[at] = 1
    return slice_scatter(node, x, node.reshaped(source, shape), at, place, place + 1)


@converter("gather")
def gather(node: Node, x: Expr, dim: int, index: Expr, sparse_grad: bool = False) -> Expr:
    """For each position of the index the element with that index on a dimension."""
    at = node.axis(dim, node.rank(x))
    inner, outer = node.shape(index), node.shape(x)
    if not outer:
        return node.reshaped(x, node.extents())
    end = (*inner[:at], outer[at], *inner[at + 1 :])
    if end != outer:
        x = node.call("strided_slice", x, begin=(0,) * len(end), end=end)
    return node.call("gather_elements", x, index, axis=at)


@converter("index_select")
def index_select(node: Node, x: Expr, dim: int, index: Expr) -> Expr:
    rank = node.rank(x)
    if not rank:
        return x
    numbers = index if node.rank(index) else node.reshaped(index, (1,))
    return node.call("take", x, numbers, axis=node.axis(dim, rank))


@converter("index.Tensor")
def index(node: Node, x: Expr, indices: Sequence[Expr | None]) -> Expr:
    """Elements by index tensors for one dimension, or for several consecutive ones."""
    indexed = [(d, e) for d, e in enumerate(indices) if e is not None]
    if any(node.dtype(e) in ("bool", "uint8") for _, e in indexed):
        raise GraphError("how many elements a mask leaves depends on data")
    first, tensors = indexed[0][0], [e for _, e in indexed]
    if len(indexed) == 1:
        return node.call("take", x, tensors[0], axis=first)
    if [d for d, _ in indexed] != list(range(first, first + len(indexed))):
        raise GraphError("indices of dimensions that do not follow each other are not supported")
    outer = node.rank(x) - len(indexed)
    shape = node.extents()[first : len(node.extents()) - (outer - first)]
    columns = []
    for d, e in indexed:
        wide = node.cast(e, "int64")
        extent = node.number(node.shape(x)[d], "int64")
        wide = node.where(node.call("less", wide, 0), node.add(wide, extent), wide)
        if node.shape(wide) != shape:
            wide = node.call("broadcast_to", wide, shape=shape)
        columns.append(node.reshaped(wide, (*shape, 1)))
    rows = node.call("concatenate", *columns, axis=len(shape))
    if first == 0:
        return node.call("gather_nd", x, rows)
    order = (*range(first, first + len(indexed)), *range(first))
    order = (*order, *range(first + len(indexed), node.rank(x)))
    result = node.call("gather_nd", node.call("transpose", x, axes=order), rows)
    inner = len(shape)
    back = (*range(inner, inner + first), *range(inner), *range(inner + first, inner + outer))
    return node.call("transpose", result, axes=back)


#: Reductions of ATen by the names that they have here.
_MEETINGS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


@converter("scatter.value")
def scatter_value(node: Node, x: Expr, dim: int, index: Expr, value: float) -> Expr:
    number = node.as_result(value)
    return scatter(node, x, dim, index, node.call("broadcast_to", number, shape=node.shape(index)))


@converter("scatter_reduce.two")
def scatter_reduce(
    node: Node, x: Expr, dim: int, index: Expr, src: Expr, reduce: str, include_self: bool = True
) -> Expr:
    if reduce not in _MEETINGS or not include_self:
        raise GraphError(f"a reduction by {reduce} without the elements there is not supported")
    return scatter(node, x, dim, index, src, _MEETINGS[reduce])


@converter("scatter.src", "scatter_add")
def scatter(node: Node, x: Expr, dim: int, index: Expr, src: Expr, how: str = "none") -> Expr:
    """The tensor with elements replaced, or met by others, at the positions of an index."""
    how = "add" if node.operator == "scatter_add" else how
    shape, rank = node.shape(index), node.rank(x)
    if rank != len(shape) or not rank:
        raise GraphError("an index without dimensions is not supported")
    if node.shape(src) != shape:
        src = node.call("strided_slice", src, begin=(0,) * rank, end=shape)
    attrs = {"axis": node.axis(dim, rank), "reduction": how}
    return node.call("scatter_elements", x, index, node.as_result(src), **attrs)

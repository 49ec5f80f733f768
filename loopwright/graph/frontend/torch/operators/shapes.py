"""Converters of operators that move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.errors import GraphError
from loopwright.graph.frontend.torch.node import Node, Operand, converter
from loopwright.graph.ir.expr import Expr


@converter(
    "view",
    "reshape",
    "_unsafe_view",
    "_reshape_copy",
    "view_copy",
    "squeeze",
    "squeeze.dim",
    "squeeze.dims",
    "unsqueeze",
    "flatten.using_ints",
)
def reshape(node: Node, x: Expr, *_: object) -> Expr:
    """The elements in the shape of the result."""
    return node.reshaped(x, node.extents())


@converter(
    "alias", "clone", "contiguous", "detach", "lift_fresh_copy", "_to_copy", "to.dtype", "copy"
)
def same(node: Node, x: Expr, source: object = None, **_: object) -> Expr:
    """The same elements, in the dtype of the result; of a copy those that are copied."""
    if node.operator != "copy":
        return node.as_result(x)
    assert isinstance(source, Expr)
    return _widened(node, node.as_result(source))


@converter("expand")
def expand(node: Node, x: Expr, size: Sequence[int], implicit: bool = False) -> Expr:
    """Repeat along dimensions of extent 1, or new ones."""
    return _widened(node, x)


def _widened(node: Node, x: Expr) -> Expr:
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


@converter("t")
def t(node: Node, x: Expr) -> Expr:
    return transpose(node, x, 0, 1) if node.rank(x) == 2 else x  # type: ignore[return-value]


@converter("cat")
def cat(node: Node, tensors: Sequence[Expr], dim: int = 0) -> Expr:
    """Concatenate; tensors without elements, which are no expressions, add nothing."""
    parts = [node.as_result(e) for e in tensors if isinstance(e, Expr)]
    return parts[0] if len(parts) == 1 else node.call("concatenate", *parts, axis=dim)


@converter("stack")
def stack(node: Node, tensors: Sequence[Expr], dim: int = 0) -> Expr:
    """Concatenate along a new dimension."""
    shape = list(node.extents())
    at = node.axis(dim, len(shape))
    shape[at] = 1
    parts = [node.reshaped(node.as_result(e), shape) for e in tensors]
    return parts[0] if len(parts) == 1 else node.call("concatenate", *parts, axis=at)


@converter("slice.Tensor")
def slice_(
    node: Node,
    x: Expr,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
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
    """One index of a dimension, which is removed."""
    at = node.axis(dim, node.rank(x))
    place = index % node.shape(x)[at]
    return node.reshaped(_cut(node, x, at, place, place + 1), node.extents())


@converter("split_with_sizes")
def split_with_sizes(node: Node, x: Expr, split_sizes: Sequence[int], dim: int = 0) -> list[Expr]:
    at, begin, found = node.axis(dim, node.rank(x)), 0, []
    for size in split_sizes:
        found.append(_cut(node, x, at, begin, begin + size))
        begin += size
    return found


@converter("split.Tensor")
def split(node: Node, x: Expr, split_size: int, dim: int = 0) -> list[Expr]:
    """Parts of one size, the last of which may be smaller."""
    at = node.axis(dim, node.rank(x))
    extent = node.shape(x)[at]
    begins = range(0, extent, split_size)
    return [_cut(node, x, at, b, min(b + split_size, extent)) for b in begins]


@converter("unbind.int")
def unbind(node: Node, x: Expr, dim: int = 0) -> list[Expr]:
    shape = list(node.shape(x))
    at = node.axis(dim, len(shape))
    extent = shape.pop(at)
    return [node.reshaped(_cut(node, x, at, n, n + 1), shape) for n in range(extent)]


@converter("repeat")
def repeat(node: Node, x: Expr, repeats: Sequence[int]) -> Expr:
    """Repeat the whole tensor along its dimensions."""
    old = (1,) * (len(repeats) - node.rank(x)) + node.shape(x)
    apart = [n for pair in zip((1,) * len(old), old, strict=True) for n in pair]
    wide = [n for pair in zip(repeats, old, strict=True) for n in pair]
    found = node.call("broadcast_to", node.reshaped(x, apart), shape=tuple(wide))
    return node.reshaped(found, node.extents())


@converter("flip")
def flip(node: Node, x: Expr, dims: Sequence[int]) -> Expr:
    found, shape = x, node.shape(x)
    for d in dims if shape else ():
        at = node.axis(d, len(shape))
        found = _cut(node, found, at, shape[at] - 1, -shape[at] - 1, -1)
    return found


@converter("tril", "triu")
def triangle(node: Node, x: Expr, diagonal: int = 0) -> Expr:
    """The part of matrices below, or above a diagonal."""
    return node.call("triangle", x, k=diagonal, upper=node.operator == "triu")


@converter("full_like", "fill.Scalar", "full", "new_full")
def full_like(node: Node, x: object, *values: Operand, **_: object) -> Expr:
    """A tensor filled with one number."""
    value = values[-1]
    return _widened(node, node.as_result(value))


@converter("slice_scatter")
def slice_scatter(
    node: Node,
    x: Expr,
    source: Expr,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Expr:
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
    part = node.reshaped(source, shape)
    found = slice_scatter(node, x, part, at, place, place + 1)
    assert isinstance(found, Expr)
    return found

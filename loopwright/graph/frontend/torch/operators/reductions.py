"""Converters of reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod

from loopwright.errors import GraphError
from loopwright.graph.frontend.torch.node import Node, converter
from loopwright.graph.ir.expr import Expr, TupleGetItem

#: Dimensions of a reduction as ATen gives them; none, or an empty list, are all.
Dims = int | Sequence[int] | None


def axes(node: Node, x: Expr, dim: Dims) -> tuple[int, ...]:
    """The dimensions that a reduction is over, from 0."""
    rank = node.rank(x)
    dims = (dim,) if isinstance(dim, int) else tuple(dim or range(rank))
    return tuple(sorted(node.axis(d, rank) for d in dims)) if rank else ()


def _reduced(node: Node, name: str, x: Expr, dim: Dims, keepdim: bool) -> Expr:
    if not node.rank(x):
        return x
    return node.call(name, x, axis=axes(node, x, dim), keepdims=keepdim)


@converter("sum", "sum.dim_IntList", "mean", "mean.dim", "prod", "prod.dim_int")
def total(
    node: Node, x: Expr, dim: Dims = None, keepdim: bool = False, dtype: object = None
) -> Expr:
    return _reduced(node, node.operator.partition(".")[0], node.as_result(x), dim, keepdim)


@converter("amax", "amin", "max", "min")
def extreme(node: Node, x: Expr, dim: Dims = (), keepdim: bool = False) -> Expr:
    return _reduced(node, node.operator.removeprefix("a"), x, dim, keepdim)


@converter("max.dim", "min.dim")
def extreme_with_place(node: Node, x: Expr, dim: int, keepdim: bool = False) -> list[Expr | None]:
    name, at = node.operator.partition(".")[0], axes(node, x, dim)
    place = node.call(f"arg{name}", x, axis=at[0], keepdims=keepdim) if at else None
    return [_reduced(node, name, x, dim, keepdim), place]


@converter("argmax", "argmin")
def place(node: Node, x: Expr, dim: int | None = None, keepdim: bool = False) -> Expr:
    flat = dim is None or not node.rank(x)
    data = node.reshaped(x, (prod(node.shape(x)),)) if flat else x
    at = node.axis(0 if dim is None else dim, node.rank(data))
    index = node.call(node.operator, data, axis=at, keepdims=keepdim and dim is not None)
    return node.reshaped(index, node.extents())


@converter("any", "any.dim", "any.dims", "all", "all.dim", "all.dims")
def truth(node: Node, x: Expr, dim: Dims = None, keepdim: bool = False) -> Expr:
    name = "max" if node.operator.startswith("any") else "min"
    flags = node.cast(node.cast(x, "bool"), "uint8")
    return node.cast(_reduced(node, name, flags, dim, keepdim), "bool")


@converter("linalg_vector_norm")
def vector_norm(
    node: Node, x: Expr, ord: float = 2, dim: Dims = None, keepdim: bool = False
) -> Expr:
    """The root of the sum of squares; or the sum, or the maximum, of absolute values."""
    data = node.as_result(x)
    if ord == 2:
        return node.call("sqrt", _reduced(node, "sum", node.multiply(data, data), dim, keepdim))
    names = {1: "sum", math.inf: "max", -math.inf: "min"}
    if ord not in names:
        raise GraphError(f"a norm of order {ord} is not supported")
    return _reduced(node, names[ord], node.call("abs", data), dim, keepdim)


@converter("var.dim")
def variance_unbiased(
    node: Node, x: Expr, dim: Dims, unbiased: bool = True, keepdim: bool = False
) -> list[Expr]:
    return variance(node, x, dim, int(unbiased), keepdim)


@converter("var.correction", "var_mean.correction")
def variance(
    node: Node, x: Expr, dim: Dims = None, correction: float | None = 1, keepdim: bool = False
) -> list[Expr]:
    """The mean of squared deviations, from whose number ``correction`` is subtracted; the mean."""
    over = axes(node, x, dim)
    count = prod(node.shape(x)[a] for a in over)
    centred = node.subtract(x, node.call("mean", x, axis=over, keepdims=True))
    result: Expr = node.call("sum", node.multiply(centred, centred), axis=over, keepdims=keepdim)
    left = count - (1 if correction is None else correction)
    result = node.multiply(result, 1 / left if left > 0 else float("nan"))
    if not node.operator.startswith("var_mean"):
        return [result]
    return [result, node.call("mean", x, axis=over, keepdims=keepdim)]


@converter("cumsum", "cumprod")
def running(node: Node, x: Expr, dim: int, dtype: object = None) -> Expr:
    data = node.as_result(x)
    rank = node.rank(x)
    return node.call(node.operator, data, axis=node.axis(dim, rank)) if rank else data


@converter("sort", "sort.stable")
def sort(
    node: Node, x: Expr, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> list[Expr]:
    k = node.shape(x)[node.axis(dim, node.rank(x))] if node.rank(x) else 1
    return topk(node, x, k, dim, descending)


@converter("topk")
def topk(
    node: Node, x: Expr, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[Expr]:
    data = x if node.rank(x) else node.reshaped(x, (1,))
    both = node.call("topk", data, k=k, axis=node.axis(dim, node.rank(data)), largest=largest)
    parts: list[Expr] = [TupleGetItem(both, 0), TupleGetItem(both, 1)]
    return parts if node.rank(x) else [node.reshaped(e, ()) for e in parts]

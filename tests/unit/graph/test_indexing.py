"""Operators that read and write at places which other tensors name, against loops of Python."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from loopwright import graph
from loopwright.errors import GraphError
from loopwright.graph import op
from tests.unit.graph.values import Array, same

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 5)).astype("float32")
REDUCTIONS = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": max,
    "min": min,
}


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_are_gathered(axis: int) -> None:
    places = RNG.integers(-X.shape[axis], X.shape[axis], (2, 2, 4))
    same(op.gather_elements(X, places, axis=axis), _gathered(X, places, axis))


def _gathered(x: Array, places: Array, axis: int) -> Array:
    found = np.empty(places.shape, x.dtype)
    for i in np.ndindex(*places.shape):
        at = list(i)
        at[axis] = places[i]
        found[i] = x[tuple(at)]
    return found


@pytest.mark.parametrize(("depth", "batch"), [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1)])
def test_parts_are_gathered_by_rows_of_indices(depth: int, batch: int) -> None:
    extents = X.shape[batch : batch + depth]
    outer = (*X.shape[:batch], 4)
    places = np.stack([RNG.integers(-n, n, outer) for n in extents], -1)
    found = np.empty((*outer, *X.shape[batch + depth :]), "float32")
    for i in np.ndindex(*outer):
        found[i] = X[(*i[:batch], *places[i])]
    same(op.gather_nd(X, places, batch_dims=batch), found)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_are_scattered_in_order(axis: int, reduction: str) -> None:
    """Of several updates of one element the last one counts, or all of them."""
    shape = [2, 2, 3]
    shape[axis] = 4
    places = RNG.integers(-X.shape[axis], X.shape[axis], shape)
    updates = RNG.standard_normal(shape).astype("float32")
    wanted = X.copy()
    for i in np.ndindex(*shape):
        if any(n >= X.shape[d] for d, n in enumerate(i) if d != axis):
            continue
        at = list(i)
        at[axis] = places[i]
        wanted[tuple(at)] = REDUCTIONS[reduction](wanted[tuple(at)], updates[i])
    call = op.scatter_elements(X, places, updates, axis=axis, reduction=reduction)
    same(call, wanted)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_parts_are_scattered_by_rows_of_indices(depth: int, reduction: str) -> None:
    outer = (3, 2)
    places = np.stack([RNG.integers(-n, n, outer) for n in X.shape[:depth]], -1)
    updates = RNG.standard_normal((*outer, *X.shape[depth:])).astype("float32")
    wanted = X.copy()
    for i in np.ndindex(*outer):
        for rest in product(*map(range, X.shape[depth:])):
            at = (*places[i], *rest)
            wanted[at] = REDUCTIONS[reduction](wanted[at], updates[(*i, *rest)])
    same(op.scatter_nd(X, places, updates, reduction=reduction), wanted)


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("largest", [True, False])
def test_the_largest_come_first_and_of_equal_ones_the_first(axis: int, largest: bool) -> None:
    x = np.float32([[3, 1, 3, 2, 0], [1, 1, 0, 2, 2], [5, 3, 3, 4, 0]])
    order = np.argsort(-x if largest else x, axis=axis, kind="stable")
    first = np.take(order, range(2), axis=axis)
    call = op.topk(x, k=2, axis=axis, largest=largest)
    same(call, np.take_along_axis(x, first, axis), first)


def test_one_hot_and_reversed_sequences() -> None:
    places = np.int64([[0, -1], [2, 7]])
    wanted = np.full((2, 3, 2), 5, "float32")
    for i, j in np.ndindex(2, 2):
        if -3 <= places[i, j] < 3:
            wanted[i, places[i, j], j] = 9
    same(op.one_hot(places, np.float32([5, 9]), depth=3, axis=1), wanted)
    lengths, wanted = np.int64([1, 3]), X.copy()
    for b, n in enumerate(lengths):
        wanted[b, :n] = X[b, :n][::-1]
    same(op.reverse_sequence(X, lengths, batch_axis=0, time_axis=1), wanted)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_and_products(exclusive: bool, reverse: bool) -> None:
    x = X[..., ::-1] if reverse else X
    sums, products = np.cumsum(x, -1), np.cumprod(x, -1)
    if exclusive:
        sums = np.concatenate([np.zeros_like(X[..., :1]), sums[..., :-1]], -1)
        products = np.concatenate([np.ones_like(X[..., :1]), products[..., :-1]], -1)
    given: dict[str, Any] = {"axis": 2, "exclusive": exclusive, "reverse": reverse}
    same(op.cumsum(X, **given), sums[..., ::-1] if reverse else sums)
    same(op.cumprod(X, **given), products[..., ::-1] if reverse else products)


@pytest.mark.parametrize("k", [-1, 0, 2])
def test_triangles(k: int) -> None:
    same(op.triangle(X, k=k, upper=True), np.triu(X, k))
    same(op.triangle(X, k=k, upper=False), np.tril(X, k))


REFUSED = {
    "reduction": lambda: op.scatter_elements(X, X.astype("int64"), X, reduction="sum"),
    "dtype": lambda: op.scatter_elements(X, X.astype("int64"), X.astype("float64")),
    "shapes": lambda: op.scatter_elements(X, X.astype("int64"), X[:1]),
    "rows": lambda: op.gather_nd(X, np.zeros((2, 4), "int64")),
    "updates": lambda: op.scatter_nd(X, np.zeros((2, 1), "int64"), X[:1]),
    "count": lambda: op.topk(X, k=6),
    "values": lambda: op.one_hot(np.zeros(2, "int64"), X, depth=2),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(GraphError):
        graph.infer_types(graph.IRModule.from_expr(REFUSED[name]()))

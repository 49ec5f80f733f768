"""Converters of classical machine learning: tree ensembles, features, n-grams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np

from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx.node import Node, converter
from loopwright.graph.frontend.onnx.operators.shapes import sliced
from loopwright.graph.ir.expr import Expr, const

_DOMAIN = "ai.onnx.ml"
#: For each mode of a node whether what is less, equal, greater, and no number goes the true way.
_MODES = ((1, 1, 0, 0), (1, 0, 0, 0), (0, 1, 1, 0), (0, 0, 1, 0), (0, 1, 0, 0), (1, 0, 1, 1))
_MEMBER = 6
_AGGREGATES = ("mean", "sum", "min", "max")
#: Operators by the number of a post_transform, with their attributes.
_POST: dict[int, tuple[str, dict[str, int]] | None]
_POST = {0: None, 1: ("nn.softmax", {"axis": 1}), 2: ("sigmoid", {})}
#: Nodes from a root to a leaf at most; each is a step of all trees.
_DEPTH = 64


@dataclass
class _Trees:
    """Trees as tables: a row for each node, then one for each leaf, which leads to itself."""

    #: the feature that a node compares, the value it is compared with, results that count as true
    #: as in `_MODES`, and of a leaf the weight, and the target to which it counts
    rows: list[tuple[int, float, tuple[int, ...], float, int]] = field(default_factory=list)
    #: next rows, where the test is true and where it is not
    ways: list[tuple[int, int]] = field(default_factory=list)

    def add(
        self, feature: int = 0, split: float = 0.0, test: tuple[int, ...] = (0, 0, 0, 0),
        weight: float = 0.0, target: int = 0,
    ) -> int:  # fmt: skip
        at = len(self.rows)
        self.rows.append((feature, split, test, weight, target))
        self.ways.append((at, at))
        return at

    def depth(self, roots: Sequence[int]) -> int:
        """Steps from the roots until all have reached leaves."""
        rows, steps = set(roots), 0
        while any(self.ways[r] != (r, r) for r in rows):
            rows = {w for r in rows for w in self.ways[r]}
            steps += 1
            if steps > _DEPTH:
                raise GraphError(f"its trees are deeper than {_DEPTH} nodes, or have circles")
        return steps


class _Ensemble:
    def __init__(self, node: Node) -> None:
        self._node, self.trees = node, _Trees()
        self._modes = modes = np.asarray(node.attr("nodes_modes"), "uint8").tolist()
        if any(m > _MEMBER for m in modes):
            raise GraphError(f"a node has mode {max(modes)}; there are 0 to {_MEMBER}")
        members = _sets(np.asarray(node.attr("membership_values", ()), "float64"))
        self._members = {n: next(members, []) for n, m in enumerate(modes) if m == _MEMBER}
        self._nodes, self._leaves = dict[int, int](), dict[int, int]()
        self.roots = [self._root(r) for r in node.attr("tree_roots")]

    def _root(self, number: int) -> int:
        (first, leaf), (second, other) = self._below(number)
        if leaf and other and first == second:
            return self._leaf(first)
        return self._row(number)

    def _of(self, name: str, number: int) -> int:
        values = self._node.attr(name)
        if not 0 <= number < len(values):
            raise GraphError(f"its attribute {name} has no entry {number}")
        return int(values[number])

    def _leaf(self, number: int) -> int:
        if number not in self._leaves:
            weight = float(np.asarray(self._node.attr("leaf_weights"))[number])
            target = self._of("leaf_targetids", number)
            self._leaves[number] = self.trees.add(weight=weight, target=target)
        return self._leaves[number]

    def _row(self, first: int) -> int:
        waiting, new = [first], []
        for number in waiting:
            if number not in self._nodes:
                self._nodes[number] = self._new_row(number)
                new.append(number)
                waiting += [n for n, leaf in self._below(number) if not leaf]
        for number in new:
            self._lead(number)
        return self._nodes[first]

    def _below(self, number: int) -> list[tuple[int, int]]:
        return [
            (self._of(f"nodes_{side}nodeids", number), self._of(f"nodes_{side}leafs", number))
            for side in ("true", "false")
        ]

    def _new_row(self, number: int) -> int:
        mode = self._modes[number]
        test = _MODES[4 if mode == _MEMBER else mode]
        missing = self._node.attr("nodes_missing_value_tracks_true")
        if missing is not None and missing[number]:
            test = (*test[:3], 1)
        split = float(np.asarray(self._node.attr("nodes_splits"))[number])
        if mode == _MEMBER:
            split = self._members[number][0] if self._members[number] else float("nan")
        return self.trees.add(self._of("nodes_featureids", number), split, test)

    def _lead(self, number: int) -> None:
        """Link a node to its children; a set becomes a chain of comparisons."""
        true, false = (self._leaf(n) if leaf else self._nodes[n] for n, leaf in self._below(number))
        row, trees = self._nodes[number], self.trees
        for member in self._members.get(number, [])[1:]:
            feature, _, test, *_ = trees.rows[row]
            more = trees.add(feature, member, test)
            trees.ways[row] = (true, more)
            row = more
        trees.ways[row] = (true, false)


def _sets(values: np.ndarray[Any, Any]) -> Iterator[list[float]]:
    """Consecutive sets, each terminated by NaN."""
    members: list[float] = []
    for v in values.tolist():
        if np.isnan(v):
            yield members
            members = []
        else:
            members.append(v)


def _leaves_of(node: Node, x: Expr, ensemble: _Ensemble) -> Expr:
    """The rows of leaves (batch, trees) that the rows of a table reach."""
    trees, batch = ensemble.trees, node.shape(x)[0]
    columns = list(zip(*trees.rows, strict=True))
    features = np.array(columns[0], "int64")
    if features.max() >= node.shape(x)[1]:
        raise GraphError(f"it looks at feature {features.max()} of {node.shape(x)[1]}")
    splits, tests = np.array(columns[1], node.dtype(x)), np.array(columns[2], "bool").T
    count = len(ensemble.roots)
    true, false = np.array(trees.ways, "int64").T
    at: Expr = const(np.broadcast_to(np.array(ensemble.roots, "int64"), (batch, count)))

    def read(table: np.ndarray[Any, Any]) -> Expr:
        return node.call("take", const(table), at)

    for _ in range(trees.depth(ensemble.roots)):
        value, split = node.call("gather_elements", x, read(features), axis=1), read(splits)
        results = [node.call(name, value, split) for name in ("less", "equal", "greater")]
        results.append(node.call("isnan", value))
        pairs = zip(results, tests, strict=True)
        ways: list[Expr] = [node.call("logical_and", e, read(test)) for e, test in pairs]
        at = node.where(reduce(partial(node.call, "logical_or"), ways), read(true), read(false))
    return at


@converter(f"{_DOMAIN}::TreeEnsemble", since=5)
def tree_ensemble(node: Node) -> Expr:
    """Walk down all trees one node at a time; leaf weights are aggregated by target."""
    x, ensemble = node[0], _Ensemble(node)
    dtype, how = node.dtype(x), _AGGREGATES[node.attr("aggregate_function", 1)]
    leaves = _leaves_of(node, x, ensemble)
    *_, weights, targets = zip(*ensemble.trees.rows, strict=True)
    weight = node.call("take", const(np.array(weights, dtype)), leaves)
    target = node.call("take", const(np.array(targets, "int64")), leaves)
    weight, target = (node.call("expand_dims", e, axis=2) for e in (weight, target))
    own = node.call("equal", target, np.arange(node.attr("n_targets"), dtype="int64"))
    big = np.finfo(dtype).max
    nothing = {"min": big, "max": -big}.get(how, 0)
    met = node.where(own, weight, const(nothing, dtype))
    scores: Expr = node.call("sum" if how == "mean" else how, met, axis=1)
    if how == "mean":
        scores = node.multiply(scores, 1 / len(ensemble.roots))
    after = node.attr("post_transform", 0)
    if after not in _POST:
        raise GraphError(f"its post_transform is {after}; there are {', '.join(map(str, _POST))}")
    last = _POST[after]
    return scores if last is None else node.call(last[0], scores, **last[1])


converter(f"{_DOMAIN}::Binarizer")(
    lambda n: n.cast(n.call("greater", n[0], n.attr("threshold", 0.0)), n.dtype(n[0]))
)


@converter(f"{_DOMAIN}::ArrayFeatureExtractor")
def array_feature_extractor(node: Node) -> Expr:
    """Some elements of the last axis; a vector is a table of one row."""
    columns = node.call("take", node[0], node.reshape(node[1], newshape=(-1,)), axis=-1)
    return columns if node.rank(node[0]) > 1 else node.call("expand_dims", columns, axis=0)


@converter("TfIdfVectorizer", since=9)
def tfidf_vectorizer(node: Node) -> Expr:
    """Counts of n-grams in rows of numbers, with gaps of one extent between their parts."""
    if node.attr("pool_strings") is not None:
        raise GraphError("n-grams of strings are not supported")
    x, is_table = node[0], node.rank(node[0]) > 1
    table = x if is_table else node.call("expand_dims", x, axis=0)
    places = np.array(node.attr("ngram_indexes"), "int64")
    counts, columns = [], []
    for n, grams, first in _ngrams(node):
        total = _occurrences(node, table, n, grams)
        if total is not None:
            counts.append(total)
            columns += places[first : first + len(grams)].tolist()
    size = int(places.max()) + 1
    if not counts:
        shape = (node.shape(table)[0], size)
        return const(np.zeros(shape if is_table else shape[1:], "float32"))
    spread = np.zeros((len(columns), size), "float32")
    spread[np.arange(len(columns)), columns] = 1
    every = node.call("cast", node.call("concatenate", *counts, axis=1), dtype="float32")
    result = _weighted(node, node.call("matmul", every, spread), size)
    return result if is_table else node.call("squeeze", result, axis=0)


def _ngrams(node: Node) -> Iterator[tuple[int, np.ndarray[Any, Any], int]]:
    """For each n that counts: n, its n-grams as rows, and the index of the first."""
    pool, starts = np.array(node.attr("pool_int64s"), "int64"), node.attr("ngram_counts")
    low, high = node.attr("min_gram_length"), node.attr("max_gram_length")
    first = 0
    for n, (begin, end) in enumerate(zip(starts, (*starts[1:], len(pool)), strict=True), 1):
        grams = pool[begin:end].reshape(-1, n)
        if len(grams) and low <= n <= high:
            yield n, grams, first
        first += len(grams)


def _occurrences(node: Node, table: Expr, n: int, grams: np.ndarray[Any, Any]) -> Expr | None:
    """Counts of n-grams in the rows of a table; None where the rows are too short."""
    width, dtype = node.shape(table)[1], node.dtype(table)
    totals: list[Expr] = []
    for gap in range(1, 2 if n == 1 else node.attr("max_skip_count") + 2):
        room = width - gap * (n - 1)
        if room < 1:
            break
        same: list[Expr] = []
        for part in range(n):
            piece = sliced(node, table, (gap * part,), (gap * part + room,), (1,))
            wide = node.call("expand_dims", piece, axis=2)
            same.append(node.call("equal", wide, grams[:, part].astype(dtype)))
        fits = reduce(partial(node.call, "logical_and"), same)
        totals.append(node.call("sum", node.call("cast", fits, dtype="int32"), axis=1))
    return reduce(node.add, totals) if totals else None


def _weighted(node: Node, counts: Expr, size: int) -> Expr:
    mode, weights = node.attr("mode"), node.attr("weights")
    weights = np.ones(size, "float32") if weights is None else np.array(weights, "float32")[:size]
    match mode:
        case "TF":
            return counts
        case "TFIDF":
            return node.multiply(counts, weights)
        case "IDF":
            return node.where(node.call("greater", counts, 0), weights, np.zeros((), "float32"))
    raise GraphError(f"its mode is {mode!r}; there are TF, IDF and TFIDF")

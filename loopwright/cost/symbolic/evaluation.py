"""Expressions over knob values, evaluated for whole populations in NumPy columns.

All is float64, exact for whole numbers up to 2**53.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from loopwright.cost.symbolic.symbols import Graph, GraphNode, Number, Sym
from loopwright.cost.symbolic.warps import COUNTS

#: Values of all candidates, or the one value that all of them have.
Column = np.ndarray[Any, np.dtype[Any]]


def _quotient(a: Column, b: Column) -> Column:
    # Exact: quotients of whole numbers below 2**53 do not round up to the next whole number.
    quotient: Column = np.floor(np.divide(a, b))
    return quotient


def _remainder(a: Column, b: Column) -> Column:
    remainder: Column = a - _quotient(a, b) * b
    return remainder


_COLUMNS: dict[str, Callable[..., Column]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": _quotient,
    "%": _remainder,
    "/": np.divide,
    "min": np.minimum,
    "max": np.maximum,
    "<": np.less,
    "<=": np.less_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "where": np.where,
    "and": np.logical_and,
    "or": np.logical_or,
    # Of tests, which are 0 or 1: not a, and b; not a, or b.
    "unless": np.less,
    "implies": np.less_equal,
    **COUNTS,
}


#: One operation: where its value goes, what it is (a leaf: None), what it is made of, which rows of
#: the block want it, and which values are not needed after it.
_Step = tuple[int, Callable[..., Column] | None, tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class ColumnProgram:
    """Several expressions, evaluated together.

    Args:
        outputs: what to evaluate; ``len(outputs)`` numbers for each candidate.
        logged: for each output whether ``log2(1 + x)`` of it is wanted.

    Attributes:
        leaves: what the expressions depend on, as (knob, part), in the order of `evaluate`.
    """

    def __init__(self, outputs: Sequence[Number], logged: Sequence[bool]) -> None:
        # The number of a node, or None and a constant. Equal outputs share a row of the block that
        # is evaluated; rows to be logged come first.
        plain: list[tuple[int | None, float, bool]] = [
            (x.number, 0.0, log) if isinstance(x, Sym) else (None, float(x), log)
            for x, log in zip(outputs, logged, strict=True)
        ]
        rows = sorted(dict.fromkeys(plain), key=lambda r: not r[2])
        self._place = np.array([rows.index(r) for r in plain], np.intp)
        self._logs = sum(log for _, _, log in rows)
        self._constants = [(k, x) for k, (node, x, _) in enumerate(rows) if node is None]
        self._height = len(rows)
        self.leaves: list[tuple[int, int]] = []
        self._numbers: dict[tuple[float, bool, bool], int] = {}
        wanted: dict[int, list[int]] = {}
        for k, (node, _, _) in enumerate(rows):
            if node is not None:
                wanted.setdefault(node, []).append(k)
        graph = next((x.graph for x in outputs if isinstance(x, Sym)), Graph())
        self._steps = self._compiled(graph, wanted)

    def _compiled(self, graph: Graph, wanted: Mapping[int, Sequence[int]]) -> list[_Step]:
        """The operations in order; ``wanted`` has the rows of the block that a node goes to."""
        nodes = graph.nodes
        needed = _reachable(nodes, wanted)
        last = {a: n for n in needed for a in _operands(nodes[n])}
        slots = {n: k for k, n in enumerate(needed)}
        steps: list[_Step] = []
        for n in needed:
            op, args = nodes[n]
            dead = tuple(slots[a] for a in set(_operands(nodes[n])) if last[a] == n)
            outs = tuple(wanted.get(n, ()))
            if op == "leaf":
                steps.append((slots[n], None, (len(self.leaves),), outs, ()))
                self.leaves.append(graph.leaves[n])
                continue
            given = tuple(
                len(needed) + self._constant(a[0], op) if isinstance(a, tuple) else slots[a]
                for a in args
            )
            steps.append((slots[n], _COLUMNS[op], given, outs, dead))
        return steps

    def _constant(self, value: float, op: str) -> int:
        """Where a number stands among the constants. What `np.where` chooses from are columns:
        it is twice as fast with them."""
        key = (value, isinstance(value, bool), op == "where")
        return self._numbers.setdefault(key, len(self._numbers))

    def __len__(self) -> int:
        """How many operations are evaluated."""
        return len(self._steps)

    def evaluate(self, columns: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Fill ``out`` with the outputs of n candidates.

        Args:
            columns: float64 (n,) for each of ``leaves``.
            out: float32 (n, outputs).
        """
        values: list[Column | None] = [None] * len(self._steps)
        for number, flag, column in self._numbers:
            constant = np.array(number, np.bool_ if flag else np.float64)
            values.append(np.full(len(out), constant) if column else constant)
        block = _rows(self._height, len(out))
        for row, x in self._constants:
            block[row] = x
        for slot, function, args, wanted, dead in self._steps:
            if function is None:
                value = columns[args[0]]
            elif len(args) == 2:
                value = function(values[args[0]], values[args[1]])
            else:
                value = function(*[values[a] for a in args])
            values[slot] = value
            for row in wanted:
                block[row] = value
            for k in dead:
                values[k] = None
        _take_logarithms(block[: self._logs])
        spread = _rows(len(self._place), len(out))
        spread[:] = block[self._place]
        out[:] = spread.T


def constant_row(numbers: Sequence[float], logged: np.ndarray) -> np.ndarray:
    """What a `ColumnProgram` gives for one candidate of which all is known, float32 (outputs,)."""
    out = np.array(numbers, np.float64).astype(np.float32)
    logs = out[logged]
    _take_logarithms(logs)
    out[logged] = logs
    return out


def _take_logarithms(values: np.ndarray) -> None:
    np.log2(np.add(values, np.float32(1), out=values), out=values)


def _rows(count: int, length: int) -> np.ndarray:
    """Rows of float32 that do not begin a power of two apart: columns of them share few sets."""
    return np.empty((count, length + 16), np.float32)[:, :length]


def _operands(node: GraphNode) -> list[int]:
    """Numbers of the nodes that a node is made of."""
    return [a for a in node[1] if not isinstance(a, tuple)]


def _reachable(nodes: Sequence[GraphNode], wanted: Iterable[int]) -> list[int]:
    """Numbers of nodes that others need, in an order in which they can be computed."""
    needed = set(wanted)
    todo = list(needed)
    while todo:
        operands = set(_operands(nodes[todo.pop()])) - needed
        needed |= operands
        todo += operands
    return sorted(needed)

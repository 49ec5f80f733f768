"""Expressions over knob values, evaluated for whole populations in NumPy columns.

All is float64, exact for whole numbers up to 2**53.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright.cost.symbolic.symbols import Number, Sym


def _quotient(a: Any, b: Any) -> Any:
    # Exact: quotients of whole numbers below 2**53 do not round up to the next whole number.
    return np.floor(np.divide(a, b))


def _remainder(a: Any, b: Any) -> Any:
    return a - _quotient(a, b) * b


_COLUMNS: dict[str, Callable[..., Any]] = {
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
}


#: One operation: where its value goes, what it is (a leaf: None), what it is made of, which rows of
#: the block want it, and which values are not needed after it.
_Step = tuple[int, Callable[..., Any] | None, tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class Program:
    """Several expressions, evaluated together.

    Args:
        outputs: what to evaluate; ``len(outputs)`` numbers for each candidate.
        logged: for each output whether ``log2(1 + x)`` of it is wanted.

    Attributes:
        leaves: what the expressions depend on, as (knob, part), in the order of `evaluate`.
    """

    def __init__(self, outputs: Sequence[Number], logged: Sequence[bool]) -> None:
        plain: list[tuple[bool, Any, bool]] = [
            (isinstance(x, Sym), x.number if isinstance(x, Sym) else float(x), log)
            for x, log in zip(outputs, logged, strict=True)
        ]
        # Equal outputs share a row of the block that is evaluated; rows to be logged come first.
        rows = sorted(dict.fromkeys(plain), key=lambda r: not r[2])
        self._place = np.array([rows.index(r) for r in plain], np.intp)
        self._logs = sum(log for _, _, log in rows)
        self._constants = [(k, x) for k, (symbol, x, _) in enumerate(rows) if not symbol]
        self._height = len(rows)
        graphs = [x.graph for x in outputs if isinstance(x, Sym)]
        nodes = graphs[0].nodes if graphs else []
        self.leaves: list[tuple[int, int]] = []
        self._numbers: dict[tuple[float, bool, bool], int] = {}
        self._steps = self._compiled(
            nodes, [(k, x) for k, (symbol, x, _) in enumerate(rows) if symbol]
        )

    def _compiled(self, nodes: Sequence[Any], rows: Sequence[tuple[int, int]]) -> list[_Step]:
        wanted: dict[int, list[int]] = {}
        for k, number in rows:
            wanted.setdefault(number, []).append(k)
        needed = _reachable(nodes, set(wanted))
        last = {a: n for n in needed if nodes[n][0] != "leaf" for a in _operands(nodes[n])}
        slots = {n: k for k, n in enumerate(needed)}
        steps: list[_Step] = []
        for n in needed:
            op, args = nodes[n]
            dead = tuple(slots[a] for a in set(_operands(nodes[n])) if last[a] == n)
            outs = tuple(wanted.get(n, ()))
            if op == "leaf":
                steps.append((slots[n], None, (len(self.leaves),), outs, ()))
                self.leaves.append((args[0][0], args[1][0]))
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
        values: list[Any] = [None] * len(self._steps)
        for number, flag, column in self._numbers:
            made = np.array(number, np.bool_ if flag else np.float64)
            values.append(np.full(len(out), made) if column else made)
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
    """What a `Program` gives for one candidate whose numbers are all known, float32 (outputs,)."""
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


def _operands(node: Any) -> list[int]:
    op, args = node
    return [] if op == "leaf" else [a for a in args if not isinstance(a, tuple)]


def _reachable(nodes: Sequence[Any], wanted: set[int]) -> list[int]:
    """Numbers of nodes that others need, in an order in which they can be computed."""
    found, todo = set(wanted), list(wanted)
    while todo:
        for a in _operands(nodes[todo.pop()]):
            if a not in found:
                found.add(a)
                todo.append(a)
    return sorted(found)

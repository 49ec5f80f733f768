"""Expressions over knob values, evaluated for whole populations in NumPy columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.cost.symbolic.symbols import Graph, GraphNode, NodeOperand, Number, Sym
from loopwright.cost.symbolic.warps import COUNTS, KnownCounts
from loopwright.task import Digits

#: The values of a part of a knob in each of its candidates, by the numbers of both.
Choices = Callable[[int, int], npt.NDArray[np.float64]]
MOST = 2048  #: candidates of a knob beyond which its expressions are not tabulated


# Expressions of a single knob, a third of all, are tabulated: a knob has tens of candidates where a
# population has thousands.


class KnobTables:
    """Columns of the expressions that a population's programs begin with."""

    def __init__(
        self, nodes: Mapping[int, GraphNode], wanted: Collection[int], choices: Choices
    ) -> None:
        needed = reachable(nodes, wanted)
        knob = _single_knobs(nodes, needed, choices)
        border: set[NodeOperand] = set(wanted)
        for n in needed:
            if n not in knob:
                border.update(nodes[n][1])  # constants are none of the needed nodes
        #: Nodes that are looked up, in the order of `columns`; all wanted ones follow from them.
        self.given = [n for n in needed if n in knob and n in border]
        values: dict[int, Column] = {}
        for n in reachable(nodes, self.given):
            op, args = nodes[n]
            if op == "leaf":
                values[n] = choices(*_leaf(args))
            else:
                numbers = (a[0] if isinstance(a, tuple) else values[a] for a in args)
                values[n] = COLUMNS[op](*numbers)
        self._tables: list[tuple[int, list[int], Column]] = []
        tables: dict[tuple[int, np.dtype[Any]], list[int]] = {}
        for k, n in enumerate(self.given):
            tables.setdefault((knob[n], values[n].dtype), []).append(k)
        for (number, _), places in tables.items():
            table = np.array([values[self.given[k]] for k in places])
            self._tables.append((number, places, table))

    def columns(self, digits: Digits) -> list[Column]:
        """Columns of ``given`` for candidates (n, knobs)."""
        out: list[Column] = [np.empty(0)] * len(self.given)
        for knob, places, table in self._tables:
            for place, column in zip(places, table.take(digits[:, knob], axis=1), strict=True):
                out[place] = column
        return out


def _single_knobs(
    nodes: Mapping[int, GraphNode], needed: Sequence[int], choices: Choices
) -> dict[int, int]:
    """Knob of each node that depends on no other, for knobs that are not too large."""
    out: dict[int, int] = {}
    large: set[int] = set()
    for n in needed:
        op, args = nodes[n]
        if op == "leaf":
            out[n] = knob = _leaf(args)[0]
            if len(choices(knob, 0)) > MOST:
                large.add(n)
            continue
        single = -1
        for a in args:
            if type(a) is int:
                knob = out.get(a, -1)
                if knob < 0 or a in large or (single >= 0 and knob != single):
                    break
                single = knob
        else:
            if op in COLUMNS:
                out[n] = single
    return out


def _leaf(args: tuple[NodeOperand, ...]) -> tuple[int, int]:
    (knob,), (part,) = (a if isinstance(a, tuple) else (a,) for a in args)
    return int(knob), int(part)


#: Values of all candidates, or the one value that all of them have.
Column = np.ndarray[Any, np.dtype[Any]]


# All is float64, exact for whole numbers up to 2**53; tests are bools.


def _quotient(a: Column, b: Column) -> Column:
    # Exact: quotients of whole numbers below 2**53 do not round up to the next whole number.
    quotient: Column = np.floor(np.divide(a, b))
    return quotient


#: Operations that look at each candidate alone.
COLUMNS: dict[str, Callable[..., Column]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": _quotient,
    "ceil": lambda a, b: np.ceil(np.divide(a, b)),  # exact in the same way
    "%": lambda a, b: a - _quotient(a, b) * b,
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
    # For tests, which are 0 or 1: not a, and b; not a, or b.
    "unless": np.less,
    "implies": np.less_equal,
}


def operands(node: GraphNode) -> list[int]:
    return [a for a in node[1] if not isinstance(a, tuple)]


def reachable(
    nodes: Mapping[int, GraphNode], wanted: Iterable[int], inputs: Collection[int] = ()
) -> list[int]:
    """Nodes for the wanted ones, in an order of computation, without operands of ``inputs``."""
    needed = set(wanted)
    todo = list(needed)
    while todo:
        n = todo.pop()
        if n in inputs:
            continue
        # Written out: this loop sees each operand of a graph of tens of thousands of nodes.
        for a in nodes[n][1]:
            if type(a) is int and a not in needed:
                needed.add(a)
                todo.append(a)
    return sorted(needed)


#: One operation: its function, the register of its value, and those of its operands: two, or any
#: number in a tuple, and None. Without a function: the row of the block for a value, and the
#: register of the value.
_Step = tuple[Callable[..., Any] | None, int, Any, int | None]


class ColumnProgram:
    """Several expressions, evaluated together.

    With ``choices``, the values of knobs, parts that depend on one knob alone are looked up;
    ``counts`` has those of warps from earlier programs of the same population.
    """

    def __init__(
        self,
        outputs: Sequence[Number],
        logged: Sequence[bool],
        choices: Choices | None = None,
        counts: KnownCounts | None = None,
    ) -> None:
        # The number of a node, or None and a constant. Equal outputs share a row of the block that
        # is evaluated; rows to be logged come first.
        plain: list[tuple[int | None, float, bool]] = [
            (x.number, 0.0, log) if isinstance(x, Sym) else (None, float(x), log)
            for x, log in zip(outputs, logged, strict=True)
        ]
        rows = sorted(dict.fromkeys(plain), key=lambda r: not r[2])
        self._place = np.array([rows.index(r) for r in plain], np.intp)
        self._logs = sum(log for _, _, log in rows)
        self._plain = [(k, x) for k, (node, x, _) in enumerate(rows) if node is None]
        self._height = len(rows)
        self._constants: dict[tuple[float, bool, bool], int] = {}
        wanted: dict[int, list[int]] = {}
        for k, (node, _, _) in enumerate(rows):
            if node is not None:
                wanted.setdefault(node, []).append(k)
        self._known = KnownCounts() if counts is None else counts
        graph = next((x.graph for x in outputs if isinstance(x, Sym)), Graph())
        nodes = dict(enumerate(graph.nodes))
        self._tables = None if choices is None else KnobTables(nodes, wanted, choices)
        needed = [n for n in reachable(nodes, wanted) if n in graph.leaves]
        inputs = needed if self._tables is None else self._tables.given
        #: Leaves of the expressions as (knob, part), in the order of `evaluate`; unused with
        #: ``choices``.
        self.leaves = [graph.leaves[n] for n in needed]
        self._steps = self._compiled(nodes, wanted, inputs)
        numbers = [
            (np.array(x, np.bool_ if flag else np.float64), whole)
            for x, flag, whole in self._constants
        ]
        self._numbers = numbers[::-1]

    def _compiled(
        self,
        nodes: dict[int, GraphNode],
        wanted: Mapping[int, Sequence[int]],
        inputs: Sequence[int],
    ) -> list[_Step]:
        """Operations in order; ``wanted`` maps nodes to rows of the block, ``inputs`` are known."""
        places = {n: k for k, n in enumerate(inputs)}
        needed = self._together(nodes, reachable(nodes, wanted, places), places)
        computed = [n for n in needed if n not in places]
        last: dict[NodeOperand, int] = {}  # use of each operand
        for n in computed:
            for a in nodes[n][1]:
                last[a] = n
        free, steps = list[int](), list[_Step]()
        self._places = len(places)
        for n in needed:
            if n not in places:
                op, args = nodes[n]
                # Constants stand behind everything else, counted from the end.
                made_of = [
                    -1 - self._constant(a[0], op) if isinstance(a, tuple) else places[a]
                    for a in args
                ]
                for k, (a, place) in enumerate(zip(args, made_of, strict=True)):
                    if place >= 0 and last[a] == n and a not in args[:k]:
                        free.append(place)
                if not free:  # a new register
                    free.append(self._places)
                    self._places += 1
                places[n] = free.pop()
                two = len(made_of) == 2
                steps.append(
                    (self._functions[op], places[n], *(made_of if two else (made_of, None)))
                )
            if n in wanted:
                steps += [(None, row, places[n], None) for row in wanted[n]]
            if n not in last:
                free.append(places[n])
        return steps

    def _together(
        self, nodes: dict[int, GraphNode], needed: Sequence[int], inputs: Collection[int]
    ) -> list[int]:
        """The nodes in an order in which one operation counts the accesses of all warps: that costs
        by the call, and no count depends on another one."""
        self._functions = dict(COLUMNS)
        counted = [n for n in needed if nodes[n][0] in COUNTS]
        if not counted:
            return list(needed)
        args = [nodes[n][1] for n in counted]
        before = reachable(nodes, {a for n in counted for a in operands(nodes[n])}, inputs)
        ends = [0, *accumulate(map(len, args))]
        parts = [(nodes[n][0], slice(*ends[k : k + 2])) for k, n in enumerate(counted)]
        counts = self._known

        def count(*columns: Column) -> Column:
            values: Column = counts.columns([(op, columns[part]) for op, part in parts])
            return values

        everything = len(nodes)
        nodes[everything] = ("counts", tuple(a for each in args for a in each))
        self._functions["counts"] = count
        for k, n in enumerate(counted):
            nodes[n] = (f"count {k}", (everything,))
            self._functions[f"count {k}"] = itemgetter(k)
        after = [n for n in needed if n not in {*before, *counted}]
        return [*before, everything, *counted, *after]

    def _constant(self, value: float, op: str) -> int:
        """Index of a number among constants; `np.where` is twice as fast with columns."""
        key = (value, isinstance(value, bool), op == "where")
        return self._constants.setdefault(key, len(self._constants))

    def columns(self, digits: Digits) -> list[Column]:
        """Inputs of `evaluate` for candidates, int64 (n, knobs), the positions of choices."""
        assert self._tables is not None
        return self._tables.columns(digits)

    def __len__(self) -> int:
        return sum(function is not None for function, *_ in self._steps)

    def evaluate(self, columns: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Fill ``out``, float32 (n, outputs), from `columns`, or float64 (n,) for each leaf."""
        values: list[Any] = [*columns, *[None] * (self._places - len(columns))]
        values += [np.full(len(out), x) if whole else x for x, whole in self._numbers]
        # The distance of rows is no power of two: columns of those share few cache sets.
        block = np.empty((self._height, len(out) + 16), np.float32)[:, : len(out)]
        for row, number in self._plain:
            block[row] = number
        for function, place, a, b in self._steps:
            if function is None:
                block[place] = values[a]
            elif b is not None:
                values[place] = function(values[a], values[b])
            else:
                values[place] = function(*[values[k] for k in a])
        _take_logarithms(block[: self._logs])
        # Copies of columns are made once each candidate's numbers stand side by side. Places are
        # right: "clip" only lets them be written without a buffer.
        np.take(np.ascontiguousarray(block.T), self._place, axis=1, out=out, mode="clip")


def constant_row(numbers: Sequence[float], logged: np.ndarray) -> np.ndarray:
    """Output of a `ColumnProgram` for one candidate without unknowns, float32 (outputs,)."""
    out = np.array(numbers, np.float64).astype(np.float32)
    logs = out[logged]
    _take_logarithms(logs)
    out[logged] = logs
    return out


def _take_logarithms(values: np.ndarray) -> None:
    np.log2(np.add(values, np.float32(1), out=values), out=values)

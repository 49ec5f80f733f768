"""Arithmetic that is the same for numbers and for columns of them.

A `Sym` is an expression over knob values of candidates that are not chosen yet. What is computed
from ints here gives numbers; what is computed from a `Sym` gives a `Sym`, of which each part is
made once (a table of the graph finds it again). `Program` evaluates expressions for a whole
population at once, in float64, exact up to 2**53.

Functions never branch on a value: that is what makes one derivation right for every candidate.
Whoever does branch (a template that tests a tile size) raises `DataDependent`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from loopwright.ir.expr import Expr, IterVar, binary
from loopwright.ir.symbol import Symbol

#: An int, a float, or a `Sym`.
Number = Any
Interval = tuple[float, float]
_INF = math.inf


class DataDependent(Exception):
    """A value was asked for that differs between the candidates of a population.

    Attributes:
        knobs: numbers of the knobs that it depends on.
    """

    def __init__(self, knobs: frozenset[int]) -> None:
        super().__init__(f"depends on the values of knobs {sorted(knobs)}")
        self.knobs = knobs


class Graph:
    """Expressions over the values of knobs, each made once.

    Attributes:
        asked: knobs whose values were asked for, whether or not the exception came through.
    """

    def __init__(self) -> None:
        self.nodes: list[tuple[str, tuple[Any, ...]]] = []
        self.asked: set[int] = set()
        self._known: dict[tuple[Any, ...], Sym] = {}

    def leaf(self, knob: int, part: int, values: Iterable[int]) -> Number:
        """Part ``part`` of what knob number ``knob`` chooses, where ``values`` are all there are.

        A part that has one value is that value.
        """
        values = list(values)
        lo, hi = min(values), max(values)
        if lo == hi:
            return lo
        return self._make("leaf", (knob, part), (lo, hi), frozenset((knob,)))

    def apply(self, op: str, args: tuple[Number, ...]) -> Number:
        """An operation on at least one `Sym`."""
        bounds = _bounds(op, args)
        if bounds[0] == bounds[1] and math.isfinite(bounds[0]):
            return _plain(bounds[0], op)
        knobs = frozenset().union(*(a.knobs for a in args if isinstance(a, Sym)))
        return self._make(op, args, bounds, knobs)

    def _make(self, op: str, args: tuple[Any, ...], bounds: Interval, knobs: frozenset[int]) -> Sym:
        key = (op, *((a.number, "") if isinstance(a, Sym) else a for a in args))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Sym(self, len(self.nodes), bounds, knobs)
            self.nodes.append((op, tuple(a.number if isinstance(a, Sym) else (a,) for a in args)))
        return found


def _plain(value: float, op: str) -> Number:
    if op in _TESTS:
        return bool(value)
    return int(value) if op != "/" and value == int(value) else value


class Sym(Symbol):
    """An expression; see the text of this module.

    Attributes:
        number: which node of its graph it is.
        bounds: least and largest value that it may take.
        knobs: numbers of the knobs that it depends on.
    """

    __slots__ = ("bounds", "graph", "knobs", "number")

    def __init__(self, graph: Graph, number: int, bounds: Interval, knobs: frozenset[int]) -> None:
        self.graph, self.number, self.bounds, self.knobs = graph, number, bounds, knobs

    def __repr__(self) -> str:
        return f"<sym {self.number} in {self.bounds}>"

    def at_most(self, n: Number) -> Number:
        """The smaller of it and ``n``."""
        return least(self, n)

    def _ask(self) -> DataDependent:
        self.graph.asked |= self.knobs
        return DataDependent(self.knobs)

    def __bool__(self) -> bool:
        if self.bounds[0] > 0:
            return True
        raise self._ask()

    def __int__(self) -> int:
        raise self._ask()

    def __index__(self) -> int:
        raise self._ask()

    def __float__(self) -> float:
        raise self._ask()

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Any:
        return self

    def __hash__(self) -> int:
        return hash(("sym", self.number))

    def __eq__(self, other: object) -> Any:
        return True if self is other else _operation("==", self, other)

    def __ne__(self, other: object) -> Any:
        return False if self is other else _operation("!=", self, other)

    def __lt__(self, other: Any) -> Any:
        return _operation("<", self, other)

    def __le__(self, other: Any) -> Any:
        return _operation("<=", self, other)

    def __gt__(self, other: Any) -> Any:
        return _operation("<", other, self)

    def __ge__(self, other: Any) -> Any:
        return _operation("<=", other, self)

    def __add__(self, other: Any) -> Any:
        return _operation("+", self, other)

    def __radd__(self, other: Any) -> Any:
        return _operation("+", other, self)

    def __sub__(self, other: Any) -> Any:
        return _operation("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _operation("-", other, self)

    def __mul__(self, other: Any) -> Any:
        return _operation("*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _operation("*", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _operation("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _operation("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return _operation("%", self, other)

    def __rmod__(self, other: Any) -> Any:
        return _operation("%", other, self)

    def __truediv__(self, other: Any) -> Any:
        return _operation("/", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _operation("/", other, self)


_TESTS = ("<", "<=", "==", "!=")
_FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "/": operator.truediv,
    "min": min,
    "max": max,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


def _operation(op: str, a: Any, b: Any) -> Any:
    """An operator that a template, or this package, writes down."""
    for x in (a, b):
        if isinstance(x, Expr | IterVar) and not isinstance(x, Sym):
            return binary(op, a, b)
    if not isinstance(a, Sym | int | float | np.number) or not isinstance(
        b, Sym | int | float | np.number
    ):
        return NotImplemented
    return _apply(op, a, b)


def _apply(op: str, a: Number, b: Number) -> Number:
    graph = a.graph if isinstance(a, Sym) else b.graph if isinstance(b, Sym) else None
    if graph is None:
        return _FOLD[op](a, b)
    short = _simple(op, a, b)
    return graph.apply(op, (a, b)) if short is None else short


def _simple(op: str, a: Number, b: Number) -> Number | None:
    """What an operation is without computing it, or None."""
    if op in ("+", "-") and not isinstance(b, Sym) and b == 0:
        return a
    if op == "+" and not isinstance(a, Sym) and a == 0:
        return b
    if op in ("*", "//", "/") and not isinstance(b, Sym) and b == 1:
        return a
    if op == "*" and not isinstance(a, Sym):
        return 0 if a == 0 else b if a == 1 else None
    if op == "*" and not isinstance(b, Sym) and b == 0:
        return 0
    if op in ("min", "max"):
        if a is b:
            return a
        (alo, ahi), (blo, bhi) = _interval(a), _interval(b)
        if ahi <= blo:
            return a if op == "min" else b
        if bhi <= alo:
            return b if op == "min" else a
    return None


def _interval(x: Number) -> Interval:
    return x.bounds if isinstance(x, Sym) else (x, x)


def _bounds(op: str, args: tuple[Number, ...]) -> Interval:
    """Bounds of an operation from those of its operands; a test gives 0 or 1."""
    if op == "where":
        (_, _), (alo, ahi), (blo, bhi) = map(_interval, args)
        return min(alo, blo), max(ahi, bhi)
    (alo, ahi), (blo, bhi) = map(_interval, args)
    match op:
        case "+":
            return alo + blo, ahi + bhi
        case "-":
            return alo - bhi, ahi - blo
        case "*":
            return _hull([x * y for x in (alo, ahi) for y in (blo, bhi)])
        case "//" if blo > 0:
            return _hull([x // y for x in (alo, ahi) for y in (blo, bhi)])
        case "/" if blo > 0:
            return _hull([x / y for x in (alo, ahi) for y in (blo, bhi)])
        case "%" if blo > 0:
            return 0, bhi - 1
        case "min":
            return min(alo, blo), min(ahi, bhi)
        case "max":
            return max(alo, blo), max(ahi, bhi)
        case "<":
            return (1, 1) if ahi < blo else (0, 0) if alo >= bhi else (0, 1)
        case "<=":
            return (1, 1) if ahi <= blo else (0, 0) if alo > bhi else (0, 1)
        case "==" | "!=" if ahi < blo or bhi < alo:
            return (0, 0) if op == "==" else (1, 1)
        case "==" | "!=" | "and" | "or" | "unless" | "implies":
            return 0, 1
    return -_INF, _INF


def _hull(ends: Sequence[float]) -> Interval:
    """The interval of its ends; everything where one is unknown (0 times infinity)."""
    if any(x != x for x in ends):
        return -_INF, _INF
    return min(ends), max(ends)


def least(a: Number, b: Number) -> Number:
    """The smaller of two numbers."""
    if type(a) is int and type(b) is int:
        return a if a <= b else b
    return _apply("min", a, b)


def most(a: Number, b: Number) -> Number:
    """The larger of two numbers."""
    if type(a) is int and type(b) is int:
        return a if a >= b else b
    return _apply("max", a, b)


def ceil_div(a: Number, b: Number) -> Number:
    """``ceil(a / b)`` of whole numbers, b positive."""
    return a if not isinstance(b, Sym) and b == 1 else (a + (b - 1)) // b


def product(values: Iterable[Number]) -> Number:
    """The product of numbers."""
    out: Number = 1
    for v in values:
        out = out * v
    return out


def total(values: Iterable[Number]) -> Number:
    """The sum of numbers, added in order."""
    out: Number = 0
    for v in values:
        out = out + v
    return out


def where(test: Number, a: Number, b: Number) -> Number:
    """``a`` where a test holds, else ``b``. Where one is a bool, the other is a test or a bool."""
    if test is True or test is False:
        return a if test else b
    if not isinstance(test, Sym):
        return a if test else b
    if a is b or (not isinstance(a, Sym) and not isinstance(b, Sym) and a == b):
        return a
    if isinstance(a, bool):
        if a and b is False:
            return test
        return test.graph.apply("or" if a else "unless", (test, b))
    if isinstance(b, bool):
        return test.graph.apply("implies" if b else "and", (test, a))
    return test.graph.apply("where", (test, a, b))


def at_most(a: Number, b: Number) -> Number:
    """The test ``a <= b``."""
    if type(a) is int and type(b) is int:
        return a <= b
    return _apply("<=", a, b)


def magnitude(a: Number) -> Number:
    """The absolute value."""
    if not isinstance(a, Sym):
        return abs(a)
    return a if a.bounds[0] >= 0 else most(a, a * -1)


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

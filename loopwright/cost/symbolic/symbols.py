"""Arithmetic that is the same for numbers and for columns of them.

A `Sym` is an expression over knob values of candidates that are not chosen yet. What is computed
from ints here gives numbers; what is computed from a `Sym` gives a `Sym`, of which each part is
made once (a table of the graph finds it again). `loopwright.cost.symbolic.evaluation` evaluates
expressions for a whole population.

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

#: Least and largest value that an expression may take.
ValueRange = tuple[float, float]
#: An operand of a node: the number of another node, or a constant, in a tuple.
NodeOperand = int | tuple[float]
#: An operation and its operands; a leaf has its knob and its part, in a tuple each.
GraphNode = tuple[str, tuple[NodeOperand, ...]]
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
        nodes: the expressions; an operand stands before what is made of it.
        leaves: for each node that is a leaf the number of its knob, and of the part of it.
        asked: knobs whose values were asked for, whether or not the exception came through.
    """

    def __init__(self) -> None:
        self.nodes: list[GraphNode] = []
        self.leaves: dict[int, tuple[int, int]] = {}
        self.asked: set[int] = set()
        self._leaves: dict[tuple[int, int], Sym] = {}
        self._table: dict[object, Number] = {}

    def leaf(self, knob: int, part: int, values: Iterable[int]) -> int | Sym:
        """Part ``part`` of what knob number ``knob`` chooses, where ``values`` are all there are.

        A part that has one value is that value.
        """
        values = list(values)
        lo, hi = min(values), max(values)
        if lo == hi:
            return lo
        sym = self._leaves.get((knob, part))
        if sym is None:
            sym = self._add("leaf", ((knob,), (part,)), (lo, hi), frozenset((knob,)))
            self._leaves[knob, part] = sym
            self.leaves[sym.number] = (knob, part)
        return sym

    def apply(self, op: str, args: tuple[Number, ...]) -> Number:
        """An operation on at least one `Sym`."""
        key = (op, *[(a.number,) if isinstance(a, Sym) else a for a in args])
        known = self._table.get(key)
        if known is None:
            known = self._table[key] = self._new(op, args)
        return known

    def forget(self) -> None:
        """Let go of the expressions, so that they end as soon as nobody holds them: they know their
        graph, and a collector of cycles would have to find them."""
        self._table.clear()
        self._leaves.clear()

    def _new(self, op: str, args: tuple[Number, ...]) -> Number:
        bounds = _bounds(op, args)
        if bounds[0] == bounds[1] and math.isfinite(bounds[0]):
            return _plain(bounds[0], op)
        operands: list[NodeOperand] = []
        knobs: frozenset[int] = frozenset()
        for a in args:
            if isinstance(a, Sym):
                operands.append(a.number)
                # Most are made of the same knobs: one set serves them all.
                knobs = a.knobs if knobs <= a.knobs else knobs | a.knobs
            else:
                operands.append((a,))
        return self._add(op, tuple(operands), bounds, knobs)

    def _add(
        self, op: str, operands: tuple[NodeOperand, ...], bounds: ValueRange, knobs: frozenset[int]
    ) -> Sym:
        self.nodes.append((op, operands))
        return Sym(self, len(self.nodes) - 1, bounds, knobs)


def _plain(value: float, op: str) -> Number:
    if op in _TESTS:
        return bool(value)
    return int(value) if op != "/" and value == int(value) else value


_Method = Callable[["Sym", "Number"], "Number"]


def _operators(op: str) -> tuple[_Method, _Method]:
    """The method of an operator, and the one for the operand on the right."""
    return lambda a, b: _operation(op, a, b), lambda a, b: _operation(op, b, a)


class Sym(Symbol):
    """An expression; see the text of this module.

    Attributes:
        number: which node of its graph it is.
        bounds: least and largest value that it may take.
        knobs: numbers of the knobs that it depends on.
    """

    __slots__ = ("bounds", "graph", "knobs", "number")

    def __init__(
        self, graph: Graph, number: int, bounds: ValueRange, knobs: frozenset[int]
    ) -> None:
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

    def __neg__(self) -> Number:  # type: ignore[override]
        return self * -1

    def __pos__(self) -> Sym:
        return self

    def __hash__(self) -> int:
        return hash(("sym", self.number))

    # With other numbers these give numbers, where those of `Expr` give expressions. Comparisons
    # are tests, which are 0 or 1 once the candidate is known.
    __add__, __radd__ = _operators("+")  # type: ignore[assignment]
    __sub__, __rsub__ = _operators("-")  # type: ignore[assignment]
    __mul__, __rmul__ = _operators("*")  # type: ignore[assignment]
    __floordiv__, __rfloordiv__ = _operators("//")  # type: ignore[assignment]
    __mod__, __rmod__ = _operators("%")  # type: ignore[assignment]
    __truediv__, __rtruediv__ = _operators("/")  # type: ignore[assignment]
    __lt__, __gt__ = _operators("<")  # type: ignore[assignment]
    __le__, __ge__ = _operators("<=")  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any:
        return True if self is other else _operation("==", self, other)

    def __ne__(self, other: object) -> Any:
        return False if self is other else _operation("!=", self, other)


#: What is computed with: a number, or an expression for the numbers of many candidates.
Number = int | float | Sym


_NUMBERS = (Sym, int, float, np.number)
_TESTS = ("<", "<=", "==", "!=")
_FOLD: dict[str, Callable[[Number, Number], Number]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "ceil": lambda a, b: -(-a // b),
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
    numbers = isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS)
    if numbers:
        return _apply(op, a, b)
    for x in (a, b):
        if isinstance(x, Expr | IterVar) and not isinstance(x, Sym):
            return binary(op, a, b)
    return NotImplemented


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
    if op in ("*", "//", "ceil", "/") and not isinstance(b, Sym) and b == 1:
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


def with_leaves(symbol: Sym, leaf: Callable[[int], Any]) -> Any:
    """An expression with other values, or symbols of another graph, for its leaves.

    Args:
        symbol: what to compute; made by the operators of `Sym`, `least`, `most` and `ceil_div`.
        leaf: the value of the leaf with this number.
    """
    nodes, known = symbol.graph.nodes, {}  # type: list[GraphNode], dict[int, Any]

    def value(operand: NodeOperand) -> Any:
        if isinstance(operand, tuple):
            return operand[0]
        if operand not in known:
            op, operands = nodes[operand]
            if op == "leaf":
                known[operand] = leaf(operand)
            else:
                a, b = map(value, operands)
                known[operand] = _apply(op, a, b)
        return known[operand]

    return value(symbol.number)


def _interval(x: Number) -> ValueRange:
    return x.bounds if isinstance(x, Sym) else (x, x)


def _bounds(op: str, args: tuple[Number, ...]) -> ValueRange:
    """Bounds of an operation from those of its operands; a test gives 0 or 1."""
    if op in ("sectors", "wavefronts"):  # `loopwright.cost.symbolic.warps`
        return 1, _INF
    if op == "where":
        (_, _), (alo, ahi), (blo, bhi) = map(_interval, args)
        return min(alo, blo), max(ahi, bhi)
    (alo, ahi), (blo, bhi) = map(_interval, args)
    match op:
        case "+":
            return alo + blo, ahi + bhi
        case "-":
            return alo - bhi, ahi - blo
        case "*" if alo >= 0 and blo >= 0 and ahi < _INF and bhi < _INF:
            return alo * blo, ahi * bhi  # nearly all are such
        case "*":
            return _hull([x * y for x in (alo, ahi) for y in (blo, bhi)])
        case "//" if blo > 0:
            return _hull([x // y for x in (alo, ahi) for y in (blo, bhi)])
        case "ceil" if blo > 0:
            return _hull([-(-x // y) for x in (alo, ahi) for y in (blo, bhi)])
        case "/" if blo > 0 and alo >= 0 and ahi < _INF and bhi < _INF:
            return alo / bhi, ahi / blo
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


def _hull(ends: Sequence[float]) -> ValueRange:
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
    return _apply("ceil", a, b)


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

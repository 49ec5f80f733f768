"""Arithmetic that is the same for numbers and for columns of them.

A `Sym` is an expression over knob values of candidates that are not chosen yet. Operations on ints
give numbers; operations on a `Sym` give a `Sym`, made once, which `evaluation` computes for a whole
population. Functions never branch on a value: that makes one derivation right for every candidate.
A template that does branch (on a tile size) raises `DataDependent`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import numpy as np

from loopwright.ir.expr import Expr, IterVar, binary
from loopwright.ir.sizes import Symbol

ValueRange = tuple[float, float]  #: least and largest value that an expression may take
_INF = math.inf
_EVERYTHING: ValueRange = (-_INF, _INF)


def _hull(ends: Sequence[float]) -> ValueRange:
    """Interval of its ends; everything where one is unknown (0 times infinity)."""
    return _EVERYTHING if any(x != x for x in ends) else (min(ends), max(ends))


def _product(alo: float, ahi: float, blo: float, bhi: float) -> ValueRange:
    if alo >= 0 and blo >= 0 and ahi < _INF and bhi < _INF:
        return alo * blo, ahi * bhi  # nearly all are such
    return _hull([x * y for x in (alo, ahi) for y in (blo, bhi)])


def _floor(alo: float, ahi: float, blo: float, bhi: float) -> ValueRange:
    return _hull([x // y for x in (alo, ahi) for y in (blo, bhi)]) if blo > 0 else _EVERYTHING


def _ceil(alo: float, ahi: float, blo: float, bhi: float) -> ValueRange:
    return _hull([-(-x // y) for x in (alo, ahi) for y in (blo, bhi)]) if blo > 0 else _EVERYTHING


def _quotient(alo: float, ahi: float, blo: float, bhi: float) -> ValueRange:
    if blo <= 0:
        return _EVERYTHING
    if alo >= 0 and ahi < _INF and bhi < _INF:
        return alo / bhi, ahi / blo
    return _hull([x / y for x in (alo, ahi) for y in (blo, bhi)])


#: Bounds of an operation from the least and largest value of both operands.
RANGES: dict[str, Callable[[float, float, float, float], ValueRange]] = {
    "+": lambda alo, ahi, blo, bhi: (alo + blo, ahi + bhi),
    "-": lambda alo, ahi, blo, bhi: (alo - bhi, ahi - blo),
    "*": _product,
    "//": _floor,
    "ceil": _ceil,
    "/": _quotient,
    "%": lambda _alo, _ahi, blo, bhi: (0, bhi - 1) if blo > 0 else _EVERYTHING,
    "min": lambda alo, ahi, blo, bhi: (min(alo, blo), min(ahi, bhi)),
    "max": lambda alo, ahi, blo, bhi: (max(alo, blo), max(ahi, bhi)),
    "<": lambda alo, ahi, blo, bhi: (1, 1) if ahi < blo else (0, 0) if alo >= bhi else (0, 1),
    "<=": lambda alo, ahi, blo, bhi: (1, 1) if ahi <= blo else (0, 0) if alo > bhi else (0, 1),
    "==": lambda alo, ahi, blo, bhi: (0, 0) if ahi < blo or bhi < alo else (0, 1),
    "!=": lambda alo, ahi, blo, bhi: (1, 1) if ahi < blo or bhi < alo else (0, 1),
}


#: An operand of a node: the number of another node, or a constant, in a tuple.
NodeOperand = int | tuple[float]
#: An operation and its operands; a leaf has its knob and its part, in a tuple each.
GraphNode = tuple[str, tuple[NodeOperand, ...]]


class DataDependent(Exception):
    """Use of a value that differs between candidates of a population, by these ``knobs``."""

    def __init__(self, knobs: frozenset[int]) -> None:
        super().__init__(f"depends on the values of knobs {sorted(knobs)}")
        self.knobs = knobs


class Graph:
    def __init__(self) -> None:
        self.nodes: list[GraphNode] = []  # an operand stands before its uses
        #: for each node that is a leaf, the number of its knob and of the part of it
        self.leaves: dict[int, tuple[int, int]] = {}
        #: knobs whose values were read, even where the exception was swallowed
        self.asked: set[int] = set()
        self._leaves: dict[tuple[int, int], Sym] = {}
        self._table: dict[object, Number] = {}

    def leaf(self, knob: int, part: int, values: Iterable[int]) -> int | Sym:
        """Part of a knob's choice, one of ``values``; a single value is returned itself."""
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
        """Apply an operation to operands, at least one of them a `Sym`."""
        key = (op, *[a.key if type(a) is Sym else a for a in args])
        known = self._table.get(key)
        if known is None:
            known = self._table[key] = self._new(op, args)
        return known

    def apply_to_two(self, op: str, a: Number, b: Number) -> Number:
        """Apply an arithmetic operation to two operands, the usual case."""
        key = (op, a.key if type(a) is Sym else a, b.key if type(b) is Sym else b)
        known = self._table.get(key)
        if known is None:
            known = self._table[key] = self._new_of_two(op, a, b)
        return known

    def forget(self) -> None:
        """Drop the expressions, which refer to their graph: no cycle collector is needed then."""
        self._table.clear()
        self._leaves.clear()

    # Thousands of nodes are made for a structure: this is written out, without calls for each part.
    def _new_of_two(self, op: str, a: Number, b: Number) -> Number:
        knobs = _NO_KNOBS
        left: NodeOperand
        right: NodeOperand
        if type(a) is Sym:
            (alo, ahi), left, knobs = a.bounds, a.number, a.knobs
        else:
            alo = ahi = a
            left = (alo,)
        if type(b) is Sym:
            (blo, bhi), right = b.bounds, b.number
            if b.knobs is not knobs:
                knobs = b.knobs if knobs <= b.knobs else knobs | b.knobs
        else:
            blo = bhi = b
            right = (blo,)
        simple = _SIMPLE.get(op)
        short = None if simple is None else simple(a, b, alo, ahi, blo, bhi)
        if short is not None:
            return short
        bounds = RANGES[op](alo, ahi, blo, bhi)
        if bounds[0] == bounds[1] and math.isfinite(bounds[0]):
            return _plain(bounds[0], op)
        return self._add(op, (left, right), bounds, knobs)

    def _new(self, op: str, args: tuple[Number, ...]) -> Number:
        bounds = _bounds(op, args)
        if bounds[0] == bounds[1] and math.isfinite(bounds[0]):
            return _plain(bounds[0], op)
        operands: list[NodeOperand] = []
        knobs = _NO_KNOBS
        for a in args:
            if type(a) is Sym:
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


_NO_KNOBS: frozenset[int] = frozenset()
_Method = Callable[["Sym", "Number"], "Number"]


def _operators(op: str) -> tuple[_Method, _Method]:
    """Method of an operator, and its reflected one."""

    # A model writes down hundreds of thousands of them, nearly all on plain numbers and symbols.
    def method(a: Sym, b: Number) -> Number:
        return a.graph.apply_to_two(op, a, b) if type(b) in _PLAIN else _operation(op, a, b)

    def reflected(a: Sym, b: Number) -> Number:
        return a.graph.apply_to_two(op, b, a) if type(b) in _PLAIN else _operation(op, b, a)

    return method, reflected


@final
class Sym(Symbol):
    __slots__ = ("bounds", "graph", "key", "knobs", "number")

    def __init__(
        self, graph: Graph, number: int, bounds: ValueRange, knobs: frozenset[int]
    ) -> None:
        # ``number`` is its node; ``bounds`` are its least and largest value.
        self.graph, self.number, self.bounds, self.knobs = graph, number, bounds, knobs
        self.key = (number,)  # stands for it where operations are looked up

    def __repr__(self) -> str:
        return f"<sym {self.number} in {self.bounds}>"

    def at_most(self, n: Number) -> Number:
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

    __index__ = __int__

    def __float__(self) -> float:
        raise self._ask()

    def __neg__(self) -> Number:  # type: ignore[override]
        return self * -1

    def __pos__(self) -> Sym:
        return self

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

    __hash__ = Symbol.__hash__


#: Operand of arithmetic: a number, or an expression for the numbers of many candidates.
Number = int | float | Sym


_NUMBERS = (Sym, int, float, np.number)
_PLAIN = frozenset((Sym, int, float))
_TESTS = ("<", "<=", "==", "!=")
_FOLD: dict[str, Callable[[Number, Number], Number]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "ceil": lambda a, b: -(-a // b),
    "%": operator.mod,
    "/": operator.truediv,
    "min": lambda a, b: _elementwise(np.minimum, min, a, b),
    "max": lambda a, b: _elementwise(np.maximum, max, a, b),
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


def _elementwise(of_arrays: np.ufunc, of_numbers: Callable[..., Any], a: Any, b: Any) -> Any:
    arrays = isinstance(a, np.ndarray) or isinstance(b, np.ndarray)
    return of_arrays(a, b) if arrays else of_numbers(a, b)


def _operation(op: str, a: Any, b: Any) -> Any:
    """Result of an operator written in a template or in this package."""
    numbers = isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS)
    if numbers:
        return _apply(op, a, b)
    for x in (a, b):
        if isinstance(x, Expr | IterVar) and not isinstance(x, Sym):
            return binary(op, a, b)
    return NotImplemented


def _apply(op: str, a: Number, b: Number) -> Number:
    if type(a) is Sym:
        graph = a.graph
    elif type(b) is Sym:
        graph = b.graph
    else:
        return _FOLD[op](a, b)
    return graph.apply_to_two(op, a, b)


def _simple_sum(a: Number, b: Number, *ends: float) -> Number | None:
    alo, ahi, blo, bhi = ends
    return b if alo == ahi == 0 else a if blo == bhi == 0 else None


def _simple_difference(a: Number, b: Number, *ends: float) -> Number | None:
    return a if ends[2] == ends[3] == 0 else None


def _simple_product(a: Number, b: Number, *ends: float) -> Number | None:
    alo, ahi, blo, bhi = ends
    if alo == ahi:
        return 0 if alo == 0 else b if alo == 1 else None
    if blo == bhi:
        return 0 if blo == 0 else a if blo == 1 else None
    return None


def _simple_quotient(a: Number, b: Number, *ends: float) -> Number | None:
    return a if ends[2] == ends[3] == 1 else None


def _simple_least(a: Number, b: Number, *ends: float) -> Number | None:
    alo, ahi, blo, bhi = ends
    return a if a is b or ahi <= blo else b if bhi <= alo else None


def _simple_most(a: Number, b: Number, *ends: float) -> Number | None:
    alo, ahi, blo, bhi = ends
    return a if a is b else b if ahi <= blo else a if bhi <= alo else None


#: Simplified results of operations, given the operands and the bounds of both, or None.
_SIMPLE: dict[str, Callable[..., Number | None]] = {
    "+": _simple_sum,
    "-": _simple_difference,
    "*": _simple_product,
    "//": _simple_quotient,
    "ceil": _simple_quotient,
    "/": _simple_quotient,
    "min": _simple_least,
    "max": _simple_most,
}


def with_leaves(symbol: Sym, leaf: Callable[[int], Any]) -> Any:
    """Expression with other values, or symbols of another graph, for its leaves.

    ``symbol`` is made by the operators of `Sym`, `least`, `most` and `ceil_div`.
    """
    nodes, values = symbol.graph.nodes, {}  # type: list[GraphNode], dict[int, Any]

    def value(operand: NodeOperand) -> Any:
        if isinstance(operand, tuple):
            return operand[0]
        if operand not in values:
            op, operands = nodes[operand]
            if op == "leaf":
                values[operand] = leaf(operand)
            else:
                a, b = map(value, operands)
                values[operand] = _apply(op, a, b)
        return values[operand]

    return value(symbol.number)


def _interval(x: Number) -> ValueRange:
    return x.bounds if type(x) is Sym else (x, x)


def _bounds(op: str, args: tuple[Number, ...]) -> ValueRange:
    """Bounds of an operation that is no arithmetic; a test gives 0 or 1."""
    if op in ("sectors", "wavefronts"):  # `loopwright.cost.symbolic.warps`
        return 1, math.inf
    if op == "where":
        (_, _), (alo, ahi), (blo, bhi) = map(_interval, args)
        return min(alo, blo), max(ahi, bhi)
    assert op in ("and", "or", "unless", "implies"), op
    return 0, 1


def least(a: Number, b: Number) -> Number:
    """Minimum of two numbers, or elementwise of arrays."""
    if type(a) is int and type(b) is int:
        return a if a <= b else b
    return _apply("min", a, b)


def most(a: Number, b: Number) -> Number:
    """Maximum of two numbers, or elementwise of arrays."""
    if type(a) is int and type(b) is int:
        return a if a >= b else b
    return _apply("max", a, b)


def ceil_div(a: Number, b: Number) -> Number:
    """``ceil(a / b)`` of whole numbers, b positive."""
    return _apply("ceil", a, b)


def product(values: Iterable[Number]) -> Number:
    out: Number = 1
    for v in values:
        out = out * v
    return out


def total(values: Iterable[Number]) -> Number:
    """Sum of numbers, added in order."""
    out: Number = 0
    for v in values:
        out = out + v
    return out


def largest(values: Iterable[Number], at_least: Number = 0) -> Number:
    """Maximum of numbers, compared in order, and of ``at_least``."""
    out = at_least
    for v in values:
        out = most(out, v)
    return out


def where(test: Number, a: Number, b: Number) -> Number:
    """``a`` where a test holds, else ``b``. Where one is a bool, the other is a test or a bool."""
    if test is True or test is False or not isinstance(test, Sym):
        return a if test else b
    if a is b or (not isinstance(a, Sym) and not isinstance(b, Sym) and a == b):
        return a
    if isinstance(a, bool):
        return test if a and b is False else test.graph.apply("or" if a else "unless", (test, b))
    if isinstance(b, bool):
        return test.graph.apply("implies" if b else "and", (test, a))
    return test.graph.apply("where", (test, a, b))


def at_most(a: Number, b: Number) -> Number:
    """The test ``a <= b``."""
    return a <= b if type(a) is int and type(b) is int else _apply("<=", a, b)


def magnitude(a: Number) -> Number:
    if not isinstance(a, Sym):
        return abs(a)
    return a if a.bounds[0] >= 0 else most(a, a * -1)

"""Operations of expressions on columns, and walks over graphs of them.

All is float64, exact for whole numbers up to 2**53; tests are bools.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from loopwright.cost.symbolic.symbols import GraphNode

#: Values of all candidates, or the one value that all of them have.
Column = np.ndarray[Any, np.dtype[Any]]


def _quotient(a: Column, b: Column) -> Column:
    # Exact: quotients of whole numbers below 2**53 do not round up to the next whole number.
    quotient: Column = np.floor(np.divide(a, b))
    return quotient


def _quotient_up(a: Column, b: Column) -> Column:
    # Exact in the same way.
    quotient: Column = np.ceil(np.divide(a, b))
    return quotient


def _remainder(a: Column, b: Column) -> Column:
    remainder: Column = a - _quotient(a, b) * b
    return remainder


#: Operations that look at each candidate alone.
COLUMNS: dict[str, Callable[..., Column]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": _quotient,
    "ceil": _quotient_up,
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
    # For tests, which are 0 or 1: not a, and b; not a, or b.
    "unless": np.less,
    "implies": np.less_equal,
}


def operands(node: GraphNode) -> list[int]:
    return [a for a in node[1] if not isinstance(a, tuple)]


def reachable(
    nodes: Mapping[int, GraphNode], wanted: Iterable[int], given: Collection[int] = ()
) -> list[int]:
    """Nodes needed for the wanted ones, in an order of computation, without operands
    of ``given``.
    """
    needed = set(wanted)
    todo = list(needed)
    while todo:
        n = todo.pop()
        if n in given:
            continue
        # Written out: this loop sees each operand of a graph of tens of thousands of nodes.
        for a in nodes[n][1]:
            if a not in needed and not isinstance(a, tuple):
                needed.add(a)
                todo.append(a)
    return sorted(needed)

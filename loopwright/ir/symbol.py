"""Symbolic whole numbers, which a schedule accepts in place of factors.

Features of candidates are derived once for a whole population: a template runs with split factors
that are `Symbol`. Such a schedule can be analysed, but not lowered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from loopwright.ir.expr import Expr
from loopwright.ir.node import Node


class Symbol(Expr):
    """A positive whole number that stands for many; a leaf of expressions.

    Subclasses define arithmetic on it, and refuse operations that need its value (a test, ``int``,
    ``range``). It is equal only to itself.
    """

    __slots__ = ()
    _unique = True
    dtype = "int32"

    def map_children(self, f: Callable[[Node], Node]) -> Self:
        return self

    def children(self) -> list[Node]:
        return []

    def at_most(self, n: Any) -> Any:
        raise TypeError(f"{type(self).__name__} has no order")

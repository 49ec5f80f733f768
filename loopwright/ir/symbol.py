"""Whole numbers that stand for many: what a schedule may be given in place of a factor.

Features of candidates are derived once for a whole population: a template then runs with split
factors that are `Symbol`. Such a schedule can be looked at, but not lowered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from loopwright.ir.expr import Expr
from loopwright.ir.node import Node


class Symbol(Expr):
    """A positive whole number that is not known; a leaf of expressions.

    Subclasses say what arithmetic on it gives. It is equal to itself only, and whoever needs its
    value (a test, ``int``, ``range``) is refused by the subclass.
    """

    __slots__ = ()
    dtype = "int32"

    def __hash__(self) -> int:
        return id(self) >> 4

    def map_children(self, f: Callable[[Node], Node]) -> Self:
        """Itself: it has none."""
        return self

    def children(self) -> list[Node]:
        """None."""
        return []

    def at_most(self, n: Any) -> Any:
        """The smaller of it and ``n``."""
        raise TypeError(f"{type(self).__name__} has no order")

"""Base classes for passes: visitors look at a program, mutators build another.

A subclass defines ``visit_Load(self, e)`` and the like, one method a node class that it cares
about; every other node goes to `generic_visit`. Functions with ``match`` and ``map_children`` do as
well; the classes save the dispatch where a pass keeps state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from loopwright.ir.expr import Expr
from loopwright.ir.node import Node
from loopwright.ir.stmt import Stmt


class _Dispatch:
    #: Classes of the nodes that are entered.
    enters: ClassVar[type | tuple[type, ...]] = Node

    def __init__(self) -> None:
        self._methods: dict[type, Callable[[Any], Any]] = {}

    def visit(self, n: Any) -> Any:
        """Call the method for a node's class, or `generic_visit`."""
        kind = type(n)
        if kind not in self._methods:
            name = f"visit_{kind.__name__}"
            self._methods[kind] = getattr(self, name, self.generic_visit)
        return self._methods[kind](n)

    def generic_visit(self, n: Any) -> Any:
        """What happens to nodes without a method of their own."""
        raise NotImplementedError


class Visitor(_Dispatch):
    """Visits every expression and statement, parents first."""

    def generic_visit(self, n: Any) -> Any:
        """Visit the children."""
        for c in n.children():
            if isinstance(c, self.enters):
                self.visit(c)


class ExprVisitor(Visitor):
    """Visits expressions only."""

    enters = Expr


class StmtVisitor(Visitor):
    """Visits statements only; their expressions are not entered."""

    enters = Stmt


class Mutator(_Dispatch):
    """Rebuilds every expression and statement; what did not change stays the same object."""

    def generic_visit(self, n: Any) -> Any:
        """The node with its children rebuilt."""
        enters = self.enters
        return n.map_children(lambda c: self.visit(c) if isinstance(c, enters) else c)


class ExprMutator(Mutator):
    """Rebuilds expressions only."""

    enters = Expr


class StmtMutator(Mutator):
    """Rebuilds statements only; their expressions are kept as they are."""

    enters = Stmt

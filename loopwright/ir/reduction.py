"""Reductions: the combining function, and the expression that is the whole body of a compute."""

from __future__ import annotations

from typing import Any

from loopwright.ir.expr import Expr, Var
from loopwright.ir.node import Node, node
from loopwright.ir.traversal import substitute


@node
class Combiner(Node):
    """A commutative, associative reducer: ``result`` over the variables ``lhs`` and ``rhs``."""

    name: str
    lhs: Var
    rhs: Var
    result: Expr
    identity: Expr

    def combine(self, a: Expr, b: Expr) -> Expr:
        """``result`` with ``a`` for ``lhs`` and ``b`` for ``rhs``."""
        out: Expr = substitute(self.result, {self.lhs: a, self.rhs: b})
        return out


@node
class Reduce(Expr):
    """The reduction of ``source`` over ``axes``; the whole body of a compute.

    ``where`` (may be None) restricts the points that are combined; ``init`` (may be None) replaces
    the combiner's identity as the starting value.
    """

    combiner: Combiner
    source: Expr
    axes: tuple[Any, ...]
    where: Any
    init: Any
    dtype: str

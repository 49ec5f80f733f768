"""Walking over expressions and statements, and substituting variables in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopwright.ir.expr import Expr, Var
from loopwright.ir.node import Node


def substitute(e: Any, env: dict[Var, Expr]) -> Any:
    """Replace variables in an expression or statement."""

    def go(n: Any) -> Any:
        if isinstance(n, Var):
            return env.get(n, n)
        return n.map_children(go)

    return go(e) if env else e


def walk(e: Node, visit: Callable[[Any], None]) -> None:
    """Call ``visit`` on a node and everything below it, parents first."""
    visit(e)
    for c in e.children():
        walk(c, visit)


def free_vars(e: Node) -> set[Var]:
    """All variables that occur in an expression."""
    out: set[Var] = set()
    walk(e, lambda n: out.add(n) if isinstance(n, Var) else None)
    return out

"""Walking over expressions and statements, and substituting variables in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from loopwright.ir.expr import Expr, Var
from loopwright.ir.node import Node

N = TypeVar("N", bound=Node)


def substitute(n: N, env: Mapping[Var, Expr]) -> N:
    # Any: an expression gives an expression and a statement a statement.
    def go(n: Any) -> Any:
        if isinstance(n, Var):
            return env.get(n, n)
        return n.map_children(go)

    out: N = go(n) if env else n
    return out


def walk(n: Node, visit: Callable[[Node], object]) -> None:
    """Call ``visit`` on a node and everything below it, parents first."""
    visit(n)
    for c in n.children():
        walk(c, visit)


def contains(n: Node, kind: type[Node] | tuple[type[Node], ...]) -> bool:
    return isinstance(n, kind) or any(contains(c, kind) for c in n.children())


def free_vars(n: Node) -> set[Var]:
    out: set[Var] = set()
    walk(n, lambda x: out.add(x) if isinstance(x, Var) else None)
    return out

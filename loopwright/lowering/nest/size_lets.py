"""Variables computed from the sizes once, when a function starts: ``n.8 = (n + 7) // 8``."""

from __future__ import annotations

from loopwright.ir.expr import Expr, Var
from loopwright.ir.node import Node
from loopwright.ir.sizes import Sizes
from loopwright.ir.stmt import Allocate, Let, Stmt
from loopwright.ir.traversal import free_vars, walk


def define_sizes(body: Stmt, sizes: Sizes) -> Stmt:
    """A body inside the definitions that it needs, also for the shapes of its buffers."""
    if not sizes.lets:
        return body
    needed = free_vars(body)

    def visit(n: Node) -> None:
        if isinstance(n, Allocate):
            for e in (e for e in n.buffer.shape if isinstance(e, Expr)):
                needed.update(free_vars(e))

    walk(body, visit)
    used: list[tuple[Var, Expr]] = []
    for v, e in reversed(sizes.lets):
        if v in needed:
            used.append((v, e))
            needed |= free_vars(e)
    for v, e in used:
        body = Let(v, e, body)
    return body

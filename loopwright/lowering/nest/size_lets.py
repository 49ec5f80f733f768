"""What is computed of the sizes once, when a function starts: ``n.8 = (n + 7) // 8``."""

from __future__ import annotations

from typing import Any

from loopwright.ir.expr import Expr, Var
from loopwright.ir.sizes import Sizes
from loopwright.ir.stmt import Allocate, Let, Stmt
from loopwright.ir.traversal import free_vars, walk


def define_sizes(body: Stmt, sizes: Sizes) -> Stmt:
    """A body inside the definitions that it, and the shapes of its buffers, need."""
    if not sizes.lets:
        return body
    needed = free_vars(body)

    def shapes(n: Any) -> None:
        if isinstance(n, Allocate):
            for e in n.buffer.shape:
                needed.update(free_vars(e) if isinstance(e, Expr) else ())

    walk(body, shapes)
    used: list[tuple[Var, Expr]] = []
    for v, e in reversed(sizes.lets):
        if v in needed:
            used.append((v, e))
            needed |= free_vars(e)
    for v, e in used:
        body = Let(v, e, body)
    return body

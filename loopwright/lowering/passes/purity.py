"""Queries for passes that move expressions: cost of an expression, and the memory it touches."""

from __future__ import annotations

from loopwright import dtypes
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Const, Expr, Unary, Var
from loopwright.ir.node import Node
from loopwright.ir.stmt import Allocate, For, If, IntrinsicCall, Let, Prefetch, Seq, Stmt, Store
from loopwright.ir.traversal import walk

#: Nodes of which `stored` knows what they write.
_KNOWN = (Allocate, For, If, IntrinsicCall, Let, Prefetch, Seq, Store, Expr)


def is_cheap(e: Expr) -> bool:
    """Whether an expression is not worth a variable: a literal, a variable, or sums and multiples
    of loops, parts of addresses that code generators share anyway."""
    if isinstance(e, Const | Var):
        return True
    if not dtypes.is_int(e.dtype):
        return False
    if isinstance(e, Binary) and e.op in ("+", "-", "*"):
        return is_cheap(e.a) and is_cheap(e.b)
    return isinstance(e, Unary) and e.op == "-" and is_cheap(e.a)


def loaded(e: Expr) -> set[Buffer]:
    buffers: set[Buffer] = set()
    walk(e, lambda n: buffers.add(n.buffer) if isinstance(n, Load) else None)
    return buffers


def stored(s: Stmt) -> set[Buffer] | None:
    """Buffers that a statement writes or allocates; None where that is not known here."""
    buffers: set[Buffer] = set()
    unknown: list[Node] = []

    def visit(n: Node) -> None:
        if isinstance(n, Store | Allocate):
            buffers.add(n.buffer)
        elif not isinstance(n, _KNOWN):
            unknown.append(n)

    walk(s, visit)
    return None if unknown else buffers

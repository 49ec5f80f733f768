"""Queries of loop IR by code generators; answers asked for in every unrolled iteration are kept."""

from __future__ import annotations

from functools import lru_cache

from loopwright import dtypes
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import COMPARE, Binary, Cast, Expr, IfThenElse, Select
from loopwright.ir.node import Node
from loopwright.ir.stmt import Allocate, CallPacked, Check, For, If, Prefetch, Stmt, Store, View
from loopwright.ir.visitor import contains, nodes


def touches_memory(e: Expr) -> bool:
    return contains(e, Load)


def has_nontemporal(s: Stmt) -> bool:
    """Whether something in it is stored past the caches."""
    return any(isinstance(n, Store) and n.nontemporal for n in nodes(s))


@lru_cache(maxsize=1024)
def has_blocks(s: Stmt) -> bool:
    """Whether a body cannot stand inside vector code: the loop around it then runs one by one."""
    return any(
        isinstance(n, Allocate | CallPacked | Check | View)
        or (isinstance(n, For) and n.kind in ("vectorized", "parallel", "thread"))
        for n in nodes(s)
    )


@lru_cache(maxsize=1024)
def widest(s: Stmt) -> int:
    """Bytes of the widest element that a body loads, stores or computes.

    Integers of loops do not count: addresses and tests of them are affine and need no vectors.
    """
    widths = [1]

    def visit(n: Node) -> None:
        if isinstance(n, Load | Store):
            widths.append(_register_bytes(n.buffer.dtype))
        elif isinstance(n, Cast):
            widths.append(_register_bytes(n.dtype))
        for c in n.children():
            if not _of_loops(c):
                visit(c)

    visit(s)
    return max(widths)


def _of_loops(n: Node) -> bool:
    """Whether an expression is arithmetic on loops and sizes alone, or compares such."""
    if isinstance(n, Binary) and n.op in COMPARE:
        return _of_loops(n.a) and _of_loops(n.b)
    return isinstance(n, Expr) and n.dtype == "int64" and not touches_memory(n)


def _register_bytes(dtype: str) -> int:
    return 4 if dtype in dtypes.HALVES else dtypes.nbytes(dtype)


def has_guarded_accesses(s: Stmt) -> bool:
    """Whether a load or store happens under a condition."""
    return any(
        isinstance(n, If) or (isinstance(n, Select | IfThenElse) and touches_memory(n))
        for n in nodes(s)
    )


def buffers_of(s: Stmt) -> list[Buffer]:
    """Buffers that a statement uses, in order."""
    seen: dict[Buffer, None] = {}
    for n in nodes(s):
        if isinstance(n, Load | Store | Prefetch):
            seen.setdefault(n.buffer)
        elif isinstance(n, CallPacked):
            seen.update(dict.fromkeys(n.buffers))
    return list(seen)

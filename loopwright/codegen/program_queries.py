"""Questions about loop IR that code generators ask, answered once a node: unrolling asks again."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from loopwright import dtypes
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Cast, Expr, IfThenElse, Select
from loopwright.ir.operations import COMPARE
from loopwright.ir.stmt import Allocate, Check, For, If, Prefetch, Store, View
from loopwright.ir.traversal import walk


def touches_memory(e: Expr) -> bool:
    """Whether evaluating an expression loads something."""
    found: list[Any] = []
    walk(e, lambda n: found.append(n) if isinstance(n, Load) else None)
    return bool(found)


@lru_cache(maxsize=1024)
def has_blocks(s: Any) -> bool:
    """Constructs that cannot stand inside vector code: the loop then runs one by one."""
    found: list[Any] = []

    def visit(n: Any) -> None:
        nested = isinstance(n, For) and n.kind in ("vectorized", "parallel", "thread")
        if nested or isinstance(n, Allocate | Check | View):
            found.append(n)

    walk(s, visit)
    return bool(found)


@lru_cache(maxsize=1024)
def widest(s: Any) -> int:
    """Bytes of the widest element that a body loads, stores or computes.

    Integers of loops do not count: addresses and tests of them are affine and need no vectors.
    """
    found = [1]

    def visit(n: Any) -> None:
        if isinstance(n, Load | Store):
            found.append(_register_bytes(n.buffer.dtype))
        elif isinstance(n, Cast):
            found.append(_register_bytes(n.dtype))
        for c in n.children():
            if not _of_loops(c):
                visit(c)

    visit(s)
    return max(found)


def _of_loops(n: Any) -> bool:
    """Whether an expression is made of loops and sizes alone, or compares such."""
    if isinstance(n, Binary) and n.op in COMPARE:
        return _of_loops(n.a) and _of_loops(n.b)
    return isinstance(n, Expr) and n.dtype == "int64" and not touches_memory(n)


def _register_bytes(dtype: str) -> int:
    return 4 if dtype in dtypes.HALVES else dtypes.nbytes(dtype)


def has_guarded_accesses(s: Any) -> bool:
    """Whether a load or store happens under a condition."""
    found: list[Any] = []

    def visit(n: Any) -> None:
        if isinstance(n, If) or (isinstance(n, Select | IfThenElse) and touches_memory(n)):
            found.append(n)

    walk(s, visit)
    return bool(found)


def buffers_of(s: Any) -> list[Buffer]:
    """Buffers that a statement uses, in order."""
    seen: dict[Buffer, None] = {}
    touches = Load | Store | Prefetch
    walk(s, lambda n: seen.setdefault(n.buffer) if isinstance(n, touches) else None)
    return list(seen)

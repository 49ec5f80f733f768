"""What the passes that move expressions ask: is it worth it, and what memory does it read."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from loopwright import dtypes
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Const, Expr, Unary, Var
from loopwright.ir.stmt import Allocate, For, If, IntrinsicCall, Let, Prefetch, Seq, Store
from loopwright.ir.traversal import walk

_KNOWN = (Allocate, For, If, IntrinsicCall, Let, Prefetch, Seq, Store, Expr)


@lru_cache(maxsize=4096)
def is_cheap(e: Expr) -> bool:
    """Literals, names, and sums and multiples of loops: addresses, which code generators share."""
    if isinstance(e, Const | Var):
        return True
    if not dtypes.is_int(e.dtype):
        return False
    if isinstance(e, Binary) and e.op in ("+", "-", "*"):
        return is_cheap(e.a) and is_cheap(e.b)
    return isinstance(e, Unary) and e.op == "-" and is_cheap(e.a)


def loaded(e: Expr) -> set[Buffer]:
    """Buffers that an expression reads."""
    found: set[Buffer] = set()
    walk(e, lambda n: found.add(n.buffer) if isinstance(n, Load) else None)
    return found


def stored(s: Any) -> set[Buffer] | None:
    """Buffers that a statement writes or makes; None where it holds statements of other kinds."""
    found: set[Buffer] = set()
    strange: list[Any] = []

    def visit(n: Any) -> None:
        if isinstance(n, Store | Allocate):
            found.add(n.buffer)
        elif not isinstance(n, _KNOWN):
            strange.append(n)

    walk(s, visit)
    return None if strange else found

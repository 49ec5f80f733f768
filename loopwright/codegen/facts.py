"""Questions about loop IR that code generators ask."""

from __future__ import annotations

from typing import Any

from loopwright import dtypes
from loopwright.ir.expr import Binary, Buffer, Cast, Const, Expr, Load, Unary, Var, walk
from loopwright.ir.stmt import Allocate, For, Store


def pure_index(e: Expr) -> bool:
    """Integer arithmetic over variables and constants: it may be computed in i64."""
    match e:
        case Var() | Const():
            return not dtypes.is_float(e.dtype) and e.dtype != "bool"
        case Cast(value=v, dtype=d):
            return dtypes.bits(d) >= 32 and dtypes.is_int(d) and pure_index(v)
        case Unary(op="-", a=a):
            return pure_index(a)
        case Binary(op=op, a=a, b=b):
            known = ("+", "-", "*", "//", "%", "tdiv", "tmod", "min", "max")
            return op in known and pure_index(a) and pure_index(b)
    return False


def touches_memory(e: Expr) -> bool:
    """Whether evaluating an expression loads something."""
    found: list[Any] = []
    walk(e, lambda n: found.append(n) if isinstance(n, Load) else None)
    return bool(found)


def has_blocks(s: Any) -> bool:
    """Constructs that cannot stand inside vector code: the loop then runs one by one."""
    found: list[Any] = []

    def visit(n: Any) -> None:
        nested = isinstance(n, For) and n.kind in ("vectorized", "parallel", "thread")
        if nested or isinstance(n, Allocate):
            found.append(n)

    walk(s, visit)
    return bool(found)


def widest(s: Any) -> int:
    """Bytes of the widest element that a body loads or stores."""
    found = [1]

    def visit(n: Any) -> None:
        if isinstance(n, Load | Store):
            found.append(dtypes.nbytes(n.buffer.dtype))
        elif isinstance(n, Cast):
            found.append(dtypes.nbytes(n.dtype))

    walk(s, visit)
    return max(found)


def buffers_of(s: Any) -> list[Buffer]:
    """Buffers that a statement uses, in order."""
    seen: dict[Buffer, None] = {}
    walk(s, lambda n: seen.setdefault(n.buffer) if isinstance(n, Load | Store) else None)
    return list(seen)

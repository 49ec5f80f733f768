"""EliminateCommonSubexpr: calls of one operator with the same arguments become one call."""

from __future__ import annotations

from typing import Any

from loopwright.graph.ir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    OpRef,
    Tuple,
    TupleGetItem,
)
from loopwright.graph.ir.structural import attrs_key, digest
from loopwright.graph.ir.visitor import rewrite
from loopwright.graph.transform.module_pass import function_pass


@function_pass(opt_level=2, name="EliminateCommonSubexpr")
def eliminate_common_subexpr(f: Function) -> Expr:
    """Share equal calls, constants, tuples and parts of tuples; all of them are pure."""
    known: dict[tuple[Any, ...], Expr] = {}

    def change(e: Expr) -> Expr:
        key = _key(e)
        return e if key is None else known.setdefault(key, e)

    return rewrite(f, change)


def _key(e: Expr) -> tuple[Any, ...] | None:
    """Equal for expressions of the same value; None where a node is left as it is."""
    match e:
        case OpRef() | GlobalVar():
            return type(e), e.name
        case Constant():
            return Constant, str(e.type), digest(e)
        case Call(op=OpRef() | GlobalVar()):
            return Call, e.children, attrs_key(e.attrs)
        case Tuple():
            return Tuple, e.fields
        case TupleGetItem():
            return TupleGetItem, e.tuple_value, e.index
    return None

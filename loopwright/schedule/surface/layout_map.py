"""An index map that a user wrote as a Python function, as the dimensions of a layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopwright.errors import ScheduleError
from loopwright.ir.expr import Binary, Cast, Const, Unary, Var, tracing
from loopwright.ir.sizes import Symbol
from loopwright.schedule.rules.index_map import plus
from loopwright.schedule.state import IndexExpr, LayoutDim


def trace_map(index_map: Callable[..., object], ndim: int, who: str) -> tuple[LayoutDim, ...]:
    """Dimensions of the layout that a map returns for ``ndim`` index variables.

    A new index is a sum of terms made with ``+``, ``-``, and ``*``, ``//``, ``%`` by constants;
    others are refused.
    """
    axes = [Var(f"i{d}") for d in range(ndim)]
    if not callable(index_map):
        raise ScheduleError(
            f"{who}: expected a function of {ndim} indices, such as {_example(ndim)}, got "
            f"{index_map!r}"
        )
    try:
        with tracing(who):
            result = index_map(*axes)
    except TypeError as e:
        raise ScheduleError(
            f"{who}: the map must take {ndim} indices, such as {_example(ndim)}: {e}"
        ) from e
    parts = result if isinstance(result, list | tuple) else (result,)
    dims = {v: d for d, v in enumerate(axes)}
    return tuple(_dimension(e, dims, who) for e in parts)


def _example(ndim: int) -> str:
    names = [f"i{d}" for d in range(ndim)]
    return f"lambda {', '.join(names)}: ({', '.join(reversed(names))},)"


def _dimension(e: object, dims: dict[Var, int], who: str) -> LayoutDim:
    """A digit ``(dim, div, mod)`` where it is one, else an expression."""
    rest, mod = _operand(e, "%", None)
    index, div = _operand(rest, "//", 1)
    positive = _positive(div) and (mod is None or _positive(mod))
    if isinstance(index, Var) and index in dims and positive:
        return dims[index], div, mod
    return _expression(e, dims, who)


def _operand(e: object, op: str, default: int | None) -> tuple[object, Any]:
    """Operand and constant of an operation ``op`` with a constant; else all of ``e``, and the
    default.
    """
    if isinstance(e, Binary) and e.op == op and isinstance(e.b, Const | Symbol):
        return e.a, _number(e.b)
    return e, default


def _number(e: Const | Symbol) -> Any:
    """The number of a constant; a `Symbol` stands for one."""
    return e if isinstance(e, Symbol) else int(e.value)


def _positive(v: object) -> bool:
    return isinstance(v, Symbol) or (isinstance(v, int) and v >= 1)


def _expression(e: object, dims: dict[Var, int], who: str) -> IndexExpr:
    match e:
        case int() if not isinstance(e, bool):
            return e
        case Const(value=int(v), dtype=d) if d != "bool":
            return v
        case Var() if e in dims:
            return f"i{dims[e]}"
        case Cast(value=v):
            return _expression(v, dims, who)
        case Unary(op="-", a=a):
            return ("*", _expression(a, dims, who), -1)
        case Binary(op="+", a=a, b=b):
            return plus(_expression(a, dims, who), _expression(b, dims, who))
        case Binary(op="-", a=a, b=b):
            y = _expression(b, dims, who)
            return plus(_expression(a, dims, who), -y if isinstance(y, int) else ("*", y, -1))
        case Binary(op="*", a=Const() | Symbol() as v, b=b):
            return ("*", _expression(b, dims, who), _number(v))
        case Binary(op="*", a=b, b=Const() | Symbol() as v):
            return ("*", _expression(b, dims, who), _number(v))
        case Binary(op="//" | "%" as op, a=a, b=Const() | Symbol() as v) if _positive(_number(v)):
            return (op, _expression(a, dims, who), _number(v))
    raise ScheduleError(
        f"{who}: each new index must be made of the old ones with +, -, and *, // and % by "
        f"constants (those of // and % positive), got {e!r}"
    )

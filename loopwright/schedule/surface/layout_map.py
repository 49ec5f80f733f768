"""An index map that a user wrote as a Python function, as the dimensions of a layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopwright.errors import ScheduleError
from loopwright.ir.expr import Binary, Cast, Const, Unary, Var
from loopwright.ir.symbol import Symbol
from loopwright.schedule.state import LayoutDim


def trace_map(index_map: Callable[..., Any], ndim: int, who: str) -> tuple[LayoutDim, ...]:
    """Call a map with ``ndim`` variables and read what it returns.

    Raises:
        ScheduleError: it takes another number of indices, or a new index is no sum of terms made
            with ``+``, ``-``, and ``*``, ``//``, ``%`` by constants.
    """
    axes = [Var(f"i{d}") for d in range(ndim)]
    if not callable(index_map):
        raise ScheduleError(
            f"{who}: expected a function of {ndim} indices, such as {_example(ndim)}, got "
            f"{index_map!r}"
        )
    try:
        result = index_map(*axes)
    except TypeError as e:
        raise ScheduleError(
            f"{who}: the map must take {ndim} indices, such as {_example(ndim)}: {e}"
        ) from e
    parts = result if isinstance(result, list | tuple) else (result,)
    return tuple(_dimension(e, axes, who) for e in parts)


def _example(ndim: int) -> str:
    names = [f"i{d}" for d in range(ndim)]
    return f"lambda {', '.join(names)}: ({', '.join(reversed(names))},)"


def _dimension(e: Any, axes: list[Var], who: str) -> LayoutDim:
    """A digit ``(dim, div, mod)`` where it is one, else an expression."""
    inner: Any = e
    mod: Any = None
    div: Any = 1
    if isinstance(inner, Binary) and inner.op == "%" and isinstance(inner.b, Const | Symbol):
        inner, mod = inner.a, _number(inner.b)
    if isinstance(inner, Binary) and inner.op == "//" and isinstance(inner.b, Const | Symbol):
        inner, div = inner.a, _number(inner.b)
    if isinstance(inner, Var) and inner in axes and _positive(div) and _positive(mod):
        return axes.index(inner), div, mod
    return _expression(e, axes, who)


def _number(e: Const | Symbol) -> Any:
    return e if isinstance(e, Symbol) else int(e.value)


def _positive(v: Any) -> bool:
    return v is None or isinstance(v, Symbol) or v >= 1


def _expression(e: Any, axes: list[Var], who: str) -> Any:
    match e:
        case int() if not isinstance(e, bool):
            return e
        case Const(value=int(v), dtype=d) if d != "bool":
            return v
        case Var() if e in axes:
            return f"i{axes.index(e)}"
        case Cast(value=v):
            return _expression(v, axes, who)
        case Unary(op="-", a=a):
            return ("*", _expression(a, axes, who), -1)
        case Binary(op="+", a=a, b=b):
            return _plus(_expression(a, axes, who), _expression(b, axes, who))
        case Binary(op="-", a=a, b=b):
            y = _expression(b, axes, who)
            return _plus(_expression(a, axes, who), -y if isinstance(y, int) else ("*", y, -1))
        case Binary(op="*", a=Const() | Symbol() as v, b=b):
            return ("*", _expression(b, axes, who), _number(v))
        case Binary(op="*", a=b, b=Const() | Symbol() as v):
            return ("*", _expression(b, axes, who), _number(v))
        case Binary(op="//" | "%" as op, a=a, b=Const() | Symbol() as v) if _positive(_number(v)):
            return (op, _expression(a, axes, who), _number(v))
    raise ScheduleError(
        f"{who}: each new index must be made of the old ones with +, -, and *, // and % by "
        f"constants (those of // and % positive), got {e!r}"
    )


def _plus(a: Any, b: Any) -> Any:
    """A sum; nothing is added as zero, which the text of a trace would lose."""
    if a == 0 or b == 0:
        return b if a == 0 else a
    return a + b if isinstance(a, int) and isinstance(b, int) else ("+", a, b)

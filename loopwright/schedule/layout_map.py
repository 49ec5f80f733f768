"""An index map that a user wrote as a Python function, as the dimensions of a layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopwright.errors import ScheduleError
from loopwright.ir.expr import Binary, Cast, Const, Unary, Var
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
    mod: int | None = None
    div = 1
    if isinstance(inner, Binary) and inner.op == "%" and isinstance(inner.b, Const):
        inner, mod = inner.a, int(inner.b.value)
    if isinstance(inner, Binary) and inner.op == "//" and isinstance(inner.b, Const):
        inner, div = inner.a, int(inner.b.value)
    if isinstance(inner, Var) and inner in axes and div >= 1 and (mod is None or mod >= 1):
        return axes.index(inner), div, mod
    return _expression(e, axes, who)


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
        case Binary(op="*", a=Const(value=v), b=b) | Binary(op="*", a=b, b=Const(value=v)):
            return ("*", _expression(b, axes, who), int(v))
        case Binary(op="//" | "%" as op, a=a, b=Const(value=v)) if v > 0:
            return (op, _expression(a, axes, who), int(v))
    raise ScheduleError(
        f"{who}: each new index must be made of the old ones with +, -, and *, // and % by "
        f"constants (those of // and % positive), got {e!r}"
    )


def _plus(a: Any, b: Any) -> Any:
    """A sum; nothing is added as zero, which the text of a trace would lose."""
    if a == 0 or b == 0:
        return b if a == 0 else a
    return a + b if isinstance(a, int) and isinstance(b, int) else ("+", a, b)

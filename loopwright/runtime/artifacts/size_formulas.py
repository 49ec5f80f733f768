"""Formulas of sizes in a manifest: numbers that depend on the sizes of a call.

A formula is an int, the name of a size variable, or ``[operation, a, b]`` with ``+ - * // %`` and
``max``. `evaluate` computes it; nothing in a manifest is executed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from loopwright.errors import UsageError

#: A number as a manifest writes it.
SizeFormula = int | str | list["SizeFormula"]
#: Operations of formulas.
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": max,
}


def evaluate(e: SizeFormula, values: Mapping[str, int]) -> int:
    """The value of a formula; UsageError where it is malformed, or a variable has no value."""
    match e:
        case int():
            return e
        case str() if e in values:
            return values[e]
        case [str(op), a, b] if op in OPERATIONS:
            x, y = evaluate(a, values), evaluate(b, values)
            if op in ("//", "%") and y <= 0:
                raise UsageError(f"a manifest divides by {y}; build the program again")
            return OPERATIONS[op](x, y)
    raise UsageError(f"{e!r} in a manifest is no size; build the program again")


def text(e: SizeFormula) -> str:
    """A formula in the usual notation."""
    match e:
        case [str(op), a, b]:
            return f"max({text(a)}, {text(b)})" if op == "max" else f"{_part(a)} {op} {_part(b)}"
    return str(e)


def _part(e: SizeFormula) -> str:
    return f"({text(e)})" if isinstance(e, list) else str(e)


def linear(e: SizeFormula) -> tuple[str, int, int] | None:
    """``(name, factor, constant)`` of a formula that is linear in one variable, else None."""
    match e:
        case str():
            return e, 1, 0
        case ["+" | "-" | "*" as op, a, int(k)]:
            inner = linear(a)
        case ["+" | "*" as op, int(k), a]:
            inner = linear(a)
        case _:
            return None
    if inner is None:
        return None
    name, factor, const = inner
    if op == "*":
        return (name, factor * k, const * k) if k else None
    return name, factor, const + (k if op == "+" else -k)

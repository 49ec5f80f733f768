"""Ranges of the results of operations, from those of their operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

#: Least and largest value that an expression may take.
ValueRange = tuple[float, float]
_INF = math.inf
_EVERYTHING: ValueRange = (-_INF, _INF)


def _hull(ends: Sequence[float]) -> ValueRange:
    """Interval of its ends; everything where one is unknown (0 times infinity)."""
    if any(x != x for x in ends):
        return _EVERYTHING
    return min(ends), max(ends)


def _product(alo: float, ahi: float, blo: float, bhi: float) -> ValueRange:
    if alo >= 0 and blo >= 0 and ahi < _INF and bhi < _INF:
        return alo * blo, ahi * bhi  # nearly all are such
    return _hull([x * y for x in (alo, ahi) for y in (blo, bhi)])


def _floor(alo: float, ahi: float, blo: float, bhi: float) -> ValueRange:
    if blo <= 0:
        return _EVERYTHING
    return _hull([x // y for x in (alo, ahi) for y in (blo, bhi)])


def _ceil(alo: float, ahi: float, blo: float, bhi: float) -> ValueRange:
    if blo <= 0:
        return _EVERYTHING
    return _hull([-(-x // y) for x in (alo, ahi) for y in (blo, bhi)])


def _quotient(alo: float, ahi: float, blo: float, bhi: float) -> ValueRange:
    if blo <= 0:
        return _EVERYTHING
    if alo >= 0 and ahi < _INF and bhi < _INF:
        return alo / bhi, ahi / blo
    return _hull([x / y for x in (alo, ahi) for y in (blo, bhi)])


def _less(alo: float, ahi: float, blo: float, bhi: float) -> ValueRange:
    return (1, 1) if ahi < blo else (0, 0) if alo >= bhi else (0, 1)


def _at_most(alo: float, ahi: float, blo: float, bhi: float) -> ValueRange:
    return (1, 1) if ahi <= blo else (0, 0) if alo > bhi else (0, 1)


#: Bounds of an operation from the least and largest value of both operands.
RANGES: dict[str, Callable[[float, float, float, float], ValueRange]] = {
    "+": lambda alo, ahi, blo, bhi: (alo + blo, ahi + bhi),
    "-": lambda alo, ahi, blo, bhi: (alo - bhi, ahi - blo),
    "*": _product,
    "//": _floor,
    "ceil": _ceil,
    "/": _quotient,
    "%": lambda _alo, _ahi, blo, bhi: (0, bhi - 1) if blo > 0 else _EVERYTHING,
    "min": lambda alo, ahi, blo, bhi: (min(alo, blo), min(ahi, bhi)),
    "max": lambda alo, ahi, blo, bhi: (max(alo, blo), max(ahi, bhi)),
    "<": _less,
    "<=": _at_most,
    "==": lambda alo, ahi, blo, bhi: (0, 0) if ahi < blo or bhi < alo else (0, 1),
    "!=": lambda alo, ahi, blo, bhi: (1, 1) if ahi < blo or bhi < alo else (0, 1),
}

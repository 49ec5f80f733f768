"""Index maps: quasi-affine expressions of indices, their bounds, and whether they are one to one.

An expression is an int, ``"i<d>"`` (index d), or ``(op, a, b)`` with op ``+`` or, with an int b,
``*``, ``//`` or ``%``: plain tuples, so that a step of a trace holds them as JSON.

`judge` proves that a map takes no two indices to one element. Every expression becomes a sum of
scaled *digits* ``(x // lower) % extent`` of sources x: an index, or a sum that was divided. A sum
determines its digits when each scale is larger than what all terms of smaller scale reach together,
as in a decimal number; digits determine their source when they adjoin from 1 up to its extent. A
map is one to one when every index is determined in the end.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np
import numpy.typing as npt

from loopwright.ir.affine import Extent
from loopwright.schedule.state import IndexExpr

TRIED = 1 << 16  #: largest number of indices that are tried one by one
Interval = tuple[int, int]
Points = npt.NDArray[np.int64]
Verdict = Literal["one to one", "redundant", "unknown"]


@dataclass(frozen=True)
class _Source:
    """An index (``of`` is its number) or a sum, with values from 0 to ``extent - 1``."""

    of: int | _Sum
    extent: int


@dataclass(frozen=True)
class _Digit:
    """``(source // lower) % extent``."""

    source: _Source
    lower: int
    extent: int


@dataclass(frozen=True)
class _Sum:
    """``base + sum(scale * digit)``, each digit once."""

    base: int
    terms: tuple[tuple[_Digit, int], ...]

    @property
    def bounds(self) -> Interval:
        lo = self.base + sum(min(0, s * (d.extent - 1)) for d, s in self.terms)
        hi = self.base + sum(max(0, s * (d.extent - 1)) for d, s in self.terms)
        return lo, hi

    def determines_digits(self) -> bool:
        """Whether each value comes from one choice of digits."""
        reach = 0
        for digit, scale in sorted(self.terms, key=lambda t: abs(t[1])):
            if abs(scale) <= reach:
                return False
            reach += abs(scale) * (digit.extent - 1)
        return True


def judge(exprs: tuple[IndexExpr, ...], shape: tuple[int, ...]) -> Verdict:
    """Whether a map is proved one to one; ``"redundant"``: it is, but a digit is used twice."""
    todo: list[_Sum] = []
    for s in (_sum(e, shape) for e in exprs):
        if s is None or not s.determines_digits():
            return "unknown"
        todo.append(s)
    digits: set[_Digit] = set()
    determined: set[_Source] = set()
    redundant = False
    while todo:
        for digit, _ in (t for s in todo for t in s.terms):
            redundant |= digit in digits or digit.source in determined
            digits.add(digit)
        complete = []
        for source in {d.source for d in digits} - determined:
            all_of_it, twice = _adjoining(source, digits)
            redundant |= twice
            complete += [source] if all_of_it else []
        determined |= set(complete)
        todo = [source.of for source in complete if isinstance(source.of, _Sum)]
        if not all(s.determines_digits() for s in todo):
            return "unknown"
    indices = {s.of for s in determined if isinstance(s.of, int)}
    if any(n > 1 and d not in indices for d, n in enumerate(shape)):
        return "unknown"
    return "redundant" if redundant else "one to one"


def _adjoining(source: _Source, digits: set[_Digit]) -> tuple[bool, bool]:
    """Whether the known digits of a source determine it, and whether they overlap."""
    reach, twice = 1, False
    for d in sorted((d for d in digits if d.source == source), key=lambda d: d.lower):
        if reach % d.lower:
            break
        twice |= d.lower < reach
        reach = max(reach, d.lower * d.extent)
    return reach >= source.extent, twice


def _sum(e: IndexExpr, shape: tuple[int, ...]) -> _Sum | None:
    """An expression as a sum of digits, or None where it is none."""
    if isinstance(e, int):
        return _Sum(e, ())
    if isinstance(e, str):
        d = int(e[1:])
        digit = _Digit(_Source(d, shape[d]), 1, shape[d])
        return _Sum(0, ((digit, 1),) if shape[d] > 1 else ())
    x = _sum(e[1], shape)
    if x is None:
        return None
    if e[0] == "+":
        y = _sum(e[2], shape)
        if y is None:
            return None
        terms = dict(x.terms)
        for digit, scale in y.terms:
            terms[digit] = terms.get(digit, 0) + scale
        return _Sum(x.base + y.base, tuple((t, scale) for t, scale in terms.items() if scale))
    op, _, k = e
    if op == "*":
        return _Sum(x.base * k, tuple((d, s * k) for d, s in x.terms) if k else ())
    return _divided(x, op, k)


def _divided(x: _Sum, op: str, k: int) -> _Sum | None:
    multiples = _Sum(x.base // k, tuple((d, s // k) for d, s in x.terms if s % k == 0))
    rest = _Sum(x.base % k, tuple((d, s) for d, s in x.terms if s % k))
    lo, hi = rest.bounds
    if lo >= 0 and hi < k:
        return multiples if op == "//" else rest
    if x.bounds[0] < 0:
        return None
    d = x.terms[0][0]
    # A digit may be cut at k where that divides it, or nothing stands above.
    cuts = d.extent % k == 0 or d.lower * d.extent >= d.source.extent
    if len(x.terms) > 1 or x.base or x.terms[0][1] != 1 or not cuts:
        source = _Source(x, x.bounds[1] + 1)
        d = _Digit(source, 1, source.extent)
    cut = _Digit(d.source, d.lower * k, -(-d.extent // k))
    cut = cut if op == "//" else _Digit(d.source, d.lower, k)
    return _Sum(0, ((cut, 1),))


def index_bounds(e: IndexExpr, shape: tuple[Extent, ...]) -> Interval:
    """Values that an expression stays within; of a ``%`` all values, so that blocks are whole."""
    if isinstance(e, int):
        return e, e
    if isinstance(e, str):
        n = shape[int(e[1:])]
        assert isinstance(n, int)
        return 0, n - 1
    lo, hi = index_bounds(e[1], shape)
    if e[0] == "+":
        lo2, hi2 = index_bounds(e[2], shape)
        return lo + lo2, hi + hi2
    op, _, k = e
    if op == "*":
        return min(lo * k, hi * k), max(lo * k, hi * k)
    return (lo // k, hi // k) if op == "//" else (0, k - 1)


def simplified(e: IndexExpr) -> IndexExpr:
    """An expression without operations that 0 or 1 make void: ``("//", "i0", 1)`` is ``"i0"``."""
    if not isinstance(e, tuple):
        return e
    if e[0] == "+":
        return plus(simplified(e[1]), simplified(e[2]))
    op, a, k = e[0], simplified(e[1]), e[2]
    if isinstance(a, int) and type(k) is int:  # no symbol, of which nothing is known yet
        return int(_ARITHMETIC[op](a, k))
    if k == 1:
        return 0 if op == "%" else a
    return 0 if k == 0 else (op, a, k)


def plus(a: IndexExpr, b: IndexExpr) -> IndexExpr:
    """A sum, to which nothing is added as zero: the text of a trace would lose it."""
    if a == 0 or b == 0:
        return b if a == 0 else a
    return a + b if isinstance(a, int) and isinstance(b, int) else ("+", a, b)


def text(e: IndexExpr, outer: int = 0) -> str:
    if isinstance(e, int | str):
        return str(e) if not isinstance(e, int) or e >= 0 or not outer else f"({e})"
    op, a, b = e
    p = 1 if op == "+" else 2
    if op == "+" and isinstance(b, int) and b < 0:
        out = f"{text(a, p)} - {-b}"
    else:
        out = f"{text(a, p)} {op} {text(b, p + 1)}"
    return f"({out})" if p < outer else out


def places(exprs: tuple[IndexExpr, ...], points: Points) -> Points:
    """New indices of points, one point per row."""
    out = np.zeros((len(points), len(exprs)), np.int64)
    for k, e in enumerate(exprs):
        out[:, k] = _value(e, points)
    return out


def _value(e: IndexExpr, points: Points) -> Points | int:
    if isinstance(e, int):
        return e
    if isinstance(e, str):
        return points[:, int(e[1:])]
    op, a, b = e
    return _ARITHMETIC[op](_value(a, points), _value(b, points))


_ARITHMETIC: Mapping[str, Callable[[Points | int, Points | int], Points | int]] = {
    "+": operator.add,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


def _samples(shape: tuple[int, ...]) -> list[Points]:
    """All indices if they are few; else those of a corner, and of a line along each dimension."""
    boxes = [list(shape)]
    if prod(shape) > TRIED:
        corner = list(shape)
        while prod(corner) > TRIED:
            k = corner.index(max(corner))
            corner[k] = -(-corner[k] // 2)
        ndim = len(shape)
        lines = [[min(n, TRIED) if j == d else 1 for j, n in enumerate(shape)] for d in range(ndim)]
        boxes = [corner, *lines]
    return [np.indices(box).reshape(len(shape), -1).T for box in boxes]


def collision(
    exprs: tuple[IndexExpr, ...], shape: tuple[int, ...]
) -> tuple[list[int], list[int], list[int]] | None:
    """Two indices that go to one element, and the element, if any are found."""
    for points in _samples(shape):
        new = places(exprs, points)
        order = np.lexsort(new.T[::-1]) if len(exprs) else np.arange(len(points))
        same = (np.diff(new[order], axis=0) == 0).all(axis=1)
        if same.any():
            at = int(np.argmax(same))
            a, b = sorted((int(order[at]), int(order[at + 1])))
            return points[a].tolist(), points[b].tolist(), new[a].tolist()
    return None


def unreached(exprs: tuple[IndexExpr, ...], shape: tuple[int, ...]) -> list[int] | None:
    """A new element to which no index goes, within the box that the indices tried go to."""
    points = _samples(shape)[0]
    new = places(exprs, points)
    lo, hi = new.min(axis=0), new.max(axis=0)
    box = tuple(int(n) for n in np.minimum(hi - lo + 1, 64))
    hit = np.zeros(box, bool)
    inside = new[((new - lo) < box).all(axis=1)] - lo
    hit[tuple(inside.T)] = True
    free = np.argwhere(~hit)
    return (free[0] + lo).tolist() if len(free) else None

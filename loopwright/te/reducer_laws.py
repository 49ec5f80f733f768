"""Whether a reducer gives one result in whatever order its terms are combined.

Reductions across lanes, threads and partial results begin at the identity in several places and
combine the parts. `te.sum` and its kin allow that; a reducer of the user's is tried on drawn
values: zeros, limits of integers, floats of all magnitudes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np

from loopwright import dtypes
from loopwright.ir.expr import Binary
from loopwright.ir.interp.arrays import Array
from loopwright.ir.reduction import Combiner
from loopwright.te.error_bounds import Estimate, constants, folded

_TRIED = 512
#: Beyond this part of the largest number involved two floats, computed in float64, differ.
_APART = 1e-6
#: Numbers in tuples are no larger, and all different: which of equal ones is taken may depend on
#: the order (`te.comm_reducer` says so), and counts are no limits of a type.
_LARGEST = 100
_ORDERED = ("+", "*", "min", "max")


@lru_cache(maxsize=256)
def why_in_order(c: Combiner) -> str:
    """Reason why the terms of a reduction may not be combined in another order; empty: they may."""
    match c.result:
        case (Binary(op=op, a=a, b=b),) if op in _ORDERED and {a, b} == {*c.lhs, *c.rhs}:
            return ""
    with np.errstate(all="ignore"):
        return _why(c)


def _why(c: Combiner) -> str:
    terms = _drawn([v.dtype for v in c.lhs])
    start = [np.broadcast_to(s.value, terms[0][0].shape) for s in constants(c.identity)]
    # Every part begins at the identity, so that what is combined has been combined with it.
    x, y, z = (_combined(c, start, t) for t in terms)
    for a, b in ((start, x), (x, start)):
        got = _combined(c, a, b)
        at = _differ(got, x, (x,))
        if at is not None:
            return f"{_text(start, at)} is not its identity: {_equation(a, b, got, at)}"
    one, other, taken = _combined(c, x, y), _combined(c, y, x), _combined(c, x, terms[1])
    at = _differ(one, taken, (x, y))
    if at is not None:
        alone = _equation(start, terms[1], y, at)
        return f"{alone}, but {_equation(x, terms[1], taken, at)}, {_equation(x, y, one, at)}"
    at = _differ(one, other, (x, y))
    if at is not None:
        return f"it is not commutative: {_equation(x, y, one, at)}, {_equation(y, x, other, at)}"
    left, right = _combined(c, one, z), _combined(c, x, _combined(c, y, z))
    at = _differ(left, right, (x, y, z))
    if at is not None:
        three = ", ".join(_text(v, at) for v in (x, y, z))
        return (
            f"it is not associative: {three} give {_text(left, at)} combined from the left, "
            f"{_text(right, at)} from the right"
        )
    return ""


def _combined(c: Combiner, a: Sequence[Array], b: Sequence[Array]) -> list[Array]:
    return [x.value for x in folded(c, [Estimate(x) for x in a], [Estimate(x) for x in b])]


def _differ(
    got: Sequence[Array], want: Sequence[Array], terms: Sequence[Sequence[Array]]
) -> int | None:
    """The first place at which two results are not the same, or None."""
    different = np.zeros(got[0].shape, bool)
    for k, (p, q) in enumerate(zip(got, want, strict=True)):
        if p.dtype.kind != "f":
            different |= p != q
            continue
        sizes = [np.abs(v) for v in (p, q, *(t[k] for t in terms))]
        apart = np.abs(p - q) > _APART * np.maximum.reduce(sizes)
        different |= apart & np.isfinite(p) & np.isfinite(q)
    places = np.flatnonzero(different)
    return int(places[0]) if places.size else None


def _drawn(types: Sequence[str]) -> list[list[Array]]:
    """Three terms, many times."""
    rng = np.random.default_rng(0)
    if len(types) == 1:
        return [[_numbers(rng, types[0])] for _ in range(3)]
    terms = [[_tame(rng, t) for t in types] for _ in range(3)]
    fit = np.ones(_TRIED, bool)
    for a, b in combinations(terms, 2):
        for p, q in zip(a, b, strict=True):
            fit &= p != q
    return [[v[fit] for v in values] for values in terms]


def _numbers(rng: np.random.Generator, dtype: str) -> Array:
    if dtypes.is_float(dtype):
        sizes = rng.choice([0.0, 1e-3, 1.0, 1.0, 1e3], _TRIED)
        return np.asarray(rng.standard_normal(_TRIED) * sizes)
    low, high = (int(x) for x in dtypes.limits(dtype))
    edges = np.array([low, high, low + 1, high - 1, 0, 1, 2, 3, high // 2], dtype)
    all_values = rng.integers(low, high, _TRIED, np.dtype(dtype), endpoint=True)
    return np.where(rng.integers(0, 4, _TRIED) == 0, all_values, rng.choice(edges, _TRIED))


def _tame(rng: np.random.Generator, dtype: str) -> Array:
    if dtypes.is_float(dtype):
        return rng.standard_normal(_TRIED)
    low = 0 if dtypes.is_unsigned(dtype) else -_LARGEST
    return rng.integers(low, _LARGEST + 1, _TRIED).astype(dtype)


def _text(values: Sequence[Array], at: int) -> str:
    parts = [f"{v[at]:.6g}" if v.dtype.kind == "f" else str(v[at]) for v in values]
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def _equation(a: Sequence[Array], b: Sequence[Array], got: Sequence[Array], at: int) -> str:
    return f"{_text(a, at)} combined with {_text(b, at)} gives {_text(got, at)}"

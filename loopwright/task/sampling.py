"""Points of a space by the thousand.

A point's *digits* are the positions of its choices among the candidates of each knob; its index is
their number in mixed radix, first knob least significant. Searches work on digits, a column a knob;
``visited`` sets and records hold indices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from loopwright.errors import SpaceError

if TYPE_CHECKING:
    from loopwright.task.space import ConfigSpace

Digits = npt.NDArray[np.int64]

#: From here on an index does not fit into 64 bits, and Python's integers are used.
_INT64 = 1 << 63


def digits_of(space: ConfigSpace, indices: Sequence[int]) -> Digits:
    """Digits of many indices at once: int64 of shape ``(n, knobs)``."""
    dims, total = space.dims, space.range_length
    rest = np.array(indices, np.int64 if total < _INT64 else object).reshape(-1)
    outside = (rest < 0) | (rest >= total)
    if outside.any():
        raise SpaceError(f"index {rest[outside][0]} is outside of the space of {total} points")
    digits = np.empty((len(rest), len(dims)), np.int64)
    for number, dim in enumerate(dims):
        digits[:, number] = rest % dim
        rest = rest // dim
    return digits


def indices_of(space: ConfigSpace, digits: npt.ArrayLike) -> list[int]:
    """Indices of many points at once, as Python integers since they may exceed 64 bits."""
    dims = space.dims
    table = np.asarray(digits, np.int64)
    if table.ndim != 2 or table.shape[1] != len(dims):
        raise SpaceError(f"digits of shape {table.shape} for a space of {len(dims)} knobs")
    if not ((table >= 0) & (table < np.array(dims, np.int64))).all():
        raise SpaceError("a digit is outside of its knob")
    kind = np.int64 if space.range_length < _INT64 else object
    index = np.zeros(len(table), kind)
    for number in reversed(range(len(dims))):
        index = index * dims[number] + table[:, number].astype(kind)
    return [int(i) for i in index.tolist()]


def random_digits(space: ConfigSpace, n: int, rng: np.random.Generator) -> Digits:
    """Digits of points drawn uniformly, repetitions and refused points included: ``(n, knobs)``."""
    return rng.integers(0, np.array(space.dims, np.int64), size=(n, len(space.dims)))


class ValidMemo:
    """Memory of the points that the filters of a space accept; each point is asked about once.

    Filters are functions of the point, so the memory, of ``limit`` answers, is a shortcut.
    """

    def __init__(self, space: ConfigSpace, limit: int = 1 << 18) -> None:
        self._space = space
        self._is_valid = lru_cache(limit)(space.is_valid)

    def __call__(self, indices: Iterable[int]) -> npt.NDArray[np.bool_]:
        indices = list(indices)
        if not self._space.is_filtered:
            return np.ones(len(indices), np.bool_)
        return np.fromiter(map(self._is_valid, indices), np.bool_, len(indices))


def distinct(indices: Sequence[int], taken: Iterable[int] = ()) -> npt.NDArray[np.int64]:
    """Positions of the indices that occur for the first time and are not ``taken``, ascending."""
    seen = taken if isinstance(taken, (set, frozenset)) else set(taken)
    first: dict[int, int] = {}
    for position, index in enumerate(indices):
        if index not in seen:
            first.setdefault(index, position)
    return np.fromiter(first.values(), np.int64, len(first))

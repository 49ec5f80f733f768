"""Choice of points in spaces that may have 1e12 of them, and filters that refuse most.

Every function is deterministic for a seed, ends in bounded time, and never lists the product.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from loopwright.errors import SpaceError

#: Sources of randomness that are accepted; None means seed 0.
Rng = np.random.Generator | random.Random | int | None

#: Largest number of points that are looked through one by one.
SMALL = 20_000
_SAMPLE = 4_000
_BLOCK = 256


class PointSpace(Protocol):
    """A `ConfigSpace` as sampling sees it."""

    @property
    def dims(self) -> tuple[int, ...]: ...

    @property
    def range_length(self) -> int: ...

    @property
    def is_filtered(self) -> bool: ...

    def is_valid(self, index: int) -> bool: ...

    def point2knob(self, index: int) -> tuple[int, ...]: ...

    def knob2point(self, vector: Sequence[int]) -> int: ...


@dataclass(frozen=True)
class ValidCount:
    """Number of valid points of a space, estimated from a random sample unless ``exact``.

    Example:
        >>> space = lw.ConfigSpace()
        >>> space.define_knob("unroll", [1, 2, 4])
        >>> space.freeze()
        >>> count = space.valid_count()
        >>> print(count, count.exact)
        3 of 3 True
    """

    count: int
    exact: bool
    total: int

    def __str__(self) -> str:
        if self.exact:
            return f"{self.count} of {self.total}"
        return f"about {self.count} of {self.total}, judging by {_SAMPLE} drawn at random"


def generator(rng: Rng) -> np.random.Generator:
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, random.Random):
        return np.random.default_rng(rng.getrandbits(64))
    return np.random.default_rng(0 if rng is None else rng)


def valid_count(space: PointSpace) -> ValidCount:
    total = space.range_length
    if not space.is_filtered:
        return ValidCount(total, True, total)
    if total <= SMALL:
        return ValidCount(sum(map(space.is_valid, range(total))), True, total)
    draws = _draws(space, generator(0))
    hits = sum(space.is_valid(next(draws)) for _ in range(_SAMPLE))
    return ValidCount(total * hits // _SAMPLE, False, total)


def sample_ints(
    space: PointSpace, m: int, rng: Rng, exclude: Collection[int] = frozenset()
) -> list[int]:
    source = generator(rng)
    total = space.range_length
    chosen: dict[int, None] = {}
    if total <= max(SMALL, 2 * m):
        # So few that a shuffle finds every last one; drawing would meet the same ones again.
        points: Iterator[int] = iter(source.permutation(total).tolist())
    else:
        draws = _draws(space, source)
        points = (next(draws) for _ in range(10_000 + 200 * m))
    for index in points:
        if len(chosen) >= m:
            break
        if index not in chosen and index not in exclude and space.is_valid(index):
            chosen[index] = None
    return list(chosen)


def random_walk(space: PointSpace, index: int, rng: Rng) -> int:
    source = generator(rng)
    start = space.point2knob(index)
    dims = space.dims
    movable = [number for number, dim in enumerate(dims) if dim > 1]
    for _ in range(64 if movable else 0):
        number = movable[int(source.integers(len(movable)))]
        shift = 1 + int(source.integers(dims[number] - 1))
        point = _moved(space, start, number, (start[number] + shift) % dims[number])
        if space.is_valid(point):
            return point
    # Nearly everything around is refused: look at each neighbour once.
    around = list(_neighbours(space, start)) if space.is_filtered else []
    order: list[int] = source.permutation(len(around)).tolist()
    for which in order:
        point = around[which]
        if space.is_valid(point):
            return point
    return index


def nearest_valid(space: PointSpace, index: int) -> int:
    """A valid point near a refused one: of its neighbours, of growing walks, or of all points."""
    for point in _neighbours(space, space.point2knob(index)):
        if space.is_valid(point):
            return point
    source = generator(0)
    for point in _far_neighbours(space, space.point2knob(index), source):
        if space.is_valid(point):
            return point
    anywhere = sample_ints(space, 1, source)
    if anywhere:
        return anywhere[0]
    looked = "all" if space.range_length <= SMALL else "more than 10000 random ones"
    raise SpaceError(
        f"no valid configuration: the filters refuse {looked} of {space.range_length} points; "
        "loosen multi_filter or add candidates"
    )


def _moved(space: PointSpace, vector: tuple[int, ...], number: int, digit: int) -> int:
    return space.knob2point([*vector[:number], digit, *vector[number + 1 :]])


def _neighbours(space: PointSpace, vector: tuple[int, ...]) -> Iterator[int]:
    """Points that differ in one knob, nearest candidates first."""
    for number, dim in enumerate(space.dims):
        here = vector[number]
        others = [digit for digit in range(dim) if digit != here]
        for digit in sorted(others, key=lambda digit: (abs(digit - here), digit)):
            yield _moved(space, vector, number, digit)


def _far_neighbours(
    space: PointSpace, start: tuple[int, ...], source: np.random.Generator
) -> Iterator[int]:
    """Random points that differ in two knobs, then some in three, and so on."""
    for changes in (n for n in range(2, len(start) + 1) for _ in range(_BLOCK)):
        vector = list(start)
        for number in source.permutation(len(start))[:changes]:
            vector[number] = int(source.integers(space.dims[number]))
        yield space.knob2point(vector)


def _draws(space: PointSpace, source: np.random.Generator) -> Iterator[int]:
    """Endless random points, repetitions included."""
    total = space.range_length
    dims = np.array(space.dims)
    while total < 1 << 62:
        yield from source.integers(total, size=_BLOCK).tolist()
    while True:
        vectors = source.integers(dims, size=(_BLOCK, len(dims))).tolist()
        yield from map(space.knob2point, vectors)


# Points by the thousand: a point's *digits* are the positions of its choices among the candidates
# of each knob; its index is their number in mixed radix, first knob least significant. Searches
# work on digits, a column a knob; ``visited`` sets and records hold indices.

Digits = npt.NDArray[np.int64]

#: From here on an index does not fit into 64 bits, and Python's integers are used.
_INT64 = 1 << 63


def digits_of(space: PointSpace, indices: Sequence[int]) -> Digits:
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


def indices_of(space: PointSpace, digits: npt.ArrayLike) -> list[int]:
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


def random_digits(space: PointSpace, n: int, rng: np.random.Generator) -> Digits:
    """Digits of points drawn uniformly, repetitions and refused points included: ``(n, knobs)``."""
    return rng.integers(0, np.array(space.dims, np.int64), size=(n, len(space.dims)))


class ValidMemo:
    """Memory of the points that the filters of a space accept; each point is asked about once.

    Filters are functions of the point, so the memory is a shortcut, emptied above ``limit``
    answers.
    """

    def __init__(self, space: PointSpace, limit: int = 1 << 18) -> None:
        self._space, self._limit = space, limit
        self._known: dict[int, bool] = {}

    def __call__(self, indices: Iterable[int]) -> npt.NDArray[np.bool_]:
        indices = list(indices)
        if not self._space.is_filtered:
            return np.ones(len(indices), np.bool_)
        if len(self._known) > self._limit:
            self._known.clear()
        for index in indices:
            if index not in self._known:
                self._known[index] = self._space.is_valid(index)
        return np.fromiter(map(self._known.__getitem__, indices), np.bool_, len(indices))


def distinct(indices: Sequence[int], taken: Iterable[int] = ()) -> npt.NDArray[np.int64]:
    """Positions of the indices that occur for the first time and are not ``taken``, ascending."""
    seen = taken if isinstance(taken, (set, frozenset)) else set(taken)
    first: dict[int, int] = {}
    for position, index in enumerate(indices):
        if index not in seen:
            first.setdefault(index, position)
    return np.fromiter(first.values(), np.int64, len(first))

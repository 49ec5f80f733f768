"""Choice of points in spaces that may have 1e12 of them, and filters that refuse most.

Every function is deterministic for a seed, ends in bounded time, and never lists the product.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

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
    def dims(self) -> tuple[int, ...]:
        """Number of candidates of each knob."""

    @property
    def range_length(self) -> int:
        """Number of points, valid or not."""

    @property
    def is_filtered(self) -> bool: ...

    def is_valid(self, index: int) -> bool: ...

    def point2knob(self, index: int) -> tuple[int, ...]:
        """The choice of each knob at an index."""

    def knob2point(self, vector: Sequence[int]) -> int: ...


@dataclass(frozen=True)
class ValidCount:
    """Number of valid points of a space.

    Attributes:
        count: The number, or its estimate.
        exact: False when ``count`` was estimated from a random sample.
        total: All points.

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
    """See ``ConfigSpace.valid_count``."""
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
    """See ``ConfigSpace.sample_ints``."""
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


def rand_index(space: PointSpace, rng: Rng, to_exclude: Collection[int]) -> int:
    """See ``ConfigSpace.get_rand_index``."""
    chosen = sample_ints(space, 1, rng, frozenset(to_exclude))
    if not chosen:
        raise SpaceError(
            f"no valid point found among {space.range_length}, {len(to_exclude)} being excluded"
        )
    return chosen[0]


def random_walk(space: PointSpace, index: int, rng: Rng) -> int:
    """See ``ConfigSpace.random_walk``."""
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


def next_index(space: PointSpace, index: int, step: int) -> int | None:
    """See ``ConfigSpace.get_next_index``."""
    if step < 1:
        raise SpaceError(f"step must be at least 1, got {step}")
    count = 0
    for candidate in range(index + 1, space.range_length):
        count += space.is_valid(candidate)
        if count == step:
            return candidate
    return None


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

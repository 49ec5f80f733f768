"""Candidates of a knob that are a small step apart, by their values.

A step of a split moves one prime factor from a loop to another (TVM's ``MutateTileSize``), a step
of an order swaps two axes, a step of an annotation changes one axis, and a step of a number goes to
the next smaller or greater one. Every function returns, for each candidate, the positions of its
neighbours in ascending order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise

import numpy as np

#: Least number of neighbours of a split, where filters leave no single factor to move.
_NEAREST = 4

#: The neighbours of one value, which need not be candidates.
_Steps = Callable[[tuple[object, ...]], Iterator[tuple[object, ...]]]


def swaps(values: Sequence[Sequence[object]]) -> list[list[int]]:
    """Candidates that differ by an exchange of two entries."""
    return _by_steps(values, _swapped)


def replacements(values: Sequence[Sequence[object]]) -> list[list[int]]:
    """Candidates that differ in one entry."""
    words = sorted({word for value in values for word in value}, key=str)
    return _by_steps(values, lambda value: _replaced(value, words))


def factor_moves(sizes: Sequence[Sequence[int]], length: int) -> list[list[int]]:
    """Splits with one prime factor in another loop; ``sizes`` leave out the outermost."""
    positions = {tuple(size): position for position, size in enumerate(sizes)}
    primes = _primes({length, *(part for size in sizes for part in size)})
    logs = np.log2(np.array(sizes, np.float64).reshape(len(sizes), -1))
    neighbours = []
    for position, size in enumerate(positions):
        near = {positions[s] for s in _moved_factors(size, primes) if s in positions}
        if len(near) < _NEAREST:
            distances = np.abs(logs - logs[position]).sum(axis=1)
            order = np.argsort(distances, kind="stable")[: _NEAREST + 1].tolist()
            near.update(other for other in order if other != position)
        neighbours.append(sorted(near))
    return neighbours


def next_numbers(numbers: Sequence[float]) -> list[list[int]]:
    order = np.argsort(np.array(numbers, np.float64), kind="stable").tolist()
    neighbours: list[list[int]] = [[] for _ in numbers]
    for rank, position in enumerate(order):
        neighbours[position] = sorted(order[max(0, rank - 1) : rank] + order[rank + 1 : rank + 2])
    return neighbours


def next_in_one_part(rows: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Tuples that are equal but for one part, and next to each other in that."""
    found: list[set[int]] = [set() for _ in rows]
    for part in range(len(rows[0])):
        lines: dict[tuple[int, ...], list[int]] = {}
        for position, row in enumerate(rows):
            lines.setdefault((*row[:part], *row[part + 1 :]), []).append(position)
        for line in lines.values():
            line.sort(key=lambda position: rows[position][part])
            for a, b in pairwise(line):
                found[a].add(b)
                found[b].add(a)
    return [sorted(near) for near in found]


def _by_steps(values: Sequence[Sequence[object]], steps: _Steps) -> list[list[int]]:
    positions = {tuple(value): position for position, value in enumerate(values)}
    return [sorted({positions[s] for s in steps(value) if s in positions}) for value in positions]


def _swapped(value: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    for a, b in combinations(range(len(value)), 2):
        swapped = list(value)
        swapped[a], swapped[b] = swapped[b], swapped[a]
        yield tuple(swapped)


def _replaced(value: tuple[object, ...], words: Sequence[object]) -> Iterator[tuple[object, ...]]:
    for place, word in enumerate(value):
        others = [other for other in words if other != word]
        yield from ((*value[:place], other, *value[place + 1 :]) for other in others)


def _moved_factors(size: tuple[int, ...], primes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Sizes after one prime went from a loop to another; the outermost one takes what is left."""
    for source in range(-1, len(size)):
        for prime in [p for p in primes if source < 0 or size[source] % p == 0]:
            yield from _moved_factor(size, prime, source)


def _moved_factor(size: tuple[int, ...], prime: int, source: int) -> Iterator[tuple[int, ...]]:
    for target in range(-1, len(size)):
        if target == source:
            continue
        moved = list(size)
        if source >= 0:
            moved[source] //= prime
        if target >= 0:
            moved[target] *= prime
        yield tuple(moved)


def _primes(numbers: set[int]) -> list[int]:
    primes: set[int] = set()
    for number in numbers:
        primes |= _prime_factors(number)
    return sorted(primes)


def _prime_factors(number: int) -> set[int]:
    factors: set[int] = set()
    rest = number
    for prime in range(2, math.isqrt(number) + 1):
        while rest % prime == 0:
            factors.add(prime)
            rest //= prime
    return factors | ({rest} - {1})

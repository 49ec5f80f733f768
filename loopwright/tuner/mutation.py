"""Small steps in a space: which candidates of a knob are next to which, and mutation by them.

A step of a split moves one prime factor from a loop to another (TVM's ``MutateTileSize``); of a
reorder, it swaps two axes; of an annotation, it changes one axis; of numbers, it goes to the next
smaller or greater one. Other choices have no neighbours and are drawn anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from loopwright.task.vectors import Digits

if TYPE_CHECKING:
    from loopwright.task import ConfigSpace, Knob

#: A knob of more candidates than this has no table of neighbours and is always drawn anew.
_TABLE = 8192
#: How many neighbours a split has at least, where filters leave no single factor to move.
_NEAREST = 4


class Mutation:
    """Mutation of digits, many rows at once.

    Args:
        space: the space.
        anew: chance of a changed knob to be drawn anew instead of going to a neighbour.
        more: chance of each further knob to change too, beside the one that always does.
    """

    def __init__(self, space: ConfigSpace, anew: float = 0.25, more: float = 0.1) -> None:
        self.anew, self.more = anew, more
        self._dims = np.array(space.dims, np.int64)
        self._movable = np.flatnonzero(self._dims > 1)
        self._tables = [_padded(neighbours(knob)) for knob in space.knobs.values()]

    def mutate(self, digits: Digits, rng: np.random.Generator) -> Digits:
        """Change at least one knob of every row; rows of shape ``(n, knobs)`` stay as they are.

        A space of one point has nothing to change.
        """
        rows, changed = len(digits), digits.copy()
        if not len(self._movable) or not rows:
            return changed
        chosen = rng.random(digits.shape) < self.more
        sure = self._movable[rng.integers(0, len(self._movable), size=rows)]
        chosen[np.arange(rows), sure] = True
        far = rng.random(digits.shape) < self.anew
        luck = rng.random(digits.shape)
        for number in self._movable.tolist():
            which = np.flatnonzero(chosen[:, number])
            changed[which, number] = self._step(
                number, digits[which, number], luck[which, number], far[which, number]
            )
        return changed

    def _step(
        self,
        number: int,
        here: npt.NDArray[np.int64],
        luck: npt.NDArray[np.float64],
        far: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.int64]:
        dim = int(self._dims[number])
        # Any candidate but the one that is here.
        anew = (here + 1 + (luck * (dim - 1)).astype(np.int64)) % dim
        table, counts = self._tables[number]
        if table.shape[1] == 0:
            return anew
        count = counts[here]
        near = table[here, (luck * count).astype(np.int64)]
        return np.where(far | (count == 0), anew, near)


def neighbours(knob: Knob) -> list[list[int]]:
    """For each candidate of a knob the positions of those next to it, ascending."""
    if len(knob) > _TABLE:
        return [[] for _ in range(len(knob))]
    values = [knob.value(position) for position in range(len(knob))]
    if knob.kind == "split":
        return _split_neighbours([value[1:] for value in values], knob.length)
    if knob.kind == "reorder":
        return _by_steps(values, _swaps)
    if knob.kind == "annotate":
        words = sorted({word for value in values for word in value}, key=str)
        return _by_steps(values, lambda value: _replacements(value, words))
    return _in_order(values)


def _padded(lists: list[list[int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    counts = np.array([len(found) for found in lists], np.int64)
    table = np.zeros((len(lists), int(counts.max(initial=0))), np.int64)
    for row, found in enumerate(lists):
        table[row, : len(found)] = found
    return table, counts


def _by_steps(
    values: Sequence[Sequence[object]],
    steps: Callable[[tuple[object, ...]], Iterator[tuple[object, ...]]],
) -> list[list[int]]:
    where = {tuple(value): position for position, value in enumerate(values)}
    return [sorted({where[s] for s in steps(value) if s in where}) for value in where]


def _swaps(value: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    for a, b in combinations(range(len(value)), 2):
        swapped = list(value)
        swapped[a], swapped[b] = swapped[b], swapped[a]
        yield tuple(swapped)


def _replacements(
    value: tuple[object, ...], words: Sequence[object]
) -> Iterator[tuple[object, ...]]:
    for place, word in enumerate(value):
        for other in words:
            if other != word:
                yield (*value[:place], other, *value[place + 1 :])


def _split_neighbours(sizes: Sequence[Sequence[int]], length: int) -> list[list[int]]:
    """``sizes`` are the inner ones of each candidate; the outermost follows from them."""
    where = {tuple(size): position for position, size in enumerate(sizes)}
    primes = _primes({length, *(part for size in sizes for part in size)})
    logs = np.log2(np.array(sizes, np.float64).reshape(len(sizes), -1))
    found = []
    for position, size in enumerate(where):
        near = {where[s] for s in _factor_moves(size, primes) if s in where}
        if len(near) < _NEAREST:
            far = np.abs(logs - logs[position]).sum(axis=1)
            order = np.argsort(far, kind="stable")[: _NEAREST + 1].tolist()
            near.update(other for other in order if other != position)
        found.append(sorted(near))
    return found


def _factor_moves(size: tuple[int, ...], primes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Sizes after one prime went from a loop to another; the outermost one takes what is left."""
    places = range(-1, len(size))
    for source in places:
        for to in places:
            for prime in primes:
                if source == to or (source >= 0 and size[source] % prime):
                    continue
                moved = list(size)
                if source >= 0:
                    moved[source] //= prime
                if to >= 0:
                    moved[to] *= prime
                yield tuple(moved)


def _primes(numbers: set[int]) -> list[int]:
    found: set[int] = set()
    for number in numbers:
        rest = number
        for prime in range(2, math.isqrt(number) + 1):
            while rest % prime == 0:
                found.add(prime)
                rest //= prime
        found.update({rest} - {1})
    return sorted(found)


def _in_order(values: Sequence[object]) -> list[list[int]]:
    if not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        return [[] for _ in values]
    order = np.argsort(np.array(values, np.float64), kind="stable").tolist()
    found: list[list[int]] = [[] for _ in values]
    for rank, position in enumerate(order):
        found[position] = sorted(order[max(0, rank - 1) : rank] + order[rank + 1 : rank + 2])
    return found

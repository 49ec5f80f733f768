"""Mutation of candidates by small steps: a knob goes from one candidate to a neighbour of it.

The knob defines which candidates are neighbours (`loopwright.task.Knob.neighbours`). A choice
without neighbours is drawn anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from loopwright.task.sampling import Digits

if TYPE_CHECKING:
    from loopwright.task import ConfigSpace


class Mutation:
    """Mutation of digits, many rows at once."""

    def __init__(self, space: ConfigSpace, anew: float = 0.25, more: float = 0.1) -> None:
        # Chance of a changed knob to be drawn anew instead of going to a neighbour, and of each
        # further knob to change too, beside the one that always does.
        self.anew, self.more = anew, more
        self._dims = np.array(space.dims, np.int64)
        self._movable = np.flatnonzero(self._dims > 1)
        self._tables = [_padded(knob.neighbours()) for knob in space.knobs.values()]

    def mutate(self, digits: Digits, rng: np.random.Generator) -> Digits:
        """A copy with at least one knob of every row changed, unless the space has one point."""
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

    def one(self, digits: Digits, rng: np.random.Generator, numbers: Sequence[int]) -> Digits:
        """Change one of some knobs of every row to a neighbour; any knob if these are fixed."""
        changed = digits.copy()
        movable = np.intersect1d(self._movable, np.array(numbers, np.int64))
        movable = movable if len(movable) else self._movable
        if not len(movable) or not len(digits):
            return changed
        chosen = movable[rng.integers(0, len(movable), size=len(digits))]
        luck, near = rng.random(len(digits)), np.zeros(len(digits), np.bool_)
        for number in np.unique(chosen).tolist():
            which = np.flatnonzero(chosen == number)
            here = digits[which, number]
            changed[which, number] = self._step(number, here, luck[which], near[which])
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


def _padded(lists: list[list[int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The lists as rows of a table, filled up with zeros, and the length of each."""
    counts = np.array([len(entries) for entries in lists], np.int64)
    table = np.zeros((len(lists), int(counts.max(initial=0))), np.int64)
    for row, entries in enumerate(lists):
        table[row, : len(entries)] = entries
    return table, counts

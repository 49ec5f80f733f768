"""Cache of warp access counts: thousands of candidates have few different ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.cost.symbolic.warps import Ints, count_lanes, described

#: Descriptions that are kept, and places where one may be found, as a power of two.
KEPT, _PLACES = 1 << 15, 16
_MASK = (1 << _PLACES) - 1
#: Odd numbers that spread the fields of descriptions over 64 bits (Knuth, TAOCP 3, 6.4).
_SPREAD = np.random.default_rng(0).integers(-(1 << 62), 1 << 62, 64) * 2 + 1


class KnownCounts:
    """Counts by description, a pure cache: a count is a function of its description.

    Each has two places where it may be found; a later one may take them both. The cache is emptied
    when ``kept`` descriptions leave no room for new ones.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        # For each number of fields: the kept descriptions, their counts, and their places.
        self._tables: dict[int, tuple[Ints, Ints, npt.NDArray[np.int32]]] = {}
        self._used: dict[int, int] = {}

    def columns(self, accesses: Sequence[tuple[str, Sequence[Any]]]) -> Any:
        """Counts of accesses as in `warps.described`, float64 (accesses, n)."""
        wanted = described(accesses)
        return self._counts(wanted).astype(np.float64).reshape(len(accesses), -1)

    def _counts(self, wanted: Ints) -> Ints:
        fields = len(wanted)
        if fields not in self._tables:
            self._clear(fields)
        spread = _SPREAD[:fields] @ wanted
        kept, counts, places = self._tables[fields]
        found = places[_first(spread)]
        unknown = _different(kept.take(found, axis=1), wanted)
        if len(unknown):
            found[unknown] = places[_second(spread[unknown])]
            again = _different(kept.take(found[unknown], axis=1), wanted[:, unknown])
            unknown = unknown[again]
        out = counts[found]
        if len(unknown):
            new, first, which = np.unique(
                wanted[:, unknown], axis=1, return_index=True, return_inverse=True
            )
            counted = count_lanes(new)
            out[unknown] = counted[which.reshape(-1)]
            self._keep(new, counted, spread[unknown[first]])
        return out

    def _keep(self, new: Ints, counted: Ints, spread: Ints) -> None:
        fields, n = new.shape
        if self._used[fields] + n > self._kept:
            self._clear(fields)
        if n >= self._kept:
            return
        kept, counts, places = self._tables[fields]
        at = np.arange(self._used[fields], self._used[fields] + n)
        kept[:, at], counts[at] = new, counted
        taken = places[_first(spread)] > 0
        places[np.where(taken, _second(spread), _first(spread))] = at
        self._used[fields] += n

    def _clear(self, fields: int) -> None:
        # Unused entries are found in the first place, which no description equals.
        kept = np.full((fields, self._kept), -1, np.int64)
        counts, places = np.zeros(self._kept, np.int64), np.zeros(1 << _PLACES, np.int32)
        self._tables[fields], self._used[fields] = (kept, counts, places), 1


def _different(columns: Ints, wanted: Ints) -> Ints:
    """Positions of descriptions that differ from the wanted ones."""
    return np.flatnonzero(np.bitwise_or.reduce(columns ^ wanted, axis=0))


def _first(spread: Ints) -> Ints:
    return (spread >> (64 - _PLACES)) & _MASK


def _second(spread: Ints) -> Ints:
    return (spread >> (64 - 2 * _PLACES)) & _MASK

"""Rows that were evaluated before: a search asks for the same candidates again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.task.vectors import Digits

Rows = npt.NDArray[np.float32]
#: Rows that are kept: 20 MB of 300 numbers.
KEPT = 1 << 14


class KnownRows:
    """Rows of numbers by candidate. A row is a function of its candidate, so this is a shortcut and
    no state. It is emptied when there is no room for new ones.

    Args:
        width: numbers of a row.
        kept: rows that there is room for.
        by: knobs by which new candidates are sorted: what is evaluated together then lies together.
    """

    def __init__(self, width: int, kept: int = KEPT, by: Sequence[int] = ()) -> None:
        # Memory of which nothing is touched yet takes no room.
        self._rows = np.empty((kept, width), np.float32)
        self._place: dict[bytes, int] = {}
        self._by = list(by)

    def rows(self, digits: Digits, evaluate: Callable[[Digits, Rows], None]) -> Rows:
        """The rows of candidates, float32 ``(n, width)``.

        Args:
            digits: int64 ``(n, knobs)``.
            evaluate: fills in the rows of those that are not known; not asked when there are none.
        """
        asked = _keys(digits)
        new = list({key: n for n, key in enumerate(asked) if key not in self._place}.values())
        if len(self._place) + len(new) > len(self._rows):
            self._place.clear()
            new = list({key: n for n, key in enumerate(asked)}.values())
        if len(new) > len(self._rows):
            out = np.empty((len(digits), self._rows.shape[1]), np.float32)
            evaluate(digits, out)
            return out
        if new:
            self._evaluate_new(digits[new], evaluate)
        places = np.fromiter((self._place[key] for key in asked), np.intp, len(asked))
        return self._rows.take(places, axis=0)

    def _evaluate_new(self, digits: Digits, evaluate: Callable[[Digits, Rows], None]) -> None:
        if self._by:
            digits = digits[np.lexsort(digits[:, self._by[::-1]].T)]
        at = len(self._place)
        room = self._rows[at : at + len(digits)]
        self._place.update((key, at + n) for n, key in enumerate(_keys(digits)))
        try:
            evaluate(digits, room)
        except BaseException:
            # No row may be found that was not filled in.
            self._place.clear()
            raise

    def add(self, digits: Digits, rows: Rows) -> None:
        """Keep the rows of candidates, for which there must be room; each is there once."""
        keys = _keys(digits)
        new = [n for n, key in enumerate(keys) if key not in self._place]
        at = len(self._place)
        self._rows[at : at + len(new)] = rows if len(new) == len(rows) else rows[new]
        self._place.update((keys[n], at + k) for k, n in enumerate(new))


def _keys(digits: Digits) -> list[bytes]:
    """Something to find each candidate by."""
    whole = np.ascontiguousarray(digits)
    if not whole.size:
        return [b""] * len(whole)
    keys: Any = whole.view(np.dtype((np.void, whole[0].nbytes))).ravel().tolist()
    return list(keys)

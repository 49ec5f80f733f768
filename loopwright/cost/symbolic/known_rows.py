"""Cache of evaluated rows: a search asks for the same candidates again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.task.sampling import Digits

Rows = npt.NDArray[np.float32]
#: Cached rows: 20 MB of 300 numbers.
KEPT = 1 << 14


class KnownRows:
    """Rows of ``width`` numbers by candidate, a pure cache: a row is a function of its candidate.

    It is emptied when ``kept`` rows leave no room for new ones. New candidates are sorted by the
    knobs ``by``, so that those evaluated together lie together.
    """

    def __init__(self, width: int, kept: int = KEPT, by: Sequence[int] = ()) -> None:
        # Memory of which nothing is touched yet takes no room.
        self._rows = np.empty((kept, width), np.float32)
        self._place: dict[bytes, int] = {}
        self._by = list(by)

    def rows(self, digits: Digits, evaluate: Callable[[Digits, Rows], None]) -> Rows:
        """Rows, float32 (n, width), of int64 (n, knobs); ``evaluate`` fills in unknown ones."""
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
        """Keep the rows of new candidates, for which there must be room."""
        keys = _keys(digits)
        new = [n for n, key in enumerate(keys) if key not in self._place]
        at = len(self._place)
        self._rows[at : at + len(new)] = rows if len(new) == len(rows) else rows[new]
        self._place.update((keys[n], at + k) for k, n in enumerate(new))


def _keys(digits: Digits) -> list[bytes]:
    whole = np.ascontiguousarray(digits)
    if not whole.size:
        return [b""] * len(whole)
    keys: Any = whole.view(np.dtype((np.void, whole[0].nbytes))).ravel().tolist()
    return list(keys)

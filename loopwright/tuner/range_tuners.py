"""Tuners of a range of indices: random search without replacement, and search in index order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from loopwright.errors import UsageError
from loopwright.tuner.base import Tuner
from loopwright.tuner.options import TunerOptions, option


@dataclass(frozen=True)
class RangeOptions(TunerOptions):
    range_idx: tuple[int, int] | None = option(
        None,
        "search only indices from the first to the second, both included (to divide a space "
        "among machines).",
    )


class RangeTuner(Tuner):
    Options: ClassVar[type[TunerOptions]] = RangeOptions
    settings: RangeOptions

    def reset(self) -> None:
        super().reset()
        size, range_idx = self.space.range_length, self.settings.range_idx
        self.begin_idx, self.end_idx = 0, size
        if range_idx is None:
            return
        pair = isinstance(range_idx, (tuple, list)) and len(range_idx) == 2
        if not pair or not all(isinstance(bound, Integral) for bound in range_idx):
            raise UsageError(f"range_idx must be two integers (first, last), got {range_idx!r}")
        first, last = range_idx
        if not 0 <= first <= last < size:
            raise UsageError(
                f"range_idx=({first}, {last}) is not a range within the space's {size} points; "
                f"give the first and the last index with 0 <= first <= last <= {size - 1}"
            )
        self.begin_idx, self.end_idx = first, last + 1

    @property
    def range_idx(self) -> tuple[int, int]:
        """First and last index that is searched, both included."""
        return self.begin_idx, self.end_idx - 1

    @property
    def range_length(self) -> int:
        return self.end_idx - self.begin_idx

    @property
    def options(self) -> dict[str, Any]:
        return {"range_idx": list(self.range_idx)}


#: Ranges up to this size may be listed when drawing no longer finds fresh points.
_LISTABLE = 1 << 22
#: Draws without one fresh valid point after which a range too big to list is given up.
_GIVE_UP = 100_000
#: Largest bound that NumPy draws below directly.
_INT64 = 2**63 - 1


class RandomTuner(RangeTuner):
    """Proposes valid points uniformly at random, none twice.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> tuner = lw.tuner.RandomTuner(task, seed=0)
        >>> print(len({config.index for config in tuner.ask(8)}))
        8
    """

    name: ClassVar[str] = "random"

    def propose(self, n: int) -> Iterator[int]:
        searched = (self.begin_idx, self.end_idx)
        yield from fresh_points(self, n, searched)
        self.why_empty = no_fresh_point(searched)


def fresh_points(tuner: Tuner, n: int, searched: tuple[int, int] | None = None) -> Iterator[int]:
    """Yield valid points that ``tuner`` has not visited, uniformly at random.

    Time and memory do not depend on the size of the space: where drawing no longer hits fresh
    points, a range of up to four million is listed, so that every last one is found. Only the
    number drawn at once depends on ``n``; ``searched`` is a half-open range, None for the whole
    space.
    """
    lo, hi = searched or (0, tuner.space.range_length)
    misses, patience = 0, 16 * n + 256 if hi - lo <= _LISTABLE else _GIVE_UP
    while misses < patience:
        drawn = _draw(tuner.rng, 2 * n, lo, hi)
        for index, fits in zip(drawn, tuner.pruning(drawn), strict=True):
            fresh = fits and index not in tuner.visited and tuner.space.is_valid(index)
            misses = 0 if fresh else misses + 1
            yield from [index] if fresh else []
    if hi - lo > _LISTABLE:
        return
    for index in (tuner.rng.permutation(hi - lo) + lo).tolist():
        if index not in tuner.visited and tuner.admits(index):
            yield index


def no_fresh_point(searched: tuple[int, int]) -> str:
    lo, hi = searched
    if hi - lo <= _LISTABLE:
        return f"every valid point of the {hi - lo} was proposed"
    return f"{_GIVE_UP} draws in a row found no valid point that was not proposed before"


def _draw(rng: np.random.Generator, n: int, lo: int, hi: int) -> list[int]:
    if hi <= _INT64:
        drawn: list[int] = rng.integers(lo, hi, size=n).tolist()
        return drawn
    # Eight bytes more than the span needs: the bias of the remainder is below 2 ** -64.
    width = (hi - lo).bit_length() // 8 + 9
    return [lo + int.from_bytes(rng.bytes(width), "little") % (hi - lo) for _ in range(n)]


#: Invalid points in a row after which the rest of the range is given up.
_INVALID = 1_000_000


class GridSearchTuner(RangeTuner):
    """Proposes every valid point once, in the order of the space's index; its seed is only
    recorded.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> tuner = lw.tuner.GridSearchTuner(task)
        >>> indices = [config.index for config in tuner.ask(3)]
        >>> print(indices == sorted(indices))
        True
    """

    name: ClassVar[str] = "grid"

    def reset(self) -> None:
        super().reset()
        # Everything before the cursor is visited or invalid: a shortcut, not part of the state.
        self._cursor = self.begin_idx

    def propose(self, n: int) -> Iterator[int]:
        invalid = 0
        while self._cursor < self.end_idx and invalid < _INVALID:
            index = self._cursor
            self._cursor += 1
            if index in self.visited:
                continue
            if not self.admits(index):
                invalid += 1
                continue
            invalid = 0
            yield index
        self.why_empty = (
            f"{_INVALID} points in a row are invalid"
            if invalid == _INVALID
            else f"every valid point of the {self.range_length} was proposed"
        )

"""Random search without replacement, in time and memory that do not depend on the space's size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from loopwright.tuner.base import Tuner
from loopwright.tuner.index_range import RangeTuner

#: Ranges up to this size may be listed when drawing no longer finds fresh points.
_LISTABLE = 1 << 22
#: Draws without one fresh valid point after which a range too big to list is given up.
_GIVE_UP = 100_000
#: Largest bound that NumPy draws below directly.
_INT64 = 2**63 - 1


class RandomTuner(RangeTuner):
    """Proposes valid points uniformly at random, none twice.

    Args:
        task: the task to tune.
        seed: of the draws.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> tuner = lw.tuner.RandomTuner(task, seed=0)
        >>> print(len({config.index for config in tuner.ask(8)}))
        8
    """

    name: ClassVar[str] = "random"

    def propose(self, n: int) -> Iterator[int]:
        """Yield fresh valid points: by drawing, then by listing those that drawing misses."""
        searched = (self.begin_idx, self.end_idx)
        yield from fresh_points(self, n, searched)
        self.why_empty = no_fresh_point(searched)


def fresh_points(tuner: Tuner, n: int, searched: tuple[int, int] | None = None) -> Iterator[int]:
    """Yield valid points that ``tuner`` has not visited, uniformly at random.

    Points are drawn, and where drawing no longer hits fresh ones the range is listed, so that in a
    range of up to four million points every last one is found. Only the number drawn at once
    depends on ``n``; ``searched`` is a half-open range, None for the whole space.
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
    """Reason why ``fresh_points`` found nothing more in a half-open range."""
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

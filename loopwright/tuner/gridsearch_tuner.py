"""Exhaustive search in index order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from loopwright.tuner.index_range import RangeTuner

#: Invalid points in a row after which the rest of the range is given up.
_GIVE_UP = 1_000_000


class GridSearchTuner(RangeTuner):
    """Proposes every valid point once, in the order of the space's index.

    Args:
        task: the task to tune.
        seed: kept in the log's header; this tuner makes no random choice.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> tuner = lw.tuner.GridSearchTuner(task)
        >>> indices = [config.index for config in tuner.ask(3)]
        >>> print(indices == sorted(indices))
        True
    """

    name: ClassVar[str] = "grid"

    def reset(self) -> None:
        """Start again at the first index."""
        super().reset()
        # Everything before the cursor is visited or invalid: a shortcut, not part of the state.
        self._cursor = self.begin_idx

    def propose(self, n: int) -> Iterator[int]:
        """Yield the next fresh valid points in index order."""
        invalid = 0
        while self._cursor < self.end_idx and invalid < _GIVE_UP:
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
            f"{_GIVE_UP} points in a row are invalid"
            if invalid == _GIVE_UP
            else f"every valid point of the {self.range_length} was proposed"
        )

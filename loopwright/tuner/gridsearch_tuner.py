"""Exhaustive search in index order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from loopwright.tuner.base import Tuner, index_range

if TYPE_CHECKING:
    from loopwright.task import Task

#: Invalid points in a row after which the rest of the range is given up.
_GIVE_UP = 1_000_000


class GridSearchTuner(Tuner):
    """Proposes every valid point once, in the order of the space's index.

    Args:
        task: the task to tune.
        range_idx: search only indices ``lo <= index < hi``.
        seed: kept in the log's header; this tuner makes no random choice.
    """

    name: ClassVar[str] = "grid"

    def __init__(
        self, task: Task, range_idx: tuple[int, int] | None = None, *, seed: int = 0
    ) -> None:
        self.range_idx = index_range(task.config_space.range_length, range_idx)
        super().__init__(task, seed=seed)

    def reset(self) -> None:
        """Start again at the first index."""
        super().reset()
        # Everything before the cursor is visited or invalid: a shortcut, not part of the state.
        self._cursor = self.range_idx[0]

    def propose(self, n: int) -> Iterator[int]:
        """Yield the next fresh valid points in index order."""
        invalid = 0
        while self._cursor < self.range_idx[1] and invalid < _GIVE_UP:
            index = self._cursor
            self._cursor += 1
            if index in self.visited:
                continue
            if not self.space.is_valid(index):
                invalid += 1
                continue
            invalid = 0
            yield index
        self.why_empty = (
            f"{_GIVE_UP} points in a row are invalid"
            if invalid == _GIVE_UP
            else f"every valid point of the {self.range_idx[1] - self.range_idx[0]} was proposed"
        )

    @property
    def options(self) -> dict[str, Any]:
        """The searched range."""
        return {"range_idx": list(self.range_idx)}

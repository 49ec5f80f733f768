"""Random search without replacement, in time and memory that do not depend on the space's size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from loopwright.tuner.base import Tuner, index_range

if TYPE_CHECKING:
    from loopwright.task import Task

#: Ranges up to this size may be listed when drawing no longer finds fresh points.
_LISTABLE = 1 << 22
#: Draws without one fresh valid point after which a range too big to list is given up.
_GIVE_UP = 100_000
#: What NumPy draws directly.
_INT64 = 2**63 - 1


class RandomTuner(Tuner):
    """Proposes valid points uniformly at random, none twice.

    Args:
        task: the task to tune.
        range_idx: search only indices ``lo <= index < hi`` (to divide a space among machines).
        seed: of the draws.
    """

    name: ClassVar[str] = "random"

    def __init__(
        self, task: Task, range_idx: tuple[int, int] | None = None, *, seed: int = 0
    ) -> None:
        self.range_idx = index_range(task.config_space.range_length, range_idx)
        super().__init__(task, seed=seed)

    def propose(self, n: int) -> Iterator[int]:
        """Yield fresh valid points: by drawing, then by listing what drawing no longer hits."""
        lo, hi = self.range_idx
        misses, patience = 0, 16 * n + 256 if hi - lo <= _LISTABLE else _GIVE_UP
        while misses < patience:
            for index in self._draw(2 * n):
                if index in self.visited or not self.space.is_valid(index):
                    misses += 1
                    continue
                misses = 0
                yield index
        if hi - lo <= _LISTABLE:
            yield from self._remaining(lo, hi)
        self.why_empty = self._reason(lo, hi)

    def _draw(self, n: int) -> list[int]:
        lo, hi = self.range_idx
        if hi <= _INT64:
            drawn: list[int] = self.rng.integers(lo, hi, size=n).tolist()
            return drawn
        # Eight bytes more than the span needs: the bias of the remainder is below 2 ** -64.
        width = (hi - lo).bit_length() // 8 + 9
        return [lo + int.from_bytes(self.rng.bytes(width), "little") % (hi - lo) for _ in range(n)]

    def _remaining(self, lo: int, hi: int) -> Iterator[int]:
        for index in (self.rng.permutation(hi - lo) + lo).tolist():
            if index not in self.visited and self.space.is_valid(index):
                yield index

    def _reason(self, lo: int, hi: int) -> str:
        if hi - lo <= _LISTABLE:
            return f"every valid point of the {hi - lo} was proposed"
        return f"{_GIVE_UP} draws in a row found no valid point that was not proposed before"

    @property
    def options(self) -> dict[str, Any]:
        """The searched range."""
        return {"range_idx": list(self.range_idx)}

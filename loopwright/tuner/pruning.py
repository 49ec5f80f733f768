"""Pruning: points that a GPU has no room for are not proposed, and counted.

Nothing is known of a point of another target, or of one that its template refuses: such points are
left to those that build them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from loopwright.cost.analytical import MARGINS, Excess
from loopwright.task.vectors import digits_of

if TYPE_CHECKING:
    from loopwright.task.interfaces import Scheduler

#: Number of points that are remembered, so that each counts once.
_REMEMBERED = 1 << 18


class Pruning:
    """Decides whether points of a task may be built, by their use of resources; None allows all.

    The decision is a function of the point: what is remembered is a shortcut and a count, no state.
    """

    def __init__(self, task: Scheduler | None) -> None:
        on_gpu = task is not None and "gpu" in task.target.keys
        self._space = task.config_space if task is not None else None
        self._excess = Excess(task) if task is not None and on_gpu else None
        self._known: dict[int, bool] = {}
        self.looked_at = 0
        #: For the points that are pruned, the first limit that each exceeds.
        self.reasons: Counter[str] = Counter()

    def __call__(self, indices: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Whether each point may be built, bool ``(n,)``."""
        if self._excess is None:
            return np.ones(len(indices), np.bool_)
        new = [i for i in dict.fromkeys(indices) if i not in self._known]
        if len(self._known) + len(new) > _REMEMBERED:
            self._known.clear()
            new = list(dict.fromkeys(indices))
        if new:
            self._look_at(self._excess, new)
        return np.fromiter((self._known[i] for i in indices), np.bool_, len(indices))

    def _look_at(self, excess: Excess, indices: list[int]) -> None:
        assert self._space is not None
        limits = np.array(list(MARGINS))
        self.looked_at += len(indices)
        for index, over in zip(
            indices, excess.widely(digits_of(self._space, indices)), strict=True
        ):
            self._known[index] = not over.any()
            self.reasons.update(limits[over][:1].tolist())

    @property
    def pruned(self) -> int:
        return self.reasons.total()

    @property
    def note(self) -> str:
        """Line on the pruned points and the reasons; empty where there are none."""
        if not self.pruned:
            return ""
        why = ", ".join(f"{name} {n}" for name, n in self.reasons.most_common())
        return (
            f"pruned:  {self.pruned} of {self.looked_at} points looked at, which take far more "
            f"than the device has ({why})"
        )

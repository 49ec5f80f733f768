"""Features of a whole measured space, computed once a process instead of once a run.

They are a function of the point, so tuners propose the same with and without; hundreds of runs over
one space need minutes instead of hours. What a run takes for itself is then without features.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from loopwright.cost.features import Extractor
from loopwright.cost.symbolic.population import Rows
from loopwright.task import Task
from loopwright.task.sampling import digits_of, indices_of
from loopwright.tuner.model import candidates

#: Points whose features are computed at once.
_BLOCK = 1024


class _Table:
    """Values of every valid point of a space, looked up by digits.

    Args:
        task: the task.
        compute: values (n, ...) of digits (n, knobs).
    """

    def __init__(self, task: Task, compute: Callable[[Any], Any]) -> None:
        self._space = space = task.config_space
        self._indices = np.array([i for i in range(space.range_length) if space.is_valid(i)])
        self._compute = compute
        digits = digits_of(space, self._indices.tolist())
        blocks = [digits[at : at + _BLOCK] for at in range(0, len(digits), _BLOCK)]
        self._values = np.concatenate([compute(block) for block in blocks])

    def __call__(self, digits: Any) -> Any:
        """The values; of points that the space refuses they are computed."""
        asked = np.array(indices_of(self._space, digits), np.int64)
        at = np.minimum(np.searchsorted(self._indices, asked), len(self._indices) - 1)
        known = self._indices[at] == asked
        values = self._values[at]
        if not known.all():
            values[~known] = self._compute(np.asarray(digits)[~known])
        return values


class RememberedExtractor:
    """An `Extractor` that knows the whole space."""

    def __init__(self, task: Task, feature_type: str) -> None:
        self.task, self.feature_type = task, feature_type
        self._real = Extractor(task, feature_type)
        self.names = self._real.names
        self._rows = _Table(task, self._joined)
        self._asked: Any = None

    @property
    def derived(self) -> int:
        """How often the template would have run for what was asked last, were nothing known."""
        fresh = Extractor(self.task, self.feature_type)
        fresh.rows(self._asked)
        return fresh.derived

    def rows(self, digits: Any) -> Rows:
        """As `Extractor.rows`."""
        self._asked = digits
        joined = self._rows(digits)
        return Rows(np.ascontiguousarray(joined[:, :-1]), joined[:, -1] != 0)

    def _joined(self, digits: Any) -> Any:
        rows = self._real.rows(digits)
        return np.concatenate([rows.values, rows.failed[:, None].astype(np.float32)], axis=1)


class RememberedModel:
    """An `AnalyticalModel` that knows the whole space."""

    def __init__(self, model: Any, task: Task) -> None:
        self._predict = _Table(task, model.predict)

    def predict(self, digits: Any) -> Any:
        """As `AnalyticalModel.predict`."""
        return self._predict(digits)


def remember() -> None:
    """Let all tuners of this process that are made from now on share what is known of a space."""
    if getattr(candidates.Extractor, "shared", False):
        return

    @lru_cache(maxsize=8)
    def extractor(task: Task, feature_type: str) -> RememberedExtractor:
        return RememberedExtractor(task, feature_type)

    extractor.shared = True  # type: ignore[attr-defined]
    candidates.Extractor = extractor  # type: ignore[misc, assignment]
    real = candidates.AnalyticalModel
    made = lru_cache(maxsize=8)(lambda task: RememberedModel(real(task), task))
    candidates.AnalyticalModel = made  # type: ignore[misc, assignment]

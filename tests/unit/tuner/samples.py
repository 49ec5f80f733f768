"""Samples for tests of cost models."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loopwright.tuner.model.cost_model import Batch, Samples


def samples_of(
    features: npt.ArrayLike,
    score: npt.ArrayLike,
    outcome: npt.ArrayLike | None = None,
    task: npt.ArrayLike | None = None,
) -> Samples:
    """Samples without offset; by default all measured and of one task."""
    values = np.asarray(score, np.float64)
    none = np.zeros(len(values), np.int64)
    return Samples(
        Batch.plain(features),
        values,
        none if outcome is None else np.asarray(outcome, np.int64),
        none if task is None else np.asarray(task, np.int64),
    )

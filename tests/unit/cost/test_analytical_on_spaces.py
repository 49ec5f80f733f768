"""The analytical model orders the measured spaces: overall, and at the top."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.spaces import path_of
from benchmarks.spaces.templates import SPACES
from loopwright.cost.analytical import AnalyticalModel
from loopwright.measure.space_file import load_space
from loopwright.task.sampling import digits_of


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("matmul", 0.9),
        pytest.param("conv2d", 0.85, marks=pytest.mark.slow),  # several seconds, as its kind
        pytest.param("depthwise", 0.85, marks=pytest.mark.slow),
    ],
)
def test_it_ranks_a_measured_space(name: str, least: float) -> None:
    from scipy.stats import spearmanr

    measured = load_space(path_of(name))
    task = SPACES[name].task(measured.target)
    seconds, indices = zip(*measured.ranking(), strict=True)
    predicted = AnalyticalModel(task).predict(digits_of(task.config_space, indices))
    assert spearmanr(predicted, -np.array(seconds)).statistic > least
    # Where the points within 95 % of the best stand among all, by the model.
    place = np.argsort(np.argsort(-predicted, kind="stable"))
    near = place[np.array(seconds) <= seconds[0] / 0.95]
    assert np.median(near) < 0.01 * len(seconds)
    assert near.max() < 0.05 * len(seconds)

"""Intervals of medians against tables and coverage, and how two sets of times compare."""

from __future__ import annotations

import numpy as np
import pytest

from loopwright.inspection import change, median_interval
from loopwright.records import Outcome

#: Ranks of the interval of the median with at least 95 %: tables of the sign test.
RANKS = {6: (1, 6), 8: (1, 8), 9: (2, 8), 10: (2, 9), 15: (4, 12), 20: (6, 15), 25: (8, 18)}


@pytest.mark.parametrize("count", RANKS)
def test_ends_of_the_interval_are_those_of_tables(count: int) -> None:
    low, high = RANKS[count]
    shuffled = np.random.default_rng(0).permutation(np.arange(1.0, count + 1))
    assert median_interval(shuffled.tolist()) == (low, high)


def test_few_samples_have_no_interval() -> None:
    assert median_interval([1.0] * 5) is None
    assert median_interval([]) is None


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    samples = rng.lognormal(0.0, 0.5, (500, 20))  # whose median is 1
    held = [low <= 1.0 <= high for low, high in map(median_interval, samples.tolist())]
    assert 0.94 < np.mean(held) < 0.98


def test_a_clear_difference_is_said_and_noise_is_none() -> None:
    rng = np.random.default_rng(2)
    before = (1e-3 * rng.normal(1.0, 0.005, 9)).tolist()
    slower = change(before, (1.2e-3 * rng.normal(1.0, 0.005, 20)).tolist())
    assert slower is not None
    assert slower.outcome is Outcome.SLOWER
    assert slower.gain == pytest.approx(1 / 1.2 - 1, abs=0.01)
    assert slower.low <= 1 / 1.2 - 1 <= slower.high
    assert "% slower +- " in slower.text()
    faster = change(before, [t / 1.2 for t in before])
    assert faster is not None
    assert faster.outcome is Outcome.FASTER
    same = change(before, (1e-3 * rng.normal(1.0, 0.005, 20)).tolist())
    assert same is not None
    assert same.outcome is Outcome.TIE
    assert same.text().startswith("same within the noise (")


def test_samples_that_scatter_are_not_called_the_same() -> None:
    wild = change([1.0, 1.0, 2.0, 2.0, 3.0], [1.0, 1.1, 1.0, 1.1, 1.0])
    assert wild is not None
    assert "the samples scatter too much" in wild.text()


def test_a_comparison_is_the_same_each_time_and_needs_five() -> None:
    before, now = [1.0, 1.1, 1.2, 1.0, 1.1], [1.0, 1.05, 1.3, 1.0, 1.1]
    assert change(before, now) == change(before, now) is not None
    assert change(before[:4], now) is None

"""Gains with intervals: against published tables, SciPy, and playoffs of equal kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from loopwright.measure.paired_ratios import _cut, paired_gain
from loopwright.records import Outcome

#: Critical values of the signed-rank test at 5 %, two-sided (Wilcoxon and Wilcox, 1964).
PUBLISHED = {5: None, 6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 12: 13, 15: 25, 20: 52, 25: 89, 30: 137}


def noise(rng: np.random.Generator, rounds: int) -> np.ndarray:
    """Logarithms of times of two equal kernels in turns: the machine drifts, neighbours disturb."""
    count = 2 * rounds
    drift = np.zeros(count)
    for i in range(1, count):
        drift[i] = 0.95 * drift[i - 1] + 0.004 * rng.standard_normal()
    tails = 0.004 * rng.standard_t(2, count)
    spikes = (rng.random(count) < 0.1) * rng.exponential(0.15, count)
    return (drift + tails + spikes).reshape(rounds, 2)


def pair(rng: np.random.Generator, rounds: int, gain: float = 0.0) -> tuple[list, list]:
    times = np.exp(noise(rng, rounds))
    return list(times[:, 0] * (1 + gain)), list(times[:, 1])


@pytest.mark.parametrize(("rounds", "critical"), PUBLISHED.items())
def test_the_interval_cuts_off_as_the_published_table_says(rounds, critical):
    assert _cut(rounds) == critical


def test_the_interval_is_where_scipys_test_changes_its_mind():
    """A gain lies inside of the interval when the test against it does not refuse it."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        base, other = pair(rng, 12, 0.02)
        found = paired_gain(base, other)
        assert found is not None
        logs = np.log(np.array(base) / np.array(other))
        for end, inwards in ((found.low, 1), (found.high, -1)):
            for step, inside in ((1e-9, True), (-1e-9, False)):
                shifted = logs - math.log1p(end + inwards * step)
                refused = stats.wilcoxon(shifted, mode="exact").pvalue <= 0.05
                assert refused != inside


def test_a_drift_falls_out():
    base = [1.0 * 1.2**i for i in range(10)]
    found = paired_gain(base, [t / 1.1 for t in base])
    assert found is not None
    assert found.gain == pytest.approx(0.1)
    assert found.margin == pytest.approx(0.0, abs=1e-12)
    assert found.outcome is Outcome.FASTER
    back = paired_gain([t / 1.1 for t in base], base)
    assert back is not None
    assert back.outcome is Outcome.SLOWER


def test_too_few_rounds_have_no_interval():
    assert paired_gain([1.0] * 5, [0.5] * 5) is None
    with pytest.raises(ValueError, match="argument 2 is longer"):
        paired_gain([1.0], [1.0, 2.0])


def test_equal_kernels_tie_where_the_mean_of_three_has_a_winner():
    rng = np.random.default_rng(1)
    winners = crowned = missed = 0
    for _ in range(400):
        found = paired_gain(*pair(rng, 20))
        assert found is not None
        winners += found.outcome is not Outcome.TIE
        missed += not found.low <= 0 <= found.high
        three = np.exp(noise(rng, 3)).mean(axis=0)
        crowned += abs(three[0] / three[1] - 1) > 0.005
    assert missed / 400 < 0.075  # 5 % is what an interval of 95 % allows
    assert winners / 400 < 0.02
    assert crowned / 400 > 0.5


def test_a_real_gain_is_found_and_its_interval_holds_it():
    rng = np.random.default_rng(2)
    found = [paired_gain(*pair(rng, 20, 0.05)) for _ in range(200)]
    assert sum(f.outcome is Outcome.FASTER for f in found if f) > 180
    assert 0.92 < sum(f.low <= 0.05 <= f.high for f in found if f) / 200 < 0.99

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from benchmarks.tuner_stats import band, median_interval, random_curve, random_median


@pytest.mark.parametrize(("points", "good"), [(1, 1), (7, 2), (10, 10), (60, 3), (5000, 25)])
def test_random_median_is_where_missing_becomes_less_likely_than_not(points, good):
    def missing(n):
        return math.comb(points - good, n) / math.comb(points, n)

    median = random_median(points, good)
    assert missing(median) <= 0.5
    assert median == 1 or missing(median - 1) > 0.5


@pytest.mark.parametrize("good", [0, 11])
def test_random_median_refuses_impossible_counts(good):
    with pytest.raises(ValueError, match="good points of 10"):
        random_median(10, good)


def test_random_curve_is_the_mean_over_all_orders():
    shares = [0.2, 1.0, 0.0, 0.7, 0.7, 0.5]
    orders = [np.maximum.accumulate(order) for order in itertools.permutations(shares)]
    assert random_curve(shares, 6) == pytest.approx(np.mean(orders, axis=0))


def test_the_interval_of_a_median_holds_it_and_may_end_at_infinity():
    rng = np.random.default_rng(0)
    values = np.arange(1.0, 62.0)
    low, high = median_interval(values, rng)
    assert 20 <= low < 31 < high <= 42
    values[29:] = math.inf
    low, high = median_interval(values, rng)
    assert low < 30
    assert high == math.inf
    assert median_interval([3.0] * 9, rng) == (3.0, 3.0)
    assert median_interval([math.inf] * 9, rng) == (math.inf, math.inf)


def test_a_band_encloses_the_mean():
    curves = np.random.default_rng(1).uniform(size=(30, 4))
    mean, low, high = band(curves, np.random.default_rng(0))
    assert mean == pytest.approx(curves.mean(axis=0))
    assert np.all(low < mean)
    assert np.all(mean < high)

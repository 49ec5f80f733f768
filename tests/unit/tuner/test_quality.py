from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from loopwright.tuner.model.losses import judge, rank_correlation, recall_of_top


def ranks(values):
    return np.argsort(np.argsort(values))


def test_correlations_are_those_of_the_textbook():
    rng = np.random.default_rng(0)
    for _ in range(10):
        a, b = rng.random(12), rng.random(12)
        difference = ranks(a) - ranks(b)
        spearman = 1 - 6 * (difference**2).sum() / (12 * (12**2 - 1))
        signs = [np.sign(a[i] - a[j]) * np.sign(b[i] - b[j]) for i, j in combinations(range(12), 2)]
        assert rank_correlation(a, b) == pytest.approx((spearman, np.mean(signs)))


def test_with_ties_correlations_are_those_of_scipy():
    rng = np.random.default_rng(1)
    for count in (3, 5, 16, 100):
        a = rng.integers(0, 4, count).astype(np.float64)
        b = rng.integers(0, 3, count).astype(np.float64) * 1e-60
        a[:2], b[:2] = (0, 1), (0, 1e-60)
        expected = stats.spearmanr(a, b).statistic, stats.kendalltau(a, b).statistic
        assert rank_correlation(a, b) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("predicted", "measured"),
    [([], []), ([1, 2], [1, 2]), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [2, 2, 2])],
)
def test_what_is_not_defined_is_nan(predicted, measured):
    found = rank_correlation(np.array(predicted, float), np.array(measured, float))
    assert all(map(math.isnan, found))


def test_recall_counts_the_common_top():
    measured = np.arange(16.0)
    assert recall_of_top(measured, measured) == 1
    assert recall_of_top(-measured, measured) == 0
    half = measured.copy()
    half[[14, 15]] = -1
    assert recall_of_top(half, measured) == 0.5
    assert recall_of_top(np.array([3.0]), np.array([5.0])) == 1
    assert math.isnan(recall_of_top(np.empty(0), np.empty(0)))


def test_a_report_reads_as_a_sentence():
    measured = np.arange(16.0)
    text = str(judge(measured, measured, round=4, trained_on=64, trees=30))
    assert "round 4" in text
    assert "1.00 (Spearman)" in text
    assert "100% of the top" in text
    assert "16 unseen" in text

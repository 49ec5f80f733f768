"""What the comparison of tuners computes: random search exactly, the others with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

#: Resamples of a bootstrap interval, and its level.
RESAMPLES, LEVEL = 9999, 0.95


def random_median(points: int, good: int) -> int:
    """Median of the number of draws without replacement until one of ``good`` points is drawn.

    The smallest n for which a draw of n points misses all good ones with a chance of at most one
    half: the hypergeometric distribution, no sampling.

    Args:
        points: size of the space, failures included (random search draws them too).
        good: how many of them count.
    """
    if not 0 < good <= points:
        raise ValueError(f"{good} good points of {points}")
    low, high = 1, points - good + 1
    while low < high:
        middle = (low + high) // 2
        if stats.hypergeom(points, good, middle).pmf(0) <= 0.5:
            high = middle
        else:
            low = middle + 1
    return low


def random_curve(shares: Sequence[float], trials: int) -> Any:
    """Mean of the best share after 1, 2, ... ``trials`` draws without replacement, exactly.

    Args:
        shares: share of the optimum of each point of the space, 0.0 for a failure.
        trials: length of the curve.

    Returns:
        float64 (trials,): ``sum over r of share_r * P(best rank is r)``, where the best rank of n
        draws is r with chance ``C(N - r, n - 1) / C(N, n)``, ranks from 1.
    """
    ranked = np.sort(np.asarray(shares, float))[::-1]
    size = len(ranked)
    curve = np.empty(trials)
    none_better = np.ones(size)  # chance that n draws all rank behind r
    behind = size - np.arange(1, size + 1)
    for n in range(1, trials + 1):
        # Drawing one more: the chance that it, too, is among those behind.
        none_better = none_better * np.maximum(behind - (n - 1), 0) / (size - (n - 1))
        first = np.concatenate([[1.0], none_better[:-1]]) - none_better
        curve[n - 1] = first @ ranked
    return curve


def median_interval(values: Sequence[float], rng: np.random.Generator) -> tuple[float, float]:
    """Percentile bootstrap interval of the median; values may be infinite (never reached)."""
    data = np.asarray(values, float)
    if np.all(data == data[0]):
        return float(data[0]), float(data[0])
    # Infinite values have an order but no mean: the ranks are resampled, not the values.
    order = np.sort(data)
    found = stats.bootstrap(
        (np.arange(len(order), dtype=float),),
        _upper_median,
        n_resamples=RESAMPLES,
        confidence_level=LEVEL,
        method="percentile",
        vectorized=True,
        random_state=rng,
    ).confidence_interval
    return float(order[math.floor(found.low)]), float(order[math.ceil(found.high)])


def _upper_median(ranks: Any, axis: int = -1) -> Any:
    """The upper of the two middle values, so that a resample gives one of the ranks."""
    size = ranks.shape[axis]
    return np.take(np.sort(ranks, axis=axis), size // 2, axis=axis)


def band(curves: Any, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Mean of curves (seeds, trials) with a bootstrap interval of it: mean, low, high."""
    found = stats.bootstrap(
        (curves,),
        np.mean,
        axis=0,
        n_resamples=999,
        confidence_level=LEVEL,
        method="percentile",
        vectorized=True,
        random_state=rng,
    ).confidence_interval
    return curves.mean(axis=0), found.low, found.high

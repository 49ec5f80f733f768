from __future__ import annotations

import math

import numpy as np
import pytest

from loopwright.tuner.run.budget import AHEAD, VALID, WINDOW, expected_gain


def test_nothing_is_said_without_enough_trials():
    speeds = [float(i) for i in range(1, WINDOW + 1)]
    assert expected_gain(speeds[1:]) is None
    assert expected_gain([None] * (WINDOW - VALID + 1) + speeds[: VALID - 1]) is None
    assert expected_gain([None] * (WINDOW - VALID) + speeds[:VALID]) > 0
    assert expected_gain(speeds) > 0


def test_what_the_trials_brought_is_that_of_random_quarters():
    """Against quarters that are really drawn."""
    rng = np.random.default_rng(0)
    logs = rng.normal(0.0, 0.2, 100)
    quarters = [rng.choice(logs, 25, replace=False).max() for _ in range(20_000)]
    brought = logs.max() - np.mean(quarters)
    expected = math.expm1(brought * math.log(1 + AHEAD / 100) / math.log(4))
    assert expected_gain(np.exp(logs).tolist()) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("sigma", [0.02, 0.3])
@pytest.mark.parametrize("n", [WINDOW, 400])
def test_it_is_right_on_average_where_the_law_holds(sigma, n):
    """Of Pareto speeds the logarithm of the best grows by sigma * log(n) (harmonic numbers)."""
    rng = np.random.default_rng(1)
    found = [
        math.log1p(expected_gain(np.exp(rng.exponential(sigma, n)).tolist())) for _ in range(400)
    ]
    exact = sigma * sum(1.0 / i for i in range(n + 1, n + AHEAD + 1))
    assert np.mean(found) == pytest.approx(exact, rel=0.12)


def test_it_errs_upwards_where_speeds_are_bounded():
    """Uniform speeds: the real gain is that of order statistics, m / (n + 1) / (n + m + 1)."""
    rng = np.random.default_rng(2)
    found = [expected_gain(rng.uniform(0.0, 1.0, WINDOW).tolist()) for _ in range(400)]
    exact = AHEAD / (WINDOW + 1) / (WINDOW + AHEAD + 1)
    assert exact < np.mean(found) < 3 * exact


def test_it_falls_as_a_search_goes_on():
    """Random search in a space with an optimum: the gain to expect halves and halves again."""
    rng = np.random.default_rng(3)
    speeds = (1.0 - rng.random(4096) ** 0.5).tolist()
    gains = [expected_gain(speeds[:n]) for n in (64, 512, 4096)]
    assert gains[0] > 4 * gains[1] > 16 * gains[2] > 0


def test_the_unit_does_not_matter():
    speeds = np.random.default_rng(4).uniform(1.0, 2.0, WINDOW).tolist()
    assert expected_gain([1e9 * s for s in speeds]) == pytest.approx(expected_gain(speeds))


def test_equal_speeds_promise_nothing():
    assert expected_gain([2.0] * WINDOW) == 0.0


def test_more_trials_bring_more():
    speeds = np.random.default_rng(5).uniform(1.0, 2.0, WINDOW).tolist()
    gains = [expected_gain(speeds, trials) for trials in (1, 16, 64)]
    assert gains == sorted(gains)
    assert gains[0] > 0

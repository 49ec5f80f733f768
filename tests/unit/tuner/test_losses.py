from __future__ import annotations

import numpy as np
import pytest

from loopwright.tuner.model.cost_model import SampleOutcome
from loopwright.tuner.model.losses import LOSS_TYPES, PairwiseLoss, centred, make_loss
from tests.unit.tuner.samples import samples_of


def rows(count, seed=0, tasks=2):
    rng = np.random.default_rng(seed)
    target = rng.normal(size=count)
    upper = rng.random(count) < 0.3
    return target, upper, rng.integers(0, tasks, size=count)


def total(loss, margin):
    """The sum that the gradient is of, from the public mean."""
    if isinstance(loss, PairwiseLoss):
        return loss.value(margin) * loss.weight.sum()
    return 0.5 * loss.value(margin) ** 2 * len(margin)


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
@pytest.mark.parametrize("count", [10, 60])
def test_gradients_are_those_of_the_loss(loss_type, count):
    loss = make_loss(loss_type, *rows(count))
    margin = np.random.default_rng(1).normal(size=count)
    gradient, curvature = loss.gradient(margin)
    step = 1e-5
    for row in range(count):
        moved = np.zeros(count)
        moved[row] = step
        slope = (total(loss, margin + moved) - total(loss, margin - moved)) / (2 * step)
        assert gradient[row] == pytest.approx(slope, abs=1e-6)
    assert (curvature > 0).all()


@pytest.mark.parametrize("loss_type", ["rank", "rank-binary"])
@pytest.mark.parametrize("count", [10, 200])
def test_pairs_are_of_one_task_and_known_to_be_in_this_order(loss_type, count):
    target, upper, task = rows(count)
    loss = make_loss(loss_type, target, upper, task)
    better, worse = loss.better, loss.worse
    assert len(better)
    assert (task[better] == task[worse]).all()
    assert not upper[better].any()
    exact = ~upper[worse]
    assert (target[better] >= target[worse])[exact].all()
    if loss_type == "rank":
        assert (target[better] > target[worse]).all()


def test_every_row_is_compared():
    count = 300
    loss = make_loss("rank", np.arange(count, dtype=float), np.zeros(count, bool), np.zeros(count))
    assert set(loss.better.tolist()) | set(loss.worse.tolist()) == set(range(count))


def test_the_good_are_the_fastest_quarter_of_each_task():
    target = np.arange(16.0)
    loss = make_loss("rank-binary", target, np.zeros(16, bool), np.arange(16) % 2)
    assert set(loss.better.tolist()) == {12, 13, 14, 15}
    assert set(loss.worse.tolist()) == set(range(12))


def test_targets_are_centred_within_tasks_and_failures_stand_below():
    samples = samples_of(
        np.zeros((7, 1)),
        [1.0, 3.0, np.nan, 10.0, 14.0, 12.0, np.nan],
        [
            SampleOutcome.EXACT,
            SampleOutcome.EXACT,
            SampleOutcome.FAILED,
            *[SampleOutcome.EXACT] * 2,
            SampleOutcome.CENSORED,
            2,
        ],
        [0, 0, 0, 1, 1, 1, 5],
    )
    target, upper, offset = centred(samples)
    assert target.tolist() == [-1, 1, -2, -2, 2, 0, -1]
    assert upper.tolist() == [False, False, True, False, False, True, True]
    assert offset.tolist() == [0] * 7


def test_a_loss_without_pairs_is_nothing():
    loss = make_loss("rank", np.zeros(1), np.zeros(1, bool), np.zeros(1))
    assert loss.value(np.zeros(1)) == 0
    assert loss.gradient(np.zeros(1))[0].tolist() == [0]


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_rows_of_weight_zero_say_nothing(loss_type):
    target, upper, task = np.arange(12.0), np.zeros(12, bool), np.zeros(12, np.int64)
    weight = np.ones(12)
    weight[[2, 7]] = 0
    loss = make_loss(loss_type, target, upper, task, weight=weight)
    first, _ = loss.gradient(np.zeros(12))
    assert (first[[2, 7]] == 0).all()
    assert np.count_nonzero(first) >= 9


def test_a_row_of_weight_two_counts_as_two():
    target, upper, task = np.array([1.0, 4.0]), np.zeros(2, bool), np.zeros(2, np.int64)
    loss = make_loss("reg", target, upper, task, weight=np.array([1.0, 2.0]))
    first, _ = loss.gradient(np.zeros(2))
    assert first.tolist() == [-1.0, -8.0]

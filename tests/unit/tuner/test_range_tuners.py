from __future__ import annotations

import time

import pytest

from loopwright.errors import UsageError
from loopwright.testing.tuner_contract import FakeSpace, FakeTask, TunerContract
from loopwright.tuner import GridSearchTuner, RandomTuner


class TestRandomTuner(TunerContract):
    tuner = RandomTuner


def test_draws_are_spread_over_the_space():
    tuner = RandomTuner(FakeTask(FakeSpace((10,) * 12)), seed=1)
    indices = [c.index for c in tuner.ask(400)]
    quarters = [sum(q * 10**12 <= 4 * i < (q + 1) * 10**12 for i in indices) for q in range(4)]
    assert all(60 < count < 140 for count in quarters)


def test_a_range_is_kept_and_covered():
    tuner = RandomTuner(FakeTask(FakeSpace((10, 10))), range_idx=(20, 44))
    assert (tuner.range_length, tuner.begin_idx, tuner.end_idx) == (25, 20, 45)
    assert sorted(c.index for c in tuner.ask(100)) == list(range(20, 45))
    assert tuner.ask(1) == []
    assert not tuner.has_next()


@pytest.mark.parametrize("range_idx", [(5, 4), (-1, 4), (0, 100), (9, 3)])
def test_a_range_outside_of_the_space_is_refused(range_idx):
    with pytest.raises(UsageError, match="100 points"):
        RandomTuner(FakeTask(FakeSpace((10, 10))), range_idx=range_idx)


def test_the_cost_of_a_proposal_does_not_grow_with_what_was_proposed():
    tuner = RandomTuner(FakeTask(FakeSpace((10,) * 12)), seed=1)

    def batch() -> float:
        start = time.process_time()
        tuner.ask(2000)
        return time.process_time() - start

    early = min(batch() for _ in range(5))
    for _ in range(20):
        batch()
    late = min(batch() for _ in range(5))
    # A list of visited points would make this a factor of five or more.
    assert late < 3 * early + 0.01


def test_rare_valid_points_of_a_small_space_are_all_found():
    space = FakeSpace((100, 100, 10), valid=lambda i: i % 9973 == 11)
    found = RandomTuner(FakeTask(space)).ask(50)
    assert sorted(c.index for c in found) == list(range(11, 100_000, 9973))


def test_a_huge_space_without_valid_points_is_given_up():
    tuner = RandomTuner(FakeTask(FakeSpace((10,) * 12, valid=lambda i: False)))
    assert tuner.ask(4) == []
    assert not tuner.has_next()
    assert "no valid point" in tuner.why_empty


@pytest.mark.parametrize("seed", [-1, 1.5, True, "1"])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(UsageError, match="seed"):
        RandomTuner(FakeTask(), seed=seed)


def test_a_space_beyond_64_bits():
    tuner = RandomTuner(FakeTask(FakeSpace((1000,) * 8)), seed=2)
    indices = [c.index for c in tuner.ask(50)]
    assert len(set(indices)) == 50
    assert all(0 <= i < 10**24 for i in indices)
    assert max(indices) > 10**23


class TestGridSearchTuner(TunerContract):
    tuner = GridSearchTuner
    random = False


def test_index_order():
    tuner = GridSearchTuner(FakeTask(FakeSpace((4, 4), valid=lambda i: i % 3 != 0)))
    assert [c.index for c in tuner.ask(5)] == [1, 2, 4, 5, 7]
    assert [c.index for c in tuner.ask(100)] == [8, 10, 11, 13, 14]


def test_a_range_is_kept_in_order():
    tuner = GridSearchTuner(FakeTask(FakeSpace((10, 10))), range_idx=(20, 23))
    assert [c.index for c in tuner.ask(10)] == [20, 21, 22, 23]
    tuner.reset()
    assert tuner.best_iter == 0  # as AutoTVM has it
    assert [c.index for c in tuner.ask(2)] == [20, 21]

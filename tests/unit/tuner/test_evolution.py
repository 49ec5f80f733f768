from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from loopwright.task.sampling import ValidMemo, digits_of, random_digits
from loopwright.testing.tuner_contract import FakeSpace
from loopwright.tuner.breeding import Breeding, KnownPoints
from loopwright.tuner.evolution import Annealing, Evolution, Pool
from loopwright.tuner.xgb_tuner import diverse, in_turn

SEARCHES = [Evolution(), Annealing()]


def peak(digits):
    """Highest, 0, where every digit is 11."""
    return -np.abs(digits - 11.0).sum(axis=1)


def run(search, space, *, seed=0, taken=frozenset(), seeds=None, drafted=None, score=peak):
    pool = Pool(space, score, ValidMemo(space), set(taken))
    none = np.empty((0, len(space.dims)), np.int64)
    seeds, drafted = (none if d is None else d for d in (seeds, drafted))
    known = KnownPoints(space, seeds, drafted)
    search.search(pool, Breeding(space), known, np.random.default_rng(seed))
    return pool.best()


@pytest.mark.parametrize("search", SEARCHES)
def test_it_finds_a_better_point_than_chance_does(search):
    space = FakeSpace((16,) * 8)
    found = run(search, space)
    chance = peak(random_digits(space, len(found), np.random.default_rng(1))).max()
    assert found.scores[0] > chance + 5
    assert np.array_equal(found.scores, peak(found.digits))
    assert found.digits.tolist() == digits_of(space, found.indices).tolist()
    assert (np.diff(found.scores) <= 0).all()
    assert len(set(found.indices)) == len(found)


@pytest.mark.parametrize("search", SEARCHES)
def test_it_starts_from_what_was_measured(search):
    space = FakeSpace((16,) * 12)
    best = np.full((1, 12), 10, np.int64)
    assert run(search, space, seeds=best).scores[0] >= -10
    assert run(search, space, drafted=best).scores[0] >= -10


@pytest.mark.parametrize("search", SEARCHES)
def test_taken_and_refused_points_are_not_found(search):
    space = FakeSpace((16, 16), valid=lambda i: i % 3 == 0)
    taken = set(range(0, 256, 2))
    found = run(search, space, taken=taken)
    assert len(found) > 10
    assert all(index % 3 == 0 and index % 2 for index in found.indices)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("extents", [(), (1,), (2,)])
def test_tiny_spaces(search, extents):
    space = FakeSpace(extents)
    assert sorted(run(search, space).indices) == list(range(space.range_length))


@pytest.mark.parametrize("search", SEARCHES)
def test_a_space_without_valid_points(search):
    assert len(run(search, FakeSpace((4, 4), valid=lambda i: False))) == 0


@pytest.mark.parametrize("search", SEARCHES)
def test_equal_seeds_find_equal_points(search):
    space = FakeSpace((16,) * 6)
    one, two, other = (run(search, space, seed=s).indices for s in (3, 3, 4))
    assert one == two
    assert one != other


@pytest.mark.parametrize("search", SEARCHES)
def test_a_flat_score_and_a_huge_space_are_no_trouble(search):
    found = run(search, FakeSpace((1000,) * 8), score=lambda d: np.zeros(len(d)))
    assert len(found) > 100


# -- diversity --------------------------------------------------------------------------------


def worth(digits, scores, picks, weight):
    value = (scores - scores.min()) / np.ptp(scores)
    covered = [len(set(digits[picks, k].tolist())) for k in range(digits.shape[1])]
    return value[picks].sum() + weight * sum(covered) / digits.shape[1]


def test_diverse_picks_are_nearly_the_best_of_all():
    rng = np.random.default_rng(0)
    for _ in range(20):
        digits, scores = rng.integers(0, 3, size=(9, 2)), rng.random(9)
        picks = diverse(digits, scores, 3)
        best = max(worth(digits, scores, list(c), 1.0) for c in combinations(range(9), 3))
        assert worth(digits, scores, picks, 1.0) >= (1 - 1 / np.e) * best
        assert len(set(picks)) == 3


def test_diverse_trades_score_for_new_values():
    digits = np.array([[0, 0], [0, 0], [1, 1]])
    scores = np.array([1.0, 0.9, 0.5])
    assert diverse(digits, scores, 2) == [0, 2]
    assert diverse(digits, scores, 2, knob_weight=0.0) == [0, 1]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_diverse_of_few(count):
    picks = diverse(np.zeros((2, 3), np.int64), np.zeros(2), count)
    assert picks == list(range(min(count, 2)))
    assert diverse(np.empty((0, 3), np.int64), np.empty(0), count) == []


def test_models_pick_in_turn_each_its_best_of_what_is_left():
    opinions = np.array([[5.0, 1.0], [4.0, 2.0], [3.0, 9.0], [2.0, 8.0], [1.0, 0.0]])
    assert in_turn(opinions, 4) == [0, 2, 1, 3]
    assert in_turn(opinions, 4, first=1) == [2, 0, 3, 1]


def test_one_model_picks_its_best():
    scores = np.random.default_rng(0).random(50)
    assert in_turn(scores[:, None], 7) == np.argsort(-scores)[:7].tolist()


@pytest.mark.parametrize("count", [0, 3, 9])
def test_picks_in_turn_of_few(count):
    picks = in_turn(np.zeros((3, 4)), count)
    assert sorted(picks) == list(range(min(count, 3)))
    assert in_turn(np.empty((0, 4)), count) == []


def test_shares_of_picks_are_the_chances_of_being_best():
    """Thompson sampling: of 600 draws of normal scores each row wins its share."""
    rng = np.random.default_rng(1)
    mean, spread = np.array([0.0, 0.5, -2.0]), np.array([1.5, 0.1, 0.1])
    opinions = mean[:, None] + spread[:, None] * rng.normal(size=(3, 600))
    wins = np.bincount(opinions.argmax(axis=0), minlength=3) / 600
    picks = [in_turn(opinions, 1, first)[0] for first in range(600)]
    assert np.allclose(np.bincount(picks, minlength=3) / 600, wins)
    # One minus the normal distribution at 0.5 over the spread of the difference, 1.503.
    assert abs(wins[0] - 0.37) < 0.06
    assert wins[2] == 0

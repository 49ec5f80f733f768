from __future__ import annotations

import numpy as np
import pytest

from loopwright.errors import SpaceError
from loopwright.task.sampling import ValidMemo, digits_of, distinct, indices_of, random_digits
from loopwright.testing.tuner_contract import FakeSpace

SPACES = [(), (1,), (7,), (3, 1, 4), (8, 8, 8), (1000,) * 8]


@pytest.mark.parametrize("extents", SPACES)
def test_digits_are_those_of_the_space_and_back(extents):
    space = FakeSpace(extents)
    rng = np.random.default_rng(0)
    indices = [0, space.range_length - 1]
    indices += [int(rng.integers(1 << 62)) * 977 % space.range_length for _ in range(200)]
    digits = digits_of(space, indices)
    assert digits.shape == (len(indices), len(extents))
    assert [tuple(row) for row in digits.tolist()] == [space.point2knob(i) for i in indices]
    assert indices_of(space, digits) == indices


def test_no_points():
    space = FakeSpace((3, 4))
    assert digits_of(space, []).shape == (0, 2)
    assert indices_of(space, np.empty((0, 2), np.int64)) == []


@pytest.mark.parametrize("extents", [(3, 4), (1000,) * 8])
@pytest.mark.parametrize("index", [-1, 10**24])
def test_an_index_outside_is_refused(extents, index):
    if index > 0 and extents == (3, 4):
        index = 12
    with pytest.raises(SpaceError, match="outside of the space"):
        digits_of(FakeSpace(extents), [0, index])


@pytest.mark.parametrize(
    ("digits", "text"),
    [([[0, 4]], "outside of its knob"), ([[-1, 0]], "outside"), ([[0]], "2 knobs"), ([0, 0], "2")],
)
def test_digits_that_are_none_are_refused(digits, text):
    with pytest.raises(SpaceError, match=text):
        indices_of(FakeSpace((3, 4)), digits)


def test_random_digits_reach_every_point():
    space = FakeSpace((3, 1, 5))
    drawn = random_digits(space, 500, np.random.default_rng(0))
    assert set(indices_of(space, drawn)) == set(range(15))


def test_each_point_is_asked_about_once():
    space = FakeSpace((4, 4), valid=lambda i: i % 3 == 0)
    valid = ValidMemo(space)
    for _ in range(3):
        assert valid([0, 1, 3, 0]).tolist() == [True, False, True, True]
    assert space.asked == 3
    assert ValidMemo(FakeSpace((4, 4)))(range(4)).all()


def test_distinct_keeps_the_first_of_each():
    assert distinct([5, 3, 5, 8, 3, 1], taken={8}).tolist() == [0, 1, 5]
    assert distinct([], taken=[1]).tolist() == []

from __future__ import annotations

import random

import pytest

from loopwright.task import ConfigSpace
from loopwright.testing.tuner_contract import FakeSpace, FakeTask
from loopwright.tuner.run.recorded import RecordedPoints


def split_space():
    space = ConfigSpace()
    space.define_split("tile", 12, num_outputs=3)
    space.define_knob("mixed", [1, 1.0, True, "1", None])
    space.freeze()
    return space


@pytest.mark.parametrize("space", [FakeSpace((3, 4, 2)), split_space()])
def test_every_point_is_found_as_the_space_finds_it(space):
    points = RecordedPoints(space)
    for index in random.Random(0).choices(range(len(space)), k=200):
        wanted = space.get(index)
        found = points.find(dict(reversed(wanted.values.items())))
        assert (found, found.index, found.values) == (wanted, index, wanted.values)
        assert list(found.values) == list(wanted.values)


@pytest.mark.parametrize(
    "values",
    [{}, {"k0": 1}, {"k0": 1, "k1": 9}, {"k0": 1, "k1": 1, "k2": 1}, {"k0": 1, "x": 1},
     {"k0": True, "k1": 1}, {"k0": 1.0, "k1": 1}, {"k0": [1], "k1": 1}, {"k0": None, "k1": {}}],
)  # fmt: skip
def test_what_the_space_does_not_have_is_not_found(values):
    space = FakeTask().config_space
    assert RecordedPoints(space).find(values) is None
    assert space.find(values) is None

from __future__ import annotations

from loopwright.testing.tuner_contract import FakeSpace, FakeTask, TunerContract
from loopwright.tuner import GridSearchTuner


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
    assert [c.index for c in tuner.ask(2)] == [20, 21]

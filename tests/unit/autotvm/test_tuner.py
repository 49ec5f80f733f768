"""A tuner of one's own, written as AutoTVM's scripts write them."""

from __future__ import annotations

import json

import pytest

from loopwright import autotvm, records
from loopwright.testing.tuner_contract import FakeMeasurer, bowl

TASK = autotvm.task.create("matmul", args=(16, 16, 16), target="llvm")


class Halving(autotvm.tuner.Tuner):
    """Asks for neighbours of the best, to either side and farther and farther away."""

    def __init__(self, task, step=2):
        super().__init__(task)
        self.step = step
        self.heard = []

    def next_batch(self, batch_size):
        centre = 0 if self.best_config is None else self.best_config.index
        at = (centre + side * self.step * k for k in range(1, 200) for side in (1, -1))
        size = self.task.config_space.range_length
        new = [i for i in at if 0 <= i < size and i not in self.visited]
        return [self.task.config_space.get(i) for i in new[:batch_size]]

    def update(self, inputs, results):
        pairs = zip(inputs, results, strict=True)
        self.heard.append([(i.config.index, r.costs[0]) for i, r in pairs])

    def has_next(self):
        return len(self.visited) < 60


def test_next_batch_and_update_are_enough(tmp_path):
    log = tmp_path / "log.jsonl"
    tuner = Halving(TASK, step=1)
    callbacks = [autotvm.callback.log_to_file(log)]
    tuner.tune(n_trial=40, measure_option=FakeMeasurer(bowl), callbacks=callbacks)
    told = [pair for batch in tuner.heard for pair in batch]
    assert len(told) == len({index for index, _ in told}) == 40
    assert all(cost == bowl(index) for index, cost in told)
    assert tuner.best_config.index == min((index for index, _ in told), key=bowl)
    header = json.loads(log.read_text().splitlines()[0])
    assert "Halving" in json.dumps(header)
    assert len(records.load(log)) >= 40


def test_a_run_goes_on_from_the_log(tmp_path):
    log = tmp_path / "log.jsonl"
    for count in (20, 30):
        tuner, measurer = Halving(TASK, step=1), FakeMeasurer(bowl)
        tuner.tune(
            n_trial=count, measure_option=measurer, callbacks=[autotvm.callback.log_to_file(log)]
        )
    assert len(measurer.measured) < 20
    assert sum(map(len, tuner.heard)) == 30


def test_a_run_ends_where_nothing_is_left():
    class Few(Halving):
        def next_batch(self, batch_size):
            return [self.task.config_space.get(index) for index in (1, 2, 3)]

    summary = Few(TASK).tune(n_trial=40, measure_option=FakeMeasurer(bowl))
    assert summary.measured == 4  # the default is measured first


def test_a_tuner_that_proposes_nothing_cannot_be_made():
    class Nothing(autotvm.tuner.Tuner):
        pass

    with pytest.raises(TypeError, match="next_batch"):
        Nothing(TASK)

"""What a drift of the machine touched is measured again, recorded, told, and told again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loopwright import records
from loopwright.testing.tuner_contract import FakeMeasurer, FakeSpace
from loopwright.tuner import GATuner, RandomTuner
from tests.unit.tuner.runs import lines, tune

SPACE = (32, 32)
#: Trials before the machine becomes slower.
QUIET = 200


def flat(index: int) -> float:
    return 1e-3 * (1 + index % 97 / 97)


class Throttled(FakeMeasurer):
    """From some trial on everything takes 30 % longer."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.again = []

    def result(self, index):
        found = super().result(index)
        late = len(self.measured) > QUIET
        return replace(found, times=tuple(t * 1.3 for t in found.times)) if late else found

    def measure_again(self, configs, windows):
        self.again.append([c.index for c in configs])
        return super().measure_again(configs, windows)


@pytest.fixture
def hours(monkeypatch):
    """A run that has lasted for hours, so that there is time for the reference kernel."""
    monkeypatch.setattr("loopwright.tuner.run.budget.Budget.elapsed", property(lambda self: 1e5))


@pytest.mark.usefixtures("hours")
def test_what_a_drift_touched_is_measured_again(tmp_path):
    measurer, _ = tune(tmp_path, Throttled(flat), space=FakeSpace(SPACE), n_trial=320)
    samples = [indices for indices in measurer.again if indices == [0]]
    assert len(samples) == 19  # of the default configuration, between the 20 rounds
    (touched,) = [indices for indices in measurer.again if indices != [0]]
    assert 1 <= len(touched) <= 8
    best = min(measurer.measured[:QUIET], key=flat)
    assert touched[0] == best
    log = records.load(tmp_path / "log.jsonl")
    again = [r for r in log if r.phase == "drift"]
    space = FakeSpace(SPACE)
    assert [space.index_of(r.config) for r in again] == touched
    assert again[0].median == pytest.approx(1.3 * flat(best))
    assert len({r.round for r in again}) == 1
    assert sum(not r.phase for r in log) == 320


@pytest.mark.usefixtures("hours")
def test_a_run_that_goes_on_tells_the_tuner_the_same(tmp_path):
    told = []

    class Spy(GATuner):
        def learn(self, results):
            told.append([(c.index, r.times) for c, r in results])
            super().learn(results)

    options = {"tuner": Spy, "space": FakeSpace(SPACE)}
    tune(tmp_path, Throttled(flat), n_trial=320, **options)
    first = list(told)
    assert any(len(results) > 16 for results in first)
    told.clear()
    tune(tmp_path, Throttled(flat), n_trial=336, **options)
    assert told[:20] == first


@pytest.mark.usefixtures("hours")
def test_a_machine_that_does_not_change_has_nothing_measured_again(tmp_path):
    measurer = Throttled(flat)
    measurer.result = lambda index: FakeMeasurer.result(measurer, index)
    tune(tmp_path, measurer, space=FakeSpace(SPACE), n_trial=320)
    assert all(indices == [0] for indices in measurer.again)
    assert not any('"drift"' in line for line in lines(tmp_path))


def test_a_short_run_has_no_time_for_the_reference(tmp_path):
    measurer = Throttled(flat)
    tune(tmp_path, measurer, tuner=RandomTuner, space=FakeSpace(SPACE), n_trial=64)
    assert measurer.again == []

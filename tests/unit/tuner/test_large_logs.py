"""Taking up a run whose log is large: with rounds told again, learning from some."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from loopwright.measure import ErrorKind, MeasureError, MeasureResult
from loopwright.records import Store, load
from loopwright.testing.tuner_contract import FakeMeasurer, FakeSpace, bowl
from loopwright.tuner import GATuner, RandomTuner
from loopwright.tuner.model import candidates
from loopwright.tuner.model.candidates import Measurements
from tests.unit.tuner.runs import tune

SPACE = (8, 8, 4)


def fails(index):
    return ErrorKind.RUN_TIMEOUT if index % 7 == 3 else None


@pytest.mark.parametrize("tuner", [RandomTuner, GATuner])
@pytest.mark.parametrize("cut", [32, 37])
def test_a_run_taken_up_measures_the_same(tmp_path, tuner, cut):
    whole, part = tmp_path / "whole", tmp_path / "part"
    whole.mkdir()
    part.mkdir()
    fresh = lambda: FakeMeasurer(bowl, fails)  # noqa: E731
    once, end = tune(whole, fresh(), tuner=tuner, space=FakeSpace(SPACE), n_trial=70)
    first, _ = tune(part, fresh(), tuner=tuner, space=FakeSpace(SPACE), n_trial=cut)
    with Store(part / "log.jsonl") as store:
        other = load(part / "log.jsonl").records[0]
        store.append(replace(other, task="another", op="another"))
    then, again = tune(part, fresh(), tuner=tuner, space=FakeSpace(SPACE), n_trial=70)
    assert first.measured + then.measured == once.measured
    assert (again.trials, again.best_trial) == (end.trials, end.best_trial)
    assert {k: v.count for k, v in again.failures.items()} == {
        k: v.count for k, v in end.failures.items()
    }


def test_a_round_that_is_complete_is_not_proposed_again(tmp_path):
    asked = []

    class Tuner(RandomTuner):
        def ask(self, n):
            asked.append(n)
            return super().ask(n)

    tune(tmp_path, tuner=Tuner, n_trial=32)
    asked.clear()
    tune(tmp_path, tuner=Tuner, n_trial=32)
    assert not asked
    tune(tmp_path, tuner=Tuner, n_trial=40)
    assert asked == [16]
    asked.clear()
    tune(tmp_path, tuner=Tuner, n_trial=40)
    assert asked == [16]  # the round that was cut off


def measurements(count, seed=0):
    space, rng = FakeSpace((count,)), np.random.default_rng(seed)
    held = Measurements()
    for index in range(count):
        failed, dropped = index % 10 == 9, index % 5 == 3
        error = MeasureError(ErrorKind.COMPILE, "no") if failed else None
        times = () if failed else (float(rng.uniform(1e-3, 1.0)),)
        result = MeasureResult(times=times, dropped=dropped, error=error)
        held.add([(space.get(index), result)])
    return held


def test_of_many_results_a_model_learns_from_the_fastest_the_latest_and_some(monkeypatch):
    monkeypatch.setattr(candidates, "_MOST", 64)
    assert measurements(64).chosen().tolist() == list(range(64))
    held = measurements(1000)
    chosen = held.chosen().tolist()
    assert chosen == sorted(set(chosen))
    assert len(chosen) == 64
    exact = [n for n in range(1000) if n % 10 != 9 and n % 5 != 3]
    fastest = sorted(exact, key=lambda n: -held._scores[n])[:32]
    assert set(fastest) <= set(chosen)
    assert set(range(984, 1000)) <= set(chosen)
    others = set(chosen) - set(fastest) - set(range(984, 1000))
    assert min(others) < 300 < 700 < max(others)
    assert chosen == measurements(1000).chosen().tolist()


class Counting:
    """Features that are the index, and how many were made."""

    def __init__(self, space):
        self.task, self.made = type("Task", (), {"config_space": space}), 0

    def without_transfer(self, digits):
        self.made += len(digits)
        return candidates.Batch.plain(np.asarray(digits, np.float32))

    def with_transfer(self, batch, measured):
        return batch


def test_features_are_made_once_and_stand_beside_their_scores(monkeypatch):
    monkeypatch.setattr(candidates, "_MOST", 64)
    held, extra = measurements(500), measurements(520)
    counting = Counting(FakeSpace((520,)))
    held.samples(counting, 500)
    assert counting.made == 64
    held.indices += extra.indices[500:]
    held._scores += extra._scores[500:]
    held._outcomes += extra._outcomes[500:]
    samples = held.samples(counting, 520)
    assert counting.made < 64 + 64
    rows = samples.batch.features[:, 0].astype(int)
    assert rows.tolist() == held.chosen().tolist()
    assert samples.score.tolist() == [held._scores[n] for n in rows]
    assert samples.outcome.tolist() == [held._outcomes[n] for n in rows]

"""How a run ends: the playoff, the summary, and what callbacks hear."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loopwright import records
from loopwright.errors import TuneError
from loopwright.testing.tuner_contract import FakeMeasurer, FakeSpace, bowl
from tests.unit.tuner.runs import tune


def test_the_playoff_decides(tmp_path):
    """What looked best by luck loses when it is measured again beside the others."""

    class Lucky(FakeMeasurer):
        def times_again(self, config):
            return [1.0] * 20 if config.index == 37 else super().times_again(config)

    measurer, summary = tune(tmp_path, Lucky(bowl))
    assert summary.best_config.index in (36, 38)
    assert len(measurer.playoffs[0]) == 9
    assert 0 in measurer.playoffs[0]
    best = records.best(records.load(tmp_path / "log.jsonl"))
    assert FakeSpace((8, 8)).index_of(best.config) in (36, 38)
    _, again = tune(tmp_path, Lucky(bowl))
    assert again.best_config.index in (36, 38)


def test_timing_the_winner_again_does_not_crown_another(tmp_path):
    """Only the winner has a time of now: it is not compared with old times of others."""
    _, first = tune(tmp_path)

    class Slower(FakeMeasurer):
        def times_again(self, config):
            return [3 * t for t in super().times_again(config)]

    _, again = tune(tmp_path, Slower(bowl))
    assert again.best_config.index == first.best_config.index
    assert again.best_seconds == pytest.approx(3 * first.best_seconds)
    assert again.speedup == pytest.approx(first.speedup)


def test_a_callback_that_cannot_be_called_is_refused_at_once(tmp_path):
    with pytest.raises(TuneError, match=r"called with \(tuner, inputs, results\); 3 cannot be"):
        tune(tmp_path, callbacks=[3])
    assert not (tmp_path / "log.jsonl").exists()


def test_the_summary_compares_with_the_default(tmp_path):
    _, summary = tune(tmp_path)
    assert summary.best_seconds == pytest.approx(bowl(37))
    assert summary.default_seconds == pytest.approx(bowl(0))
    assert summary.speedup == pytest.approx(38.0)
    assert summary.best_gflops == pytest.approx(1e6 / bowl(37) / 1e9)
    text = "\n".join(summary.lines())
    assert "38.00 x the default" in text
    assert "run 0.5 s" in text


def test_the_incumbent_is_passed_on(tmp_path):
    measurer, _ = tune(tmp_path, n_trial=40)
    assert measurer.incumbents[:16] == [None] * 16
    assert measurer.incumbents[16] == pytest.approx(min(map(bowl, measurer.measured[:16])))


def test_what_could_not_be_checked_is_no_incumbent(tmp_path):
    class Blind(FakeMeasurer):
        def result(self, index):
            return replace(super().result(index), check_reason="there is no reference")

    measurer, summary = tune(tmp_path, Blind(bowl), n_trial=40)
    assert measurer.incumbents == [None] * len(measurer.incumbents)
    assert summary.best_seconds is not None


def test_callbacks_hear_of_every_round_after_the_tuner(tmp_path):
    heard = []

    def callback(tuner, inputs, results):
        heard.append((tuner.trials, [i.trial for i in inputs], len(results)))

    tune(tmp_path, n_trial=20, callbacks=[callback])
    assert heard == [(16, list(range(16)), 16), (20, [16, 17, 18, 19], 4)]
    heard.clear()
    tune(tmp_path, n_trial=36, callbacks=[callback])
    assert heard == [(32, list(range(20, 32)), 12), (36, [32, 33, 34, 35], 4)]

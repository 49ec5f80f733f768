from __future__ import annotations

import math

import numpy as np
import pytest

from loopwright import create_task, te
from loopwright.errors import UsageError
from loopwright.measure import MeasureInput, MeasureResult
from loopwright.records import load
from loopwright.task import get_config, template
from loopwright.testing.tuner_contract import FakeMeasurer, FakeTask
from loopwright.tuner import RandomTuner, TuningInterrupted, XGBTuner, log_to_file


@template("test/transfer")
def tiled(n):
    A = te.placeholder((n, n), "float32", name="A")
    B = te.compute((n, n), lambda i, j: A[i, j] * 2.0, name="B")
    s = te.create_schedule(B.op)
    cfg = get_config()
    i, j = s[B].op.axis
    cfg.define_split("tile_i", i, num_outputs=3)
    cfg.define_split("tile_j", j, num_outputs=3)
    cfg.define_knob("order", ["ij", "ji"])
    i0, i1, i2 = cfg["tile_i"].apply(s, B, i)
    j0, j1, j2 = cfg["tile_j"].apply(s, B, j)
    outer = (i0, j0) if cfg["order"].val == "ij" else (j0, i0)
    s[B].reorder(*outer, i1, j1, i2, j2)
    return s, [A, B]


@template("test/transfer_other")
def other(n):
    return tiled.function(n)


def cost(config):
    """Seconds that depend on the tiles, not on the length of the loops."""
    _, i1, i2 = config["tile_i"].size
    _, j1, j2 = config["tile_j"].size
    far = abs(math.log2(i2) - 3) + abs(math.log2(j2) - 4) + 0.5 * abs(math.log2(i1 * j1) - 4)
    return 1e-3 * 1.25**far * (1.1 if config["order"].val == "ji" else 1.0)


def opposite(config):
    """Fast where the other one is slow."""
    return 1e-4 / cost(config)


class ByConfig(FakeMeasurer):
    """Times that are a function of the configuration."""

    def __init__(self, time=cost, **more):
        super().__init__(**more)
        self.by_config = time

    def measure(self, inputs, incumbent):
        self.configs = {i.config.index: i.config for i in inputs}
        yield from super().measure(inputs, incumbent)

    def result(self, index):
        return MeasureResult(times=(self.by_config(self.configs[index]),), ts=1.0)

    def times_again(self, config):
        return [self.by_config(config)] * 20


def task_of(n, name="test/transfer"):
    return create_task(name, args=(n,), target="llvm")


def history(n, count, time=cost, name="test/transfer"):
    """Pairs as ``autotvm.record.load_from_file`` gives them."""
    task = task_of(n, name)
    indices = np.random.default_rng(0).choice(task.config_space.range_length, count, False)
    configs = [task.config_space.get(int(i)) for i in indices]
    return [(MeasureInput(task, c), MeasureResult(times=(time(c),), ts=1.0)) for c in configs]


def first_round(tuner):
    """Mean log2 time of the first proposals, above the best of the space."""
    return np.mean([math.log2(cost(c) * 1e3) for c in tuner.ask(15)])


@pytest.mark.parametrize("feature_type", ["itervar", "knob"])
def test_history_of_another_shape_orders_the_first_round(feature_type):
    taught = XGBTuner(task_of(256), feature_type=feature_type, analytical=False)
    assert taught.load_history(history(64, 200)) == 200
    fresh = XGBTuner(task_of(256), feature_type=feature_type, analytical=False)
    assert first_round(taught) < first_round(fresh) - 0.8
    assert taught.history.used == 200
    assert "200 results of 1 other task" in taught.notes[0]
    # Without an analytical model it is the best of random points, which half would not be.
    index, _ = taught.most_promising()
    assert cost(taught.space.get(index)) < 2e-3
    assert fresh.most_promising() is None


def test_records_are_taken_as_they_are(tmp_path):
    paths = [tmp_path / "log.jsonl", tmp_path / "other.jsonl"]
    for path, name in zip(paths, ("test/transfer", "test/transfer_other"), strict=True):
        log = log_to_file(path)
        RandomTuner(task_of(64, name)).tune(n_trial=200, measure_option=ByConfig(), callbacks=[log])
    taught = XGBTuner(task_of(256), analytical=False)
    records, foreign = map(load, paths)
    assert taught.load_history(records) == len(records)
    assert taught.load_history(foreign) == len(records) + len(foreign)
    assert first_round(taught) < first_round(XGBTuner(task_of(256), analytical=False)) - 0.5
    # The finalists are there twice.
    assert (taught.history.used, taught.history.foreign) == (200, len(foreign))


@pytest.mark.parametrize("wrong", [["log.jsonl"], [(1, 2)], [None]])
def test_what_is_no_history_is_refused_at_once(wrong):
    tuner = XGBTuner(task_of(256), analytical=False)
    with pytest.raises(UsageError, match="takes records or pairs of MeasureInput and"):
        tuner.load_history(wrong)
    assert not tuner.pretrained


def test_a_log_teaches_by_itself(tmp_path):
    log = log_to_file(tmp_path / "log.jsonl")
    RandomTuner(task_of(64)).tune(n_trial=120, measure_option=ByConfig(), callbacks=[log])
    RandomTuner(task_of(128)).tune(n_trial=60, measure_option=ByConfig(), callbacks=[log])
    tuner = XGBTuner(task_of(256), analytical=False)
    summary = tuner.tune(n_trial=16, measure_option=ByConfig(), callbacks=[log])
    assert len(tuner.relatives) == 180
    assert (tuner.history.used, tuner.history.tasks) == (180, 2)
    assert any("180 results of 2 other tasks" in line for line in summary.lines())
    assert summary.best_seconds < 1.3e-3


def test_knobs_of_another_template_are_said_and_not_used():
    tuner = XGBTuner(task_of(256), feature_type="knob", analytical=False)
    tuner.load_history(history(64, 30, name="test/transfer_other"))
    assert len(tuner.ask(4)) == 4
    assert tuner.history.used == 0
    assert "30 results given to learn from are not used" in tuner.notes[0]


def test_schedules_of_another_template_teach():
    given = history(64, 200, name="test/transfer_other")
    taught = XGBTuner(task_of(256), analytical=False)
    taught.load_history(given)
    assert first_round(taught) < first_round(XGBTuner(task_of(256), analytical=False)) - 0.8
    assert taught.history.used == 200


def rounds(tuner, count):
    """Mean log2 time of each round's proposals, above the best of the space."""
    found = []
    for _ in range(count):
        asked = tuner.ask(16)
        found.append(np.mean([math.log2(cost(c) * 1e3) for c in asked]))
        tuner.tell([(c, MeasureResult(times=(cost(c),), ts=1.0)) for c in asked])
    return found


@pytest.mark.usefixtures("few_trees")
def test_a_misleading_history_fades():
    misled = XGBTuner(task_of(256), analytical=False)
    misled.load_history(history(64, 300, time=opposite))
    found, fresh = rounds(misled, 8), rounds(XGBTuner(task_of(256), analytical=False), 8)
    assert found[0] > fresh[0] + 0.3
    assert min(found[4:]) < fresh[0] - 0.8


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("cut", [pytest.param(5, marks=pytest.mark.slow), 16, 41])
def test_a_pretrained_run_that_was_cut_off_goes_on_as_if_it_had_not_been(tmp_path, cut):
    def run(path, **more):
        measurer = ByConfig(**more)
        tuner = XGBTuner(task_of(256), seed=3, analytical=False)
        tuner.tune(n_trial=48, measure_option=measurer, callbacks=[log_to_file(path)])
        return measurer.measured

    for name in ("whole.jsonl", "cut.jsonl"):
        log = log_to_file(tmp_path / name)
        RandomTuner(task_of(64)).tune(n_trial=64, measure_option=ByConfig(), callbacks=[log])
    whole = run(tmp_path / "whole.jsonl")
    first = ByConfig(interrupt_after=cut)
    log = log_to_file(tmp_path / "cut.jsonl")
    with pytest.raises(TuningInterrupted):
        XGBTuner(task_of(256), seed=3, analytical=False).tune(
            n_trial=48, measure_option=first, callbacks=[log]
        )
    # Another shape is tuned into the same log meanwhile: what it finds must not change the run.
    RandomTuner(task_of(128)).tune(n_trial=32, measure_option=ByConfig(), callbacks=[log])
    assert first.measured + run(tmp_path / "cut.jsonl") == whole


def test_results_of_another_compiler_teach(tmp_path):
    tuner = XGBTuner(task_of(64), analytical=False)
    tuner.elsewhere = [(item.config, result) for item, result in history(64, 100)]
    fresh = XGBTuner(task_of(64), analytical=False)
    assert first_round(tuner) < first_round(fresh) - 0.4


def test_too_few_results_teach_nothing():
    tuner = XGBTuner(task_of(256), analytical=False)
    tuner.load_history(history(64, 3))
    tuner.ask(4)
    assert tuner.history.used == 0
    assert "too few" in tuner.notes[0]


def test_tuners_without_a_model_keep_history_and_ignore_it():
    tuner = RandomTuner(FakeTask())
    assert tuner.load_history(history(64, 3)) == 3
    assert tuner.load_history(history(64, 2)) == 5
    assert len(tuner.ask(4)) == 4

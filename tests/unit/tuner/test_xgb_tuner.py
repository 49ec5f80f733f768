from __future__ import annotations

import functools
import math
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import loopwright as lw
from loopwright.errors import UsageError
from loopwright.measure import ErrorKind, MeasureResult
from loopwright.task.sampling import indices_of, random_digits
from loopwright.testing.tuner_contract import FakeMeasurer, FakeSpace, FakeTask, TunerContract, bowl
from loopwright.tuner import XGBTuner, find_tuner
from loopwright.tuner.evolution import Evolution
from loopwright.tuner.model.candidates import CandidateBatches
from tests.unit.tuner.variants import VariantContract

pytestmark = pytest.mark.usefixtures("few_trees")
KNOB = {"feature_type": "knob", "analytical": False}


class TestXGBTuner(TunerContract):
    tuner = XGBTuner
    options = KNOB


class TestXGBTunerWithOtherOptions(VariantContract):
    tuner = XGBTuner
    options = {  # noqa: RUF012
        **KNOB,
        "loss_type": "rank",
        "optimizer": "sa",
        "diversity_filter_ratio": 3,
        "epsilon": 0.3,
    }


def valley(index: int) -> float:
    """Seconds of a point of six knobs of eight: least where every digit is 5."""
    digits = [index // 8**k % 8 for k in range(6)]
    return 1e-3 * 1.3 ** sum(abs(d - 5) for d in digits)


def make(seed=0, space=None, **options):
    return XGBTuner(FakeTask(space or FakeSpace((8,) * 6)), seed=seed, **{**KNOB, **options})


def trials_to(seconds, seed, **options):
    measurer = FakeMeasurer(valley)
    make(seed, **options).tune(n_trial=240, measure_option=measurer)
    hits = [n for n, i in enumerate(measurer.measured) if valley(i) <= seconds]
    return hits[0] if hits else 240


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["evolution", "sa"])
def test_it_finds_what_chance_would_not(optimizer):
    # 13 of the 262 144 points are within one step of the best: chance needs 14 000 trials.
    assert sum(valley(i) <= 1.31e-3 for i in range(8**6)) == 13
    assert np.median([trials_to(1.31e-3, seed, optimizer=optimizer) for seed in range(3)]) < 160


def test_a_knob_that_never_varied_among_the_good_is_tried_nevertheless():
    """A model that likes nothing but one value of the last knob does not keep the search there."""

    class Stubborn(XGBTuner):
        def score(self, digits):
            return -1.0 * digits[:, 5]

    tuner = Stubborn(FakeTask(FakeSpace((8,) * 6)), seed=1, **KNOB)
    found = []
    for _ in range(8):
        asked = tuner.ask(16)
        found.append([c.index // 8**5 for c in asked])
        tuner.tell([(c, MeasureResult(times=(valley(c.index),), ts=1.0)) for c in asked])
    assert any(digit != 0 for some in found[4:] for digit in some)


def test_a_small_space_is_scored_whole_instead_of_searched():
    class Needle(XGBTuner):
        def score(self, digits):
            return 1.0 * (digits == 7).all(axis=1)

    class NoSearch(Evolution):
        search = None

    task = FakeTask(FakeSpace((8,) * 4, lambda index: index % 2 == 1, default=1))
    tuner = Needle(task, seed=0, optimizer=NoSearch(), epsilon=0.0, **KNOB)
    asked = tuner.ask(16)
    tuner.tell([(c, MeasureResult(times=(valley(c.index),), ts=1.0)) for c in asked])
    indices = [c.index for c in tuner.ask(16)]
    assert 8**4 - 1 in indices
    assert all(index % 2 for index in indices)


@pytest.mark.parametrize("seed", range(3))
def test_neighbours_of_the_fastest_are_fresh_and_near(seed):
    tuner = make(seed=seed, space=FakeSpace((8,) * 6, lambda index: index % 2 == 0))
    asked = tuner.ask(32)
    tuner.tell([(c, MeasureResult(times=(valley(c.index),), ts=1.0)) for c in asked])
    fastest = sorted((c.index for c in asked), key=valley)
    near = tuner.nearby(5)
    assert len(set(near)) == 5
    assert not set(near) & set(fastest)
    assert all(index % 2 == 0 for index in near)
    changed = [
        min(sum(a // 8**k % 8 != b // 8**k % 8 for k in range(6)) for b in fastest[:8])
        for a in near
    ]
    assert np.median(changed) == 1


def test_it_is_named_and_says_its_options():
    assert find_tuner("xgb") is XGBTuner
    assert make().options == {
        "plan_size": 16,
        "feature_type": "knob",
        "loss_type": "reg",
        "optimizer": repr(Evolution()),
        "diversity_filter_ratio": None,
        "epsilon": 0.05,
        "analytical": False,
        "post_optimization": None,
        "adaptive_training": True,
    }


@functools.cache
def trainings(**options):
    """After how many results the model was trained, and the indices that were measured."""
    tuner, counts = make(plan_size=4, **options), []
    real = tuner.model.fit
    tuner.model.fit = lambda samples: (counts.append(len(samples)), real(samples))
    measurer = FakeMeasurer(valley)
    tuner.tune(n_trial=56, measure_option=measurer)
    return counts, measurer.measured


def test_adaptive_training_waits_until_the_results_have_grown_by_a_fifth():
    every, plain = trainings(adaptive_training=False)
    assert every == list(range(8, 56, 4))
    counts, adaptive = trainings()
    # By hand: the next multiple of 4 that is at least 1.2 times the last.
    assert counts == [8, 12, 16, 20, 24, 32, 40, 48]
    assert adaptive[:28] == plain[:28]
    assert adaptive != plain


def test_adaptive_training_goes_on_after_a_log_as_it_would_have(tmp_path):
    _, whole = trainings()
    measurer, log = FakeMeasurer(valley), [lw.callback.log_to_file(tmp_path / "log.jsonl")]
    for n_trial in (46, 56):  # after 46 the model is that of 40
        make(plan_size=4).tune(n_trial=n_trial, measure_option=measurer, callbacks=log)
    assert measurer.measured == whole


def test_the_model_is_judged_by_what_it_had_not_seen():
    tuner = make(plan_size=4)
    tuner.tune(n_trial=56, measure_option=FakeMeasurer(valley))
    # Rounds in which it was not trained again are predicted too, from what it knew before.
    assert [r.trained_on for r in tuner.model_reports][-6:] == [32, 32, 40, 40, 48, 48]


def test_rounds_are_as_long_as_planned():
    lengths = []
    make(plan_size=10).tune(
        n_trial=25,
        measure_option=FakeMeasurer(valley),
        callbacks=[lambda tuner, inputs, results: lengths.append(len(inputs))],
    )
    assert lengths == [10, 10, 5]


def test_each_round_that_was_predicted_is_reported():
    tuner = make()
    summary = tuner.tune(n_trial=96, measure_option=FakeMeasurer(valley))
    assert [r.round for r in tuner.model_reports] == [1, 2, 3, 4, 5]
    assert [r.trained_on for r in tuner.model_reports] == [16, 32, 48, 64, 80]
    assert all(r.unseen == 16 and r.trees > 0 for r in tuner.model_reports)
    assert np.nanmean([r.spearman for r in tuner.model_reports]) > 0
    assert any("rank correlation" in line for line in summary.lines())


def test_a_report_is_made_before_the_round_is_learned():
    # Times that are chance cannot be predicted; a model that had seen them would know them.
    rng = np.random.default_rng(0)
    times = {i: float(rng.uniform(1, 2)) for i in range(4096)}
    tuner = make(space=FakeSpace((8,) * 4))
    tuner.tune(n_trial=320, measure_option=FakeMeasurer(times.__getitem__))
    assert abs(np.nanmean([r.spearman for r in tuner.model_reports])) < 0.25


def test_telling_a_log_trains_nothing():
    tuner = make()
    told = [tuner.space.get(i) for i in range(64)]
    for start in range(0, 64, 16):
        tuner.tell([(c, FakeMeasurer(valley).result(c.index)) for c in told[start : start + 16]])
    assert not tuner.model.ready
    assert tuner.model_reports == []
    tuner.ask(1)
    assert tuner.model.ready


def test_failures_are_avoided():
    def fails(index):
        return ErrorKind.COMPILE if index % 8 >= 4 else None

    measurer = FakeMeasurer(valley, fails=fails)
    make().tune(n_trial=160, measure_option=measurer)
    late = measurer.measured[-80:]
    # Half of the space fails, and the best neighbours of the best are there.
    assert np.mean([fails(i) is not None for i in late]) < 0.2


def test_dropped_trials_teach_and_are_never_best():
    # Five points in six are 10 steps or more from the best, and are dropped there.
    limit = 1.3**9.9 * 1e-3
    assert np.mean([valley(i) > limit for i in range(0, 8**6, 7)]) > 5 / 6

    class Racing(FakeMeasurer):
        def result(self, index):
            slow = valley(index) > limit
            return MeasureResult(times=(limit if slow else valley(index),), dropped=slow, ts=1.0)

    measurer = Racing(valley)
    tuner = make()
    tuner.tune(n_trial=200, measure_option=measurer)
    assert not tuner.best[1].dropped
    assert valley(tuner.best[0].index) <= 1.3**3.1 * 1e-3


class Planted:
    """An analytical model that knows the valley, or its opposite."""

    sign = -1.0

    def __init__(self, task):
        self.space = task.config_space

    def predict(self, digits):
        return self.sign * np.log2([valley(i) for i in indices_of(self.space, digits)])


class Opposite(Planted):
    sign = 1.0


def rounds(tuner, count):
    """Mean log2 time of each round's proposals, above the best of the space."""
    found = []
    for _ in range(count):
        asked = tuner.ask(16)
        found.append([math.log2(1e3 * valley(c.index)) for c in asked])
        tuner.tell([(c, FakeMeasurer(valley).result(c.index)) for c in asked])
    return found


@pytest.mark.parametrize("optimizer", ["evolution", "sa"])
def test_an_analytical_model_orders_half_of_the_first_round(monkeypatch, optimizer):
    monkeypatch.setattr("loopwright.tuner.model.candidates.AnalyticalModel", Planted)
    (first,) = rounds(make(analytical=True, optimizer=optimizer), 1)
    (chance,) = rounds(make(), 1)
    assert np.mean(first[:8]) < np.mean(chance) - 2
    assert np.mean(first[8:]) > np.mean(first[:8]) + 1


def test_an_analytical_model_that_is_wrong_is_overruled(monkeypatch):
    monkeypatch.setattr("loopwright.tuner.model.candidates.AnalyticalModel", Opposite)
    found = rounds(make(analytical=True), 12)
    assert np.mean(found[0][:8]) > np.mean(found[0][8:]) + 1
    assert min(map(np.mean, found[8:])) < np.mean(found[0][8:]) - 1.5


def test_drafts_are_the_best_of_many(monkeypatch):
    monkeypatch.setattr("loopwright.tuner.model.candidates.AnalyticalModel", Planted)
    candidates = CandidateBatches(FakeTask(FakeSpace((8,) * 6)), "knob", True)
    drafted = candidates.starting_points(50, np.random.default_rng(0))
    assert drafted.shape == (50, 6)
    chance = random_digits(candidates.task.config_space, 50, np.random.default_rng(0))
    model = Planted(candidates.task)
    assert model.predict(drafted).min() > model.predict(chance).mean()
    assert len(CandidateBatches(candidates.task, "knob", False).starting_points(50, None)) == 0


def test_a_template_that_runs_for_every_candidate_is_searched_with_fewer(monkeypatch):
    class Slow:
        names = ("a",)
        derived = asked = 0

        def __init__(self, task, feature_type):
            pass

        def rows(self, digits):
            self.derived += len(digits)
            Slow.asked += len(digits)
            values = digits[:, :1].astype(np.float32)
            return SimpleNamespace(values=values, failed=np.zeros(len(digits), bool))

    monkeypatch.setattr("loopwright.tuner.model.candidates.Extractor", Slow)
    tuner = make()
    rounds(tuner, 1)
    before = Slow.asked
    rounds(tuner, 1)
    assert Slow.asked - before < 500
    assert tuner.model.ready


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 0.0])
def test_times_that_are_no_times_count_as_failures(seconds):
    measurer = FakeMeasurer(lambda i: seconds if i % 2 else valley(i))
    summary = make().tune(n_trial=40, measure_option=measurer)
    assert summary.trials == 40
    assert np.mean([i % 2 for i in measurer.measured[-20:]]) < 0.4


def test_when_everything_failed_chance_goes_on():
    tuner = make(space=FakeSpace((8, 8)))
    fails = FakeMeasurer(fails=lambda i: ErrorKind.COMPILE)
    tuner.tell([(c, fails.result(c.index)) for c in map(tuner.space.get, range(20))])
    assert len(tuner.ask(16)) == 16


def test_a_task_without_features_is_searched_by_chance():
    # The fake task has no schedule to take features from: every row is marked as failed.
    tuner = XGBTuner(FakeTask(FakeSpace((8, 8))), analytical=False)
    summary = tuner.tune(measure_option=FakeMeasurer(bowl))
    assert summary.trials == 64


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("plan_size", 0, "plan_size"),
        ("plan_size", 2.0, "plan_size"),
        ("feature_type", "itervars", "itervar, knob"),
        ("loss_type", "mse", "reg, rank, rank-binary"),
        ("optimizer", "ga", "evolution, sa"),
        ("optimizer", [], "evolution, sa"),
        ("diversity_filter_ratio", 0.5, "diversity_filter_ratio"),
        ("diversity_filter_ratio", "2", "diversity_filter_ratio"),
        ("num_threads", 0, "num_threads"),
        ("epsilon", 1.1, "epsilon"),
        ("epsilon", math.nan, "epsilon"),
        ("seed", -1, "seed"),
    ],
)
def test_options_that_are_not_allowed_are_refused(option, value, text):
    with pytest.raises(UsageError, match=text):
        make(**{option: value})


def test_autotvms_order_of_arguments():
    tuner = XGBTuner(FakeTask(), 32, "knob", "rank", 1, "sa", 2, 50, analytical=False)
    assert tuner.options["plan_size"] == 32
    assert tuner.options["loss_type"] == "rank"


def test_proposals_do_not_depend_on_the_number_of_threads():
    def measured(threads):
        measurer = FakeMeasurer(valley)
        make(num_threads=threads).tune(n_trial=48, measure_option=measurer)
        return measurer.measured

    assert measured(1) == measured(2)


def test_xgboost_is_loaded_when_a_model_is_trained():
    script = """
import sys
from loopwright.tuner import XGBTuner
from loopwright.testing.tuner_contract import FakeTask
XGBTuner(FakeTask(), feature_type="knob", analytical=False).ask(8)
assert not {"xgboost", "scipy"} & set(sys.modules), "loaded too early"
"""
    script = script.replace("from loopwright.testing.tuner_contract import FakeTask", FAKE)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


#: Without pytest, which loads scipy when it finds it.
FAKE = """
from types import SimpleNamespace
from loopwright.task import ConfigSpace
def FakeTask():
    space = ConfigSpace()
    space.define_knob("a", range(20))
    space.freeze()
    target = SimpleNamespace(keys=("cpu",), options={}, vector_bytes=64, vector_registers=32)
    return SimpleNamespace(config_space=space, target=target, flop=1)
"""

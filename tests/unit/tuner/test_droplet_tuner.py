from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import loopwright as lw
from loopwright.errors import UsageError
from loopwright.measure import ErrorKind, MeasureResult
from loopwright.testing.tuner_contract import (
    FakeMeasurer,
    FakeSpace,
    FakeTask,
    TunerContract,
)
from loopwright.tuner import DropletTuner, GATuner, XGBTuner, find_tuner
from loopwright.tuner.droplet_tuner import Descent, Lines, is_faster
from tests.unit.tuner.variants import VariantContract

pytestmark = pytest.mark.usefixtures("few_trees")


class TestDropletTuner(TunerContract):
    tuner = DropletTuner
    options = {"restarts": None}  # noqa: RUF012


class TestXGBTunerThatEndsWithADescent(VariantContract):
    tuner = XGBTuner
    options = {"post_optimization": 20}  # noqa: RUF012


def digits(index: int) -> list[int]:
    return [index // 8**k % 8 for k in range(6)]


def valley(index: int) -> float:
    """Seconds of a point of six knobs of eight: least where every digit is 5, no other minimum."""
    return 1e-3 * (1 + sum(abs(d - 5) for d in digits(index)))


BOTTOM = sum(5 * 8**k for k in range(6))


def test_it_comes_to_the_bottom_of_a_valley_and_ends_there():
    measurer = FakeMeasurer(valley)
    tuner = DropletTuner(FakeTask(FakeSpace((8,) * 6)), analytical=False)
    summary = tuner.tune(measure_option=measurer)
    # 25 steps, each from the neighbours of a point, in a space of 262 144 points.
    assert tuner.best_config.index == BOTTOM
    assert len(measurer.measured) < 400
    assert summary.stopped == "exhausted"
    assert f"no neighbour of configuration {BOTTOM} is faster" in tuner.why_empty
    neighbours = [BOTTOM + step * 8**k for k in range(6) for step in (-1, 1)]
    assert set(neighbours) <= set(measurer.measured)


def test_it_starts_at_the_fastest_of_the_points_it_is_given():
    measurer = FakeMeasurer(valley)
    tuner = DropletTuner(FakeTask(FakeSpace((8,) * 6)), start=(7, BOTTOM + 1), plan_size=8)
    tuner.tune(n_trial=24, measure_option=measurer)
    # The default configuration, the points, the neighbours of the first; then those of the best.
    assert measurer.measured[:3] == [0, 7, BOTTOM + 1]
    assert BOTTOM in measurer.measured[8:]
    assert all(abs(d - 5) <= 2 for index in measurer.measured[8:] for d in digits(index))


def test_of_a_valley_with_two_bottoms_a_restart_finds_the_other():
    # One knob: 0 is a bottom, and 30 the deeper one behind a ridge.
    def seconds(index):
        return 1e-3 * (2 + index if index < 15 else 1 + abs(index - 30))

    def best(restarts):
        tuner = DropletTuner(
            FakeTask(FakeSpace((40,))), plan_size=4, restarts=restarts, analytical=False
        )
        tuner.tune(measure_option=FakeMeasurer(seconds))
        return tuner.best_config.index

    assert best(0) == 0
    assert best(None) == 30


def test_what_failed_or_lost_its_race_is_no_step():
    descent = Descent(FakeSpace((8,) * 2), 0.05)
    space = FakeSpace((8,) * 2)
    slow, fast = (2e-3, 2.01e-3), (1e-3, 1.01e-3)
    descent.learn([(space.get(9), MeasureResult(times=slow))])
    failed = FakeMeasurer(fails=lambda i: ErrorKind.COMPILE).result(1)
    descent.learn([(space.get(1), failed), (space.get(8), MeasureResult(times=fast, dropped=True))])
    assert descent.centre == 9
    descent.learn([(space.get(10), MeasureResult(times=fast))])
    assert descent.centre == 10


@pytest.mark.parametrize("seed", range(4))
def test_the_knob_that_brought_the_last_gain_is_changed_first(seed):
    space = FakeSpace((8,) * 3)
    descent = Descent(space, 0.05)
    before, after = (4 + 8 * middle + 64 * 4 for middle in (3, 4))
    for index, seconds in ((before, 2e-3), (after, 1e-3)):
        descent.learn([(space.get(index), MeasureResult(times=(seconds,)))])
    near = descent.next(np.random.default_rng(seed), {before, after}, lambda index: True)
    assert next(near) == after + 8


def test_noise_moves_it_nowhere_and_a_gain_does():
    rng = np.random.default_rng(0)
    moved = {False: 0, True: 0}
    for _ in range(400):
        times, others = rng.normal(1e-3, 5e-5, (2, 6))
        moved[False] += is_faster(times.tolist(), others.tolist(), 0.05)
        moved[True] += is_faster((times * 0.9).tolist(), others.tolist(), 0.05)
    assert moved[False] <= 0.08 * 400
    assert moved[True] >= 0.8 * 400


def test_the_test_agrees_with_all_permutations_of_the_samples():
    # An exact permutation test of the difference of means assumes nothing of the distribution.
    rng = np.random.default_rng(1)
    agreed = 0
    for _ in range(60):
        a, b = rng.normal(1.0, 0.1, 7), rng.normal(1.0 + rng.uniform(0, 0.3), 0.1, 7)
        pool, gap = np.concatenate([a, b]), b.mean() - a.mean()
        gaps = []
        for chosen in itertools.combinations(range(14), 7):
            left = pool[list(chosen)]
            gaps.append((pool.sum() - 2 * left.sum()) / 7)
        exact = float(np.mean(np.array(gaps) >= gap - 1e-12))
        if abs(exact - 0.05) < 0.01:
            agreed += 1  # too near the limit for two tests to agree on
            continue
        agreed += is_faster(a.tolist(), b.tolist(), 0.05) == (exact < 0.05)
    assert agreed == 60


@pytest.mark.parametrize(
    ("times", "than", "faster"),
    [
        ((1.0,), (2.0, 2.1, 1.9), True),
        ((2.0,), (1.0,), False),
        ((1.0, 1.0), (2.0, 2.0), True),
        ((), (1.0,), False),
        ((1.0, 1.0), (1.0, 1.0), False),
    ],
)
def test_few_samples_or_equal_ones_are_judged_by_their_means(times, than, faster):
    assert is_faster(times, than, 0.05) is faster


def test_lines_lead_to_every_choice_of_a_knob_by_small_steps():
    task = lw.create_task("matmul", (64, 64, 64), "llvm")
    space = task.config_space
    knobs = list(space.knobs.values())
    here = space.point2knob(1234)
    for number, rings in enumerate(Lines(space).rings(here)):
        near, seen = knobs[number].neighbours(), {here[number]}
        for ring in rings:
            choices = {choice for knob, choice in ring if knob == number}
            assert len(choices) == len(ring)
            assert not choices & seen
            reached = {to for at in seen for to in near[at]}
            assert choices <= reached or not near[here[number]]
            seen |= choices


def test_it_goes_on_from_the_best_of_another_tuners_log(tmp_path):
    log = [lw.callback.log_to_file(tmp_path / "log.jsonl")]
    measurer = FakeMeasurer(valley)
    first = GATuner(FakeTask(FakeSpace((8,) * 6)), seed=1)
    first.tune(n_trial=48, measure_option=measurer, callbacks=log)
    best = first.best_config.index
    measurer.measured.clear()
    tuner = DropletTuner(FakeTask(FakeSpace((8,) * 6)), seed=1)
    tuner.tune(n_trial=60, measure_option=measurer, callbacks=log)
    distances = [
        sum(a != b for a, b in zip(digits(best), digits(index), strict=True))
        for index in measurer.measured
    ]
    assert distances == [1] * 12


def test_the_learned_tuner_ends_with_a_descent_when_it_is_told_to():
    def measured(**options):
        measurer = FakeMeasurer(valley)
        tuner = XGBTuner(FakeTask(FakeSpace((8,) * 6)), seed=2, analytical=False, **options)
        tuner.tune(n_trial=64, measure_option=measurer)
        return measurer.measured

    plain, ended = measured(), measured(post_optimization=48)
    assert plain[:48] == ended[:48]
    best = min(ended[:48], key=valley)
    apart = [
        sum(a != b for a, b in zip(digits(best), digits(index), strict=True))
        for index in ended[48:]
    ]
    assert apart == [1] * 16


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("start", 5),
        ("start", (-1,)),
        ("start", (True,)),
        ("start", (64,)),
        ("pvalue", 1.5),
        ("pvalue", math.nan),
        ("plan_size", 0),
        ("restarts", -1),
        ("analytical", 1),
    ],
)
def test_options_outside_of_their_range_are_refused(option, value):
    with pytest.raises(UsageError, match=option):
        DropletTuner(FakeTask(), **{option: value})


def test_it_is_named():
    assert find_tuner("droplet") is DropletTuner

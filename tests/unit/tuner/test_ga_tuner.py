from __future__ import annotations

import math

import numpy as np
import pytest

from loopwright.errors import UsageError
from loopwright.measure import ErrorKind, MeasureResult
from loopwright.task.sampling import indices_of
from loopwright.testing.tuner_contract import (
    FakeMeasurer,
    FakeSpace,
    FakeTask,
    TunerContract,
)
from loopwright.tuner import GATuner, find_tuner
from tests.unit.tuner.variants import VariantContract


class TestGATuner(TunerContract):
    tuner = GATuner


class TestGATunerAsAutoTVMCallsIt(VariantContract):
    tuner = GATuner
    options = {"pop_size": 100, "elite_num": 3, "mutation_prob": 0.1}  # noqa: RUF012


class TestGATunerWithoutMutation(VariantContract):
    tuner = GATuner
    options = {"pop_size": 4, "elite_num": 0, "mutation_prob": 0}  # noqa: RUF012


def valley(index: int) -> float:
    """Seconds of a point of six knobs of eight: least where every digit is 5."""
    digits = [index // 8**k % 8 for k in range(6)]
    return 1e-3 * (1 + sum(abs(d - 5) for d in digits))


def trials_to(share: float, seed: int, **options: object) -> int:
    """Trials until a point within ``share`` of the valley's best speed was measured."""
    measurer = FakeMeasurer(valley)
    tuner = GATuner(FakeTask(FakeSpace((8,) * 6)), seed=seed, **options)
    tuner.tune(n_trial=400, measure_option=measurer)
    hits = [n for n, i in enumerate(measurer.measured) if valley(i) <= 1e-3 / share]
    return hits[0] if hits else 400


def test_breeding_finds_what_chance_would_not():
    # 13 of the 262 144 points are as fast as half of the best: chance needs 14 000 trials.
    fast = sum(valley(i) <= 2e-3 for i in range(8**6))
    assert fast == 13
    found = [trials_to(0.5, seed) for seed in range(12)]
    assert np.median(found) < 300


def test_it_is_named():
    assert find_tuner("ga") is GATuner
    assert GATuner(FakeTask(), 10).options == {
        "pop_size": 10,
        "elite_num": 3,
        "mutation_prob": 0.1,
    }


def test_parents_are_the_elite_and_the_fastest_quarter_of_a_generation():
    tuner = GATuner(FakeTask(FakeSpace((8,) * 4)), pop_size=8, elite_num=1)
    for start in range(0, 40, 8):
        configs = [tuner.space.get(i) for i in range(start, start + 8)]
        tuner.tell([(c, FakeMeasurer(lambda i: 1.0 + i).result(c.index)) for c in configs])
    digits, chances = tuner.parents()
    assert indices_of(tuner.space, digits) == [0, 32, 33]
    assert chances == pytest.approx(np.array([1, 1 / 33, 1 / 34]) / (1 + 1 / 33 + 1 / 34))


def test_failures_have_no_children():
    tuner = GATuner(FakeTask(FakeSpace((8,) * 4)), pop_size=4)
    fails = FakeMeasurer(lambda i: 1.0, fails=lambda i: ErrorKind.COMPILE if i % 2 else None)
    tuner.tell([(c, fails.result(c.index)) for c in map(tuner.space.get, range(4))])
    digits, chances = tuner.parents()
    of = dict(zip(indices_of(tuner.space, digits), chances.tolist(), strict=True))
    assert (of.pop(0), of.pop(2)) == (0.5, 0.5)
    assert not any(of.values())


def test_when_everything_failed_chance_goes_on():
    tuner = GATuner(FakeTask(FakeSpace((8,) * 4)), pop_size=4)
    fails = FakeMeasurer(fails=lambda i: ErrorKind.COMPILE)
    tuner.tell([(c, fails.result(c.index)) for c in map(tuner.space.get, range(4))])
    assert len(tuner.ask(16)) == 16


@pytest.mark.parametrize("seconds", [math.inf, math.nan, 0.0])
def test_times_that_are_no_times_count_as_failures(seconds):
    tuner = GATuner(FakeTask(), pop_size=2)
    times = [seconds, 1e-3]
    tuner.tell([(tuner.space.get(i), MeasureResult(times=(t,))) for i, t in enumerate(times)])
    assert tuner.parents()[1].tolist() == [0, 1]
    assert len(tuner.ask(8)) == 8


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("pop_size", 1),
        ("pop_size", 2.5),
        ("pop_size", True),
        ("elite_num", -1),
        ("mutation_prob", 1.5),
        ("mutation_prob", math.nan),
        ("mutation_prob", "often"),
    ],
)
def test_options_outside_of_their_range_are_refused(option, value):
    with pytest.raises(UsageError, match=option):
        GATuner(FakeTask(), **{option: value})

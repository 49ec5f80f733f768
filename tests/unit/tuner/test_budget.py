from __future__ import annotations

import pytest

from loopwright.errors import UsageError
from loopwright.tuner.run.budget import (
    Budget,
    Progress,
    count,
    gain_per_minute,
    seconds,
    target_speed,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        (90, 90.0),
        ("90", 90.0),
        ("90s", 90.0),
        ("1.5m", 90.0),
        ("30min", 1800.0),
        ("8h", 28800.0),
        (" 1 d ", 86400.0),
        (".5H", 1800.0),
    ],
)
def test_durations(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "8x", "h", "-3", 0, -1.0, "0s", float("inf"), "1h30m", True, [9], float("nan")]
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(UsageError, match="8h"):
        seconds(text)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3"])
def test_what_is_no_count_is_refused(value):
    with pytest.raises(UsageError, match="n_trial must be an integer above zero"):
        count("n_trial", value)


@pytest.mark.parametrize("value", [0, -1.0, True, "3", float("inf"), float("nan")])
def test_what_is_no_speed_is_refused(value):
    with pytest.raises(UsageError, match="GFLOP/s, above zero"):
        target_speed(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, None), (0.01, 0.01), ("1%", 0.01), (" 0.5 % ", 0.005), (".2", 0.2)],
)
def test_shares(text, expected):
    assert gain_per_minute(text) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize("text", ["", "%", "1%%", "1% x", "fast", 0, -0.1, "nan", "inf", True])
def test_what_is_no_share_is_refused(text):
    with pytest.raises(UsageError, match=r"such as 0\.01 or 1%"):
        gain_per_minute(text)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_trials():
    budget = Budget(n_trial=3)
    assert budget.spent(Progress(valid=2, trials=9, best_trial=0)) is None
    assert budget.spent(Progress(valid=3, trials=3, best_trial=0))[0] == "n_trial"


def test_time_with_a_reserve():
    clock = Clock()
    budget = Budget(timeout=10.0, clock=clock)
    clock.now += 7
    assert budget.elapsed == 7
    assert budget.spent(Progress(0, 0, None)) is None
    assert budget.spent(Progress(0, 0, None), reserve=3.0)[0] == "timeout"


def test_early_stopping_counts_from_the_best():
    budget = Budget(early_stopping=5)
    assert budget.spent(Progress(valid=9, trials=9, best_trial=None)) is None
    assert budget.spent(Progress(valid=9, trials=9, best_trial=4)) is None
    assert budget.spent(Progress(valid=9, trials=10, best_trial=4)) == (
        "early_stopping",
        "5 trials brought nothing better",
    )


def test_a_speed_that_is_enough():
    budget = Budget(target=100)
    assert budget.spent(Progress(1, 1, None)) is None
    assert budget.spent(Progress(1, 1, 0, gflops=99.9)) is None
    ended = ("target", "the best reached 101.0 of 100 GFLOP/s")
    assert budget.spent(Progress(1, 1, 0, gflops=101.0)) == ended


def test_expected_gain():
    budget = Budget(min_gain=0.01)
    assert budget.spent(Progress(90, 90, 0)) is None
    assert budget.spent(Progress(90, 90, 0, gain=0.02)) is None
    ended = ("min_gain", "another minute is expected to gain 0.50%, less than 1.00%")
    assert budget.spent(Progress(90, 90, 0, gain=0.005)) == ended


def test_the_first_that_is_spent_is_named():
    limits = {"n_trial": 9, "early_stopping": 5, "target": 10.0, "min_gain": 0.01}
    where = {"valid": 8, "trials": 8, "best_trial": 6, "gflops": 5.0, "gain": 0.1}
    reached = {
        "n_trial": {"valid": 9},
        "early_stopping": {"best_trial": 2},
        "target": {"gflops": 10.0},
        "min_gain": {"gain": 0.001},
    }
    assert Budget(**limits).spent(Progress(**where)) is None
    for name, change in reached.items():
        assert Budget(**limits).spent(Progress(**where | change))[0] == name


def test_room():
    assert Budget().room(5) is None
    assert Budget(n_trial=8).room(5) == 3
    assert Budget(n_trial=8).room(9) == 0


def test_without_limits_nothing_is_spent():
    assert Budget().spent(Progress(10**9, 10**9, 0)) is None


def test_trials_that_are_left() -> None:
    progress = Progress(valid=20, trials=24, best_trial=9)
    assert Budget().trials_left(progress) is None
    assert Budget(n_trial=50).trials_left(progress) == 30
    assert Budget(early_stopping=16).trials_left(progress) == 2
    assert Budget(n_trial=50, early_stopping=16).trials_left(progress) == 2
    assert Budget(n_trial=20).trials_left(progress) == 0
    assert Budget(early_stopping=5).trials_left(Progress(3, 3, None)) is None

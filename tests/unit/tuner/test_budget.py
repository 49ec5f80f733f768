from __future__ import annotations

import pytest

from loopwright.errors import UsageError
from loopwright.tuner.budget import Budget, Progress, count, seconds


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


@pytest.mark.parametrize("text", ["", "8x", "h", "-3", 0, -1.0, "0s", float("inf"), "1h30m"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(UsageError, match="8h"):
        seconds(text)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3"])
def test_what_is_no_count_is_refused(value):
    with pytest.raises(UsageError, match="n_trial must be an integer above zero"):
        count("n_trial", value)


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


def test_without_limits_nothing_is_spent():
    assert Budget().spent(Progress(10**9, 10**9, 0)) is None

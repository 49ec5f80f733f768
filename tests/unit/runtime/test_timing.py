"""Timing: how often functions run, not how long."""

from __future__ import annotations

import time

import numpy as np
import pytest

from loopwright.errors import ArgumentError, RunError, UsageError
from loopwright.runtime import BenchmarkResult, Module, array, measure_windows, time_call, time_once
from loopwright.runtime.kernels import timing
from loopwright.testing.simulated_device import SimulatedDevice
from tests.unit.runtime import kernels


@pytest.fixture(scope="module")
def module() -> Module:
    return kernels.count()


@pytest.fixture
def counter() -> np.ndarray:
    return np.zeros(1, np.int64)


def test_one_warm_up_then_number_times_repeat(module: Module, counter: np.ndarray) -> None:
    result = module.time_evaluator("count", number=7, repeat=3)(counter)
    assert counter[0] == 1 + 7 * 3
    assert len(result.results) == 3
    assert 0 <= result.min <= result.median <= result.max


def test_the_number_grows_until_a_repeat_is_long_enough() -> None:
    module = kernels.sleep()
    counter = np.zeros(1, np.int64)
    evaluator = module.time_evaluator("sleep", "cpu", number=1, repeat=2, min_repeat_ms=10)
    result = evaluator(np.array([1000], np.int32), counter)
    # Each sleep takes at least 1 ms, so nothing over 11 calls is tried: 1 warm-up, 1, then at
    # most int(10 / t + 1) with t >= 1 ms; both repeats run at least 2 calls.
    assert 1 + 1 + 2 + 2 <= counter[0] <= 1 + 1 + 11 + 18 + 18
    assert all(seconds >= 1e-3 for seconds in result.results)


def test_growth_follows_the_rule() -> None:
    assert timing.grown(10, 0.001, 5) == 51  # 5 ms / 0.1 ms + 1
    assert timing.grown(100, 0.0499, 50) == 161  # 1.618 times as many
    tried = []

    def measure(number: int) -> float:
        tried.append(number)
        return number * 1e-4

    seconds, number = timing.run_repeat(measure, 10, 5, 100)
    assert tried == [10, 51]
    assert number == 51
    assert seconds == pytest.approx(1e-4)


def test_work_without_measurable_time_ends_at_its_limit() -> None:
    tried = []

    def measure(number: int) -> float:
        tried.append(number)
        return 0.0

    assert timing.run_repeat(measure, 3, 5, 20) == (0.0, 3)
    assert tried == [3] * 20


def test_preproc_runs_once_per_repeat_with_the_arguments(
    module: Module, counter: np.ndarray
) -> None:
    seen = []
    evaluator = module.time_evaluator(
        "count", number=5, repeat=3, f_preproc=lambda c: seen.append(int(c[0]))
    )
    evaluator(counter)
    assert seen == [1, 6, 11]


def test_flushing_changes_no_value() -> None:
    module = kernels.add_one()
    a, b = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    evaluator = module.time_evaluator(
        "add_one", number=1, repeat=2, f_preproc=timing.FLUSH_NON_FIRST, cache_flush_bytes=1 << 16
    )
    evaluator(a, b)
    assert (b == 2).all()
    timing.flush(b, array(a))
    assert (b == 2).all()


def test_cooldown_comes_after_every_so_many_repeats(
    module: Module, counter: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[float] = []
    monkeypatch.setattr(time, "sleep", naps.append)
    options = {"cooldown_interval_ms": 30, "repeats_to_cooldown": 2}
    module.time_evaluator("count", number=1, repeat=5, **options)(counter)
    assert naps == [0.03, 0.03]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"number": 0}, "number is 0; it must be at least 1"),
        ({"repeat": 0}, "repeat is 0"),
        ({"number": 2.5}, "number is 2.5; it must be a whole number"),
        ({"min_repeat_ms": -1}, "min_repeat_ms is -1"),
        ({"cache_flush_bytes": -1}, "cache_flush_bytes is -1"),
        ({"f_preproc": "cache_flush"}, "unknown f_preproc 'cache_flush'"),
        ({"dev": "cuda"}, "cannot be used"),
        ({"number": True}, "number is True; it must be a whole number"),
        ({"cache_flush_bytes": 1.5}, "cache_flush_bytes is 1.5; it must be a whole number"),
        ({"min_repeat_ms": "x"}, "min_repeat_ms is 'x'; it must be a number"),
    ],
)
def test_bad_options_are_refused(module: Module, options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        module.time_evaluator("count", **options)


def test_arguments_are_checked_before_timing(module: Module) -> None:
    with pytest.raises(ArgumentError, match=r"count: argument 0 \('counter'\)"):
        module.time_evaluator("count")(np.zeros(2, np.int64))
    with pytest.raises(AttributeError, match="no function 'f'"):
        module.time_evaluator("f")


def test_a_failure_while_timing_is_an_error() -> None:
    module = Module(kernels.artifact(kernels.FAIL, "fail", [kernels.arg("code", [1], "int32")]))
    call = module["fail"].bind(np.array([-3], np.int32))
    with pytest.raises(RunError, match="failed with code -3"):
        time_call(call, 5)
    with pytest.raises(RunError, match="got no memory"):
        time_call(module["fail"].bind(np.array([1], np.int32)), 5)


def test_time_once_makes_no_other_call(module: Module, counter: np.ndarray) -> None:
    assert time_once(module["count"], [counter], number=9) >= 0
    assert counter[0] == 9
    with pytest.raises(UsageError, match="number is 0"):
        time_once(module["count"], [counter], number=0)


def test_windows_hold_as_many_calls_as_fit(module: Module, counter: np.ndarray) -> None:
    call = module["count"].bind(counter)
    times = measure_windows(call, windows=4, window_ms=1, estimate=1e-4)
    assert len(times) == 4
    assert counter[0] == 4 * 10
    measure_windows(call, windows=1, window_ms=0, estimate=1.0)
    assert counter[0] == 41


def test_statistics_are_those_of_the_results() -> None:
    result = BenchmarkResult((1e-3, 2e-3, 6e-3))
    assert result.mean == pytest.approx(np.mean(result.results))
    assert result.median == 2e-3
    assert result.std == pytest.approx(np.std(result.results))
    assert (result.min, result.max) == (1e-3, 6e-3)
    assert str(result) == "mean 3, median 2, std 2.16, min 1, max 6 ms over 3 repeats"
    assert "us over 1" in str(BenchmarkResult((2e-6,)))


def test_code_is_timed_on_its_own_kind_of_devices(module: Module) -> None:
    with (
        SimulatedDevice(),
        pytest.raises(UsageError, match=r"the code is for cpu\(0\), not for ext_dev\(0\)"),
    ):
        module.time_evaluator("count", "ext_dev:0")


@pytest.mark.parametrize("numbers", [(1,), (3,), (7,), (2, 2, 5), (1, 1, 1, 1)])
def test_calls_take_turns_and_go_on_where_they_ended(
    module: Module, numbers: tuple[int, ...]
) -> None:
    counters = [np.zeros(1, np.int64) for _ in range(3)]
    turns = timing.Turns([module["count"].bind(c) for c in counters])
    for number in numbers:
        assert turns.time(number) >= 0
    done = sum(numbers)
    assert [int(c[0]) for c in counters] == [(done + 2 - n) // 3 for n in range(3)]


def test_a_call_that_fails_among_others_ends_the_turns() -> None:
    fails = Module(kernels.artifact(kernels.FAIL, "fail", [kernels.arg("code", [1], "int32")]))
    codes = [np.array([n], np.int32) for n in (0, 9, 0)]
    turns = timing.Turns([fails["fail"].bind(c) for c in codes])
    assert turns.time(1) >= 0
    with pytest.raises(RunError, match="code 9"):
        turns.time(5)

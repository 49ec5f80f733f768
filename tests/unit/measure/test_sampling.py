"""Samples of real kernels in a real runner process: how many, how long, and of whom."""

from __future__ import annotations

import pytest

from loopwright.measure.options import LocalRunner
from loopwright.measure.runner import Runner
from loopwright.measure.workers.protocol import RaceReply
from tests.unit.measure import kernels
from tests.unit.measure.sessions import race, sample, survives, with_options


def test_samples_of_a_good_kernel(session: Runner) -> None:
    found = race(session, kernels.GOOD)
    assert isinstance(found, RaceReply)
    assert not found.dropped
    times = sample(session, found)
    assert len(times) == 5
    assert all(0 < t < session.worker.seconds for t in times)
    times = sample(session, found, windows=1)
    # A window that long cannot hold fewer than a hundred calls of this length.
    assert times[0] * 100 < session.worker.seconds
    survives(session)


def test_windows_of_a_kernel_that_takes_longer_are_single_calls(session: Runner) -> None:
    found = race(session, kernels.sleepy(25_000))
    assert isinstance(found, RaceReply)
    times = sample(session, found, windows=2)
    assert len(times) == 2
    assert all(t >= 0.025 for t in times)


def test_two_windows_settle_what_is_clearly_behind(session: Runner) -> None:
    found = race(session, kernels.sleepy(13_000))
    assert isinstance(found, RaceReply)
    counts = [len(sample(session, found, incumbent=best)) for best in (None, 1.0, 0.008)]
    assert counts == [5, 5, 2]


def test_race_drops_what_is_far_behind(session: Runner) -> None:
    found = race(session, kernels.sleepy(5000), incumbent=0.001)
    assert isinstance(found, RaceReply)
    assert found.dropped
    assert found.first >= 0.005
    close = race(session, kernels.sleepy(5000), incumbent=0.004)
    assert isinstance(close, RaceReply)
    assert not close.dropped


def test_a_hopeless_warm_up_is_the_only_run(session: Runner) -> None:
    found = race(session, kernels.sleepy(60_000), incumbent=0.001)
    assert isinstance(found, RaceReply)
    assert found.dropped
    assert found.first == found.warm


def test_explicit_counts_have_the_meaning_of_autotvm(session: Runner) -> None:
    counted = with_options(session, number=2, repeat=3)
    found = race(counted, kernels.sleepy(2000))
    assert isinstance(found, RaceReply)
    times = sample(counted, found)
    assert len(times) == 3
    assert all(t >= 0.002 for t in times)
    assert session.worker.seconds >= 0.012


def test_min_repeat_ms_raises_the_number_of_calls(session: Runner) -> None:
    counted = with_options(session, number=1, repeat=2, min_repeat_ms=30)
    found = race(counted, kernels.sleepy(1000))
    assert isinstance(found, RaceReply)
    times = sample(counted, found)
    assert len(times) == 2
    assert session.worker.seconds >= 0.06


def test_cache_flush_makes_samples_of_one_call(session: Runner) -> None:
    flushing = with_options(session, number=4, repeat=3, enable_cpu_cache_flush=True)
    found = race(flushing, kernels.sleepy(3000))
    assert isinstance(found, RaceReply)
    times = sample(flushing, found)
    assert len(times) == 3
    assert all(t >= 0.003 for t in times)


def test_slow_kernel_gets_the_samples_that_fit(session: Runner) -> None:
    short = with_options(session, timeout=0.5)
    found = race(short, kernels.sleepy(90_000))
    assert isinstance(found, RaceReply)
    times = sample(short, found, spent=found.warm + found.first)
    assert 1 <= len(times) < 5
    assert found.warm + found.first + sum(times) < 0.5


def test_incumbent_shortens_the_limit() -> None:
    option = LocalRunner(timeout=10)
    assert option.limit(None) == 10
    assert option.limit(0.001) == 1
    assert option.limit(0.2) == pytest.approx(4)
    assert option.limit(3.0) == 10

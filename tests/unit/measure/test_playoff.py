"""Playoffs and measuring again, end to end: real builders, a real runner, real faults."""

from __future__ import annotations

import math
import os
import signal
from typing import Any

import numpy as np
import pytest

from loopwright.measure import (
    ErrorKind,
    MeasureError,
    Measurer,
    PlayoffPlan,
)
from loopwright.measure.options import WINDOW_S
from loopwright.measure.paired_ratios import FEWEST_ROUNDS
from loopwright.measure.playoff import CHOOSING
from loopwright.records import Checked, Outcome
from loopwright.target import host_unit
from tests.unit.measure import kernels
from tests.unit.measure.canned import Canned
from tests.unit.measure.programs import OPTION, MatmulTask


def test_playoff_interleaves_ranks_and_judges(task: MatmulTask, measurer: Measurer) -> None:
    flop = 2 * 32**3
    yardstick = iter(range(1, 100))
    plan = PlayoffPlan(32, flop=flop, beside={"other": lambda: next(yardstick) * 1e-3})
    found = measurer.playoff([4, 2, 32, 0], plan)
    assert {f.config for f in found.finalists} == {0, 2, 4, 32}
    failed = found.finalists[-1]
    assert (failed.config, failed.times) == (0, ())
    assert failed.error is not None
    rest = found.finalists[:-1]
    assert all(f.checked is Checked.YES and f.max_error is not None for f in rest)
    assert all(2 <= len(f.times) <= CHOOSING[1] for f in rest)
    most = max(len(f.times) for f in rest)
    ranks = [(len(f.times) < most, np.median(f.times)) for f in rest]
    assert ranks == sorted(ranks)
    # At least twenty where there is time, and never fewer than an interval needs.
    assert found.verdict().rounds >= FEWEST_ROUNDS
    assert found.peak == host_unit().peak
    assert len(found.at_peak) == len(found.best) == len(found.default)
    assert found.of_peak == pytest.approx(np.median(found.at_peak) / np.median(found.best))
    assert found.beside["other"][:6] == tuple(i * 1e-3 for i in range(1, 7))
    assert all(map(math.isnan, found.beside["other"][7::2]))
    assert found.gain_over("other") is not None


class Named(int):
    """A tile size; two of them are two configurations, also where they are one program."""

    __eq__, __ne__ = object.__eq__, object.__ne__
    __hash__ = object.__hash__


def test_equal_programs_are_one_finalist_and_never_beat_each_other(measurer: Measurer) -> None:
    default, same = Named(4), Named(4)
    found = measurer.playoff([same, 2], PlayoffPlan(default, places=2))
    times = {id(f.config): f.times for f in found.finalists}
    assert times[id(default)] == times[id(same)]
    only = measurer.playoff([same], PlayoffPlan(default, places=1))
    assert only.verdict().outcome is Outcome.TIE
    assert only.verdict().gain == 0.0
    assert only.verdict().is_default


def test_runner_killed_in_the_playoff_costs_no_finalist(measurer: Measurer) -> None:
    with Measurer(MatmulTask(), OPTION, beside=measurer) as m:
        runs = m.session.runner
        killed: list[int] = []
        sample = runs.sample

        def sample_of_a_dead_one(*args: Any, **options: Any) -> Any:
            pid = runs.worker.pid
            if not killed and pid is not None:
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            return sample(*args, **options)

        runs.sample = sample_of_a_dead_one  # type: ignore[method-assign]
        played = m.playoff([8, 16], PlayoffPlan())
    assert killed
    assert [f.error for f in played.finalists] == [None, None]
    # It was loaded again and went on; one that clearly loses need not stay to the end.
    assert min(len(f.times) for f in played.finalists) >= 2


def test_playoff_goes_on_after_a_crash(measurer: Measurer) -> None:
    task = MatmulTask(reference=lambda a: a + np.float32(1))
    said: list[str] = []
    m = Measurer(task, OPTION, said.append, beside=measurer)
    Canned(
        m,
        [
            kernels.GOOD,
            kernels.SEGFAULT,
            kernels.SKIPS_LAST,
            kernels.sleepy(2000),
            kernels.sleepy(4000),
        ],
    )
    with m:
        found = m.playoff([1, 2, 3, 4], PlayoffPlan(0, places=2))
    # Those that crash or are wrong give their places to the next ones.
    assert [f.config for f in found.finalists] == [0, 3, 4, 1, 2]
    kinds = [None if f.error is None else f.error.kind for f in found.finalists]
    assert kinds == [None, None, None, ErrorKind.RUN_CRASH, ErrorKind.WRONG_ANSWER]
    assert [f.checked for f in found.finalists[:3]] == [Checked.YES] * 3
    crash, wrong = (text for text in said if text.startswith("playoff"))
    assert "SIGSEGV" in crash
    assert "WRONG_ANSWER" in wrong


def test_a_winner_that_fails_while_it_is_judged_is_out(measurer: Measurer) -> None:
    task = MatmulTask(reference=lambda a: a + np.float32(1))
    m = Measurer(task, OPTION, beside=measurer)
    Canned(m, [kernels.sleepy(3000), kernels.GOOD, kernels.sleepy(1000)])
    with m:
        sample = m.session.runner.sample

        def fails(first: float, **how: Any) -> Any:
            if how["slot"] == 2 and how["window_s"] == WINDOW_S:
                return MeasureError(ErrorKind.RUN_CRASH, "late")
            return sample(first, **how)

        m.session.runner.sample = fails  # type: ignore[method-assign]
        found = m.playoff([1, 2], PlayoffPlan(0))
    assert found.winner is not None
    assert found.winner.config == 2
    assert found.finalists[-1].error == MeasureError(ErrorKind.RUN_CRASH, "late")
    assert found.verdict().is_gain
    assert not found.verdict().is_default


def test_measuring_again_races_and_checks_nobody(measurer: Measurer) -> None:
    task = MatmulTask(reference=lambda a: a + np.float32(1))
    m = Measurer(task, OPTION, beside=measurer)
    canned = Canned(m, [kernels.sleepy(1000), kernels.sleepy(60000), kernels.SEGFAULT])
    with m:
        slow, slower, crash = m.measure_again([0, 1, 2], windows=2)
        built = canned.built
        (again,) = m.measure_again([0], windows=2)
    assert [len(r.times) for r in (slow, slower, again)] == [2, 2, 2]
    assert max(slower.times) > min(slow.times)
    assert crash.error is not None
    assert crash.error.kind == ErrorKind.RUN_CRASH
    assert canned.built == built == 3  # the first one is kept
    assert m.timing["checked"] == 0


def test_a_playoff_whose_time_is_up_judges_nothing(measurer: Measurer) -> None:
    found = measurer.playoff([8], PlayoffPlan(16, timeout=1e-9))
    assert (found.best, found.default) == ((), ())
    assert all(f.error is None for f in found.finalists)

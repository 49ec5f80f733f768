from __future__ import annotations

import numpy as np

from loopwright.records.reports.curve import best_so_far
from tests.unit.records.reports.made_logs import record


def test_failed_and_dropped_trials_are_never_best():
    trials = [
        record(0, 4e-3),
        record(1, None),
        record(2, 1e-3, dropped=True),
        record(3, 2e-3, times=(1e-3, 2e-3, 5e-3)),
        record(4, 3e-3),
    ]
    curve = best_so_far(trials)
    np.testing.assert_array_equal(curve.best, [4e-3, 4e-3, 4e-3, 2e-3, 2e-3])
    np.testing.assert_array_equal(curve.seconds, [4e-3, np.nan, 1e-3, 2e-3, 3e-3])
    assert curve.counts.tolist() == [True, False, False, True, True]
    assert [(step.number, step.low, step.high) for step in curve.steps] == [
        (1, 4e-3, 4e-3),
        (4, 1e-3, 5e-3),
    ]
    assert curve.final is trials[3]


def test_a_candidate_that_was_wrong_later_never_was_the_best():
    first, second = record(0, 4e-3), record(1, 1e-3)
    error = {"kind": "WRONG_ANSWER", "text": "off by 1"}
    later = record(1, None, error=error, phase="playoff", ts=2e9)
    curve = best_so_far([first, second, later])
    assert curve.best.tolist() == [4e-3, 4e-3]
    assert curve.final is first


def test_what_a_ranking_takes_out_never_was_the_best():
    """The same program under another configuration, and the same candidate by another compiler."""
    error = {"kind": "WRONG_ANSWER", "text": "off by 1"}
    first, twin = record(0, 4e-3, build="b1"), record(1, 1e-3, program="p", build="b1")
    wrong = record(2, None, error=error, program="p", build="b1")
    curve = best_so_far([first, twin, wrong])
    assert curve.counts.tolist() == [True, False, False]
    assert curve.final is first
    newer = record(1, None, error=error, build="b2", phase="check", ts=2e9)
    curve = best_so_far([first, record(1, 1e-3, build="b1"), newer])
    assert curve.best.tolist() == [4e-3, 4e-3]
    assert curve.final is first


def test_what_shares_the_result_of_another_is_no_trial():
    first, same = record(0, 4e-3), record(1, 4e-3, same_as="0" * 10)
    curve = best_so_far([first, same, record(2, 3e-3)])
    assert curve.seconds.tolist() == [4e-3, 3e-3]
    assert [step.number for step in curve.steps] == [1, 2]


def test_the_clock_leaves_out_the_break_between_runs():
    runs = [
        record(0, ts=1010.0),
        record(1, ts=1012.0),
        record(2, ts=9005.0, run="r2", build_s=2.0, run_s=1.0),
        record(3, ts=9004.0, run="r2"),  # its line came late
        record(4, ts=9007.0, run="r2"),
    ]
    curve = best_so_far(runs, [{"run": "r1", "ts": 1000.0}, {"run": "r1", "ts": 1.0}, {"run": 3}])
    assert curve.clock.tolist() == [10.0, 12.0, 15.0, 15.0, 17.0]
    assert curve.runs.tolist() == [0, 0, 1, 1, 1]


def test_a_log_without_trials_has_an_empty_curve():
    curve = best_so_far([])
    assert (len(curve), curve.steps, curve.final) == (0, (), None)
    curve = best_so_far([record(0, None)])
    assert np.isnan(curve.best).all()
    assert curve.final is None


def test_it_agrees_with_a_plain_loop():
    rng = np.random.default_rng(0)
    trials, best, expected = [], np.inf, []
    for trial, seconds in enumerate(rng.uniform(1e-3, 2e-3, 200).tolist()):
        dropped, failed = rng.random() < 0.3, rng.random() < 0.2
        trials.append(record(trial, None if failed else seconds, dropped=dropped))
        if not dropped and not failed:
            best = min(best, seconds)
        expected.append(best)
    got = best_so_far(trials).best
    np.testing.assert_array_equal(np.where(np.isnan(got), np.inf, got), expected)

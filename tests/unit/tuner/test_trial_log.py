"""What a run says to ``logging``, and what a `Monitor` collects."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest

from loopwright.measure import ErrorKind
from loopwright.testing.tuner_contract import FakeMeasurer, FakeTask, bowl
from loopwright.tuner import Monitor, RandomTuner, log_to_file


def tune(n_trial: int = 20, callbacks=(), fails=lambda i: None, task=None):
    measurer = FakeMeasurer(bowl, fails=fails)
    tuner = RandomTuner(task or FakeTask())
    tuner.tune(n_trial=n_trial, measure_option=measurer, callbacks=list(callbacks))
    return measurer


def lines_of(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == name]


def test_each_trial_is_a_line_of_the_logger_that_autotvm_has(caplog):
    with caplog.at_level(logging.DEBUG, logger="autotvm"):
        measurer = tune()
    lines = lines_of(caplog, "autotvm")
    assert len(lines) == len(measurer.measured)
    best = 0.0
    for number, (line, index) in enumerate(zip(lines, measurer.measured, strict=True), 1):
        found = re.fullmatch(
            r"No: (\d+)\tGFLOPS: ([\d.]+)/([\d.]+)\tresult: MeasureResult\(costs=\(([^,]+), .+\), "
            r"error_no=MeasureErrorNo.NO_ERROR, all_cost=.+, timestamp=.+\)\t.+",
            line,
        )
        assert found, line
        speed = 1e6 / bowl(index) / 1e9
        best = max(best, speed)
        assert int(found[1]) == number
        assert float(found[2]) == pytest.approx(speed, abs=0.0051)
        assert float(found[3]) == pytest.approx(best, abs=0.0051)
        assert float(found[4]) == bowl(index)


def test_the_line_of_a_failure_has_its_error_in_place_of_times(caplog):
    with caplog.at_level(logging.DEBUG, logger="autotvm"):
        measurer = tune(8, fails=lambda i: ErrorKind.RUN_TIMEOUT if i % 2 else None)
    lines = lines_of(caplog, "autotvm")
    failed = [line for line, i in zip(lines, measurer.measured, strict=True) if i % 2]
    assert failed
    for line in failed:
        assert "\tGFLOPS: 0.00/" in line
        assert "costs=('RUN_TIMEOUT: index " in line
        assert "error_no=MeasureErrorNo.RUN_TIMEOUT" in line


def test_without_a_level_nothing_is_said_and_no_handler_is_made(caplog):
    tune()
    assert not caplog.records
    for name in ("autotvm", "loopwright", "loopwright.tuner"):
        assert not logging.getLogger(name).handlers
        assert logging.getLogger(name).level == logging.NOTSET


def test_the_course_of_a_run_is_told_at_info(caplog):
    with caplog.at_level(logging.INFO, logger="loopwright"):
        tune(40, fails=lambda i: ErrorKind.MEMORY if i == 9 else None)
    lines = lines_of(caplog, "loopwright.tuner")
    assert "tuner random, seed 0, 64 configurations; 0 trials from the log" in lines[0]
    rounds = [line for line in lines if ": round " in line]
    assert sum(int(re.search(r"(\d+) trials", line)[1]) for line in rounds) in (40, 41)
    assert all(re.search(r"; best [\d.]+ ms$", line) for line in rounds)
    assert "stopped after 40 trials: " in lines[-2]
    assert "(40 trials" in lines[-1] or "(41 trials" in lines[-1]
    assert not lines_of(caplog, "autotvm")


def test_a_task_without_operations_has_lines_with_zeros(caplog):
    task = FakeTask()
    task.flop = 0
    with caplog.at_level(logging.DEBUG, logger="autotvm"):
        tune(4, task=task)
    assert all("GFLOPS: 0.00/0.00" in line for line in lines_of(caplog, "autotvm"))


def test_a_monitor_collects_scores_and_times_as_that_of_autotvm():
    monitor = Monitor()
    measurer = tune(30, [monitor], fails=lambda i: ErrorKind.MEMORY if i % 3 == 0 else None)
    expected = [0.0 if i % 3 == 0 else 1e6 / bowl(i) for i in measurer.measured]
    scores, times = monitor.trial_scores(), monitor.trial_timestamps()
    np.testing.assert_allclose(scores, expected)
    assert scores.shape == times.shape == (len(measurer.measured),)
    assert scores.dtype == times.dtype == np.float64
    assert (np.diff(times) >= 0).all()
    assert monitor.scores == scores.tolist()


def test_a_monitor_goes_on_over_runs_until_it_is_reset(tmp_path):
    monitor, log = Monitor(), log_to_file(tmp_path / "log.jsonl")
    tune(10, [log, monitor])
    tune(16, [log, monitor])
    assert len(monitor.trial_scores()) == 16, "what the log held before is not counted again"
    monitor.reset()
    assert monitor.trial_scores().size == monitor.trial_timestamps().size == 0


def test_a_subclass_need_not_know_of_it():
    class Own(Monitor):
        def __init__(self, name: str) -> None:
            self.name = name

    monitor = Own("mine")
    tune(5, [monitor])
    assert len(monitor.trial_scores()) == 5

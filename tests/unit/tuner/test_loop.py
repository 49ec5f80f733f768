"""The tuning loop: what it records, when it stops, and what it does where a log cannot be."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loopwright import records
from loopwright.errors import RecordError, TuneError, UsageError
from loopwright.measure import ErrorKind
from loopwright.testing.tuner_contract import FakeMeasurer, FakeSpace, FakeTask, bowl
from loopwright.tuner import (
    GridSearchTuner,
    NothingRan,
    RandomTuner,
    TuningInterrupted,
    log_to_file,
    stop_at,
)
from tests.unit.tuner.runs import lines, tune

ROOT = Path(__file__).parents[3]


# -- records -----------------------------------------------------------------------------------


def test_the_log_holds_what_was_measured_in_order(tmp_path):
    measurer, _ = tune(tmp_path, n_trial=20, seed=7)
    log = records.load(tmp_path / "log.jsonl")
    trials = [r for r in log if not r.phase]
    space = FakeSpace((8, 8))
    assert [space.index_of(r.config) for r in trials] == measurer.measured
    assert [r.trial for r in trials] == list(range(20))
    assert [r.round for r in trials] == [0] * 16 + [1] * 4
    assert {r.seed for r in trials} == {7}
    assert all(r.median == pytest.approx(bowl(space.index_of(r.config))) for r in trials)
    assert all(r.trace == [["Fake", space.index_of(r.config)]] for r in trials)
    assert all(r.dag == "fakedag" and r.space == space.space_hash for r in trials)
    assert {r.run for r in log} == {log.headers[0]["run"]}


def test_the_header_fixes_seed_and_options(tmp_path):
    tune(tmp_path, n_trial=3, seed=9, early_stopping=50, timeout="1h")
    (header,) = records.load(tmp_path / "log.jsonl").headers
    assert header["seed"] == 9
    assert header["tuner"] == "random"
    assert header["options"] == {"range_idx": [0, 63]}
    assert (header["n_trial"], header["timeout"], header["early_stopping"]) == (3, 3600.0, 50)
    assert json.loads(lines(tmp_path)[0])["header"]["plan_size"] == 16


def test_a_record_is_in_the_log_before_the_next_trial_and_before_the_tuner_hears(tmp_path):
    seen = []

    class Spy(RandomTuner):
        def learn(self, results):
            seen.append(("told", len(lines(tmp_path))))

    measurer = FakeMeasurer(bowl, on_trial=lambda i: seen.append(("trial", len(lines(tmp_path)))))
    tune(tmp_path, measurer, tuner=Spy, n_trial=16)
    # One line is the header.
    assert seen == [("trial", 1 + i) for i in range(16)] + [("told", 17)]


def test_every_round_is_synced(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(records.Store, "sync", lambda self: synced.append(len(lines(tmp_path))))
    tune(tmp_path, n_trial=32)
    assert synced[:2] == [17, 33]


def test_failures_are_recorded_with_kind_and_text(tmp_path):
    fails = {3: ErrorKind.COMPILE, 5: ErrorKind.RUN_TIMEOUT}
    _, summary = tune(tmp_path, FakeMeasurer(bowl, fails=fails.get))
    failed = [r for r in records.load(tmp_path / "log.jsonl") if r.error]
    assert {r.error["kind"]: r.error["text"] for r in failed} == {
        "COMPILE": "index 3 failed",
        "RUN_TIMEOUT": "index 5 failed",
    }
    assert summary.failures["COMPILE"].example == "index 3 failed"
    assert summary.trials == 62


# -- stopping ----------------------------------------------------------------------------------


def test_early_stopping(tmp_path):
    space = FakeSpace((1000,))
    measurer, summary = tune(
        tmp_path,
        FakeMeasurer(lambda i: 1e-3 + i * 1e-6),
        tuner=GridSearchTuner,
        space=space,
        early_stopping=30,
    )
    assert summary.stopped == "early_stopping"
    assert len(measurer.measured) == 31


def test_timeout_ends_the_run_within_the_round(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("loopwright.tuner.run.budget.Budget.elapsed", property(lambda self: now[0]))

    def slow(index):
        now[0] += 10.0

    measurer = FakeMeasurer(bowl, on_trial=slow)
    _, summary = tune(tmp_path, measurer, timeout="200s")
    assert summary.stopped == "timeout"
    # A quarter of the time is kept for the playoff, which takes place.
    assert len(measurer.measured) == 15
    assert measurer.playoffs


def test_a_target_speed_ends_the_run_at_once(tmp_path):
    # 1 MFLOP in bowl(37) = 1 ms is 1 GFLOP/s, in bowl(36) half of that.
    measurer, summary = tune(tmp_path, tuner=GridSearchTuner, target=0.5, n_trial=60)
    assert summary.stopped == "target"
    assert measurer.measured == list(range(37))
    again, summary = tune(tmp_path, tuner=GridSearchTuner, target=0.5, n_trial=60)
    assert (again.measured, summary.stopped) == ([], "target")
    assert records.load(tmp_path / "log.jsonl").headers[0]["target_gflops"] == 0.5


def test_a_target_for_a_task_without_operations_is_refused(tmp_path):
    tuner = RandomTuner(FakeTask())
    tuner.task.flop = 0
    with pytest.raises(UsageError, match="no operations to count"):
        tuner.tune(target=1.0, measure_option=FakeMeasurer(bowl))


def test_little_gain_to_expect_ends_the_run(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("loopwright.tuner.run.budget.Budget.elapsed", property(lambda self: now[0]))

    def second(index):
        now[0] += 1.0

    # Speeds of a Pareto law (sigma 0.1), permuted over the space.
    ranks = np.random.default_rng(0).permutation(4000)
    measurer = FakeMeasurer(lambda i: 1e-3 * ((1 + ranks[i]) / 4000) ** 0.1, on_trial=second)
    _, summary = tune(tmp_path, measurer, space=FakeSpace((4000,)), min_gain="1%", n_trial=3900)
    assert summary.stopped == "min_gain"
    # 60 trials a minute gain 0.1 * 60 / n after n trials: 1 % at n = 600, give or take the sample.
    assert 150 < summary.trials < 2400
    again, summary = tune(tmp_path, space=FakeSpace((4000,)), n_trial=summary.trials)
    assert again.measured == []


def test_a_callback_may_stop_the_run(tmp_path):
    _, summary = tune(tmp_path, callbacks=[stop_at(1e-9)])
    assert (summary.stopped, summary.trials) == ("callback", 16)


def test_ctrl_c_keeps_every_finished_trial_and_the_summary(tmp_path):
    measurer = FakeMeasurer(bowl, interrupt_after=21)
    with pytest.raises(TuningInterrupted) as stopped:
        tune(tmp_path, measurer, n_trial=40)
    summary = stopped.value.summary
    assert (summary.stopped, summary.measured) == ("interrupted", 21)
    assert summary.best_seconds == min(map(bowl, measurer.measured))
    assert len(records.load(tmp_path / "log.jsonl")) == 21
    assert isinstance(stopped.value, KeyboardInterrupt)


def test_ctrl_c_before_the_first_trial(tmp_path):
    with pytest.raises(TuningInterrupted) as stopped:
        tune(tmp_path, FakeMeasurer(bowl, interrupt_after=0), n_trial=40)
    assert stopped.value.summary.lines()[0] == "stopped: interrupted"


def test_ctrl_c_while_a_library_is_imported(tmp_path):
    def import_extension(index):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as interrupt:  # as the loader of a pybind11 module does
            raise ImportError("initialization failed") from interrupt

    with pytest.raises(TuningInterrupted) as stopped:
        tune(tmp_path, FakeMeasurer(bowl, on_trial=import_extension), n_trial=40)
    assert stopped.value.summary.stopped == "interrupted"


def test_all_alike_failures_are_given_up_with_advice(tmp_path):
    measurer = FakeMeasurer(bowl, fails=lambda i: ErrorKind.BUILD_TIMEOUT)
    with pytest.raises(NothingRan) as failed:
        tune(tmp_path, measurer, n_trial=200, space=FakeSpace((1000,)))
    text = str(failed.value)
    assert "32 x BUILD_TIMEOUT" in text
    assert "first: index 0 failed" in text
    assert "LocalBuilder(timeout" in text
    assert "\n" not in text
    assert len(measurer.measured) == 32


def test_the_error_threshold_ends_a_run_that_had_valid_trials(tmp_path):
    tuner = GridSearchTuner(FakeTask(FakeSpace((1000,))))
    tuner.set_error_threshold(20)
    fails = lambda i: ErrorKind.RUN_CRASH if i >= 4 else None  # noqa: E731
    summary = tuner.tune(measure_option=FakeMeasurer(bowl, fails=fails))
    assert (summary.stopped, summary.trials) == ("failures", 4)
    assert summary.failures["RUN_CRASH"].count == 20


def test_a_space_without_valid_points_is_an_error_that_says_so(tmp_path):
    with pytest.raises(NothingRan, match="valid point of the 64"):
        tune(tmp_path, space=FakeSpace((8, 8), valid=lambda i: False, default=None))


# -- a log that cannot be ----------------------------------------------------------------------


def test_a_full_disk_stops_the_run_and_loses_nothing(tmp_path, monkeypatch):
    real, count = os.write, [0]

    def full(fd, data):
        if b'"trial":9' in data:
            raise OSError(errno.ENOSPC, "No space left on device")
        count[0] += 1
        return real(fd, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(TuneError, match=r"disk is full.*9 trials before it are safe"):
        tune(tmp_path, n_trial=20)
    monkeypatch.undo()
    assert len(records.load(tmp_path / "log.jsonl")) == 9
    _, summary = tune(tmp_path, n_trial=20)
    assert (summary.from_log, summary.trials) == (9, 20)


def test_a_log_that_cannot_be_written_is_said_before_anything_is_measured(tmp_path):
    measurer = FakeMeasurer(bowl)
    tuner = RandomTuner(FakeTask())
    with pytest.raises(RecordError, match="directory does not exist"):
        tuner.tune(measure_option=measurer, callbacks=[log_to_file(tmp_path / "no" / "log.jsonl")])
    with pytest.raises(RecordError, match="it is a directory"):
        tuner.tune(measure_option=measurer, callbacks=[log_to_file(tmp_path)])
    assert measurer.measured == []


_HOLDER = """
import sys
from loopwright.measure import lock_log
with lock_log(sys.argv[1], sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_on_one_log_is_refused_and_names_the_first(tmp_path):
    task = FakeTask()
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path / "log.jsonl"), task.key],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(TuneError, match=f"process {holder.pid} "):
            tune(tmp_path, n_trial=3)
    finally:
        holder.communicate("")
    tune(tmp_path, n_trial=3)


def test_what_is_no_measure_option_is_refused():
    with pytest.raises(TuneError, match="measure_option is a int"):
        RandomTuner(FakeTask()).tune(n_trial=1, measure_option=3)


def test_budgets_are_checked_before_anything_else(tmp_path):
    with pytest.raises(UsageError, match="n_trial"):
        tune(tmp_path, n_trial=0)
    assert not (tmp_path / "log.jsonl").exists()


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 0.0, -1.0])
def test_a_time_that_is_no_time_is_a_failure(seconds):
    measurer = FakeMeasurer(lambda i: seconds if i % 2 else bowl(i))
    tuner = RandomTuner(FakeTask())
    summary = tuner.tune(measure_option=measurer)
    assert summary.trials == 32
    assert summary.failures["RUN_ERROR"].count == 32
    assert str(seconds) in summary.failures["RUN_ERROR"].example
    assert summary.best_seconds == tuner.best[1].median == bowl(36)

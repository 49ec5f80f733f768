from __future__ import annotations

import io

import pytest

from loopwright.errors import UsageError
from loopwright.measure import ErrorKind
from loopwright.testing.tuner_contract import FakeMeasurer, FakeTask, bowl
from loopwright.tuner import RandomTuner, log_to_file, progress_bar
from loopwright.tuner.run.budget import clock
from loopwright.tuner.run.progress import ProgressBar


def shown(file, n_trial=20, callbacks=(), **options):
    fails = lambda i: ErrorKind.MEMORY if i == 9 else None  # noqa: E731
    bar = ProgressBar(n_trial, file=file, **options)
    RandomTuner(FakeTask()).tune(
        n_trial=n_trial, measure_option=FakeMeasurer(bowl, fails=fails), callbacks=[*callbacks, bar]
    )
    return file.getvalue()


def test_a_file_gets_whole_lines_and_no_control_codes():
    text = shown(io.StringIO(), n_trial=63)
    assert "\r" not in text
    assert "\x1b" not in text
    assert "63/63" in text
    assert "1 x MEMORY, first: index 9 failed" in text
    assert "best:    1 ms, 1.0 GFLOP/s" in text


def test_what_the_log_held_is_said(tmp_path):
    log = log_to_file(tmp_path / "log.jsonl")
    shown(io.StringIO(), callbacks=[log])
    assert "20 trials are in the log already" in shown(io.StringIO(), n_trial=21, callbacks=[log])


def test_an_unknown_prefix_is_refused():
    with pytest.raises(UsageError, match="si_prefix 'Q'"):
        progress_bar(10, si_prefix="Q")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0s"), (59.4, "59s"), (59.6, "1m00s"), (185, "3m05s"), (7620, "2h07m")],
)
def test_clock(seconds, text):
    assert clock(seconds) == text


def test_callbacks_see_how_many_trials_are_left():
    tuner, seen = RandomTuner(FakeTask()), []
    assert tuner.ttl is None
    tuner.tune(
        n_trial=40,
        measure_option=FakeMeasurer(bowl),
        callbacks=[lambda tuner, inputs, results: seen.append(tuner.ttl)],
    )
    assert seen == [24, 8, 0]


def test_a_log_is_named_by_its_path_and_is_json(tmp_path):
    assert log_to_file(tmp_path / "a.jsonl", protocol="json").path == str(tmp_path / "a.jsonl")
    with pytest.raises(UsageError, match="takes the path of a log, not a StringIO"):
        log_to_file(io.StringIO())
    with pytest.raises(UsageError, match="protocol='pickle' is not there"):
        log_to_file("a.jsonl", "pickle")

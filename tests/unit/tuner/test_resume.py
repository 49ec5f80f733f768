"""Going on from a log: what a run proposes, measures and counts after an earlier one."""

from __future__ import annotations

import json
import re

import pytest

from loopwright import records
from loopwright.errors import UsageError
from loopwright.measure import ErrorKind
from loopwright.testing.tuner_contract import FakeMeasurer, FakeSpace, FakeTask, bowl
from loopwright.transform import PassContext
from loopwright.tuner import GridSearchTuner, RandomTuner, log_to_file
from tests.unit.tuner.runs import lines, tune


def test_the_same_command_again_measures_nothing_and_times_the_winner(tmp_path):
    tune(tmp_path, n_trial=24)
    before = lines(tmp_path)
    measurer, summary = tune(tmp_path, n_trial=24)
    assert measurer.measured == []
    assert len(measurer.playoffs) == 1
    assert len(measurer.playoffs[0]) == 2  # the winner, and the default
    assert (summary.stopped, summary.from_log, summary.measured) == ("n_trial", 24, 0)
    assert lines(tmp_path) == before


def test_more_trials_go_on_as_one_run_would(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole, _ = tune(tmp_path / "a", n_trial=60)
    parts = [tune(tmp_path / "b", n_trial=n)[0].measured for n in (1, 7, 16, 20, 45, 60)]
    assert [i for part in parts for i in part] == whole.measured


def test_kill_loses_at_most_the_trial_in_progress(tmp_path):
    """Any prefix of the log, cut in the middle of a line, leads to the same proposals."""
    (tmp_path / "whole").mkdir()
    whole, _ = tune(tmp_path / "whole", n_trial=40, seed=2)
    text = lines(tmp_path / "whole")
    for cut in (1, 2, 9, 17, 18, 30):
        folder = tmp_path / str(cut)
        folder.mkdir()
        torn = "\n".join([*text[:cut], text[cut][:50]])
        (folder / "log.jsonl").write_text(torn)
        rest, summary = tune(folder, n_trial=40, seed=2)
        assert rest.measured == whole.measured[cut - 1 :]
        assert any("1 line skipped" in note for note in summary.notes)


def test_a_round_that_another_tuner_proposes_in_another_order_is_not_taken_up(tmp_path):
    """All points of a small space are in the first round of any tuner: numbers stay apart."""
    tune(tmp_path, n_trial=4, space=FakeSpace((8,)), seed=0)
    tune(tmp_path, n_trial=8, space=FakeSpace((8,)), tuner=GridSearchTuner, seed=0)
    log = records.load(tmp_path / "log.jsonl")
    trials = [r for r in log.records if not r.phase]
    assert not log.skipped
    assert sorted(r.trial for r in trials) == list(range(8))
    assert len({str(r.config) for r in trials}) == 8


def test_a_lost_line_in_the_middle_is_measured_again(tmp_path):
    first, _ = tune(tmp_path, n_trial=12)
    kept = [line for line in lines(tmp_path) if '"phase"' not in line]
    lost = json.loads(kept.pop(6))
    (tmp_path / "log.jsonl").write_text("\n".join(kept) + "\n")
    second, _ = tune(tmp_path, n_trial=12)
    assert second.measured == [first.measured[5]]
    assert json.loads(lines(tmp_path)[-1])["trial"] in range(12)
    again = [r for r in records.load(tmp_path / "log.jsonl") if not r.phase]
    assert again[-1].trial == lost["trial"]


def test_another_seed_finishes_the_round_and_then_draws_its_own(tmp_path):
    (tmp_path / "a").mkdir()
    old, _ = tune(tmp_path / "a", n_trial=64, seed=1)
    first, _ = tune(tmp_path, n_trial=20, seed=1)
    second, _ = tune(tmp_path, n_trial=64, seed=2)
    assert first.measured + second.measured[:12] == old.measured[:32]
    assert second.measured[12:] != old.measured[32:]
    assert sorted(first.measured + second.measured) == list(range(64))


def test_another_tuner_goes_on_without_measuring_twice(tmp_path):
    first, _ = tune(tmp_path, n_trial=20)
    second, _ = tune(tmp_path, tuner=GridSearchTuner)
    assert second.measured == sorted(set(range(64)) - set(first.measured))


def test_trials_of_failures_do_not_count_and_are_not_repeated(tmp_path):
    fails = lambda i: ErrorKind.COMPILE if i % 4 == 1 else None  # noqa: E731
    first, summary = tune(tmp_path, FakeMeasurer(bowl, fails=fails), n_trial=20)
    assert summary.trials == 20
    assert len(first.measured) == 20 + summary.failures["COMPILE"].count
    second, _ = tune(tmp_path, FakeMeasurer(bowl, fails=fails), n_trial=48)
    assert sorted(first.measured + second.measured) == list(range(64))


def test_other_tasks_in_the_log_do_not_count(tmp_path):
    other = RandomTuner(FakeTask(name="other"))
    log = log_to_file(tmp_path / "log.jsonl")
    other.tune(n_trial=10, measure_option=FakeMeasurer(bowl), callbacks=[log])
    measurer, summary = tune(tmp_path, n_trial=10)
    assert (len(measurer.measured), summary.from_log) == (10, 0)
    # Ten trials and the finalists.
    said = r"the 1\d records in the log are of other templates \(other\) and are not used"
    assert any(re.fullmatch(said, note) for note in summary.notes)
    _, summary = tune(tmp_path, n_trial=12)
    assert not any("other templates" in note for note in summary.notes)


def test_another_space_target_or_thread_count_does_not_count(tmp_path):
    tune(tmp_path, n_trial=5, space=FakeSpace((4, 16)))
    _, summary = tune(tmp_path, n_trial=5)
    assert summary.from_log == 0
    assert any("another search space" in note for note in summary.notes)
    tuner = RandomTuner(FakeTask())
    tuner.task.target.canonical["num_threads"] = 64
    summary = tuner.tune(
        n_trial=5,
        measure_option=FakeMeasurer(bowl),
        callbacks=[log_to_file(tmp_path / "log.jsonl")],
    )
    assert summary.from_log == 0
    assert any("number of threads" in note for note in summary.notes)


def test_the_best_of_another_compiler_are_measured_again_first(tmp_path, monkeypatch):
    tune(tmp_path)
    monkeypatch.setattr(records, "build_hash", lambda target, passes: "another")
    measurer, summary = tune(tmp_path, n_trial=12)
    assert summary.from_log == 0
    assert measurer.measured[0] == 0
    # The best eight lie around 37; at one end of them two are equally fast.
    assert set(measurer.measured[1:9]) in (set(range(33, 41)), set(range(34, 42)))
    assert any("best 8 are measured again" in note for note in summary.notes)
    again, _ = tune(tmp_path, n_trial=64)
    assert sorted(measurer.measured + again.measured) == list(range(64))


def test_records_of_another_pass_context_do_not_count(tmp_path):
    tune(tmp_path, n_trial=4)
    with PassContext(opt_level=3):
        _, other = tune(tmp_path, n_trial=4)
        _, again = tune(tmp_path, n_trial=4)
    assert (other.from_log, again.from_log) == (0, 4)
    headers = [json.loads(x)["header"] for x in lines(tmp_path) if "header" in json.loads(x)]
    assert [h.get("passes") for h in headers[:2]] == [None, {"opt_level": 3}]
    assert tune(tmp_path, n_trial=4)[1].from_log == 4


def test_a_pass_context_that_cannot_travel_is_refused_at_once(tmp_path):
    measurer = FakeMeasurer(bowl)
    with (
        PassContext(config={"add_lower_pass": [(0, lambda f: f)]}),
        pytest.raises(UsageError, match="passes of add_lower_pass live in this process"),
    ):
        tune(tmp_path, measurer, n_trial=4)
    assert measurer.measured == []


def test_without_a_log_a_second_call_goes_on_in_memory():
    tuner = RandomTuner(FakeTask(), seed=4)
    first, second = FakeMeasurer(bowl), FakeMeasurer(bowl)
    tuner.tune(n_trial=10, measure_option=first)
    summary = tuner.tune(n_trial=64, measure_option=second)
    assert sorted(first.measured + second.measured) == list(range(64))
    assert summary.from_log == 10

"""Configurations that are one program: measured once, and counted once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loopwright import records
from loopwright.errors import InternalError
from loopwright.measure import ErrorKind
from loopwright.testing.tuner_contract import FakeMeasurer, FakeSpace
from loopwright.tuner import GridSearchTuner, RandomTuner
from loopwright.tuner.run.run import ROUNDS_OF_DUPLICATES
from tests.unit.tuner.runs import tune


class Sharing(FakeMeasurer):
    """A device on which all indices with the same ``program(index)`` are one program."""

    def __init__(self, program, **options):
        super().__init__(lambda index: 1e-3 * (1 + program(index)), **options)
        self.program = program

    def measure_new(self, inputs, incumbent, known):
        seen = dict(known)
        for item in inputs:
            name = f"p{self.program(item.config.index)}"
            if name in seen:
                yield replace(seen[name], same_as=name, ts=2.0)
                continue
            (result,) = self.measure([item], incumbent)
            seen[name] = replace(result, program=name)
            yield seen[name]


def by_fours(index):
    return index // 4


def log_of(tmp_path):
    return [r for r in records.load(tmp_path / "log.jsonl") if not r.phase]


def test_n_trial_counts_programs(tmp_path):
    measurer, summary = tune(tmp_path, Sharing(by_fours), tuner=GridSearchTuner, n_trial=10)
    assert len(measurer.measured) == summary.trials == 10
    log = log_of(tmp_path)
    first = {r.program: r for r in log if not r.same_as}
    assert len(log) > 30
    assert len(first) == 10
    assert all(r.same_as in ("", first[r.program].id) for r in log)
    assert all(r.times == first[r.program].times for r in log)
    assert summary.notes[0].startswith(f"{len(log) - 10} further configurations were programs")


def test_a_run_of_nothing_new_ends_with_a_word(tmp_path):
    space = FakeSpace((64, 64))
    measurer, summary = tune(tmp_path, Sharing(lambda i: i % 5), space=space, n_trial=100)
    assert len(measurer.measured) == 5
    assert summary.stopped == "exhausted"
    assert summary.reason == (
        f"the last {16 * ROUNDS_OF_DUPLICATES} proposals were all programs measured already"
    )
    # The same command again finds that at once.
    again, resumed = tune(tmp_path, Sharing(lambda i: i % 5), space=space, n_trial=100)
    assert again.measured == []
    assert resumed.reason == summary.reason


def test_one_round_of_duplicates_ends_nothing(tmp_path):
    # Grid search proposes 0, 1, 2, ...: three rounds and more of the first program.
    space = FakeSpace((128, 1), default=0)
    measurer, _ = tune(
        tmp_path, Sharing(lambda i: i // 60), tuner=GridSearchTuner, space=space, n_trial=3
    )
    assert measurer.measured == [0, 60, 120]


def test_a_resumed_run_measures_no_program_of_the_log(tmp_path):
    first, _ = tune(tmp_path, Sharing(by_fours), n_trial=6)
    second, summary = tune(tmp_path, Sharing(by_fours), n_trial=14)
    programs = [by_fours(i) for i in first.measured + second.measured]
    assert len(programs) == len(set(programs)) == 14
    assert (summary.from_log, summary.trials) == (6, 14)
    alone = tmp_path / "alone"
    alone.mkdir()
    at_once, _ = tune(alone, Sharing(by_fours), n_trial=14)
    assert at_once.measured == first.measured + second.measured


def test_a_duplicate_is_neither_best_nor_a_finalist(tmp_path):
    measurer, summary = tune(tmp_path, Sharing(by_fours), n_trial=16)
    assert summary.best_config.index in measurer.measured
    finalists = measurer.playoffs[-1]
    assert len({by_fours(i) for i in finalists}) == len(finalists)
    assert all(not r.same_as for r in records.ranked(records.load(tmp_path / "log.jsonl")))


def test_a_default_that_is_a_duplicate_has_the_time_of_its_program(tmp_path):
    tune(tmp_path, Sharing(by_fours), space=FakeSpace((8, 8), default=8), n_trial=3)
    # The same space with another default, which is the program of the first one.
    _, summary = tune(tmp_path, Sharing(by_fours), space=FakeSpace((8, 8), default=9), n_trial=8)
    assert summary.default_seconds == pytest.approx(3e-3)


def test_failures_of_a_program_are_shared_and_count_once(tmp_path):
    measurer = Sharing(by_fours, fails=lambda i: ErrorKind.WRONG_ANSWER if i < 8 else None)
    measurer, summary = tune(tmp_path, measurer, tuner=GridSearchTuner, n_trial=4)
    assert measurer.measured == [0, 4, 8, 12, 16, 20]
    assert summary.failures[ErrorKind.WRONG_ANSWER].count == 2
    log = log_of(tmp_path)
    assert [r.error["kind"] for r in log[:8]] == [ErrorKind.WRONG_ANSWER] * 8


def test_early_stopping_counts_programs(tmp_path):
    # The best is program 0, the first; then three programs of four configurations each.
    measurer, summary = tune(
        tmp_path, Sharing(by_fours), tuner=GridSearchTuner, n_trial=60, early_stopping=3
    )
    assert summary.stopped == "early_stopping"
    assert measurer.measured == [0, 4, 8, 12]


def test_a_result_that_shares_what_nobody_measured_is_refused(tmp_path):
    class Lying(Sharing):
        def measure_new(self, inputs, incumbent, known):
            for item in inputs:
                (result,) = self.measure([item], incumbent)
                yield replace(result, program="x", same_as="x")

    with pytest.raises(InternalError, match="the program x, of which the log has no record"):
        tune(tmp_path, Lying(by_fours), tuner=RandomTuner, n_trial=4)

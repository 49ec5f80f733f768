"""The end of a run: finalists that fail are out for good, and the winner's record has a verdict."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from loopwright import records
from loopwright.measure import ErrorKind, MeasureError
from loopwright.records import Checked, Outcome, Verdict
from loopwright.testing.tuner_contract import FakeMeasurer, FakeSpace, FakeTask, bowl
from loopwright.tuner import RandomTuner
from tests.unit.tuner.runs import lines, tune


class Failing(FakeMeasurer):
    """Index 37, the fastest, fails in the playoff, where the others are found right."""

    kind = ErrorKind.WRONG_ANSWER

    def playoff(self, candidates, plan):
        result = super().playoff(candidates, plan)
        error = MeasureError(self.kind, "C[0] is 1, expected 2")
        finalists = [
            replace(f, times=(), error=error)
            if f.config.index == 37
            else replace(f, checked=Checked.YES)
            for f in result.finalists
        ]
        finalists.sort(key=lambda f: (f.error is not None, f.order))
        return replace(result, finalists=tuple(finalists), best=finalists[0].times)


def index_of(record):
    return FakeSpace((8, 8)).index_of(record.config)


@pytest.mark.parametrize(
    "kind", [ErrorKind.WRONG_ANSWER, ErrorKind.RUN_CRASH, ErrorKind.RUN_TIMEOUT]
)
def test_what_fails_in_the_playoff_is_out_for_good(tmp_path, kind):
    measurer = Failing(bowl)
    measurer.kind = kind
    _, summary = tune(tmp_path, measurer)
    assert summary.best_config.index in (36, 38)
    assert summary.failures[kind].example == "C[0] is 1, expected 2"
    log = records.load(tmp_path / "log.jsonl")
    failed = [r for r in log if r.error]
    assert [(r.phase, index_of(r), r.error["kind"]) for r in failed] == [("playoff", 37, kind)]
    assert 37 not in map(index_of, records.ranked(log))
    # A run that goes on reads it in its log; so does one that finds nothing left to measure.
    _, again = tune(tmp_path, FakeMeasurer(bowl))
    assert again.best_config.index in (36, 38)


def test_a_builder_that_is_killed_brands_nobody(tmp_path):
    measurer = Failing(bowl)
    measurer.kind = ErrorKind.BUILD_CRASH
    tune(tmp_path, measurer)
    assert 37 in map(index_of, records.ranked(records.load(tmp_path / "log.jsonl")))


def test_finalists_that_were_checked_go_before_what_is_faster_and_was_not(tmp_path):
    tune(tmp_path, Failing(bowl))
    found = records.ranked(records.load(tmp_path / "log.jsonl"))
    assert [r.checked for r in found[:8]] == [Checked.YES] * 8
    assert found[8].checked is Checked.NO


def test_the_verdict_is_in_the_record_of_the_winner(tmp_path):
    _, summary = tune(tmp_path)
    log = records.load(tmp_path / "log.jsonl")
    best = records.best(log)
    default = next(r for r in log if index_of(r) == 0)
    verdict = Verdict.from_json(best.verdict)
    assert verdict == summary.verdict
    assert (verdict.outcome, verdict.rounds) == (Outcome.FASTER, 20)
    assert verdict.gain == pytest.approx(37.0)
    assert verdict.default == default.candidate
    assert [index_of(r) for r in log if r.verdict is not None] == [37]
    # Nothing more is recorded, and the same is said, when there is nothing left to measure.
    before = lines(tmp_path)
    _, again = tune(tmp_path)
    assert again.verdict == summary.verdict
    assert lines(tmp_path) == before


@pytest.mark.parametrize("first", [36, 37])
def test_equal_code_has_the_verdict_of_the_winner(tmp_path, first):
    class Twins(FakeMeasurer):
        def playoff(self, candidates, plan):
            result = super().playoff(candidates, plan)
            times = min((f.times for f in result.finalists), key=statistics.median)
            twins = [
                replace(f, times=times) if f.config.index in (36, 37) else f
                for f in result.finalists
            ]
            twins.sort(key=lambda f: (f.order, f.config.index != first))
            return replace(result, finalists=tuple(twins))

    tune(tmp_path, Twins(bowl))
    log = records.load(tmp_path / "log.jsonl")
    assert {index_of(r) for r in log if r.verdict is not None} == {36, 37}
    assert records.best(log).verdict is not None
    before = lines(tmp_path)
    _, again = tune(tmp_path, Twins(bowl))
    assert again.verdict.outcome is Outcome.FASTER
    assert lines(tmp_path) == before


def test_the_default_that_is_best_ties_with_itself(tmp_path):
    _, summary = tune(tmp_path, FakeMeasurer(lambda index: 1e-3 * (1 + index)))
    assert summary.best_config.index == 0
    assert (summary.verdict.outcome, summary.verdict.gain) == (Outcome.TIE, 0.0)
    said = "verdict: the best is the default itself: nothing faster was found"
    assert said in summary.lines()
    best = records.best(records.load(tmp_path / "log.jsonl"))
    assert best.verdict["default"] == best.candidate


def test_a_default_that_fails_is_not_compared_with(tmp_path):
    fails = lambda i: ErrorKind.COMPILE if i == 0 else None  # noqa: E731
    _, summary = tune(tmp_path, FakeMeasurer(bowl, fails=fails))
    assert summary.verdict.outcome is Outcome.NOT_COMPARED
    assert "verdict: the best was not compared with the default" in summary.lines()
    assert summary.to_json()["verdict"]["outcome"] == "not compared"


def test_a_run_that_was_cut_before_its_playoff_holds_it_when_it_is_started_again(tmp_path):
    tune(tmp_path, n_trial=30)
    path = tmp_path / "log.jsonl"
    trials = [line for line in lines(tmp_path) if '"playoff"' not in line]
    path.write_text("\n".join(trials) + "\n")
    measurer, summary = tune(tmp_path, n_trial=30)
    assert measurer.measured == []
    assert summary.verdict.outcome is Outcome.FASTER
    assert len(lines(tmp_path)) > len(trials)


def test_whoever_overtakes_slower_finalists_plays_too(tmp_path):
    """All eight were lucky: the next ones look faster than they are now, and are not ignored."""

    class Lucky(FakeMeasurer):
        def times_again(self, config):
            slower = 20 if abs(config.index - 37) < 5 else 1
            return [t * slower for t in super().times_again(config)]

    measurer, summary = tune(tmp_path, Lucky(bowl))
    assert len(measurer.playoffs) == 2
    assert summary.best_config.index in measurer.playoffs[1]
    assert summary.verdict.outcome is Outcome.FASTER


def test_who_left_a_playoff_in_its_faster_minutes_is_not_before_its_winner(tmp_path):
    """Index 36 lost and left; then the machine became slower for those who stayed."""

    class SlowedDown(FakeMeasurer):
        def times_again(self, config):
            slower = 3 if self.playoffs or config.index != 36 else 1
            return [t * slower for t in super().times_again(config)]

        def playoff(self, candidates, plan):
            found = super().playoff(candidates, plan)
            ahead = [f for f in found.finalists if f.config.index == 37]
            rest = [f for f in found.finalists if f.config.index != 37]
            return replace(found, finalists=(*ahead, *rest), best=ahead[0].times)

    measurer, summary = tune(tmp_path, SlowedDown(bowl))
    assert len(measurer.playoffs) == 1
    assert summary.best_config.index == 37
    assert index_of(records.best(records.load(tmp_path / "log.jsonl"))) == 37
    assert summary.verdict.outcome is Outcome.FASTER
    assert summary.in_turns.best == summary.best_seconds


class Slowing(FakeMeasurer):
    """The machine becomes slower and slower, so that somebody with an earlier time always leads."""

    def times_again(self, config):
        slower = 10 ** (1 + len(self.playoffs))
        return [t * slower for t in super().times_again(config)]


def test_the_best_is_one_that_was_compared_however_slow_the_machine_has_become(tmp_path):
    measurer, summary = tune(tmp_path, Slowing(bowl), n_trial=60)
    assert len(measurer.playoffs) == 1
    assert summary.best_config.index in measurer.playoffs[0]
    assert summary.best_seconds == pytest.approx(10 * bowl(summary.best_config.index))
    assert summary.in_turns.best == summary.best_seconds
    assert summary.verdict.outcome is Outcome.FASTER
    log = records.load(tmp_path / "log.jsonl")
    assert index_of(records.best(log)) == summary.best_config.index
    # A run that goes on from the log knows it, too.
    _, again = tune(tmp_path, FakeMeasurer(bowl), n_trial=60)
    assert again.best_config.index == summary.best_config.index


def test_three_playoffs_on_a_slowing_machine_are_won_by_one_that_took_part(tmp_path):
    """Each finds its finalists slower, in relation to the default, than others in the search."""

    class Lucky(FakeMeasurer):
        def times_again(self, config):
            machine = 10 ** len(self.playoffs)
            lucky = 1 if config.index == 0 else 30
            return [t * machine * lucky for t in super().times_again(config)]

    measurer, summary = tune(tmp_path, Lucky(lambda i: 1e-3 * (60 if i == 0 else 1 + 0.001 * i)))
    first, second, third = measurer.playoffs
    assert set(first) & set(second) == set(second) & set(third) == {0, first[0]}
    assert summary.best_config.index == first[0]
    assert summary.verdict.gain == pytest.approx(1.0, rel=0.01)
    log = records.load(tmp_path / "log.jsonl")
    assert index_of(records.best(log)) == first[0]


def test_a_log_that_was_cut_within_a_playoff_is_judged_by_its_search(tmp_path):
    tune(tmp_path, Slowing(bowl), n_trial=60)
    path = tmp_path / "log.jsonl"
    whole = [line for line in lines(tmp_path) if '"verdict"' not in line]  # it comes last
    path.write_text("\n".join(whole) + "\n")
    log = records.load(path)
    assert sum(r.phase == "playoff" for r in log) >= 7
    searched = [r for r in log if not r.phase]
    best = min(searched, key=lambda r: r.median)
    assert records.best(log).candidate == best.candidate
    _, again = tune(tmp_path, FakeMeasurer(bowl), n_trial=60)
    assert again.verdict.outcome is Outcome.FASTER


def test_the_time_for_the_playoff_is_a_share_of_the_run(tmp_path):
    plans = []

    class Noting(FakeMeasurer):
        def playoff(self, candidates, plan):
            plans.append(plan)
            return super().playoff(candidates, plan)

    made = RandomTuner(FakeTask(), seed=0)
    made.tune(n_trial=20, measure_option=Noting(bowl), timeout=50)
    (plan,) = plans
    assert 0 < plan.seconds < 5
    assert 0 < plan.timeout <= 50
    assert (plan.places, plan.flop) == (8, 1_000_000)
    assert statistics.median(Noting(bowl).times_again(plan.default)) == bowl(0)


def test_a_winner_of_the_log_that_loses_when_it_is_timed_again_is_said_to(tmp_path):
    """Its record keeps the verdict, and the times of now stand beside it."""
    _, first = tune(tmp_path)
    default = 0

    class Turned(FakeMeasurer):
        def times_again(self, config):
            return [1e-3 if config.index == default else 2e-3] * 20

    before = (tmp_path / "log.jsonl").read_text()
    _, again = tune(tmp_path, Turned(bowl))
    assert (tmp_path / "log.jsonl").read_text() == before
    assert again.best_config.index == first.best_config.index
    assert again.verdict == first.verdict
    assert again.in_turns.verdict.outcome is Outcome.SLOWER
    assert (again.in_turns.best, again.in_turns.default) == (2e-3, 1e-3)
    assert any("measured now: " in line for line in again.verdicts())

"""What the journal writes: the schedule that was measured, without running its template again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from loopwright import records
from loopwright.measure import ErrorKind, MeasureError, MeasureResult
from loopwright.records import Expression
from loopwright.testing.tuner_contract import FakeMeasurer, FakeTask, bowl
from loopwright.tuner import RandomTuner, log_to_file


class Telling(FakeMeasurer):
    """Says with each result what was measured, as the real measurer does."""

    def result(self, index):
        return replace(super().result(index), dag="its dag", trace=f'[["Told",{index}]]')


class Counting(FakeTask):
    instantiated = 0

    def instantiate(self, config):
        self.instantiated += 1
        return super().instantiate(config)


def tuned(tmp_path, measurer, **budget):
    task = Counting()
    log = tmp_path / "log.jsonl"
    RandomTuner(task, seed=0).tune(measure_option=measurer, callbacks=[log_to_file(log)], **budget)
    return task, records.load(log)


def test_a_template_is_not_run_again_to_write_its_record(tmp_path):
    task, log = tuned(tmp_path, Telling(bowl), n_trial=20)
    assert task.instantiated == 0
    assert sum(record.phase == "playoff" for record in log) >= 8
    assert all(r.dag == "its dag" and r.trace[0][0] == "Told" for r in log)


def test_a_measurer_that_does_not_say_has_the_template_run_again(tmp_path):
    task, log = tuned(tmp_path, FakeMeasurer(bowl), n_trial=5)
    assert task.instantiated == len(log)
    assert all(r.dag == "fakedag" for r in log)


@pytest.mark.parametrize("kind", [ErrorKind.INSTANTIATION, ErrorKind.COMPILE])
def test_failures_have_a_trace_where_there_is_one(tmp_path, kind):
    class Failing(FakeMeasurer):
        def result(self, index):
            if index % 2:
                return super().result(index)
            return MeasureResult(error=MeasureError(kind, "no"))

    _, log = tuned(tmp_path, Failing(bowl), n_trial=4)
    failed = [r for r in log if r.error is not None]
    assert failed
    assert all(bool(r.dag) == (kind != ErrorKind.INSTANTIATION) for r in failed)


def test_an_expression_is_written_once_before_its_first_record(tmp_path):
    class Describing(Telling):
        def result(self, index):
            hash = f"dag {index % 2}"
            expression = Expression(hash, {"v": 1}, [0], "fake", [8])
            return replace(super().result(index), dag=hash, expression=expression)

    for n_trial in (5, 9):
        tuned(tmp_path, Describing(bowl), n_trial=n_trial)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    written = [line["expression"]["hash"] for line in lines if "expression" in line]
    assert sorted(written) == ["dag 0", "dag 1"]
    for hash in written:
        first = next(i for i, line in enumerate(lines) if line.get("dag") == hash)
        assert lines[first - 1]["expression"]["hash"] == hash


def test_an_expression_that_no_line_can_hold_is_left_out_with_a_note(tmp_path):
    deep = []
    for _ in range(400):
        deep = [deep]

    class Deep(Telling):
        def result(self, index):
            expression = Expression("its dag", {"v": deep}, [0], "fake", [8])
            return replace(super().result(index), expression=expression)

    _, log = tuned(tmp_path, Deep(bowl), n_trial=5)
    assert not log.dags
    assert not log.skipped
    assert len([r for r in log if not r.phase]) == 5


def test_a_playoff_without_times_is_passed_over(tmp_path):
    _, log = tuned(tmp_path, Telling(bowl), n_trial=5)
    odd = replace(log.records[-1], times=())
    assert odd.phase == "playoff"
    with records.Store(log.path) as store:
        store.append(odd)
    _, again = tuned(tmp_path, Telling(bowl), n_trial=6)
    assert len([r for r in again if not r.phase]) == 6


class Compiling(FakeMeasurer):
    """Compiles an index to code of its number; runs none of which it knows the times."""

    def __init__(self, version=""):
        super().__init__(bowl)
        self.known, self.ran, self.version = {}, [], version

    def know(self, results):
        self.known |= results

    def result(self, index):
        code = f"{self.version}{index}"
        if code in self.known:
            return self.known[code]
        self.ran.append(index)
        return replace(super().result(index), code=code)


def upgraded(tmp_path, monkeypatch, version=""):
    """64 trials, then 64 with another compiler."""
    tuned(tmp_path, Compiling(), n_trial=64)
    monkeypatch.setattr(records, "build_hash", lambda target, passes: "another")
    measurer = Compiling(version)
    _, log = tuned(tmp_path, measurer, n_trial=64)
    return measurer, log


def test_an_upgrade_that_changes_no_code_runs_nothing_again(tmp_path, monkeypatch):
    measurer, log = upgraded(tmp_path, monkeypatch)
    assert measurer.ran == []
    old, new = ({r.id: r for r in log if (r.build == "another") is new} for new in (False, True))
    trials = [r for r in new.values() if not r.phase]
    assert len(trials) == 64
    assert all(old[r.times_of].code == r.code for r in trials)
    assert all(old[r.times_of].times == r.times for r in trials)
    assert not any(r.times_of for r in new.values() if r.phase)
    # The default and the best few first; then, as they are known, all others of the best.
    assert [r.round for r in trials] == [0] * 16 + [1] * 48
    _, again = tuned(tmp_path, Compiling(), n_trial=64)
    assert len(again) == len(log)


class InPairs(Compiling):
    """Two configurations are one program each time: the second shares the samples of the first."""

    def __init__(self):
        super().__init__()
        self.shared = {}

    def result(self, index):
        program = f"p{index // 2}"
        if program in self.shared:
            return replace(self.shared[program], same_as=program)
        measured = replace(super().result(index // 2), program=program)
        self.shared[program] = measured
        return measured


def test_times_that_were_shared_before_an_upgrade_are_known_after_it(tmp_path, monkeypatch):
    """The latest record of a code is the one that shares; its samples are its own from then on."""
    _, before = tuned(tmp_path, InPairs(), n_trial=64)
    assert any(r.same_as for r in before)
    monkeypatch.setattr(records, "build_hash", lambda target, passes: "another")
    measurer = InPairs()
    _, log = tuned(tmp_path, measurer, n_trial=64)
    assert measurer.ran == []
    assert not log.skipped
    ids = {r.id for r in log if r.build == "another"}
    assert {r.same_as for r in log if r.build == "another"} <= {"", *ids}


def test_what_the_upgrade_changes_is_measured_again(tmp_path, monkeypatch):
    measurer, log = upgraded(tmp_path, monkeypatch, version="v2 ")
    assert sorted(measurer.ran) == list(range(64))
    trials = [r for r in log if r.build == "another" and not r.phase]
    assert not any(r.times_of for r in trials)
    # Only the best eight and the default go before what the tuner proposes.
    assert set(range(34, 41)) < set(measurer.ran[:9])
    assert not set(measurer.ran[9:16]) <= set(range(30, 45))


def test_an_upgrade_that_was_cut_off_goes_on_where_it_stopped(tmp_path, monkeypatch):
    tuned(tmp_path, Compiling(), n_trial=64)
    monkeypatch.setattr(records, "build_hash", lambda target, passes: "another")
    for n_trial in (5, 16, 20, 40):
        measurer = Compiling()
        _, log = tuned(tmp_path, measurer, n_trial=n_trial)
        assert measurer.ran == []
        assert len([r for r in log if r.build == "another" and not r.phase]) == n_trial

"""Which record is meant, and what is said where that is not clear."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import loopwright as lw
from loopwright.errors import RecordError, UsageError
from loopwright.inspection import choose
from loopwright.records import Log
from tests.unit.inspection.logs import write


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Four records of one task in one run; the third one is the fastest."""
    task = lw.create_task("matmul", (16, 32, 8), "llvm -num-threads=1")
    written = write(tmp_path_factory.mktemp("choosing") / "log.jsonl", [task], each=4)
    times = (3.0, 2.0, 1.0, 4.0)
    written.records = [
        dataclasses.replace(r, times=(t,)) for r, t in zip(written.records, times, strict=True)
    ]
    return written


def of(log: Log, *records: object) -> Log:
    return dataclasses.replace(log, records=list(records))


def test_by_id_by_its_beginning_by_trial_and_as_the_best(log: Log) -> None:
    first, second, third, _ = log.records
    assert choose(log, first.id) is first
    assert choose(log, second.id[:8]) is second
    assert choose(log, trial=1) is second
    assert choose(log, "best") is third
    assert choose(log, "default") is first
    assert choose(log, trial=3, run="a1b") is log.records[3]
    assert choose(log.path, trial=0).trial == 0


def test_what_is_not_there_is_said(log: Log, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="has no record 'zz'; `loopwright records list "):
        choose(log, "zz")
    with pytest.raises(RecordError, match="has no record ''"):
        choose(log, "")
    with pytest.raises(RecordError, match="has no trial 9; its trials go from 0 to 3"):
        choose(log, trial=9)
    with pytest.raises(RecordError, match="has no run 'b'; it has 'a1b2c3'"):
        choose(log, trial=1, run="b")
    with pytest.raises(UsageError, match="say which record is meant"):
        choose(log)
    with pytest.raises(UsageError, match="say which record is meant"):
        choose(log, "best", trial=1)
    failed = dataclasses.replace(log.records[0], times=(), error={"kind": "COMPILE", "text": "x"})
    with pytest.raises(RecordError, match="no usable record among 1: none ran to a time"):
        choose(of(log, failed), "best")
    with pytest.raises(RecordError, match="of the default configuration among 1; `loopwright rec"):
        choose(of(log, failed), "default")
    with pytest.raises(RecordError, match="no log at"):
        choose(tmp_path / "none.jsonl", "best")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(RecordError, match="is empty; tune into it"):
        choose(tmp_path / "empty.jsonl", "best")
    (tmp_path / "code.py").write_text("print(1)\n")
    with pytest.raises(RecordError, match=r"is no log .*the first is line 1 \(1 x not JSON\)"):
        choose(tmp_path / "code.py", "best")


def test_where_several_are_meant_they_are_named(log: Log) -> None:
    first = log.records[0]
    other = dataclasses.replace(first, run="ffff00", ts=1.0)
    both = of(log, first, other)
    with pytest.raises(UsageError, match=f"trial 0: {first.id} .*run ffff00.*give the run"):
        choose(both, trial=0)
    assert choose(both, trial=0, run="ffff") is other
    task = dataclasses.replace(first, task="another", op="dense", dag="another")
    with pytest.raises(UsageError, match=f"2 tasks, .*name the record: .*{first.id}.*{task.id}"):
        choose(of(log, first, task), "best")
    two = dataclasses.replace(first, target={**first.target, "num_threads": 2})
    several = f"2 machines or numbers of threads, .*{first.id} .*1 thread.*{two.id} .*2 threads"
    with pytest.raises(UsageError, match=several):
        choose(of(log, first, two), "default")
    assert choose(of(log, first, two), "best", among=[two]) is two
    with pytest.raises(RecordError, match="no record among those that are meant"):
        choose(of(log, first, two), trial=0, among=[])
    alike = of(log, *[dataclasses.replace(first, ts=float(k)) for k in range(20)])
    digits = [r.id[0] for r in alike]
    twice = next(d for d in digits if digits.count(d) > 1)
    with pytest.raises(UsageError, match=r"ids that begin with .*; give more digits"):
        choose(alike, twice)


def test_a_record_that_stands_there_twice_is_one(log: Log) -> None:
    first = log.records[0]
    again = dataclasses.replace(first)
    assert choose(of(log, first, again), first.id) is first


def test_measuring_a_trial_again_makes_no_second_one(log: Log) -> None:
    first = log.records[0]
    again = dataclasses.replace(first, phase="playoff", ts=5.0)
    assert choose(of(log, first, again), trial=0) is first


def test_the_default_is_the_one_that_the_verdict_of_the_best_names(log: Log) -> None:
    first, second, third, _ = log.records
    verdict = {
        **{"outcome": "faster", "gain": 1.0, "margin": 0.1, "rounds": 9},
        "default": second.candidate,
    }
    judged = dataclasses.replace(third, verdict=verdict)
    assert choose(of(log, first, second, judged), "default") is second

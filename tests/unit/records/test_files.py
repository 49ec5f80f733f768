"""Logs from logs: what is kept of them, and that nothing is lost."""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
from dataclasses import replace

import pytest

from loopwright.errors import RecordError
from loopwright.records import (
    Checked,
    Expression,
    Record,
    Store,
    Verdict,
    best,
    distill_file,
    kept,
    load,
    merge,
    pick,
    split,
)
from loopwright.records.verdict import Outcome

WRONG = {"kind": "WRONG_ANSWER", "text": "off by 3"}
VERDICT = Verdict(Outcome.FASTER, 0.031, 0.006, 20, "d").to_json()


def make(config, *times, task="t", **changes):
    target = {"kind": "llvm", "num_threads": 1}
    return Record(task, task, [8], target, {"a": config}, times, dag=f"dag of {task}", **changes)


def write(path, *records, headers=()):
    with Store(path) as store:
        for header in headers:
            store.header(header)
        for task in dict.fromkeys(record.task for record in records):
            store.expression(Expression(f"dag of {task}", {"v": 1}, [0], task, [8]))
        for record in records:
            store.append(record)
    return path


def test_what_a_rank_rests_on_is_kept():
    checked = make(1, 2.0, ts=1, checked=Checked.YES)
    verdict = make(1, 1.9, ts=2, phase="playoff", verdict=VERDICT)
    latest = make(1, 2.1, ts=3, phase="drift")
    faster_unchecked, slower = make(2, 1.0, ts=1), make(3, 9.0, ts=1, checked=Checked.YES)
    wrong_before, wrong = make(4, ts=2, error=WRONG), make(4, ts=5, error=WRONG)
    lucky = make(4, 0.5, ts=1)
    records = [checked, verdict, latest, faster_unchecked, slower, lucky, wrong_before, wrong]
    assert kept(records) == [checked, verdict, latest, wrong]
    assert best(kept(records)) is best(records) is latest


def test_a_refuted_candidate_never_comes_back(tmp_path):
    fast = make(1, 1.0, ts=1, checked=Checked.YES)
    write(tmp_path / "old.jsonl", fast)
    write(tmp_path / "new.jsonl", make(1, ts=2, error=WRONG), make(2, 5.0, ts=1))
    out = tmp_path / "best.jsonl"
    for source in ("old.jsonl", "new.jsonl", "old.jsonl"):
        pick([tmp_path / source], out)
    assert best(load(out)).config == {"a": 2}
    merge([tmp_path / "old.jsonl"], out)
    assert best(load(out)).config == {"a": 2}
    split(out, tmp_path / "tasks")
    (part,) = (tmp_path / "tasks").iterdir()
    assert best(load(part)).config == {"a": 2}


def test_verdict_and_expressions_survive(tmp_path):
    log = write(tmp_path / "log.jsonl", make(1, 1.0, verdict=VERDICT), make(2, 2.0, task="u"))
    out = tmp_path / "out.jsonl"
    for made in (
        lambda: pick([log], out),
        lambda: merge([log], out),
        lambda: distill_file([out], out),
    ):
        made()
        read = load(out)
        assert read.complaint() == ""
        assert Verdict.from_json(best(read, "t").verdict).gain == 0.031
        assert {e.op for r in read for e in [read.expression(r)]} == {"t", "u"}
    lines = out.read_text().splitlines()
    assert [line.startswith('{"v":1,"expression"') for line in lines] == [True, False] * 2


def test_merge_copies_lines_as_they_are_and_equal_ones_once(tmp_path):
    a = write(tmp_path / "a.jsonl", make(1, 1.0), headers=[{"run": "r"}])
    newer = '{"v": 9, "shiny": true}'
    a.write_text(f"\ufeff{a.read_text()}# comment\r\n{newer}\n\n{{torn")
    b = write(tmp_path / "b.jsonl", make(1, 1.0), make(2, 2.0))
    assert merge([a, b], a) == (7, 2)
    assert merge([a, b], a) == (7, 3)
    log = load(a)
    assert [r.config["a"] for r in log] == [1, 2]
    assert (len(log.headers), len(log.skipped)) == (1, 2)
    assert newer in a.read_text()


def test_split_makes_a_file_for_each_task(tmp_path):
    log = tmp_path / "log.jsonl"
    write(
        log,
        *(make(1, 1.0, run="r"), make(1, 2.0, task="../u", run="s"), make(2, 2.0, run="r")),
        headers=[{"run": "r"}, {"run": "s"}, {"run": "none"}, {"run": ["r"]}],
    )
    for _ in range(2):  # the second time adds nothing
        counts = split(log, tmp_path / "made" / "here")
        assert sorted(counts.values()) == [1, 2]
    for path, count in counts.items():
        assert path.parent == tmp_path / "made" / "here"
        part = load(path)
        assert len({r.task for r in part}) == 1
        assert (len(part), len(part.headers), len(part.dags)) == (count, 1, 1)


def test_files_of_the_user_are_not_lost(tmp_path):
    log = write(tmp_path / "log.jsonl", make(1, 1.0))
    precious = tmp_path / "thesis.txt"
    precious.write_text("not a log\n")
    for made in (
        lambda: pick([log], precious),
        lambda: merge([log], precious),
        lambda: distill_file([log], precious),
        lambda: merge([precious], tmp_path / "out.jsonl"),
        lambda: pick([tmp_path / "none"], log),
        lambda: pick([log], tmp_path),
        lambda: split(log, log),
    ):
        with pytest.raises(RecordError) as caught:
            made()
        assert "\n" not in str(caught.value)
    assert precious.read_text() == "not a log\n"
    assert load(log).records == [make(1, 1.0)]
    assert sorted(os.listdir(tmp_path)) == ["log.jsonl", "thesis.txt"]


def test_links_and_modes_stay(tmp_path):
    log = write(tmp_path / "log.jsonl", make(2, 2.0))
    log.chmod(0o640)
    link = tmp_path / "link.jsonl"
    link.symlink_to(log)
    pick([write(tmp_path / "better.jsonl", make(1, 1.0))], link)
    assert link.is_symlink()
    assert log.stat().st_mode & 0o777 == 0o640
    assert load(log).records == [make(1, 1.0)]


def test_measurements_are_not_replaced_by_the_best_of_them(tmp_path):
    run = write(tmp_path / "run.jsonl", make(1, 1.0), make(2, 2.0), headers=[{"run": "r"}])
    bare = write(tmp_path / "bare.jsonl", make(3, 0.5), make(4, 2.0))
    (tmp_path / "link.jsonl").symlink_to(bare)
    before = run.read_bytes(), bare.read_bytes()
    for sources, out in (
        ([run], run),
        ([bare], run),
        ([bare], bare),
        ([tmp_path / "link.jsonl"], bare),
    ):
        for choose in (pick, distill_file):
            with pytest.raises(
                RecordError, match=r"exists|has measurements, of which . would be lost"
            ):
                choose(sources, out)
    assert (run.read_bytes(), bare.read_bytes()) == before
    alone = write(tmp_path / "alone.jsonl", make(1, 1.0), headers=[{"run": "r"}])
    assert len(pick([alone], alone)) == 1


def test_nothing_that_is_appended_meanwhile_is_lost(tmp_path):
    log = write(tmp_path / "log.jsonl", make(0, 1.0))
    done = threading.Event()

    def append():
        with Store(log) as store:
            for trial in range(1, 300):
                store.append(make(trial, 1.0, trial=trial))
        done.set()

    writer = threading.Thread(target=append)
    writer.start()
    rounds = 0
    while not done.is_set() or not rounds:
        merge([log], log)
        rounds += 1
        done.wait(0.001)  # locks are not fair: who takes one again at once shuts others out
    writer.join()
    assert sorted(r.config["a"] for r in load(log)) == list(range(300))


def test_the_best_of_what_is_kept_is_the_best(tmp_path):
    """Whatever a log holds: `kept` ranks as the log does, and hides no wrong answer."""
    source = random.Random(1)
    for _ in range(200):
        records = [random_record(source) for _ in range(source.randrange(1, 12))]
        for k in (1, 2):
            assert kept(kept(records, k), k) == kept(records, k)
        assert best(kept(records)) is best(records)
        more = [random_record(source) for _ in range(3)]
        refuted = {(r.candidate, r.build) for r in records if r.wrong}
        winner = best([*kept(records), *more])
        assert winner is None or (winner.candidate, winner.build) not in refuted


def random_record(source):
    one = make(
        source.randrange(3),
        ts=float(source.randrange(4)),
        build=source.choice("ab"),
        checked=source.choice(list(Checked)),
    )
    if source.random() < 0.3:
        return replace(one, error=WRONG)
    return replace(one, times=(float(source.randrange(1, 5)),))


def test_who_waits_for_a_log_goes_on_with_the_one_that_took_its_place(tmp_path):
    path, fresh = tmp_path / "all.jsonl", tmp_path / "fresh.jsonl"
    lines = [make(n).to_line().encode() + b"\n" for n in range(3)]
    path.write_bytes(lines[0])
    fresh.write_bytes(lines[0])
    (tmp_path / "more.jsonl").write_bytes(lines[1])
    waiting = threading.Thread(target=merge, args=([tmp_path / "more.jsonl"], path))
    with path.open("rb") as old, fresh.open("ab") as new:
        fcntl.flock(old, fcntl.LOCK_EX)
        waiting.start()
        time.sleep(0.2)
        fcntl.flock(new, fcntl.LOCK_EX)
        os.replace(fresh, path)
        fcntl.flock(old, fcntl.LOCK_UN)
        waiting.join(0.2)  # it must wait again, so that what is appended now is not lost
        new.write(lines[2])
    waiting.join(60)
    assert sorted(path.read_bytes().splitlines(True)) == sorted(lines)

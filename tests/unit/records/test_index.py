"""The index of a log: it never changes what is read, whatever becomes of it or of the log."""

from __future__ import annotations

import dataclasses
import os
import pickle
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopwright.records.index import open as opening
from loopwright.records.index.block import (
    COLUMNS,
    LogBlock,
    SharedValues,
    StoredRecord,
    index_path,
)
from tests.unit.records.index_logs import from_index, record, same, write

from loopwright.cli import main
from loopwright.errors import RecordError
from loopwright.history import apply_history_best
from loopwright.records import canonical_json, fields_of, load, open_log
from loopwright.task import create_task


@pytest.fixture(autouse=True)
def index_everything(monkeypatch):
    """An index for the smallest log, of small blocks, always up to date."""
    monkeypatch.setattr(opening, "SMALL", 0)
    monkeypatch.setattr(opening, "_BLOCK", 16384)
    monkeypatch.setattr(opening, "_NEWS", 0)


LINES = [
    record(1).to_line(),
    record(2, 5e-4, checked="yes", error=None).to_line(),
    record(3, None, error={"kind": "WRONG_ANSWER", "text": "differs"}).to_line(),
    record(1, None, error={"kind": "WRONG_ANSWER", "text": "differs"}, ts=2e9).to_line(),
    record(4, 1e-4, dropped=True, phase="playoff", seed=7, max_error=0.5).to_line(),
    record(5, check_reason="WRONG_ANSWER is a word").to_line(),
    '{"header":{"run":"r2"},"v":1}',
    '{"v":9}', "{", "# a comment", "", " ", "[1]", '{"v":1,"task":"x"}', "\udcff\x00", "\ufeff{}",
    '{"v":1,"task":"t","op":"o","args":[1.0,true],"target":{},"config":{},"times":[1e-3],"new":1}',
    '{"v":1,"task":"t","op":"o","args":[1,true],"target":{},"config":{},"times":[1],"build_s":0}',
    '{"v":1,"task":"t","op":"o","args":[NaN],"target":{},"config":{"k":1e400},"times":[1]}',
    '{"input":["llvm","m",[4],{}],"config":{"index":1,"code_hash":null,"entity":[["t","ot",1]]},'
    '"result":[[0.1],0,1.0,1600000000.0],"version":0.2,"tvm_version":"0.8"}',
]  # fmt: skip
STEPS = st.one_of(
    st.tuples(st.just("append"), st.lists(st.sampled_from(LINES), min_size=1, max_size=12)),
    st.tuples(st.just("torn"), st.sampled_from(LINES)),
    st.tuples(st.just("flip"), st.floats(0, 1)),
    st.tuples(st.just("truncate"), st.floats(0, 1)),
    st.tuples(st.just("drop a line"), st.floats(0, 1)),
    st.tuples(st.just("no index"), st.none()),
    st.tuples(st.just("garbage"), st.binary(max_size=60)),
    st.tuples(st.just("flip index"), st.floats(0, 1)),
    st.tuples(st.just("cut index"), st.floats(0, 1)),
)


def change(path, what, how):
    data = path.read_bytes() if path.exists() else b""
    index = index_path(path)
    known = index.read_bytes() if index.exists() else b""
    match what:
        case "append":
            data += "".join(line + "\n" for line in how).encode(errors="surrogateescape")
        case "torn":
            data += how.encode(errors="surrogateescape")[: len(how) // 2 + 1]
        case "flip" if data:
            at = int(how * (len(data) - 1))
            data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        case "truncate":
            data = data[: int(how * len(data))]
        case "drop a line":
            lines = data.split(b"\n")
            del lines[int(how * (len(lines) - 1))]
            data = b"\n".join(lines)
        case "no index":
            index.unlink(missing_ok=True)
        case "garbage":
            index.write_bytes(how)
        case "flip index" if known:
            at = int(how * (len(known) - 1))
            index.write_bytes(known[:at] + bytes([known[at] ^ 1]) + known[at + 1 :])
        case "cut index":
            index.write_bytes(known[: int(how * len(known))])
    path.write_bytes(data)


@settings(max_examples=20, deadline=None)
@given(steps=st.lists(STEPS, min_size=1, max_size=8))
def test_the_index_never_changes_what_is_read(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    # The fixture is of the function, which hypothesis calls many times.
    path.write_text("".join(line + "\n" for line in LINES[:3] * 10))
    for what, how in steps:
        same(path)
        change(path, what, how)
    same(path)
    same(path)


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_mark_of_unicode_before_a_line_that_is_no_record_is_passed_over(tmp_path, end):
    """An editor of Windows puts it there; the first line of a log is a header as a rule."""
    path = tmp_path / "log.jsonl"
    header = canonical_json({"header": {"run": "feedfacecafe"}, "v": 1})
    path.write_text(f"\ufeff{header}{end}")
    same(path)
    assert len(open_log(path).headers) == 1


def test_a_log_that_grows_is_read_from_where_it_ended(tmp_path, monkeypatch):
    path = write(tmp_path / "log.jsonl")
    same(path)
    assert from_index(path) == 1.0
    before = path.stat().st_size
    write(path, 5)
    fresh = []
    of = LogBlock.of
    monkeypatch.setattr(LogBlock, "of", lambda path, at, *a: fresh.append(at) or of(path, at, *a))
    same(path)
    assert fresh
    assert min(fresh) > before - 16384
    fresh.clear()
    same(path)
    assert not fresh


def test_a_changed_digit_is_seen_and_only_its_block_is_read_again(tmp_path, monkeypatch):
    path = write(tmp_path / "log.jsonl")
    same(path)
    stamp = path.stat()
    data = path.read_bytes()
    at = data.index(b'"times":[0.00', len(data) // 2) + len(b'"times":[0.00')
    digit = b"%d" % ((int(data[at : at + 1]) + 1) % 10)
    path.write_bytes(data[:at] + digit + data[at + 1 :])
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    fresh = []
    of = LogBlock.of
    monkeypatch.setattr(LogBlock, "of", lambda path, at, *a: fresh.append(at) or of(path, at, *a))
    same(path)
    assert len(fresh) == 1


def test_an_index_of_just_the_greatest_size_is_read(tmp_path):
    path = write(tmp_path / "log.jsonl")
    same(path)
    size = index_path(path).stat().st_size
    assert opening.read_index(path, size, SharedValues())
    assert not opening.read_index(path, size - 1, SharedValues())


def test_other_code_makes_the_index_again(tmp_path, monkeypatch):
    path = write(tmp_path / "log.jsonl")
    same(path)
    monkeypatch.setattr("loopwright.records.index.open._made_by", lambda: b"somebody else")
    assert from_index(path) == 0.0
    same(path)
    assert from_index(path) == 1.0


@pytest.mark.parametrize("obstacle", ["folder", "pipe", "link", "full disk", "huge"])
def test_an_index_that_cannot_be_used_is_done_without(tmp_path, monkeypatch, obstacle):
    path = write(tmp_path / "log.jsonl")
    index = index_path(path)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    match obstacle:
        case "folder":
            index.mkdir()
        case "pipe":
            os.mkfifo(index)
        case "link":
            index.symlink_to(victim)
        case "full disk":
            monkeypatch.setattr(os, "replace", lambda *_: exec("raise OSError(28, 'full')"))
        case "huge":
            index.write_bytes(b"x" * (path.stat().st_size + 1))
    same(path)
    same(path)
    assert victim.read_text() == "mine"
    assert not list(tmp_path.glob("*.partial"))


def test_what_a_killed_writer_left_is_removed_after_a_while(tmp_path):
    path = write(tmp_path / "log.jsonl")
    old, new = (tmp_path / f".{index_path(path).name}.{n}.partial" for n in "ab")
    for file in (old, new):
        file.write_text("half")
    os.utime(old, (0, time.time() - 3600))
    same(path)
    assert (old.exists(), new.exists()) == (False, True)


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    path = write(tmp_path / "log.jsonl")
    monkeypatch.setattr("tempfile.mkstemp", lambda *_: exec("raise PermissionError(13, 'no')"))
    same(path)
    assert not index_path(path).exists()


def test_fields_of_stored_and_other_records_in_any_order(tmp_path):
    path = write(tmp_path / "log.jsonl")
    open_log(path)
    ours, plain = open_log(path).records, load(path).records
    changed = dataclasses.replace(ours[3], ts=5.0)
    mixed = [*ours, *ours[20:], plain[4], changed, *reversed(ours), ours[-1], changed]
    for name in COLUMNS:
        assert fields_of(mixed, name) == [[getattr(record, name) for record in mixed]]
    assert fields_of([], "ts", "id") == [[], []]
    assert fields_of(iter(plain[:2]), "trial", "op") == [[0, 1], ["matmul", "matmul"]]


def test_a_log_changed_after_it_was_opened(tmp_path):
    path = write(tmp_path / "log.jsonl")
    same(path)
    log = open_log(path)
    data = path.read_bytes()
    with open(path, "r+b") as file:
        file.seek(data.index(b'"trial":5,'))
        file.write(b'"trial":6,')
    with pytest.raises(RecordError, match="the log was changed just now"):
        _ = log.records[5].trace
    other = open_log(path)
    os.rename(path, tmp_path / "rotated")
    assert other.records[-1].trace[:1] == [["split", 59]]


def test_stored_records_are_records(tmp_path):
    path = write(tmp_path / "log.jsonl")
    open_log(path)
    one, plain = open_log(path).records[3], load(path).records[3]
    assert isinstance(one, StoredRecord)
    assert (one, hash(one), repr(one.config)) == (plain, hash(plain), repr(plain.config))
    assert pickle.loads(pickle.dumps(one)) == plain
    changed = dataclasses.replace(one, times=(7.0,), ts=5.0)
    assert (changed.median, changed.ts, changed.candidate) == (7.0, 5.0, plain.candidate)
    assert changed == dataclasses.replace(plain, times=(7.0,), ts=5.0)
    assert (changed.usable, changed.id != one.id) == (True, True)


def test_a_log_is_read_while_it_grows(tmp_path):
    path = write(tmp_path / "log.jsonl", 5)
    lengths, errors = [], []

    def read():
        try:
            for _ in range(12):
                lengths.append(len(open_log(path)))
        except BaseException as error:
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    write(path, 120)
    for reader in readers:
        reader.join()
    assert not errors
    assert len(same(path)) == 125
    assert max(lengths) <= 125


def test_small_logs_have_no_index(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "SMALL", 1 << 20)
    path = write(tmp_path / "log.jsonl")
    open_log(path)
    assert not index_path(path).exists()


def test_a_missing_log_and_a_folder(tmp_path):
    with pytest.raises(RecordError, match="no log at"):
        open_log(tmp_path / "none.jsonl")
    with pytest.raises(RecordError, match="is a directory"):
        open_log(tmp_path)


def test_verbs_and_contexts_answer_alike_with_and_without_the_index(tmp_path, monkeypatch, capsys):
    path = write(tmp_path / "log.jsonl")
    identity, task = load(path).records[7].id, create_task("matmul", (16, 16, 16), "llvm")
    monkeypatch.chdir(tmp_path)
    answers = []
    for small in (0, 1 << 60):
        monkeypatch.setattr(opening, "SMALL", small)
        for words in (
            ["list", path.name],
            ["list", path.name, "--sort", "time", "--status", "usable"],
            ["list", path.name, "--task", "[1]", "--target", "llvm", "--end", "40"],
            ["best", path.name, "-k", "3"],
            ["show", path.name, "best", "--task", "[1]"],
            ["show", path.name, identity],
        ):
            assert main(["records", *words]) == 0
            answers.append(capsys.readouterr().out)
        answers.append(str(apply_history_best(path).explain(task)))
    assert from_index(path) > 0.9
    assert answers[:7] == answers[7:]
    assert len(answers[0].splitlines()) == 62

"""Reading: every good line is found, every bad line is counted with its reason."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace

import pytest

from loopwright.errors import RecordError
from loopwright.records import (
    Expression,
    Record,
    Store,
    best,
    build_hash,
    load,
    load_expressions,
)
from loopwright.records.line import MAX_LINE, sealed


def line(trial=0):
    return Record("t", "t", [], {"kind": "llvm"}, {"a": trial}, (1.0,), trial=trial).to_line()


def test_a_log_has_its_declared_fields_alone(tmp_path):
    with Store(tmp_path / "log.jsonl") as store:
        store.append(Record.from_line(line(0)))
    log = load(tmp_path / "log.jsonl")
    assert list(vars(log)) == ["path", "records", "headers", "dags", "skipped"]


def test_bad_lines_are_skipped_and_counted(tmp_path):
    path = tmp_path / "log.jsonl"
    newer = json.dumps({"v": 2, "task": "t", "shiny": True})
    lines = [
        line(0).encode(),
        b"",
        b"# a comment",
        b"plain text of another program",
        b'{"some": "json"}',
        newer.encode(),
        b"[1, 2]",
        b"\xff\xfe\x00",
        b'{"v": 1, "header": 3}',
        b'{"v": 7, "header": {}}',
        line(1).encode(),
        line(2).encode()[:-10],
    ]
    path.write_bytes(b"\n".join(lines))
    log = load(path)
    assert [record.trial for record in log] == [0, 1]
    assert log.skipped == [
        (4, "not JSON"),
        (5, "not a record (no version 'v')"),
        (6, "version 2 is newer than 1, the last one known here"),
        (7, "not a record (not a JSON object)"),
        (8, "not JSON"),
        (9, "field 'header' is not an object"),
        (10, "version 7 is newer than 1, the last one known here"),
        (12, "torn line"),
    ]
    text = log.complaint()
    assert "\n" not in text
    assert "8 lines skipped, the first is line 4" in text
    assert "2 x not JSON" in text


def test_a_complete_last_line_without_newline_counts(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(line(0) + "\n" + line(1))
    assert len(load(path)) == 2
    assert load(path).complaint() == ""


@pytest.mark.parametrize("text", ["", "\n\n", "  \r\n"])
def test_a_blank_file_is_an_empty_log(tmp_path, text):
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    log = load(path)
    assert len(log) == 0
    assert log.headers == []
    assert log.skipped == []


def test_what_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(RecordError, match="no log at"):
        load(tmp_path / "none.jsonl")
    with pytest.raises(RecordError, match="is a directory"):
        load(tmp_path)
    for read in (load, load_expressions):
        with pytest.raises(RecordError, match="'/dev/zero' is a device; name a log file"):
            read("/dev/zero")


def test_many_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(line(trial) + "\n" for trial in range(20_000)))
    log = load(path)
    assert len(log) == 20_000
    assert log.records[-1].trial == 19_999


def test_what_editors_do_to_a_file_is_harmless(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + f"{line(0)}\r\n  {line(1)}\r\n".encode())
    assert [record.trial for record in load(path)] == [0, 1]


def test_a_line_without_end_is_counted_once_and_costs_no_memory(tmp_path):
    path = tmp_path / "log.jsonl"
    with path.open("wb") as file:
        file.write(f"{line(0)}\n".encode())
        for _ in range(3):
            file.write(b"[" * MAX_LINE)
        file.write(f"\n{line(1)}\n".encode() + b"\n" * 3 + b"x" * (MAX_LINE + 1))
    tracemalloc.start()
    log = load(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [record.trial for record in log] == [0, 1]
    assert log.skipped == [(2, "longer than 16 MiB"), (7, "longer than 16 MiB")]
    assert peak < 5 * MAX_LINE


def test_a_flipped_digit_in_times_is_never_best(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(line(0) + "\n" + line(1).replace("[1.0]", "[0.1]") + "\n")
    log = load(path)
    assert best(log).trial == 0
    assert log.skipped == [(2, "damaged line")]


def test_expressions_are_found_by_hash_template_and_passes(tmp_path):
    target = {"kind": "llvm"}
    passes = {"opt_level": 3}
    records = [
        Record("t", "t", [8], target, {}, (1.0,), dag="d1", build=build_hash(target, settings))
        for settings in ({}, passes)
    ]
    own = Expression("d1", {"v": 1}, [0, [1, 2]], "t", [8])
    tuned = Expression("d1", {"v": 1}, [0, [1, 2]], "t", [8], passes, {"made_by": "template"})
    path = tmp_path / "log.jsonl"
    with Store(path) as store:
        for expression in (Expression("d1", {"v": 1}, [1], "u", []), own, tuned):
            store.expression(expression)
    log = load(path)
    assert log.skipped == []
    assert [log.expression(r).to_line() for r in records] == [own.to_line(), tuned.to_line()]
    # The header of a run says its pass settings, whatever the compiler was then.
    late = replace(records[0], build="of before", run="r")
    assert log.expression(late).to_line() == own.to_line()
    log.headers.append({"run": "r", "passes": passes})
    assert log.expression(late).to_line() == tuned.to_line()
    assert log.expression(Record("t", "t", [9], target, {}, (), dag="d1")).op == "u"
    assert log.expression(Record("t", "t", [8], target, {}, (), dag="d2")) is None
    with path.open("a") as file:
        file.write(own.to_line().replace('"t"', '"x"') + "\n")
        file.write(sealed('{"v":1,"expression":{"hash":3}}') + "\n")
    assert [reason for _, reason in load(path).skipped] == [
        "damaged line",
        "field 'hash' of 'expression' is missing or malformed",
    ]


def test_records_share_only_what_is_the_same(tmp_path):
    first = Record("t", "t", [], {"kind": "llvm", "loop_unroll": False}, {}, (1.0,))
    for target in ({"loop_unroll": False, "kind": "llvm"}, {"kind": "llvm", "loop_unroll": 0}):
        lines = [first.to_line(), replace(first, target=target).to_line()]
        path = tmp_path / "log.jsonl"
        path.write_text("\n".join(lines))
        assert [r.to_line() for r in load(path)] == lines

"""Reading: every good line is found, every bad line is counted with its reason."""

from __future__ import annotations

import json

import pytest

from loopwright.errors import RecordError
from loopwright.records import Record, load


def line(trial=0):
    return Record("t", "t", [], {"kind": "llvm"}, {"a": trial}, (1.0,), trial=trial).to_line()


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


def test_many_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(line(trial) + "\n" for trial in range(100_000)))
    log = load(path)
    assert len(log) == 100_000
    assert log.records[-1].trial == 99_999

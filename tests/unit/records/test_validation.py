from __future__ import annotations

from loopwright.records.validation import LineKind, line_reports, validate
from tests.unit.records import logs


def test_lines_are_counted_by_kind_and_damage_is_named(tmp_path):
    path = logs.write(tmp_path / "log.jsonl", 60)
    with path.open("ab") as file:
        file.write(b"hello\n" + logs.record(3).to_line().encode().replace(b"mat", b"Mat"))
    report = validate(path)
    assert report.lines == {
        LineKind.HEADER: 1,
        LineKind.RECORD: 60,
        LineKind.MALFORMED: 1,
        LineKind.DAMAGED: 1,
    }
    assert (report.bad, report.sound, report.unsealed) == (2, 61, 0)
    assert [line.kind for line in line_reports(path) if not line.is_read] == [
        LineKind.MALFORMED,
        LineKind.DAMAGED,
    ]


def test_lines_without_a_checksum_are_counted(tmp_path):
    path = tmp_path / "old.jsonl"
    path.write_text('{"v":1,"task":"t","op":"t","args":[],"target":{},"config":{},"times":[1.0]}\n')
    found = validate(path)
    assert (found.bad, found.unsealed, found.lines[LineKind.RECORD]) == (0, 1, 1)


def test_a_malformed_verdict_is_named(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(logs.record(1, verdict={"outcome": "splendid"}).to_line() + "\n")
    (line,) = validate(path).notable
    assert line.kind is LineKind.MALFORMED
    assert line.detail.startswith("field 'verdict' is malformed")

from __future__ import annotations

from loopwright.records import open_log
from loopwright.records.bulk import lines_of
from loopwright.records.index import open as opening
from loopwright.records.validation import LineKind, line_reports, validate
from tests.unit.records import index_logs


def test_a_log_with_an_index_is_judged_as_one_without(tmp_path, monkeypatch):
    path = index_logs.write(tmp_path / "log.jsonl", 60)
    with path.open("ab") as file:
        file.write(b"hello\n" + index_logs.record(3).to_line().encode().replace(b"mat", b"Mat"))
    plain = validate(path)
    assert plain.lines == {
        LineKind.HEADER: 1,
        LineKind.RECORD: 60,
        LineKind.MALFORMED: 1,
        LineKind.DAMAGED: 1,
    }
    assert (plain.bad, plain.sound, plain.unsealed) == (2, 61, 0)
    monkeypatch.setattr(opening, "SMALL", 0)
    monkeypatch.setattr(opening, "_NEWS", 0)
    assert opening.known_records(path) == set(range(2, 62))
    assert validate(path) == plain
    assert [line.kind for line in line_reports(path) if not line.is_read] == [
        LineKind.MALFORMED,
        LineKind.DAMAGED,
    ]


def test_damage_after_the_index_was_made_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "SMALL", 0)
    monkeypatch.setattr(opening, "_NEWS", 0)
    path = index_logs.write(tmp_path / "log.jsonl", 60)
    assert validate(path).bad == 0
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    found = validate(path)
    assert found.bad == 1
    (line,) = found.notable
    assert line.is_bad


def test_lines_without_a_checksum_are_counted(tmp_path):
    path = tmp_path / "old.jsonl"
    path.write_text('{"v":1,"task":"t","op":"t","args":[],"target":{},"config":{},"times":[1.0]}\n')
    found = validate(path)
    assert (found.bad, found.unsealed, found.lines[LineKind.RECORD]) == (0, 1, 1)


def test_a_malformed_verdict_is_named(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(index_logs.record(1, verdict={"outcome": "splendid"}).to_line() + "\n")
    (line,) = validate(path).notable
    assert line.kind is LineKind.MALFORMED
    assert line.detail.startswith("field 'verdict' is malformed")


def test_lines_of_stored_records_are_those_of_to_line(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "SMALL", 0)
    path = index_logs.write(tmp_path / "log.jsonl", 40)
    with path.open("a") as file:
        # Other spaces, and no checksum: written anew.
        file.write(
            '{"v":1, "task":"t\x7f","op":"t","args":[],"target":{},"config":{},"times":[1]}\n'
        )
    records = open_log(path).records
    chosen = [records[40], *records[::3], index_logs.record(7)]
    assert list(lines_of(chosen)) == [record.to_line() for record in chosen]

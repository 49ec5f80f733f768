"""Lines survive whatever happens to the process that writes them, and to the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu.folder import Folder, Purpose, begin
from benchmarks.gpu.journal import opened, read_lines
from loopwright.errors import UsageError

PURPOSE = Purpose("opencl", "opencl", True, 0)


def written(path: Path, count: int) -> list[dict[str, object]]:
    with opened(path) as journal:
        for n in range(count):
            journal.append({"n": n})
        return list(journal.lines)


def test_lines_come_back(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    assert read_lines(path) == ([], 0)
    lines = written(path, 3)
    assert lines == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert read_lines(path) == (lines, 0)


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_torn_line_is_cut_off_and_the_next_is_whole(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "lines.jsonl"
    written(path, 3)
    path.write_bytes(path.read_bytes()[:-cut])
    assert read_lines(path)[0][:2] == [{"n": 0}, {"n": 1}]
    with opened(path) as journal:
        assert journal.lines == [{"n": 0}, {"n": 1}]
        journal.append({"n": 9})
    assert read_lines(path) == ([{"n": 0}, {"n": 1}, {"n": 9}], 0)


def test_a_damaged_line_is_passed_over_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    written(path, 3)
    path.write_bytes(path.read_bytes().replace(b'"n":1', b'"n":7'))
    assert read_lines(path) == ([{"n": 0}, {"n": 2}], 1)


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    with opened(path), pytest.raises(UsageError, match=r"another process writes .*lines\.jsonl"):
        written(path, 1)
    assert read_lines(path) == ([], 0)


def test_a_folder_is_for_one_purpose(tmp_path: Path) -> None:
    begin(tmp_path / "a", PURPOSE)
    assert begin(tmp_path / "a", PURPOSE).purpose == PURPOSE
    other = Purpose("cuda", "cuda -arch=sm_80", False, 0)
    with pytest.raises(UsageError, match=r"is for Purpose\(device='opencl'.*take another folder"):
        begin(tmp_path / "a", other)
    with pytest.raises(UsageError, match="holds no plan of format 1; make one with python -m"):
        Folder(tmp_path / "b")

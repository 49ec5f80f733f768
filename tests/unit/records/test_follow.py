"""A log is followed while it is written, cut, replaced and removed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from loopwright.errors import RecordError
from loopwright.records import Record, Store
from loopwright.records.follow import Follower
from loopwright.records.line import MAX_LINE


def record(trial: int) -> Record:
    return Record(
        task='["t",[8],"llvm"]', op="t", args=[8], target={"kind": "llvm"},
        config={"tile": [-1, trial]}, times=(1e-3,), trial=trial, run="r1", ts=1e9 + trial,
    )  # fmt: skip


def write(path: Path, *trials: int) -> None:
    with Store(path) as store:
        for trial in trials:
            store.append(record(trial))


def trials(news) -> list[int]:
    return [one.trial for one in news.log.records]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def test_what_is_appended_comes_once(path: Path) -> None:
    follower = Follower(path)
    assert not follower.look().exists
    write(path, 0, 1)
    first = follower.look()
    assert (first.exists, first.restarted, trials(first)) == (True, True, [0, 1])
    write(path, 2)
    second = follower.look()
    assert (second.restarted, trials(second)) == (False, [2])
    assert trials(follower.look()) == []


def test_a_line_without_its_newline_waits(path: Path) -> None:
    write(path, 0)
    follower = Follower(path)
    follower.look()
    line = record(1).to_line().encode()
    with open(path, "ab") as file:
        file.write(line[:40])
        file.flush()
        assert trials(follower.look()) == []
        file.write(line[40:])
        file.flush()
        assert trials(follower.look()) == []
        file.write(b"\n")
        file.flush()
        assert trials(follower.look()) == [1]
    assert not follower.look().log.skipped


def test_the_first_look_leaves_out_an_unfinished_line(path: Path) -> None:
    write(path, 0)
    with open(path, "ab") as file:
        file.write(record(1).to_line().encode())
    follower = Follower(path)
    assert trials(follower.look()) == [0]
    with open(path, "ab") as file:
        file.write(b"\n")
    assert trials(follower.look()) == [1]


def test_a_cut_log_is_read_anew(path: Path) -> None:
    write(path, 0, 1, 2)
    follower = Follower(path)
    follower.look()
    os.truncate(path, len(record(0).to_line()) + 1)
    news = follower.look()
    assert (news.restarted, trials(news)) == (True, [0])


def test_a_log_that_was_cut_and_grew_beyond_is_read_anew(path: Path) -> None:
    write(path, 0, 1)
    follower = Follower(path)
    follower.look()
    os.truncate(path, 0)
    write(path, 5, 6, 7)
    news = follower.look()
    assert (news.restarted, trials(news)) == (True, [5, 6, 7])


def test_a_replaced_log_is_read_anew(path: Path) -> None:
    write(path, 0, 1)
    follower = Follower(path)
    follower.look()
    other = path.with_name("other.jsonl")
    write(other, 3)
    os.replace(other, path)
    news = follower.look()
    assert (news.restarted, trials(news)) == (True, [3])


def test_a_removed_log_may_come_back(path: Path) -> None:
    write(path, 0)
    follower = Follower(path)
    follower.look()
    path.unlink()
    gone = follower.look()
    assert (gone.exists, gone.restarted) == (False, True)
    assert not follower.look().restarted
    write(path, 4)
    news = follower.look()
    assert (news.restarted, trials(news)) == (True, [4])


def test_lines_that_are_not_understood_are_counted_with_their_number(path: Path) -> None:
    write(path, 0)
    follower = Follower(path)
    follower.look()
    with open(path, "ab") as file:
        file.write(b"\x89PNG\r\n\n{torn\n" + b"x" * (MAX_LINE + (1 << 17)) + b"\n")
    write(path, 1)
    news = follower.look()
    assert trials(news) == [1]
    assert news.log.skipped == [
        (2, "not JSON"),
        (4, "torn line"),
        (5, "longer than 16 MiB"),
    ]
    assert Follower(path).look().log.skipped == news.log.skipped


def test_nothing_is_written_beside_the_log(path: Path) -> None:
    write(path, 0)
    Follower(path).look()
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("what", ["folder", "pipe"])
def test_what_is_no_file_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / what
    path.mkdir() if what == "folder" else os.mkfifo(path)
    with pytest.raises(RecordError, match="is no regular file; name a log"):
        Follower(path).look()


def test_nothing_is_lost_beside_a_writer(path: Path) -> None:
    follower, seen = Follower(path), []
    writer = threading.Thread(target=write, args=(path, *range(300)))
    writer.start()
    while writer.is_alive():
        seen += trials(follower.look())
    writer.join()
    seen += trials(follower.look())
    assert seen == list(range(300))


def test_a_look_that_fails_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, *range(12))
    follower, places, pread = Follower(path), [], os.pread

    def failing(fd: int, length: int, place: int) -> bytes:
        places.append(place)
        if len(places) == 3:  # the first chunk, what tells the file, and the second chunk
            raise OSError(5, "Input/output error")
        return pread(fd, length, place)

    monkeypatch.setattr("loopwright.records.follow._CHUNK", 1000)
    monkeypatch.setattr(os, "pread", failing)
    with pytest.raises(RecordError, match="Input/output error"):
        follower.look()
    again = follower.look()
    assert (again.restarted, trials(again)) == (True, list(range(12)))

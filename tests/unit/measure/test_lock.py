"""Locks between real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loopwright.errors import TuneError
from loopwright.measure import DeviceLock, devices, lock_log

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@contextmanager
def holder(statement: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a lock until its input ends."""
    program = f"""
import sys
from loopwright.measure import DeviceLock, lock_log
{statement}
print("held", flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_device_is_held_by_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "ANNOUNCE_S", 0.05)
    said: list[str] = []
    with holder("x = DeviceLock('cpu0'); x.acquire()") as other:

        def announce(text: str) -> None:
            said.append(text)
            other.kill()  # its lock goes with it

        mine = DeviceLock("cpu0", announce)
        assert mine.acquire() > 0.04
        assert mine.held
        mine.release()
        assert not mine.held
    (text,) = said
    assert f"process {other.pid} (" in text
    assert "-c" in text


def test_device_lock_is_quick_when_free_and_can_be_taken_again() -> None:
    first, second = DeviceLock(), DeviceLock()
    first.acquire()
    assert first.acquire() == 0.0
    first.release()
    first.release()
    second.acquire()
    second.release()
    assert first.path == second.path


def test_a_lock_that_cannot_be_signed_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nobody could time any more until this process ends."""

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("loopwright.measure.devices._sign", full)
        for take in (DeviceLock().try_acquire, DeviceLock().acquire):
            with pytest.raises(OSError, match="No space left"):
                take()
    other = DeviceLock()
    assert other.try_acquire() == ""
    other.release()


def test_other_devices_are_free() -> None:
    with holder("x = DeviceLock('cpu0'); x.acquire()"):
        other = DeviceLock("cuda0")
        assert other.acquire() < 5
        assert other.held
        other.release()


def test_second_run_on_one_log_stops_and_names_the_first(tmp_path: Path) -> None:
    log = tmp_path / "matmul.jsonl"
    with holder(f"x = lock_log({str(log)!r}, 'task'); x.__enter__()") as other:
        with pytest.raises(TuneError) as caught, lock_log(log, "task"):
            pass
        assert f"in use by process {other.pid} (" in str(caught.value)
        assert str(log) in str(caught.value)
        with lock_log(log, "another task"):
            pass
    with lock_log(log, "task"):  # died without cleaning up
        pass


def test_log_lock_leaves_no_file_and_no_log(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    with lock_log(log) as path:
        assert path.exists()
        with pytest.raises(TuneError, match="in use by process"), lock_log(log):
            pass
    assert list(tmp_path.iterdir()) == []


def test_log_in_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with (
        pytest.raises(TuneError, match="cannot lock the log"),
        lock_log(tmp_path / "no" / "a.jsonl"),
    ):
        pass


def folder_of_locks(tmp_path: Path) -> Path:
    return tmp_path / "loopwright"  # see the fixture


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    folder_of_locks(tmp_path).symlink_to(theirs)
    with pytest.raises(
        TuneError, match="is a link or no folder; remove it, or set XDG_RUNTIME_DIR"
    ):
        DeviceLock()
    assert list(theirs.iterdir()) == []


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder_of_locks(tmp_path).write_text("")
    with pytest.raises(TuneError, match="is a link or no folder"):
        DeviceLock()


def test_a_folder_that_others_can_write_is_closed_to_them(tmp_path: Path) -> None:
    folder_of_locks(tmp_path).mkdir()
    folder_of_locks(tmp_path).chmod(0o777)
    DeviceLock()
    assert folder_of_locks(tmp_path).stat().st_mode & 0o777 == 0o700


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of_locks(tmp_path).mkdir()
    mine = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: mine + 1)
    with pytest.raises(TuneError, match="belongs to another user; remove it, or set"):
        DeviceLock()


def _link(place: Path, precious: Path) -> None:
    place.symlink_to(precious)


def _second_name(place: Path, precious: Path) -> None:
    os.link(precious, place)


def _pipe(place: Path, precious: Path) -> None:
    os.mkfifo(place)


def _folder(place: Path, precious: Path) -> None:
    place.mkdir()


PLANTED = [
    (_link, "is a link or no file; remove it"),
    (_second_name, "has a second name"),
    (_pipe, "is no file; remove it"),
    (_folder, "is a link or no file; remove it"),
]


@pytest.mark.parametrize(("plant", "words"), PLANTED)
def test_what_others_placed_for_the_device_is_not_written(
    tmp_path: Path, plant: Callable[[Path, Path], None], words: str
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    mine = DeviceLock()
    plant(mine.path, precious)
    with pytest.raises(TuneError, match=words):
        mine.acquire()
    assert not mine.held
    assert precious.read_text() == "mine"


@pytest.mark.parametrize(("plant", "words"), PLANTED)
def test_what_others_placed_beside_the_log_is_not_written(
    tmp_path: Path, plant: Callable[[Path, Path], None], words: str
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    plant(tmp_path / "a.jsonl.lock", precious)
    with pytest.raises(TuneError, match=words), lock_log(tmp_path / "a.jsonl"):
        pass
    assert precious.read_text() == "mine"
    assert (tmp_path / "a.jsonl.lock").exists()


def test_locks_leave_no_open_files(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    mine = DeviceLock()
    mine.acquire()
    mine.release()
    with lock_log(tmp_path / "a.jsonl"), pytest.raises(TuneError), lock_log(tmp_path / "a.jsonl"):
        pass
    (tmp_path / "b.jsonl.lock").symlink_to(tmp_path)
    with pytest.raises(TuneError), lock_log(tmp_path / "b.jsonl"):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_escapes_in_the_name_of_a_holder_are_harmless(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl.lock"
    with lock_log(tmp_path / "a.jsonl"):
        file.write_text(json.dumps({"pid": 1, "command": "x\x1b[2J\n"}))
        with (
            pytest.raises(TuneError, match=r"process 1 \(x\?\[2J\?\)"),
            lock_log(tmp_path / "a.jsonl"),
        ):
            pass

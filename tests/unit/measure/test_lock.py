"""Locks between real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loopwright.errors import TuneError
from loopwright.measure import DeviceLock, lock, lock_log

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
    monkeypatch.setattr(lock, "ANNOUNCE_S", 0.05)
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

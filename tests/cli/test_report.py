"""The verbs that show a log as a page, and follow it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loopwright.records import Store
from tests.cli.conftest import Cli
from tests.unit.inspection.report_logs import SCRIPT, made_up, trial


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return made_up(tmp_path / "log.jsonl", 30, ("matmul", "conv2d"))


# -- report ----------------------------------------------------------------------------------------


def test_report_writes_one_file(cli: Cli, log: Path) -> None:
    ran = cli("report", "log.jsonl", "-o", "page.html")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("wrote page.html (")
    assert ran.out.endswith("): 62 records, 2 tasks\n")
    assert sorted(os.listdir()) == ["log.jsonl", "page.html"]
    text = Path("page.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "matmul(256, 256)" in text


def test_report_has_a_name_by_itself(cli: Cli, log: Path) -> None:
    assert cli("report", "log.jsonl", "--task", "conv").out.endswith(": 31 records, 1 task\n")
    assert Path("log.html").exists()
    assert "matmul" not in Path("log.html").read_text(encoding="utf-8")


def test_report_of_a_real_run(cli: Cli, tuned: Path) -> None:
    ran = cli("report", str(tuned), "-o", "page.html")
    assert ran.code == 0, ran.err
    text = Path("page.html").read_text(encoding="utf-8")
    assert "GFLOP/s" in text
    assert "operations a byte of its arguments" in text


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["none.jsonl"], 1, "no log at 'none.jsonl'; tune first, or check the path"),
        (["log.jsonl", "none.jsonl"], 1, "no log at 'none.jsonl'; tune first, or check the path"),
        ([".", "-o", "x.html"], 1, "'.' is a directory; name a log"),
        (["log.jsonl", "-o", "log.jsonl"], 2, "-o log.jsonl: that is the log itself"),
        (["log.jsonl", "-o", "."], 1, "cannot write '.': it is a directory; name a file"),
        (["log.jsonl", "-o", "no/x.html"], 1, "cannot write 'no/x.html': No such file"),
        (["log.jsonl", "--task", "pool"], 1, "none of the 62 records is of a task that contains"),
        (["empty.jsonl"], 1, "empty.jsonl: no record to report; tune first, or name a log"),
        (["picture.png"], 1, "picture.png: no record to report"),
        ([], 2, "Missing argument 'LOG'"),
    ],
)
def test_report_refuses(cli: Cli, log: Path, words: list[str], code: int, said: str) -> None:
    Path("empty.jsonl").touch()
    Path("picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    ran = cli("report", *words)
    assert ran.code == code
    assert said in ran.err.splitlines()[-1]
    assert not list(Path().glob("*.html"))
    assert not list(Path().glob(".*.partial"))


def test_a_page_that_exists_is_replaced_whole(cli: Cli, log: Path) -> None:
    Path("page.html").write_text("old")
    os.chmod("page.html", 0o644)
    assert cli("report", "log.jsonl", "-o", "page.html").code == 0
    assert Path("page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert Path("page.html").stat().st_mode & 0o777 == 0o666 & ~os.umask(os.umask(0o22))


# -- watch -----------------------------------------------------------------------------------------


def test_watch_once(cli: Cli, log: Path) -> None:
    ran = cli("watch", "log.jsonl", "--once")
    assert (ran.code, ran.err) == (0, "")
    (line,) = ran.out.splitlines()
    assert line.startswith("52 of 200 trials; conv2d(256, 256): best ")
    assert "failed: 8 x RUN_TIMEOUT; playoff of trial " in line
    assert os.listdir() == ["log.jsonl"]  # no index, no lock


def test_watch_waits_for_a_log(cli: Cli) -> None:
    ran = cli("watch", "later.jsonl", "--once")
    assert ran.code == 0
    assert ran.out == "waiting for later.jsonl: there is no such log yet\n"


def test_watch_of_no_log(cli: Cli, tmp_path: Path) -> None:
    assert cli("watch", ".", "--once").error.endswith("'.' is no regular file; name a log")
    Path("picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert "2 lines are not understood" in cli("watch", "picture.png", "--once").out
    assert cli("watch", "x.jsonl", "--every", "0").code == 2


def test_watch_prints_what_is_harmless(cli: Cli, tmp_path: Path) -> None:
    with Store(tmp_path / "log.jsonl") as store:
        store.append(trial(6, op=f"\x1b[31m{SCRIPT}", error={"kind": "\x07", "text": "\x1b[2J"}))
    ran = cli("watch", "log.jsonl", "--once")  # `cli` asserts that no control code is printed
    assert r"\x1b[31m</script>" in ran.out


def follow(path: Path, terminal: bool) -> tuple[subprocess.Popen[bytes], int]:
    """The verb in a process of its own; returns it and where its output can be read."""
    reader, writer = pty.openpty() if terminal else os.pipe()
    # A shell that starts the tests in the background leaves Ctrl-C ignored in all that they start.
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from loopwright.cli import main; sys.exit(main())"
    )
    words = [sys.executable, "-c", program, "watch", str(path), "--every", "0.2"]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    process = subprocess.Popen(words, stdout=writer, stderr=subprocess.PIPE, env=environment)
    os.close(writer)
    return process, reader


def read_until(reader: int, text: bytes) -> bytes:
    found, end = b"", time.monotonic() + 60
    while text not in found:
        assert time.monotonic() < end, found
        found += os.read(reader, 4096)
    return found


@pytest.mark.parametrize("terminal", [False, True])
def test_watch_follows_a_run_and_ends_by_ctrl_c(log: Path, terminal: bool) -> None:
    process, reader = follow(log, terminal)
    try:
        read_until(reader, b"playoff of trial")
        with Store(log) as store:
            store.append(trial(30, "conv2d", ts=2e9))
            read_until(reader, b"trial 30: ")
        log.unlink()
        read_until(reader, b"there is no such log yet")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
        os.close(reader)
    assert (process.returncode, said.strip()) == (130, b"interrupted")


# -- dashboard -------------------------------------------------------------------------------------


def test_dashboard_says_what_is_not_installed(
    cli: Cli, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    error = cli("dashboard", "log.jsonl").error
    assert "the dashboard needs Starlette and uvicorn" in error
    assert "pip install 'loopwright[dashboard]'; `loopwright report` makes a page" in error


def test_dashboard_refuses(cli: Cli) -> None:
    assert cli("dashboard").code == 2
    assert "is not in the range" in cli("dashboard", "x.jsonl", "--port", "70000").error

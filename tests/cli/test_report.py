"""The verbs that show a log as a page, and follow it."""

from __future__ import annotations

import errno
import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from loopwright.cli import watch
from loopwright.extras import install
from loopwright.inspection.watch import Watcher, writers_of
from loopwright.records import Store
from loopwright.records.follow import Follower
from tests.cli.conftest import Cli
from tests.unit.inspection.report_logs import SCRIPT, made_up, trial, write


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
        (["none.jsonl"], 2, "no log at 'none.jsonl'; tune first, or check the path"),
        (["log.jsonl", "none.jsonl"], 2, "no log at 'none.jsonl'; tune first, or check the path"),
        ([".", "-o", "x.html"], 1, "'.' is a directory; name a log"),
        (["log.jsonl", "-o", "log.jsonl"], 2, "-o log.jsonl: that is the log itself"),
        (["log.jsonl", "-o", ""], 1, "cannot write .: it is a folder; name a file"),
        (["log.jsonl", "-o", "."], 1, "cannot write .: it is a folder; name a file"),
        (["log.jsonl", "-o", "no/x.html"], 1, "there is no folder 'no'; make it first"),
        (["log.jsonl", "-o", "notes.txt"], 2, "notes.txt: a file is there that is not a report"),
        (["log.jsonl", "-o", "pipe"], 1, "cannot write pipe: it is a device, pipe or socket"),
        (["log.jsonl", "--task", "pool"], 1, "none of the 62 records is of a task that contains"),
        (["empty.jsonl"], 1, "'empty.jsonl' is empty; tune into it: loopwright tune"),
        (["begun.jsonl"], 1, "begun.jsonl: no record to report; tune first, or name a log"),
        (["picture.png"], 1, "'picture.png' is no log (2 lines skipped, the first is line 1"),
        (["list.json"], 1, "'list.json' is no log (1 line skipped, the first is line 1"),
        (["later.jsonl"], 1, "'later.jsonl' was written by a newer loopwright"),
        (
            ["log.jsonl", "notes.txt"],
            1,
            "'notes.txt' is no log (1 line skipped, the first is line 1",
        ),
        ([], 2, "Missing argument 'LOG'"),
    ],
)
def test_report_refuses(cli: Cli, log: Path, words: list[str], code: int, said: str) -> None:
    no_logs()
    os.mkfifo("pipe")
    ran = cli("report", *words)
    assert ran.code == code
    assert said in ran.error
    assert Path("notes.txt").read_text() == "my notes\n"
    assert Path("pipe").is_fifo()  # as a device it would be replaced by a page
    assert not list(Path().glob("*.html"))
    assert not list(Path().glob(".*.partial"))


def no_logs() -> None:
    """Files that are no logs, or hold nothing to report."""
    Path("empty.jsonl").touch()
    Path("notes.txt").write_text("my notes\n")
    Path("list.json").write_text("[1, 2]\n")
    Path("later.jsonl").write_text('{"v": 99}\n')
    Path("picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    write(Path("begun.jsonl"), [])


def test_a_page_that_exists_is_replaced_whole(cli: Cli, log: Path) -> None:
    assert cli("report", "log.jsonl", "--task", "conv", "-o", "page.html").code == 0
    os.chmod("page.html", 0o644)
    Path("link.html").symlink_to("page.html")
    assert "matmul" not in Path("page.html").read_text(encoding="utf-8")
    assert cli("report", "log.jsonl", "-o", "link.html").code == 0
    assert "matmul" in Path("page.html").read_text(encoding="utf-8")
    assert Path("link.html").is_symlink()
    assert Path("page.html").stat().st_mode & 0o777 == 0o666 & ~os.umask(os.umask(0o22))


def test_a_place_that_cannot_be_written(
    cli: Cli, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    error = cli("report", "log.jsonl", "-o", "page.html").error
    assert error == "error: cannot write page.html: Read-only file system"


def test_a_browser_that_cannot_be_started_is_said(
    cli: Cli, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("click.launch", lambda path: 1)
    ran = cli("report", "log.jsonl", "-o", "page.html", "--open")
    assert (ran.code, ran.err) == (0, "no browser could be started; open page.html in one\n")


def test_names_of_files_are_harmless(cli: Cli, log: Path) -> None:
    name = "a\x1b[2J\nb<script>.jsonl"
    log.rename(name)
    ran = cli("report", name)
    (line,) = ran.out.splitlines()
    assert line.startswith(r"wrote a\x1b[2J\nb<script>.html (")
    page = Path("a\x1b[2J\nb<script>.html").read_text(encoding="utf-8")
    assert "b<script>" not in page
    (line,) = cli("watch", name, "--once").out.splitlines()


# -- watch -----------------------------------------------------------------------------------------


def test_watch_once(cli: Cli, log: Path) -> None:
    ran = cli("watch", "log.jsonl", "--once")
    assert (ran.code, ran.err) == (0, "")
    (line,) = ran.out.splitlines()
    assert line.startswith("52 of 200 trials; conv2d(256, 256): best ")
    assert "failed: 8 x RUN_TIMEOUT; playoff of trial " in line
    assert os.listdir() == ["log.jsonl"]  # no lock


def test_watch_waits_for_a_log(tmp_path: Path) -> None:
    process, reader = follow(tmp_path / "later.jsonl", terminal=False)
    try:
        read_until(reader, b"later.jsonl: there is no such log yet\n")
        made_up(tmp_path / "later.jsonl", 8)
        read_until(reader, b"of 200 trials")
    finally:
        process.kill()
        process.communicate()
        os.close(reader)


#: What is no log and cannot become one, with what is said of it.
OTHERS = [
    (".", "'.' is a directory; name a log in it: begun.jsonl, empty.jsonl, later.jsonl"),
    ("pipe", "'pipe' is no regular file; name a log"),
    ("picture.png", "'picture.png' is no log (2 lines skipped, the first is line 1"),
    ("notes.txt", "'notes.txt' is no log (1 line skipped, the first is line 1"),
    ("list.json", "'list.json' is no log (1 line skipped, the first is line 1"),
    ("later.jsonl", "'later.jsonl' was written by a newer loopwright"),
]


@pytest.mark.parametrize(("name", "said"), OTHERS)
@pytest.mark.parametrize("words", [("watch",), ("watch", "--once"), ("dashboard",)])
def test_what_cannot_become_a_log_is_not_followed(
    cli: Cli, words: tuple[str, ...], name: str, said: str
) -> None:
    no_logs()
    os.mkfifo("pipe")
    ran = cli(*words, name)
    assert said in ran.error
    assert ran.code == 1


def test_watch_of_nothing_once(cli: Cli) -> None:
    no_logs()
    assert cli("watch", "none.jsonl", "--once").error.endswith(
        "no log at 'none.jsonl'; tune first, or check the path"
    )
    assert "'empty.jsonl' is empty; tune into it" in cli("watch", "empty.jsonl", "--once").error
    ran = cli("watch", "begun.jsonl", "--once")
    assert (ran.code, ran.out.partition(";")[0]) == (0, "0 of 200 trials")
    assert cli("watch", "x.jsonl", "--every", "0").code == 2


def test_watch_counts_what_it_does_not_understand(cli: Cli, log: Path) -> None:
    with log.open("ab") as file:
        file.write(b"\x89PNG\n")
    assert "; 1 line is not understood; " in cli("watch", "log.jsonl", "--once").out


def test_watch_prints_what_is_harmless(cli: Cli, tmp_path: Path) -> None:
    with Store(tmp_path / "log.jsonl") as store:
        odd = {"kind": "\x07\nx", "text": "\x1b[2J"}
        store.append(trial(6, op=f"\x1b[31m\n{SCRIPT}", error=odd))
    ran = cli("watch", "log.jsonl", "--once")  # `cli` asserts that no control code is printed
    (line,) = ran.out.splitlines()
    assert r"\x1b[31m\n</script>" in line
    assert r"1 x \x07\nx" in line


def test_watch_of_many_tasks_fits_the_terminal(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", [trial(n, f"op{n}") for n in range(30)])
    follower, watcher = Follower(log), Watcher(log)
    watcher.take(follower.look())
    panel = watch._panel(watcher.status(), writers_of(log), 80, 24)
    console = Console(width=80, height=24, file=io.StringIO())
    console.print(panel)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) <= 24
    assert any(line.startswith("op29(") for line in lines)  # that was measured last
    assert re.search(r"^\.\.\. \d+ more", lines[-1])
    assert any(re.match(r"failed\s+4 x RUN_TIMEOUT$", line.rstrip()) for line in lines)


def follow(path: Path, terminal: bool) -> tuple[subprocess.Popen[bytes], int]:
    """The verb in a process of its own; returns it and where its output can be read."""
    reader, writer = pty.openpty() if terminal else os.pipe()
    words = [sys.executable, "-m", "loopwright", "watch", str(path), "--every", "0.2"]
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


@pytest.mark.usefixtures("usual_signals")
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
    assert f"{install('dashboard')}; `loopwright report` makes a page" in error


def test_dashboard_refuses(cli: Cli) -> None:
    assert cli("dashboard").code == 2
    assert "is not in the range" in cli("dashboard", "x.jsonl", "--port", "70000").error
    assert "'http' is not a valid integer" in cli("dashboard", "x.jsonl", "--port", "http").error
    assert "is not in the range" in cli("dashboard", "x.jsonl", "--port", "-1").error


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "it takes more rights than you have; choose one above 1023, or --port 0"),
        (errno.EADDRINUSE, "it is in use; choose another one, or --port 0 for a free one"),
        (errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL)),
    ],
)
def test_a_port_that_cannot_be_had(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("socket.socket.bind", refuse)
    ran = cli("dashboard", "x.jsonl", "--port", "80")
    assert ran.error == f"error: cannot serve on port 80 of 127.0.0.1: {said}"
    assert ran.code == 1

"""What the tests of the command line share: running it, and a small tuned log."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from loopwright.cli import main

WORKLOAD = ("matmul", "M=32", "N=32", "K=32", "--threads", "1")
TRIALS = 6


class Ran(NamedTuple):
    """What one command line gave."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The error, which is one line."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: ")
        assert "Traceback" not in self.err
        return lines[0]


Cli = Callable[..., Ran]


@pytest.fixture(scope="session", autouse=True)
def _own_device_lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Do not wait for what else is timed on this machine: speeds are not asserted here."""
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("run"))
    yield
    if before is None:
        del os.environ["XDG_RUNTIME_DIR"]
    else:
        os.environ["XDG_RUNTIME_DIR"] = before


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Cli:
    """Run a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*argv: str) -> Ran:
        capsys.readouterr()
        code = main(argv)
        out, err = capsys.readouterr()
        assert not re.search(r"[\x00-\x08\x0b-\x1f]", out + err), "control codes without a terminal"
        return Ran(code, out, err)

    return run


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log in which ``WORKLOAD`` has been tuned; do not write to it."""
    path = tmp_path_factory.mktemp("tuned") / "log.jsonl"
    assert main(["tune", *WORKLOAD, "--trials", str(TRIALS), "--log", str(path)]) == 0
    return path

"""What the tests of the command line share: running it, and a small tuned log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from loopwright.cli import main
from loopwright.testing.tuner_contract import FakeMeasurer
from tests.measuring import quick_measuring

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


@pytest.fixture(scope="module", autouse=True)
def _quick_measuring() -> Iterator[None]:
    with quick_measuring():
        yield


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
    with quick_measuring():
        assert main(["tune", *WORKLOAD, "--trials", str(TRIALS), "--log", str(path)]) == 0
    return path


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuning builds and times nothing: each configuration takes a time that is made up."""
    monkeypatch.setattr("loopwright.tuner.run.loop.default_option", FakeMeasurer)
    monkeypatch.setattr("loopwright.cli.tune._numpy", lambda workload, stack: None)

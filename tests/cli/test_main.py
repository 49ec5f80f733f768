"""``python -m loopwright`` is the command line."""

from __future__ import annotations

import subprocess
import sys

from loopwright import __version__


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loopwright", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_module_runs_the_command_line() -> None:
    told = run("--version")
    assert told.returncode == 0
    assert told.stdout.split() == ["loopwright,", "version", __version__]


def test_exit_codes_pass() -> None:
    refused = run("no-such-verb")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: ")
    assert refused.stderr.count("\n") == 1

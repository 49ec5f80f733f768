from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loopwright.inspection import doctor
from loopwright.inspection.doctor import Diagnosis, Finding, State

ROOT = Path(__file__).parents[2]
WORST = Diagnosis(
    (
        Finding("CPUs", State.OK, "all 2 may be used, and a kernel uses so many threads"),
        Finding("noise floor", State.WARNING, "much " * 20, "it costs " * 12, "do this " * 12),
        Finding("lock folder", State.PROBLEM, "/tmp/\x1b[31mred belongs to another", "all", "rm"),
        Finding("turbo", State.UNKNOWN, "?"),
    )
)


@pytest.fixture
def found(monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda folder, measure: WORST)


@pytest.mark.usefixtures("found")
@pytest.mark.parametrize("columns", [80, 140])
def test_findings_fit_the_terminal_and_a_problem_fails(cli, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    ran = cli("doctor")
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= min(columns, 100)
    states = [line.split()[0] for line in lines if line[:1].isalpha()]
    assert states == ["ok", "warning", "problem", "unknown"]
    assert lines[-1] == "1 ok, 1 warning, 1 problem, 1 unknown"
    assert "\\x1b[31mred" in ran.out
    assert " costs: it costs" in ran.out
    assert " mend: do this" in ran.out


@pytest.mark.usefixtures("found")
def test_json_holds_the_same(cli):
    ran = cli("doctor", "--json")
    assert ran.code == 1
    data = json.loads(ran.out)
    assert [f["state"] for f in data["findings"]] == ["ok", "warning", "problem", "unknown"]
    assert data["healthy"] is False


def test_this_machine(cli):
    ran = cli("doctor", "--no-measure", "--json")
    data = json.loads(ran.out)
    assert ran.code == (0 if data["healthy"] else 1)
    checks = [f["check"] for f in data["findings"]]
    assert {"LLVM", "SMT", "ulimit", "log folder", "OpenCL"} <= set(checks)


def test_a_folder_that_is_not_there(cli):
    ran = cli("doctor", "none", "--no-measure")
    assert ran.code == 1
    assert "none is no folder" in " ".join(ran.out.split())


def test_all_else_is_told_where_there_is_no_compiler(tmp_path):
    """The findings about LLVM and the noise say so, and no other is left out."""
    line = "import sys; sys.modules['llvmlite'] = None; from loopwright.cli import main; "
    ran = subprocess.run(
        [sys.executable, "-c", line + "sys.exit(main(['doctor', '--json']))"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 1, ran.stderr
    found = {f["check"]: f for f in json.loads(ran.stdout)["findings"]}
    assert found["LLVM"]["state"] == "problem"
    assert found["noise floor"]["state"] == "unknown"
    assert "there is no compiler" in found["noise floor"]["found"]
    assert "log folder" in found

"""``python -m loopwright.autotvm.record``, with the options of AutoTVM's script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from loopwright.autotvm.record.__main__ import main

from loopwright import autotvm, records

TASK = autotvm.task.create("matmul", args=(16, 16, 16), target="llvm")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three results and a failure, in AutoTVM's form."""
    path = tmp_path / "collect.log"
    results = [
        autotvm.MeasureResult((0.003,), 0, 1.0, 1.0),
        autotvm.MeasureResult((0.001,), 0, 1.0, 2.0),
        autotvm.MeasureResult((RuntimeError("no"),), 4, 1.0, 3.0),
        autotvm.MeasureResult((0.002, 0.004), 0, 1.0, 4.0),
    ]
    configs = map(TASK.config_space.get, range(len(results)))
    inputs = [autotvm.MeasureInput(TASK.target, TASK, config) for config in configs]
    lines = map(autotvm.record.encode, inputs, results)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_records_are_read(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--mode", "read", "--i", str(log), "--begin", "1", "--end", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in lines[1::2]] == [
        "0.001 s",
        "failed: RUN_ERROR: the device reported an error (AutoTVM error 4; its text was not kept)",
    ]
    for line, index in zip(lines[::2], (1, 2), strict=True):
        assert line == f"llvm  {TASK}  {TASK.config_space.get(index)}"
    assert main(["--i", str(log)]) == 0
    assert "0.002, 0.004 s" in capsys.readouterr().out
    assert main(["--i", str(log), "--begin", "4", "--end", "2"]) == 0
    assert capsys.readouterr().out == ""


def test_nests_and_code_are_printed(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--i", str(log), "--end", "1", "--ir", "--code"]) == 0
    out = capsys.readouterr().out
    assert "def main(A: float32[16, 16]" in out
    assert "define i32 @main(" in out


def test_the_best_is_picked(log: Path, tmp_path: Path) -> None:
    for options, path in (
        ([], tmp_path / "collect.log.best.log"),
        (["--o", str(tmp_path / "best.log")], tmp_path / "best.log"),
    ):
        assert main(["--mode", "pick", "--i", str(log), *options]) == 0
        (inp, result), *_ = autotvm.record.load_from_file(path)
        assert (inp.config.index, result.costs) == (1, (0.001,))


def test_tasks_are_split(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--mode", "split", "--i", str(log)]) == 0
    (path,) = capsys.readouterr().out.splitlines()
    assert len(records.load(path)) == 4


def test_what_is_wrong_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for mode in ("read", "pick", "split"):
        assert main(["--mode", mode, "--i", str(tmp_path / "missing.log")]) == 1
        said = capsys.readouterr()
        assert said.err.startswith("error: ")
        assert said.err.count("\n") == 1


def test_it_runs_as_a_module_without_a_warning(log: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "loopwright.autotvm.record", "--i", str(log), "--end", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "0.003 s" in done.stdout

"""The tables say what was measured, and plainly whether the bars were reached."""

from __future__ import annotations

import io
import json
import stat
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.gpu import sanitizing
from benchmarks.gpu.__main__ import main
from benchmarks.gpu.cases import BY_NAME, COPY, PEAK
from benchmarks.gpu.folder import Folder, Purpose, begin
from benchmarks.gpu.journal import Line, opened
from benchmarks.gpu.peak import EXPECTED, peak_artifact
from benchmarks.gpu.peers import peers
from benchmarks.gpu.report import report, rows
from loopwright.target import Target
from tests.unit.benchmarks.gpu import kernels
from tests.unit.benchmarks.gpu.kernels import folder_of
from tests.unit.measure.device_kernels import needs_opencl


def turns(case: str, **sides: list[float]) -> Line:
    return {"what": "turns", "case": case, "sides": sides, "problems": {}, "notes": {}}


def folder_with(path: Path, *lines: Line, small: bool = False) -> Folder:
    begin(path, Purpose("cuda", "cuda -arch=sm_90", small, 0))
    with opened(path / "results.jsonl") as results:
        for line in lines:
            results.append(line)
    return Folder(path)


def test_bars_are_shares_of_speeds(tmp_path: Path) -> None:
    folder = folder_with(
        tmp_path,
        {"what": "session", "device": "a GPU", "at": 0.0},
        turns("matmul_4096_fp32", ours=[3e-3, 2e-3, 2.2e-3], library=[2e-3, 2e-3, 2e-3]),
        turns("conv2d_64_56", ours=[2.4e-3], library=[2e-3]),
        turns("softmax_1GiB", ours=[1e-3], copy=[0.95e-3], triton=[0.9e-3]),
    )
    found = {row["case"]: row for row in rows(folder, list(BY_NAME.values()))}
    product = found["matmul_4096_fp32"]
    ours = product["sides"]["ours"]
    assert ours["seconds"] == 2.2e-3
    assert ours["spread"] == pytest.approx(1e-3 / 2.2e-3)
    assert ours["speed"] == pytest.approx(2 * 4096**3 / 2.2e-3)
    verdicts = {
        (name, bar["side"]): (bar["verdict"], bar["reached"])
        for name, row in found.items()
        for bar in row["bars"]
    }
    assert verdicts["matmul_4096_fp32", "library"] == ("pass", pytest.approx(2 / 2.2))
    assert verdicts["conv2d_64_56", "library"] == ("MISS", pytest.approx(2 / 2.4))
    assert verdicts["softmax_1GiB", "copy"] == ("pass", pytest.approx(0.95))
    assert verdicts["softmax_1GiB", "triton"] == ("MISS", pytest.approx(0.9))
    assert verdicts["layer_norm_1GiB", "copy"] == ("not measured", None)
    assert verdicts["matmul_4096_fp16", PEAK] == ("not measured", None)
    assert COPY not in found
    text = io.StringIO()
    report(folder, list(BY_NAME.values()), Console(file=text, width=200))
    said = text.getvalue()
    assert "pass: 90.9% of library, bar 88%" in said
    assert "MISS: 83.3% of library, bar 88%" in said
    assert "not measured: of mma_peak, bar 75%" in said
    assert "kernels, a GPU" in said
    assert "mean nothing" not in said
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["kernels"][0]["sides"]["ours"]["seconds"] == 2.2e-3


def test_without_turns_our_best_stands_alone(tmp_path: Path) -> None:
    trial = {"what": "trial", "case": "softmax_1GiB", "text": ""}
    folder = folder_with(
        tmp_path,
        {**trial, "index": 1, "outcome": "ok", "checked": True, "times": [4e-3, 3e-3]},
        {**trial, "index": 2, "outcome": "ok", "checked": False, "times": [1e-3]},
        {**trial, "index": 3, "outcome": "wrong", "checked": True, "times": [1e-3]},
    )
    (row,) = rows(folder, [BY_NAME["softmax_1GiB"]])
    assert row["sides"]["ours"]["seconds"] == 3.5e-3
    assert [bar["verdict"] for bar in row["bars"]] == ["not measured", "not measured"]
    assert "measured alone" in row["notes"]["ours"]


def test_the_peak_counts_what_its_threads_do(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    line = turns("matmul_4096_fp16", ours=[1e-3], **{PEAK: [1e-3]})
    folder = folder_with(tmp_path, line)
    path = folder.artifact(BY_NAME[PEAK], 0)
    path.parent.mkdir(parents=True)
    artifact = peak_artifact(Target("cuda -arch=sm_90"))
    artifact.save(path)
    (threads,) = artifact.contents.function(artifact.entry).args[0].shape
    assert isinstance(threads, int)
    (row,) = rows(folder, [BY_NAME["matmul_4096_fp16"]])
    # Each thread ends with the sum of 16 tiles of 4 numbers, 16 of which each mma adds to each.
    started = sum(range(64))
    repeats = (EXPECTED - started) / (64 * 16)
    flop = threads / 32 * repeats * 16 * (2 * 16 * 8 * 16)
    assert row["sides"][PEAK]["speed"] == pytest.approx(flop / 1e-3)
    assert row["bars"][0]["reached"] == pytest.approx(2 * 4096**3 / flop)


def test_the_bars_are_those_that_were_set() -> None:
    assert BY_NAME["matmul_4096_fp32"].bars == {"library": 0.88}
    assert BY_NAME["conv2d_256_14"].bars == {"library": 0.88}
    assert BY_NAME["softmax_1GiB"].bars == {"copy": 0.90, "triton": 1.0}
    assert BY_NAME["matmul_4096_fp16"].bars == {PEAK: 0.75, "library": 0.45}
    assert all(BY_NAME[x].sizes(False)[0] >= 32 for x in ("conv2d_64_56", "conv2d_256_14"))
    for name in ("softmax_1GiB", "layer_norm_1GiB", COPY):
        m, n = BY_NAME[name].sizes(False)
        assert 4 * m * n >= 1e9


@pytest.mark.slow
@needs_opencl
def test_sides_take_turns_until_the_best_has_had_one(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {0: kernels.GOOD})
    softmax = BY_NAME["softmax_1GiB"]
    text = io.StringIO()
    assert main(["measure", "--from", str(tmp_path)]) == 0
    late = ["--minutes", "0"]
    assert main(["peers", "--from", str(tmp_path), "--task", "softmax_1GiB", *late]) == 3
    assert main(["peers", "--from", str(tmp_path), "--task", "softmax_1GiB"]) == 0
    folder = Folder(tmp_path)
    line = folder.turns(softmax)
    assert line is not None
    assert line["indices"] == {COPY: 0}
    assert len(line["sides"][COPY]) == 7
    assert peers(folder, [softmax], "opencl:0", minutes=0)  # it had its turns
    found = report(folder, [softmax], Console(file=text, width=200))
    assert found["kernels"][0]["sides"][COPY]["speed"] > 0
    assert "on PoCL, a device made of the CPU, the figures mean nothing" in text.getvalue()


SANITIZER = """#!/bin/sh
echo "$@" >> {log}
case "$*" in *racecheck*) exit {code};; esac
exit 0
"""


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (9, 9), (5, 1)])
def test_random_kernels_run_under_the_sanitizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: int
) -> None:
    log = tmp_path / "log"
    program = tmp_path / "compute-sanitizer"
    program.write_text(SANITIZER.format(log=log, code=code))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert main(["sanitize", "--count", "7", "--seed", "3"]) == expected
    lines = log.read_text().splitlines()
    assert [line.split()[1] for line in lines] == list(sanitizing.TOOLS)
    fuzz = "-m fuzzing.fuzz --kind threads --target cuda --count 7 --seed 3"
    assert all(line.endswith(fuzz) and "--error-exitcode 9" in line for line in lines)


def test_without_the_sanitizer_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["sanitize"]) == 2
    assert "compute-sanitizer is not on PATH" in capsys.readouterr().out


def test_errors_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--from", str(tmp_path / "nothing")]) == 1
    assert main(["build", "--out", str(tmp_path), "--device", "opencl", "--task", "gemm"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert said[0].startswith("error: ")
    assert said[1].startswith("error: unknown task 'gemm'; known: copy")

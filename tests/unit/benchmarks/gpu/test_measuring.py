"""Candidates are measured on a device, also where they are wrong, hang, or take it down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.gpu.folder import Folder
from benchmarks.gpu.measuring import Runner, measure
from benchmarks.gpu.messages import GpuTrial, GpuTrialRequest
from loopwright.errors import UsageError
from loopwright.runtime import cuda
from tests.unit.benchmarks.gpu import kernels
from tests.unit.benchmarks.gpu.kernels import COPY, folder_of
from tests.unit.measure.device_kernels import needs_opencl

ROOT = Path(__file__).resolve().parents[4]
DEVICE = "opencl:0"


def outcomes(folder: Folder) -> dict[int, str]:
    return {n: x["outcome"] for n, x in folder.trials(COPY).items()}


# The study is run by hand on a GPU; PoCL compiles each of its kernels for a second.
@pytest.mark.slow
@needs_opencl
def test_whatever_a_candidate_does_the_others_are_measured(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path,
        {
            0: kernels.WRONG,
            1: kernels.LAZY,
            2: kernels.WRITES_BEHIND,
            3: kernels.CRASHES,
            4: kernels.NO_CODE,
            5: kernels.GOOD,
        },
    )
    assert measure(folder, [COPY], DEVICE, minutes=5, seconds=60)
    assert outcomes(folder) == {
        0: "wrong", 1: "wrong", 2: "wrong", 3: "crashed", 4: "failed", 5: "ok",
    }  # fmt: skip
    texts = {n: x["text"] for n, x in folder.trials(COPY).items()}
    assert "1024 of 1024 elements are wrong" in texts[0]
    assert texts[1] == "1 of 1024 elements are not finite"
    assert "B" in texts[2]
    assert "wrong" not in texts[2]
    assert texts[5] == ""
    assert len(folder.trials(COPY)[5]["times"]) == 7
    assert folder.best(COPY) == 5
    assert len(folder.sessions) == 1


@needs_opencl
@pytest.mark.slow
def test_a_candidate_that_hangs_ends_with_its_process(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {0: kernels.HANGS, 1: kernels.GOOD})
    assert measure(folder, [COPY], DEVICE, minutes=5, seconds=4)
    assert outcomes(folder) == {0: "timeout", 1: "ok"}
    assert "no answer within 4 s" in folder.trials(COPY)[0]["text"]


# The study is run by hand on a GPU; PoCL compiles each of its kernels for a second.
@pytest.mark.slow
@needs_opencl
def test_the_clock_stops_it_and_the_next_call_goes_on(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {3: kernels.GOOD, 1: kernels.GOOD})
    assert not measure(folder, [COPY], DEVICE, minutes=0, seconds=20)
    assert outcomes(folder) == {}
    assert measure(folder, [COPY], DEVICE, minutes=5, seconds=20)
    assert list(outcomes(folder)) == [3, 1]
    lines = folder.results_path.read_bytes()
    # Torn by the death of the process: the candidate is measured again, no other one is.
    folder.results_path.write_bytes(lines[:-4])
    again = Folder(tmp_path)
    assert measure(again, [COPY], DEVICE, minutes=5, seconds=20)
    assert list(again.trials(COPY)) == [3, 1]
    assert again.results_path.read_bytes().startswith(lines[: lines[:-1].rfind(b"\n")])
    assert measure(again, [COPY], DEVICE, minutes=0, seconds=20)


@pytest.mark.slow
@needs_opencl
def test_a_process_that_somebody_kills_is_replaced(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {0: kernels.GOOD})
    request = GpuTrialRequest(path=str(folder.artifact(COPY, 0)), best=None, samples=2)
    with closing(Runner(folder, DEVICE)) as runner:
        for _ in range(2):
            reply = runner.ask(COPY, 0, request, 30)
            assert isinstance(reply, GpuTrial)
            assert (reply.problem, reply.checked, len(reply.times)) == ("", True, 2)
            assert runner.pid is not None
            os.kill(runner.pid, signal.SIGKILL)


@pytest.mark.slow
@needs_opencl
def test_neither_llvm_nor_the_learned_model_is_needed(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "folder", {0: kernels.GOOD})
    for name in ("llvmlite", "xgboost"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not on this machine')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "benchmarks.gpu", "measure", "--from", str(folder.path)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "the figures mean nothing" in done.stdout
    assert outcomes(Folder(folder.path)) == {0: "ok"}


@pytest.mark.skipif(cuda().exist, reason="a GPU is here")
def test_without_a_driver_it_says_so_at_once(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {0: kernels.GOOD})
    with pytest.raises(UsageError, match=r"cuda\(0\) cannot be used: "):
        measure(folder, [COPY], "cuda:0", minutes=1, seconds=1)
    assert not folder.results_path.exists()

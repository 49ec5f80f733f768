"""Candidates are proposed and built, also when the process that does it is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.gpu.build_role import GpuBuildRole, task_of
from benchmarks.gpu.building import build, figures
from benchmarks.gpu.cases import BY_NAME
from benchmarks.gpu.folder import Folder, Purpose, begin
from benchmarks.gpu.journal import opened, read_lines
from benchmarks.gpu.messages import GpuBuildRequest, GpuBuilt
from loopwright.runtime import Artifact
from loopwright.target import Target

ROOT = Path(__file__).resolve().parents[4]
SOFTMAX, PEAK = BY_NAME["softmax_1GiB"], BY_NAME["mma_peak"]
TARGET = "opencl -max-threads-per-block=256 -max-shared-memory-per-block=32768"


def folder_for(path: Path, target: str = TARGET, device: str = "opencl") -> Folder:
    return begin(path, Purpose(device, str(Target(target)), True, 0))


def build_all(folder: Folder, trials: int, *names: str, minutes: float = 5.0) -> bool:
    cases = [BY_NAME[name] for name in names or ("softmax_1GiB",)]
    return build(folder, cases, trials, minutes=minutes, jobs=1, seconds=60.0)


@pytest.mark.slow
def test_a_build_that_is_killed_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "killed"
    command = [
        sys.executable, "-m", "benchmarks.gpu", "build", "--out", str(path), "--small",
        "--device", "opencl", "--trials", "24", "--jobs", "1", "--task", "softmax_1GiB",
    ]  # fmt: skip
    plan = path / "plan.jsonl"
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None and len(read_lines(plan)[0]) < 5:
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    before = Folder(path)
    assert 3 <= len(before.candidates(SOFTMAX)) < 24
    plan.write_bytes(plan.read_bytes()[:-9])  # it died while it wrote the last line
    folder = begin(path, before.purpose)
    assert build_all(folder, 24)
    after = [x["index"] for x in Folder(path).plan if x["what"] == "candidate"]
    fresh = begin(tmp_path / "fresh", before.purpose)
    assert build_all(fresh, 24)
    assert after == [x["index"] for x in fresh.plan if x["what"] == "candidate"]
    assert len(set(after)) == 24
    for index in folder.built(SOFTMAX):
        assert Artifact.load(folder.artifact(SOFTMAX, index)).entry == "candidate"


def test_the_clock_stops_it_and_the_next_call_goes_on(tmp_path: Path) -> None:
    folder = folder_for(tmp_path)
    assert not build_all(folder, 3, minutes=0.0)
    assert not folder.candidates(SOFTMAX)
    assert build_all(folder, 3)
    assert len(folder.candidates(SOFTMAX)) == 3
    lines = len(folder.plan)
    assert build_all(folder, 3)
    assert len(folder.plan) == lines


@pytest.mark.slow
def test_what_exceeds_a_limit_is_refused_before_it_is_compiled(tmp_path: Path) -> None:
    role, target = GpuBuildRole(), str(Target(TARGET))
    size = len(task_of("matmul_4096_fp32", False, target).config_space)
    replies = []
    for index in random.Random(0).sample(range(size), 12):
        path = tmp_path / f"{index}.o"
        reply = role.answer(
            GpuBuildRequest(
                case="matmul_4096_fp32", small=False, target=target, index=index, path=str(path)
            )
        )
        assert isinstance(reply, GpuBuilt)
        assert path.exists() == (reply.outcome == "built")
        replies.append(reply)
    refused = [reply for reply in replies if reply.outcome == "refused"]
    assert refused
    assert all("max_" in reply.text for reply in refused)
    assert all(reply.compile_s == 0 for reply in refused)


def test_cubins_are_made_without_a_gpu_and_their_resources_recorded(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    folder = folder_for(tmp_path, "cuda -arch=sm_90", "cuda")
    assert build_all(folder, 1, "mma_peak", "matmul_4096_fp16")
    half = BY_NAME["matmul_4096_fp16"]
    assert folder.built(PEAK) == [0]
    (peak,) = folder.candidates(PEAK)[0]["resources"].values()
    assert peak["registers"] > 64  # all accumulators are there: none was found to equal another
    assert peak["spill_bytes"] == 0
    for index in folder.built(half):
        (taken,) = folder.candidates(half)[index]["resources"].values()
        assert taken["registers"] > 0
    found = figures(folder, half)
    assert found["built"] == 1
    assert found["registers_of_best"] > 0
    assert found["spills"] == 0


# A study that is run by hand.
@pytest.mark.slow
def test_what_was_measured_is_learnt_from(tmp_path: Path) -> None:
    folder = folder_for(tmp_path)
    assert build_all(folder, 4)
    with opened(folder.results_path) as results:
        for n, index in enumerate(folder.built(SOFTMAX)):
            trial = {"what": "trial", "case": SOFTMAX.name, "index": index, "text": ""}
            outcome = "ok" if n else "wrong"
            results.append({**trial, "outcome": outcome, "times": [1e-3 * n], "checked": True})
    folder = Folder(tmp_path)
    assert build_all(folder, 7)
    first, second = folder.rounds(SOFTMAX)
    assert (first["learnt_from"], second["learnt_from"]) == (0, 4)
    assert len(second["indices"]) == 3
    assert not set(first["indices"]) & set(second["indices"])
    assert folder.best(SOFTMAX) == first["indices"][1]


def test_figures_are_those_of_the_plan(tmp_path: Path) -> None:
    folder = folder_for(tmp_path)
    taken = {"registers": 40, "spill_bytes": 8}
    plan = [
        {"what": "round", "indices": [1, 2, 3, 4], "predicted": [-1.0, -0.5, -0.1, -2.0],
         "looked_at": 10, "pruned": {"registers": 4}},
        {"what": "candidate", "index": 1, "outcome": "built", "compile_s": 2.0,
         "resources": {"k": {"registers": 30, "spill_bytes": 0}}},
        {"what": "candidate", "index": 2, "outcome": "built", "compile_s": 4.0,
         "resources": {"k": taken, "l": {"registers": 20, "spill_bytes": None}}},
        {"what": "candidate", "index": 3, "outcome": "refused", "compile_s": 0.0, "resources": {}},
        {"what": "candidate", "index": 4, "outcome": "timeout"},
    ]  # fmt: skip
    with opened(folder.plan_path) as journal:
        for line in plan:
            journal.append({"case": SOFTMAX.name, **line})
    found = figures(Folder(tmp_path), SOFTMAX)
    assert json.loads(json.dumps(found)) == {
        "case": SOFTMAX.name, "proposed": 4, "done": 4, "pruned": 0.4, "refused": 0.25,
        "illegal": 0.0, "failed": 0.25, "built": 2, "compile_s": 3.0,
        "compile_spread": [2.2, 3.8], "spills": 0.5, "registers_of_best": 40, "measured": 0,
        "good": 0,
    }  # fmt: skip

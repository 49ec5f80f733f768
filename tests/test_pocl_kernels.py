"""The count of kernels that PoCL builds, which `.ci/run` limits, sees what PoCL builds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pocl_kernels import MOST, kernels_in, main, needs_pocl

RUN = (Path(__file__).parents[1] / ".ci" / "run").read_text(encoding="utf-8")

#: Two kernels in one program; the first runs with blocks of two sizes.
SCRIPT = """
import numpy as np
import loopwright as lw
from loopwright.runtime.devices.interface import DeviceAPI

source = '''
__kernel void first(__global float *a) { a[get_global_id(0)] += 1.0f; }
__kernel void second(__global float *a) { a[get_global_id(0)] *= 2.0f; }
'''
device = lw.opencl()
a = lw.nd.array(np.ones(8, "float32"), device)
program = device.api.load(device.device_id, source.encode(), ["first", "second"])
for name, block in (("first", 4), ("first", 8), ("second", 8)):
    program.launch(name, (8 // block, 1, 1), (block, 1, 1), [a.memory])
device.sync()
assert a.numpy().tolist() == [6.0] * 8
"""


@needs_pocl
def test_what_pocl_builds_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = {**os.environ, "POCL_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", SCRIPT], env=environ, cwd=tmp_path, check=True)
    assert kernels_in(tmp_path) == 2
    assert main([str(tmp_path), "--most", "2"]) == 0
    assert main([str(tmp_path), "--most", "1"]) == 1
    told = capsys.readouterr()
    assert "PoCL built 2 kernels; 1 are allowed" in told.out
    assert "let tests share programs" in told.err


def test_all_steps_of_ci_that_run_kernels_are_counted() -> None:
    steps = [line.partition("step ")[2] for line in RUN.splitlines() if line.startswith("step ")]
    assert steps[-1] == '.venv/bin/python -m tests.pocl_kernels "$POCL_CACHE_DIR"'
    assert RUN.index('export POCL_CACHE_DIR="$scratch/pocl"') < RUN.index("\nstep ")
    assert MOST == 100

"""Random kernels on devices: what they compute is what NumPy does, and their arrays' edges hold.

On an OpenCL device they run; for CUDA they become cubins, which run where a GPU is. ``make
fuzz-devices`` takes many more, and makes a failure smaller.
"""

from __future__ import annotations

import importlib.util

import pytest

import loopwright as lw
from fuzzing import fuzz
from fuzzing.differential import Checker
from tests.covering import examples

#: How many random schedules become cubins, and how many run on an OpenCL device: PoCL takes about a
#: second for a kernel, of which a schedule has two or three (tests/pocl_kernels.py counts them).
CUBINS, RUN = examples(3), 3
#: What random schedules may exceed, since nothing is said of how fast they are.
WIDE = "-max-vthread=1000 -max-vector-bytes=512"


@pytest.mark.skipif(not lw.opencl().exist, reason=lw.opencl().why_absent() or "there is one")
@pytest.mark.timeout(240)
def test_on_an_opencl_device(fresh_checker: Checker) -> None:
    run = fuzz.Fuzz([f"opencl {WIDE}"], shrink_seconds=0, checker=fresh_checker)
    for seed in range(RUN):
        run.run(seed, "threads")
    assert not run.failures, run.summary()
    assert run.runs[f"opencl {WIDE}"] > RUN // 2, run.summary()


@pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None, reason='pip install "loopwright[cuda]"'
)
def test_as_cubins(fresh_checker: Checker) -> None:
    run = fuzz.Fuzz([f"cuda -arch=sm_80 {WIDE}"], shrink_seconds=0, checker=fresh_checker)
    for seed in range(100, 100 + CUBINS):
        run.run(seed, "threads")
    assert not run.failures, run.summary()
    made = sum(n for name, n in run.runs.items() if name.startswith("cuda"))
    assert made > CUBINS // 2, run.summary()

"""The OpenCL target: the text of kernels, and what they compute on a device that is here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright.codegen.backends import LoweredProgram, compile_program
from loopwright.lowering import lower
from loopwright.target import Target
from tests.opencl_runner import run_opencl, why_not
from tests.unit.lowering import gpu_programs

needs_opencl = pytest.mark.skipif(bool(why_not()), reason=why_not() or "an OpenCL device is here")
OPENCL = Target("opencl")


def code_of(case: Any, name: str = "main") -> Any:
    program = LoweredProgram(lower(case.s, case.args, name), case.s)
    return compile_program(program, OPENCL)


def run(case: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What a case computes on the device, and what it should."""
    rng = np.random.default_rng(1)
    count = len(case.args) - 1
    inputs = [rng.integers(-4, 5, t.shape).astype("float32") for t in case.args[:count]]
    out = np.full(case.args[-1].shape, np.nan, case.args[-1].dtype)
    got = run_opencl(code_of(case).objects, [*inputs, out])
    return got[-1], case.reference(*inputs)


@needs_opencl
@pytest.mark.parametrize("name", ["tiled_matmul", "shared_stage", "row_sum", "softmax"])
def test_kernels_compute_what_numpy_does(name: str) -> None:
    got, want = run(getattr(gpu_programs, name)())
    np.testing.assert_allclose(got, want, rtol=1e-6)


@needs_opencl
def test_a_pipeline_in_dynamic_shared_memory() -> None:
    """OpenCL has one kind of local memory, for both scopes of a block's memory."""
    got, want = run(gpu_programs.tiled_matmul(scope="shared.dyn", stages=3))
    np.testing.assert_allclose(got, want, rtol=1e-6)

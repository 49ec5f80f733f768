"""Kernels as OpenCL C that behave and misbehave on a device, for a runner process.

All compute (or ought to compute) B = A + 1 over `N` float32.
"""

from __future__ import annotations

from typing import Any

import pytest

from loopwright.runtime import Artifact
from loopwright.runtime.artifacts.device_code import DeviceCode, LaunchSpec
from tests.opencl_runner import why_not
from tests.unit.measure.kernels import N

needs_opencl = pytest.mark.skipif(bool(why_not()), reason=why_not() or "an OpenCL device is here")

_KERNEL = """
__kernel void add_one(__global float *A, __global float *B%s) {
  const int i = (int)get_global_id(0);
  %s
}
"""
GOOD = "B[i] = A[i] + 1.0f;"
WRONG = "B[i] = A[i] + 2.0f;"
SPOILS_ITS_INPUT = "B[i] = A[i] + 1.0f; A[i] = 0.0f;"
WRITES_BEHIND = f"B[i] = A[i] + 1.0f; if (i == 0) B[{N}] = 1.0f;"
WRITES_BEFORE = "B[i] = A[i] + 1.0f; if (i == 0) B[-1] = 1.0f;"
ADDS_TO_ITS_OUTPUT = "if (B[i] != B[i]) B[i] = A[i] + 1.0f;"
CRASHES = "*(volatile __global int *)(8l) = i; B[i] = A[i] + 1.0f;"
HANGS = "while (*(volatile __global float *)A != 12345.0f) B[i] = A[i];"
#: Only when its first input has a given value, which it has in a check alone.
CRASHES_WHERE = "if (A[0] == %sf && i == 0) *(volatile __global int *)(8l) = i; B[i] = A[i] + 1.0f;"
NO_CODE = "B[i] = A[i] + ;"
#: With a temporary buffer T: right only where fresh memory holds no NaN, and one float too far.
READS_UNWRITTEN = "if (T[i] == T[i]) B[i] = A[i] + 1.0f;"
WRITES_BEHIND_TEMPORARY = f"T[i] = A[i] + 1.0f; B[i] = T[i]; if (i == 0) T[{N}] = 1.0f;"


def _array(name: str, output: bool = False) -> dict[str, Any]:
    return {"name": name, "shape": [N], "dtype": "float32", "output": output}


def built(
    statement: str, block: int = 16, grid: int = N // 16, temporary: bool = False
) -> Artifact:
    """The artifact of a kernel, which may have a temporary buffer T of `N` float32."""
    takes = (("parameter", 0), ("parameter", 1), *((("buffer", 0),) if temporary else ()))
    launch = LaunchSpec("add_one", (grid, 1, 1), (block, 1, 1), takes)
    text = _KERNEL % (", __global float *T" if temporary else "", statement)
    code = DeviceCode(text.encode(), (launch,), (4 * N,) if temporary else ())
    function: dict[str, Any] = {
        "name": "kernel",
        "args": [_array("A"), _array("B", output=True)],
        "workspace_bytes": 0,
        "parallel_workspace_bytes": 0,
        "uses_pool": False,
    }
    manifest = {
        "format": 1, "kind": "opencl-source", "entry": "kernel", "triple": "", "cpu": "",
        "features": "", "num_threads": 1, "functions": [function], "loopwright": "0",
        "llvmlite": "0",
    }  # fmt: skip
    return Artifact(manifest, code.to_bytes())

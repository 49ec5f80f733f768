"""Kernels of the case ``copy`` as OpenCL C that behave and misbehave, in a folder of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.gpu.cases import BY_NAME
from benchmarks.gpu.folder import Folder, Purpose, begin
from benchmarks.gpu.journal import opened
from loopwright.runtime import OPENCL_SOURCE, Artifact
from loopwright.runtime.artifacts.device_code import DeviceCode, LaunchSpec
from loopwright.runtime.artifacts.manifest import ArgSpec, FunctionSpec, Manifest

COPY = BY_NAME["copy"]
_SIZE = COPY.small[0] * COPY.small[1]
_BLOCK = 16
_TEXT = """
__kernel void copy(__global float *A, __global float *B) {
  const int i = (int)get_global_id(0);
  %s
}
"""
GOOD = "B[i] = A[i];"
WRONG = "B[i] = A[i] + 1.0f;"
LAZY = "if (i != 77) B[i] = A[i];"
WRITES_BEHIND = f"B[i] = A[i]; if (i == 0) B[{_SIZE}] = 1.0f;"
CRASHES = "*(volatile __global int *)(8l) = i; B[i] = A[i];"
HANGS = "while (*(volatile __global float *)A != 12345.0f) B[i] = A[i];"
NO_CODE = "B[i] = A[i] + ;"


def _artifact(statement: str) -> Artifact:
    launch = LaunchSpec(
        "copy", (_SIZE // _BLOCK, 1, 1), (_BLOCK, 1, 1), (("parameter", 0), ("parameter", 1))
    )
    code = DeviceCode((_TEXT % statement).encode(), (launch,))
    args = tuple(ArgSpec(name, COPY.small, "float32", name == "B") for name in "AB")
    spec = FunctionSpec("candidate", args)
    manifest = Manifest(OPENCL_SOURCE.name, "candidate", "", "", "", 1, (spec,), format=1)
    return Artifact(manifest.to_json(), code.to_bytes())


def folder_of(path: Path, statements: Mapping[int, str]) -> Folder:
    """A folder in which these candidates of ``copy`` are built, by index."""
    folder = begin(path, Purpose("opencl", "opencl", True, 0))
    line = {"case": COPY.name}
    with opened(folder.plan_path) as plan:
        indices = list(statements)
        found = {"indices": indices, "predicted": [0.0] * len(indices)}
        plan.append({"what": "round", **line, **found, "looked_at": 0, "pruned": {}})
        for index, statement in statements.items():
            target = folder.artifact(COPY, index)
            target.parent.mkdir(parents=True, exist_ok=True)
            _artifact(statement).save(target)
            built = {"index": index, "outcome": "built", "compile_s": 0.0, "resources": {}}
            plan.append({"what": "candidate", **line, **built})
    return Folder(path)

"""The artifact kinds of programs for devices: each holds a `DeviceCode`."""

from __future__ import annotations

from loopwright.runtime.artifacts.kinds import ArtifactKind

OPENCL_SOURCE = ArtifactKind("opencl-source", "opencl", "clprog", "program", device="opencl")
CUDA_CUBIN = ArtifactKind("cuda-cubin", "cuda", "cuprog", "program", device="cuda")

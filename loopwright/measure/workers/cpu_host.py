"""`CpuHost`: the CPU as the processor of a runner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright import runtime
from loopwright.measure.workers.check_memory import PagedCheckMemory
from loopwright.measure.workers.cpu_kernels import (
    CpuKernel,
    GuardedHostMemory,
    HostMemory,
    on_host,
)
from loopwright.measure.workers.kernel_host import ArgumentMemory, CheckMemory, KernelHost
from loopwright.runtime import Arg
from loopwright.runtime.kernels import timer


class CpuHost(KernelHost):
    """The CPU; pool and timing loop are compiled on creation, which no candidate pays for."""

    device_type = "cpu"

    def __init__(self) -> None:
        with runtime.pinned():
            timer.flush(np.zeros(1))

    def memory(self, args: Sequence[Arg]) -> HostMemory:
        return GuardedHostMemory(args)

    def check_memory(self, args: Sequence[Arg], workspace_bytes: int) -> CheckMemory:
        return PagedCheckMemory(args, workspace_bytes)

    def load(self, artifact: runtime.Artifact, memory: ArgumentMemory) -> CpuKernel:
        return CpuKernel(artifact, on_host(memory))

    def probe(self) -> None:
        """Do nothing: a CPU that runs this is well."""

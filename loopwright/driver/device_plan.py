"""A split function as the plan of a call, which the runtime runs: expressions become formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loopwright.codegen.gpu.split import Kernel, SplitProgram
from loopwright.driver.size_manifest import SizeManifest
from loopwright.ir.expr import Dim
from loopwright.runtime.artifacts.device_code import (
    ArgumentSource,
    CallPlan,
    DeviceCode,
    ExtentFormulas,
    KernelResources,
    LaunchSpec,
)
from loopwright.runtime.artifacts.manifest import SizeFormula


def device_code(
    program: SplitProgram,
    image: bytes,
    shared_bytes: Mapping[str, int] | None = None,
    resources: Mapping[str, KernelResources] | None = None,
    arch: str = "",
    parts: Sequence[SplitProgram] = (),
) -> DeviceCode:
    """The code of a function for a device.

    ``image`` has its kernels, those of its ``parts`` included, as source text or machine code of
    ``arch``; ``shared_bytes`` is shared memory by kernel, beyond what the kernel declares.
    """
    shared = shared_bytes or {}
    whole = _call_plan(program, shared)
    plans = {part.func.name: _call_plan(part, shared) for part in parts}
    return DeviceCode(image, whole.launches, whole.buffers, resources or {}, arch, plans)


def _call_plan(program: SplitProgram, shared: Mapping[str, int]) -> CallPlan:
    plan = _Plan(program)
    launches = tuple(plan.launch(k, shared.get(k.name, 0)) for k in program.kernels)
    buffers = tuple(plan.sizes.formula(program.buffer_bytes(b)) for b in program.buffers)
    return CallPlan(launches, buffers)


class _Plan:
    """Numbers the arguments of one function's kernels."""

    def __init__(self, program: SplitProgram) -> None:
        self.program = program
        self.sizes = SizeManifest(program.func.sizes)

    def launch(self, k: Kernel, shared_bytes: int) -> LaunchSpec:
        f, buffers = self.program.func, self.program.buffers
        arguments: list[ArgumentSource] = [
            ("parameter", f.params.index(b)) if b in f.params else ("buffer", buffers.index(b))
            for b in k.parameters
        ]
        sizes: list[ArgumentSource] = [
            ("size", n) for n, v in enumerate(f.sizes) if any(v is w for w in k.sizes)
        ]
        grid, block = self._extents(k, "blockIdx"), self._extents(k, "threadIdx")
        return LaunchSpec(k.name, grid, block, (*arguments, *sizes), shared_bytes)

    def _extents(self, k: Kernel, which: str) -> ExtentFormulas:
        x, y, z = (self._formula(n) for n in k.extents(which))
        return x, y, z

    def _formula(self, n: Dim) -> SizeFormula:
        return self.sizes.formula(self.program.extent(n))

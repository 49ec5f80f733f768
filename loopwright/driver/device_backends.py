"""Backends of devices: a lowered function becomes kernels, and the plan of their launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from loopwright.codegen import Code, CodePart, SourceText
from loopwright.codegen.gpu import nvrtc
from loopwright.codegen.gpu.cuda import write_cuda
from loopwright.codegen.gpu.hip import write_hip
from loopwright.codegen.gpu.opencl import write_opencl
from loopwright.codegen.gpu.split import Kernel, SplitProgram, split_parts
from loopwright.driver.backends import Backend, LoweredProgram
from loopwright.driver.device_plan import device_code
from loopwright.errors import BuildError
from loopwright.lowering.gpu_limits import GpuLimits, limits_of
from loopwright.runtime.artifacts.device_code import KernelResources
from loopwright.runtime.artifacts.kinds import CUDA_CUBIN, OPENCL_SOURCE
from loopwright.target import KINDS, Target


def target_limits(target: Target) -> GpuLimits:
    return limits_of(target.options)


def compile_opencl(program: LoweredProgram, target: Target) -> Code:
    """The source of a function's kernels, with the launches that a call makes."""
    split, parts = split_parts(program.func, "opencl")
    text = write_opencl(split)
    code = device_code(split, text.encode(), parts=parts)
    return Code(code.to_bytes(), {"cl": text}, parts=_described(parts))


def _described(parts: Sequence[SplitProgram]) -> tuple[CodePart, ...]:
    """The parts of a function, which take no workspace of the host."""
    return tuple(CodePart(part.func) for part in parts)


def compile_cuda(program: LoweredProgram, target: Target) -> Code:
    """The machine code of a function's kernels, with the launches that a call makes."""
    options = target.options
    arch, fast_math = options["arch"], options["fast_math"]
    split, parts = split_parts(program.func, "cuda")
    source = write_cuda(split, fast_math)
    name = program.func.name
    made = nvrtc.compile_cubin(source.text, name, arch, fast_math)
    taken = {
        k: replace(r, shared_bytes=(r.shared_bytes or 0) + source.shared_bytes.get(k, 0))
        for k, r in nvrtc.resources(made.log).items()
    }
    for kernel in split.kernels:
        check_resources(kernel, taken.get(kernel.name, KernelResources()), options)
    code = device_code(split, made.image, source.shared_bytes, taken, arch, parts)
    sources: dict[str, SourceText] = {
        "cuda": source.text,
        "ptx": lambda: nvrtc.compile_ptx(source.text, name, arch, fast_math),
        "hip": lambda: write_hip(split),
    }
    return Code(code.to_bytes(), sources, parts=_described(parts))


def check_resources(k: Kernel, taken: KernelResources, options: Mapping[str, Any]) -> None:
    """Refuse a kernel that takes too many registers for a block, or spills more bytes than the
    target allows."""
    have = options["registers_per_block"]
    need = (taken.registers or 0) * k.thread_count
    if need > have:
        raise BuildError(
            f"cuda: {k.name} takes {taken.registers} registers a thread, {need} for "
            f"{k.thread_count} threads of a block, registers_per_block is {have}; bind smaller "
            "loops, or make the tiles of a thread smaller"
        )
    most, spilled = options.get("max_spill_bytes"), taken.spill_bytes or 0
    if most is not None and spilled > most:
        raise BuildError(
            f"cuda: {k.name} spills {spilled} bytes of a thread's registers, max_spill_bytes is "
            f"{most}; make the tiles of a thread smaller"
        )


CUDA = Backend(KINDS["cuda"], CUDA_CUBIN.name, compile_cuda, target_limits)
OPENCL = Backend(KINDS["opencl"], OPENCL_SOURCE.name, compile_opencl, target_limits)

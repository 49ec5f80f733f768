"""Backends of devices: a lowered function becomes kernels, and the plan of their launches."""

from __future__ import annotations

from loopwright.codegen import Code
from loopwright.codegen.gpu.opencl import write_opencl
from loopwright.codegen.gpu.split import split_host_device
from loopwright.driver.backends import Backend, LoweredProgram
from loopwright.driver.device_plan import device_code
from loopwright.lowering.gpu_limits import GpuLimits, limits_of
from loopwright.runtime.artifacts.device_kinds import OPENCL_SOURCE
from loopwright.target import KINDS, Target


def target_limits(target: Target) -> GpuLimits:
    """What a device of a target can launch and hold, as its options say."""
    return limits_of(target.options)


def compile_opencl(program: LoweredProgram, target: Target) -> Code:
    """The source of a function's kernels, with the launches that a call makes.

    Raises:
        CodegenError: the program holds what devices cannot do.
    """
    split = split_host_device(program.func, "opencl")
    text = write_opencl(split)
    return Code(device_code(split, text.encode()).to_bytes(), {"cl": text})


OPENCL = Backend(KINDS["opencl"], OPENCL_SOURCE.name, compile_opencl, target_limits)

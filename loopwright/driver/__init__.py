"""The driver: a schedule or a trace, and a target, to a module."""

from __future__ import annotations

from loopwright.driver.backends import (
    LLVM,
    Backend,
    C,
    LoweredProgram,
    register_backend,
    unregister_backend,
)
from loopwright.driver.build import (
    build,
    build_func,
    compile,
    compile_lowered,
    compile_schedule,
    lower_trace,
)
from loopwright.driver.device_backends import CUDA, OPENCL
from loopwright.driver.interp import INTERP
from loopwright.driver.program_key import program_key

__all__ = [
    "Backend",
    "LoweredProgram",
    "build",
    "build_func",
    "compile",
    "compile_lowered",
    "compile_schedule",
    "lower_trace",
    "program_key",
    "register_backend",
    "unregister_backend",
]

for _backend in (LLVM, C, INTERP, OPENCL, CUDA):
    register_backend(_backend)

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
from loopwright.driver.build import build, build_func, compile, compile_schedule
from loopwright.driver.interp import INTERP

__all__ = [
    "Backend",
    "LoweredProgram",
    "build",
    "build_func",
    "compile",
    "compile_schedule",
    "register_backend",
    "unregister_backend",
]

for _backend in (LLVM, C, INTERP):
    register_backend(_backend)

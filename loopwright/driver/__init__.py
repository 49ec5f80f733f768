"""The driver: a schedule or a trace, and a target, to a module.

The work is done in `loopwright.codegen`; this is the place where users find it.
"""

from __future__ import annotations

from loopwright.codegen import (
    Backend,
    LoweredProgram,
    build_func,
    compile,
    compile_lowered,
    compile_schedule,
    lower_trace,
    program_key,
    register_backend,
    unregister_backend,
)
from loopwright.codegen.build import build

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

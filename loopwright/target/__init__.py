"""Targets: the machine that code is for, and the options of its compiler.

``Target("llvm")`` is the host; ``Target("llvm -mcpu=znver4 -num-threads=2")`` or a dictionary
``{"kind": "llvm", "mcpu": "znver4", "num_threads": 2}`` say more. `kinds` lists the kinds and their
options, `cpu` knows the names of CPUs.
"""

from loopwright.target.cpu import (
    COMMON_CPUS,
    has_instruction,
    host_cpu,
    permutes_memory,
    same_code,
    stores_too_wide,
)
from loopwright.target.dots import dot_lanes
from loopwright.target.kinds import (
    COMMON,
    KINDS,
    OPTIONS,
    Kind,
    Option,
    register_target_kind,
    unregister_target_kind,
)
from loopwright.target.target import Target, TargetLike, create
from loopwright.target.vectors import VectorUnit, host_unit, vector_unit

__all__ = [
    "COMMON",
    "COMMON_CPUS",
    "KINDS",
    "OPTIONS",
    "Kind",
    "Option",
    "Target",
    "TargetLike",
    "VectorUnit",
    "create",
    "dot_lanes",
    "has_instruction",
    "host_cpu",
    "host_unit",
    "permutes_memory",
    "register_target_kind",
    "same_code",
    "stores_too_wide",
    "unregister_target_kind",
    "vector_unit",
]

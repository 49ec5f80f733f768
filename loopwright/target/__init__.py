"""Targets: the machine that code is for, and the options of its compiler.

``Target("llvm")`` is the host; ``Target("llvm -mcpu=znver4 -num-threads=2")`` or a dictionary
``{"kind": "llvm", "mcpu": "znver4", "num_threads": 2}`` say more. `kinds` lists the kinds and their
options, `cpu` knows the names of CPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from loopwright.errors import no_such_name
from loopwright.lazy import lazy_names
from loopwright.target.cpu import (
    COMMON_CPUS,
    has_instruction,
    host_cpu,
    permuted_bytes,
    permutes_memory,
    same_code,
    stores_too_wide,
)
from loopwright.target.hardware import HardwareParams
from loopwright.target.kinds import (
    COMMON,
    KINDS,
    OPTIONS,
    Kind,
    Option,
    register_target_kind,
    unregister_target_kind,
)
from loopwright.target.target import Target, TargetLike, create, roof_of
from loopwright.target.vectors import (
    Roof,
    VectorUnit,
    bf16_dot_lanes,
    dot_lanes,
    host_unit,
    pair_lanes,
    vector_unit,
)

# Imported at their first use, by other rooms.
if TYPE_CHECKING:
    from loopwright.target.cpu import is_of_architecture
    from loopwright.target.gpu import OPENCL_DEFAULTS
    from loopwright.target.hardware import Caches, caches_of
    from loopwright.target.target import KindName
    from loopwright.target.vectors import BYTES, FMA, FMA64, HALVES, PAIRS, PAIRS_OF_SHORTS

__all__ = [
    "COMMON", "COMMON_CPUS", "KINDS", "OPTIONS", "HardwareParams", "Kind", "Option", "Roof",
    "Target", "TargetLike", "VectorUnit", "bf16_dot_lanes", "create", "dot_lanes",
    "has_instruction", "host_cpu", "host_unit", "pair_lanes", "permuted_bytes", "permutes_memory",
    "register_target_kind", "roof_of", "same_code", "stores_too_wide", "unregister_target_kind",
    "vector_unit",
]  # fmt: skip

_CUDA = "write Target('cuda -arch=sm_90'), with the architecture of the card"
_OPENCL = "write Target('opencl'); its limits are those of this machine's first OpenCL device"
_CPU = "write Target('llvm -mcpu=NAME'), with a CPU of this machine's architecture"
_BY_KEY = "a template has implementations for families of targets: @template.register('gpu')"
#: Names of TVM that cannot be had, and what takes their place.
_INSTEAD = {
    "cuda": _CUDA,
    **dict.fromkeys(("bifrost", "intel_graphics", "mali", "rocm"), _OPENCL),
    **dict.fromkeys(("arm_cpu", "hexagon", "rasp", "riscv_cpu"), _CPU),
    "codegen": "loopwright doctor says which LLVM there is",
    **dict.fromkeys(("generic_func", "override_native_generic_func"), _BY_KEY),
}

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__, _INSTEAD)

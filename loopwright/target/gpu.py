"""Limits of a device, as options of a target for it. Those not given are filled in when a target is
made, from this machine's first device, else from tables, so that equal targets build equal code
wherever they are built."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from loopwright.errors import TargetError
from loopwright.target.gpu_probe import cuda_device, opencl_device

#: Limits of every OpenCL device of the last ten years, taken where no device is asked.
OPENCL_DEFAULTS: Mapping[str, int] = {
    "max_threads_per_block": 256,
    "max_shared_memory_per_block": 32768,
    "max_local_memory_per_thread": 524288,
    "max_vthread": 8,
    "max_vector_bytes": 16,
    "thread_warp_size": 1,
    "multi_processor_count": 1,
}
#: Limits that all architectures of CUDA share.
CUDA_DEFAULTS: Mapping[str, int] = {
    "max_threads_per_block": 1024,
    "max_local_memory_per_thread": 524288,
    "max_vthread": 8,
    "max_vector_bytes": 16,
    "thread_warp_size": 32,
    "registers_per_block": 65536,
}
#: Bytes of shared memory that one block may have, by compute capability; the CUDA C++ programming
#: guide's table of technical specifications.
SHARED_MEMORY = {
    75: 65536, 80: 166912, 86: 101376, 87: 166912, 89: 101376, 90: 232448, 100: 232448,
    103: 232448, 110: 232448, 120: 101376, 121: 101376,
}  # fmt: skip
#: Processors of a usual card of an architecture, where no device is asked.
PROCESSORS = {75: 40, 80: 108, 86: 84, 87: 16, 89: 128, 90: 132, 100: 148, 103: 148, 120: 170}
DEFAULT_ARCH = "sm_90"


#: Options of TVM's strings that say nothing here: libraries to call, a name of the device, the
#: triple of LLVM's code generators for GPUs, arguments of a kernel.
HINTS = ("libs", "device", "mtriple", "max_function_args")


def _without_hints(options: dict[str, Any]) -> None:
    for name in HINTS:
        options.pop(name, None)


def resolve_opencl(options: dict[str, Any]) -> None:
    _without_hints(options)
    if OPENCL_DEFAULTS.keys() <= options.keys():
        return
    for name, value in {**OPENCL_DEFAULTS, **(opencl_device() or {})}.items():
        options.setdefault(name, value)


def resolve_cuda(options: dict[str, Any]) -> None:
    """Fill in the limits of an architecture of CUDA; the first device's, where it is that one."""
    _without_hints(options)
    complete = {*CUDA_DEFAULTS, "arch", "max_shared_memory_per_block", "multi_processor_count"}
    device = None if complete <= options.keys() else cuda_device()
    arch = options.setdefault("arch", str(device["arch"]) if device else DEFAULT_ARCH)
    number = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if number is None or int(number[1]) not in SHARED_MEMORY:
        known = ", ".join(f"sm_{n}" for n in SHARED_MEMORY)
        raise TargetError(f"unknown CUDA architecture {arch!r}; known: {known}")
    capability = int(number[1])
    if device is not None and device["arch"] == f"sm_{capability}":
        for name, value in device.items():
            options.setdefault(name, value)
    options.setdefault("max_shared_memory_per_block", SHARED_MEMORY[capability])
    options.setdefault("multi_processor_count", PROCESSORS.get(capability, 100))
    for name, value in CUDA_DEFAULTS.items():
        options.setdefault(name, value)

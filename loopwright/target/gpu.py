"""Limits of a device, as options of a target for it. Those not given are filled in when a target is
made, from this machine's first device, else from tables, so that equal targets build equal code
wherever they are built."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import lru_cache
from typing import Any

from loopwright.errors import TargetError

#: Numbers of device attributes in cuda.h, by the option of a target that each fills in.
_CUDA_ATTRIBUTES = {
    "max_threads_per_block": 1, "thread_warp_size": 10, "registers_per_block": 12,
    "multi_processor_count": 16, "max_shared_memory_per_block": 97,
}  # fmt: skip
_CUDA_MAJOR, _CUDA_MINOR = 75, 76
#: Numbers in cl.h, by option, and the type of the value.
_OPENCL_ATTRIBUTES = {
    "max_threads_per_block": (0x1004, c_size_t),
    "max_shared_memory_per_block": (0x1023, c_uint64),
    "multi_processor_count": (0x1002, c_uint),
}
_CL_DEVICE_TYPE_ALL = 0xFFFFFFFF
_MOST = 8


@lru_cache(maxsize=1)
def cuda_device() -> dict[str, int | str] | None:
    """Options of a target for the first CUDA device, ``arch`` among them; None without one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count, device = c_int(0), c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(byref(count)) or not count.value:
        return None
    if driver.cuDeviceGet(byref(device), 0):
        return None

    def attribute(number: int) -> int:
        value = c_int(0)
        failed = driver.cuDeviceGetAttribute(byref(value), number, device)
        return 0 if failed else value.value

    values = {name: attribute(number) for name, number in _CUDA_ATTRIBUTES.items()}
    options: dict[str, int | str] = {name: value for name, value in values.items() if value > 0}
    options["arch"] = f"sm_{attribute(_CUDA_MAJOR)}{attribute(_CUDA_MINOR)}"
    return options


@lru_cache(maxsize=1)
def opencl_device() -> dict[str, int] | None:
    """Options of a target for the first OpenCL device; None without one."""
    try:
        loader = ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        return None
    platforms, count = (c_void_p * _MOST)(), c_uint(0)
    if loader.clGetPlatformIDs(_MOST, platforms, byref(count)):
        return None
    for platform in platforms[: count.value]:
        device, devices = c_void_p(), c_uint(0)
        failed = loader.clGetDeviceIDs(
            c_void_p(platform), c_uint64(_CL_DEVICE_TYPE_ALL), 1, byref(device), byref(devices)
        )
        if not failed and devices.value:
            break
    else:
        return None
    options: dict[str, int] = {}
    for name, (number, kind) in _OPENCL_ATTRIBUTES.items():
        value = kind(0)
        size = c_size_t(ctypes.sizeof(value))
        failed = loader.clGetDeviceInfo(device, number, size, byref(value), None)
        if not failed and value.value > 0:
            options[name] = value.value
    return options


#: Limits of every OpenCL device of the last ten years, taken where no device is asked.
OPENCL_DEFAULTS: Mapping[str, int] = {
    "max_threads_per_block": 256, "max_shared_memory_per_block": 32768,
    "max_local_memory_per_thread": 524288, "max_vthread": 8, "max_vector_bytes": 16,
    "thread_warp_size": 1, "multi_processor_count": 1,
}  # fmt: skip
#: Limits that all architectures of CUDA share.
CUDA_DEFAULTS: Mapping[str, int] = {
    "max_threads_per_block": 1024, "max_local_memory_per_thread": 524288, "max_vthread": 8,
    "max_vector_bytes": 16, "thread_warp_size": 32, "registers_per_block": 65536,
}  # fmt: skip
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


def resolve_opencl(options: dict[str, Any]) -> None:
    for name in HINTS:
        options.pop(name, None)
    if OPENCL_DEFAULTS.keys() <= options.keys():
        return
    for name, value in {**OPENCL_DEFAULTS, **(opencl_device() or {})}.items():
        options.setdefault(name, value)


def resolve_cuda(options: dict[str, Any]) -> None:
    """Fill in the limits of an architecture of CUDA; the first device's, where it is that one."""
    for name in HINTS:
        options.pop(name, None)
    complete = {*CUDA_DEFAULTS, "arch", "max_shared_memory_per_block", "multi_processor_count"}
    device = None if complete <= options.keys() else cuda_device()
    arch = options.setdefault("arch", str(device["arch"]) if device else DEFAULT_ARCH)
    number = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if number is None or int(number[1]) not in SHARED_MEMORY:
        known_archs = ", ".join(f"sm_{n}" for n in SHARED_MEMORY)
        raise TargetError(f"unknown CUDA architecture {arch!r}; known: {known_archs}")
    capability = int(number[1])
    if device is not None and device["arch"] == f"sm_{capability}":
        for name, value in device.items():
            options.setdefault(name, value)
    options.setdefault("max_shared_memory_per_block", SHARED_MEMORY[capability])
    options.setdefault("multi_processor_count", PROCESSORS.get(capability, 100))
    for name, value in CUDA_DEFAULTS.items():
        options.setdefault(name, value)

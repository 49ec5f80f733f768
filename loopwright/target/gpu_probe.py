"""Properties of this machine's devices, asked of their drivers' libraries where these are there,
without a package. Programs drive devices through `loopwright.runtime.devices`."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import lru_cache

#: Numbers of device attributes in cuda.h, by the option of a target that each fills in.
_CUDA_ATTRIBUTES = {
    "max_threads_per_block": 1,
    "thread_warp_size": 10,
    "registers_per_block": 12,
    "multi_processor_count": 16,
    "max_shared_memory_per_block": 97,
}
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

    found = {name: attribute(number) for name, number in _CUDA_ATTRIBUTES.items()}
    options: dict[str, int | str] = {name: value for name, value in found.items() if value > 0}
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
            return _opencl_options(loader, device)
    return None


def _opencl_options(loader: ctypes.CDLL, device: c_void_p) -> dict[str, int]:
    options: dict[str, int] = {}
    for name, (number, kind) in _OPENCL_ATTRIBUTES.items():
        value = kind(0)
        size = c_size_t(ctypes.sizeof(value))
        failed = loader.clGetDeviceInfo(device, number, size, byref(value), None)
        if not failed and value.value > 0:
            options[name] = value.value
    return options

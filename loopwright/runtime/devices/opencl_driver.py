"""pyopencl, imported at its first use: the devices of all platforms, and their properties."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from loopwright.errors import OutOfMemoryError, RunError
from loopwright.runtime.devices.interface import AttributeValue

#: Objects of pyopencl, which has no types.
Cl = Any
INSTALL_PACKAGE = 'pip install "loopwright[opencl]"'
INSTALL_POCL = "apt-get install pocl-opencl-icd ocl-icd-libopencl1"


@lru_cache(maxsize=1)
def package() -> Cl:
    """The package pyopencl; ImportError where it is not installed."""
    import pyopencl

    return pyopencl


@lru_cache(maxsize=1)
def found_devices() -> tuple[list[Cl], str]:
    """The devices of all platforms, and the reason why there are none."""
    try:
        cl = package()
    except ImportError as error:
        return [], f"pyopencl is missing ({error}); install it: {INSTALL_PACKAGE}"
    try:
        platforms = cl.get_platforms()
        devices = [d for p in platforms for d in _devices(cl, p)]
    except cl.Error as error:
        return [], (
            f"there is no OpenCL platform ({error}); install a driver of the GPU, or PoCL for the "
            f"CPU: {INSTALL_POCL}"
        )
    if not devices:
        names = ", ".join(p.name for p in platforms)
        return [], f"the platform {names} has no device; install PoCL for the CPU: {INSTALL_POCL}"
    kinds = cl.device_type
    rank = {kinds.GPU: 0, kinds.ACCELERATOR: 1}
    return sorted(devices, key=lambda d: rank.get(d.type & ~kinds.DEFAULT, 2)), ""


def _devices(cl: Cl, platform: Cl) -> list[Cl]:
    """The devices of a platform; OpenCL's error for a platform without any is an empty list."""
    try:
        return list(platform.get_devices())
    except cl.RuntimeError:
        return []


@contextmanager
def named(where: str, doing: str) -> Iterator[None]:
    """Turn an error of OpenCL into one that names the device and the operation."""
    cl = package()
    try:
        yield
    except cl.MemoryError as error:
        raise OutOfMemoryError(f"{where}: no memory for {doing}: {error}") from error
    except cl.Error as error:
        raise RunError(f"{where}: {doing} failed: {error}") from error


def _warp(device: Cl) -> int:
    """Threads that run in lockstep: known for NVIDIA and AMD only."""
    for name in ("warp_size_nv", "wavefront_width_amd"):
        try:
            value = getattr(device, name)
        except (AttributeError, package().Error):
            continue
        if value:
            return int(value)
    return 1


#: Attributes of a device by OpenCL's properties of it.
ATTRIBUTES: dict[str, Callable[[Cl], AttributeValue]] = {
    "device_name": lambda d: f"{d.name.strip()} ({d.platform.name.strip()})",
    "multi_processor_count": lambda d: int(d.max_compute_units),
    "max_clock_rate": lambda d: int(d.max_clock_frequency) * 1000 or None,
    "total_global_memory": lambda d: int(d.global_mem_size),
    "max_threads_per_block": lambda d: int(d.max_work_group_size),
    "max_thread_dimensions": lambda d: tuple(int(n) for n in d.max_work_item_sizes),
    "max_shared_memory_per_block": lambda d: int(d.local_mem_size),
    "l2_cache_size_bytes": lambda d: int(d.global_mem_cache_size) or None,
    "warp_size": _warp,
    "compute_version": lambda d: d.version.split()[1],
    "api_version": lambda d: int(d.version.split()[1].replace(".", "")) * 10,
    "driver_version": lambda d: str(d.driver_version),
    "has_float64": lambda d: "cl_khr_fp64" in d.extensions,
    "is_host_processor": lambda d: bool(d.type & package().device_type.CPU),
}

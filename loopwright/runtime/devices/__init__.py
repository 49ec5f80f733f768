"""Devices: one interface for memory, copies, streams and events; a file for each kind of them.

Our kinds are registered here; the driver of one is imported at its first use.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module

from loopwright.runtime.devices.interface import DeviceAPI, register_device_api


def _backend(module: str, name: str) -> DeviceAPI:
    api: DeviceAPI = getattr(import_module(f"{__name__}.{module}"), name)()
    return api


for _code, _module, _name in (
    (1, "cpu", "CpuAPI"),
    (2, "cuda", "CudaAPI"),
    (4, "opencl", "OpenCLAPI"),
):
    register_device_api(_code, partial(_backend, _module, _name))

"""Devices: one interface for memory, copies, streams and events; a file for each kind of them.

Our kinds are registered here; the driver of one is imported at its first use.
"""

from __future__ import annotations

from loopwright.runtime.devices.interface import DeviceAPI, register_device_api


def _cpu() -> DeviceAPI:
    from loopwright.runtime.devices.cpu import CpuAPI

    return CpuAPI()


def _cuda() -> DeviceAPI:
    from loopwright.runtime.devices.cuda import CudaAPI

    return CudaAPI()


def _opencl() -> DeviceAPI:
    from loopwright.runtime.devices.opencl import OpenCLAPI

    return OpenCLAPI()


for _code, _make in ((1, _cpu), (2, _cuda), (4, _opencl)):
    register_device_api(_code, _make)

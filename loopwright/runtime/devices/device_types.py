"""Types of devices: DLPack's codes, their names, and registered further kinds."""

from __future__ import annotations

from enum import IntEnum

from loopwright.errors import UsageError, did_you_mean
from loopwright.runtime.artifacts import kinds as artifact_kinds
from loopwright.runtime.devices.registry import device_api_types, find_device_api

#: Names and DLPack codes of device types.
DEVICE_TYPES = {
    "cpu": 1,
    "cuda": 2,
    "opencl": 4,
    "vulkan": 7,
    "metal": 8,
    "vpi": 9,
    "rocm": 10,
    "ext_dev": 12,
    "micro_dev": 13,
}
_ALIASES = {"gpu": "cuda", "cl": "opencl"}
NAMES = {code: name for name, code in DEVICE_TYPES.items()}


class DeviceType(IntEnum):
    """Names and codes of device types, DLPack's and TVM's; see `Device.exist` for what is here.

    Example:
        >>> print(lw.runtime.DeviceType.kDLCPU.value)
        1
    """

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    # As TVM named them before it took DLPack's; its code of an extension is DLPack's.
    kCPU = 1
    kGPU = 2
    kCuda = 2
    kOpenCL = 4
    kVulkan = 7
    kMetal = 8
    kVPI = 9
    kROCM = 10
    kExtDev = 12
    kMicroDev = 13


def other_names() -> dict[int, str]:
    """Names by code of registered kinds of devices that DLPack does not name."""
    apis = (find_device_api(code) for code in device_api_types() if code not in NAMES)
    return {api.device_type: api.name for api in apis if api is not None}


def type_code(device_type: int | str) -> int:
    if isinstance(device_type, str):
        return code_of_name(device_type.strip())
    known = isinstance(device_type, int) and not isinstance(device_type, bool)
    if known and (device_type in NAMES or device_type in device_api_types()):
        return int(device_type)
    raise UsageError(
        f"device type {device_type!r} is unknown; the codes are "
        + ", ".join(f"{code} ({name})" for code, name in {**NAMES, **other_names()}.items())
    )


def code_of_name(text: str, whole: str = "") -> int:
    """The code of a type by its name or a target's; `whole` is the text for the UsageError."""
    name = type_name(text)
    if name in DEVICE_TYPES:
        return DEVICE_TYPES[name]
    others = {other: code for code, other in other_names().items()}
    if name not in others:
        raise _unknown(whole or text, name)
    return others[name]


def type_name(text: str) -> str:
    """The name of a type of devices, which may be given by a target whose code runs there."""
    name = text.lower()
    return _ALIASES.get(name) or artifact_kinds.device_of_target(name) or name


def _unknown(text: str, name: str) -> UsageError:
    return UsageError(
        f"unknown device {text!r}{did_you_mean(name, [*DEVICE_TYPES, *_ALIASES])}; "
        f"known: {', '.join([*DEVICE_TYPES, *other_names().values()])}"
    )

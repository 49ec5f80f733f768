"""Devices: processors that hold arrays and run kernels.

`Device` is a value (type code and number); the backend of its type knows its properties
(`loopwright.runtime.devices.interface.DeviceAPI`). DLPack types without a backend have names and
codes, so that they can be told apart.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

from loopwright.errors import UsageError, did_you_mean
from loopwright.runtime.artifacts import kinds as artifact_kinds
from loopwright.runtime.artifacts.kinds import device_of_target
from loopwright.runtime.devices.cpu import cache_sizes
from loopwright.runtime.devices.interface import (
    HOST,
    AttributeValue,
    DeviceAPI,
    Stream,
    device_api,
    device_api_types,
    find_device_api,
    free_stream,
    why_missing,
)

#: Names and DLPack codes of device types.
DEVICE_TYPES = {
    "cpu": 1, "cuda": 2, "opencl": 4, "vulkan": 7, "metal": 8, "vpi": 9, "rocm": 10, "ext_dev": 12,
    "micro_dev": 13,
}  # fmt: skip
_ALIASES = {"gpu": "cuda", "cl": "opencl"}
NAMES = {code: name for name, code in DEVICE_TYPES.items()}

#: Attributes that must agree between two devices so that one time holds for both.
LIMITS = (
    "device_name", "arch", "multi_processor_count", "max_threads_per_block",
    "max_shared_memory_per_block", "warp_size",
)  # fmt: skip


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
    is_code = isinstance(device_type, int) and not isinstance(device_type, bool)
    if is_code and (device_type in NAMES or device_type in device_api_types()):
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
        raise UsageError(
            f"unknown device {whole or text!r}{did_you_mean(name, [*DEVICE_TYPES, *_ALIASES])}; "
            f"known: {', '.join([*DEVICE_TYPES, *other_names().values()])}"
        )
    return others[name]


def type_name(text: str) -> str:
    """The name of a type of devices, which may be given by a target whose code runs there."""
    name = text.lower()
    return _ALIASES.get(name) or artifact_kinds.device_of_target(name) or name


@dataclass(frozen=True, slots=True, init=False)
class Device:
    """One device: a DLPack type code and a number from 0, printed as ``cpu(0)``.

    `DEVICE_TYPES` and `DeviceType` have the codes; ``Device`` takes the type's name too. UsageError
    where the type is unknown, or there is no device of that number.

    Example:
        >>> print(lw.runtime.Device("cpu", 0))
        cpu(0)
    """

    device_type: int
    device_id: int = 0

    def __init__(self, device_type: int | str, device_id: int = 0) -> None:
        object.__setattr__(self, "device_type", type_code(device_type))
        object.__setattr__(self, "device_id", _number(device_id))
        if self.device_id < 0:
            raise UsageError(f"device number {self.device_id} is negative; devices count from 0")
        if self.device_type == DEVICE_TYPES["cpu"] and self.device_id > 0:
            raise UsageError(
                f"cpu({self.device_id}) does not exist: all processors together are cpu(0); "
                "choose how many run a kernel with num_threads"
            )

    @property
    def name(self) -> str:
        """Name of the type, such as ``cpu``."""
        return NAMES.get(self.device_type) or other_names().get(self.device_type, "unregistered")

    @property
    def exist(self) -> bool:
        """True where this device is here and kernels can run on it."""
        api = find_device_api(self.device_type)
        return api is not None and self.device_id < api.count()

    @property
    def api(self) -> DeviceAPI:
        """Backend of devices of this type (`DeviceAPI`); UsageError where it cannot be used."""
        self.require()
        return device_api(self.device_type)

    def attribute(self, name: str) -> AttributeValue:
        """A property of the device by its name, also one of the backend's own; None if unknown."""
        return self.api.attribute(self.device_id, name)

    @property
    def device_name(self) -> str:
        """Model of the processor."""
        return str(self.attribute("device_name"))

    @property
    def multi_processor_count(self) -> int:
        """Processors that run blocks; of a CPU the cores that the calling thread may use."""
        return _number(self.attribute("multi_processor_count") or 1)

    @property
    def total_memory(self) -> int:
        """Bytes of memory; the same as `total_global_memory`."""
        return _number(self.attribute("total_global_memory") or 0)

    total_global_memory = total_memory

    @property
    def available_global_memory(self) -> int | None:
        """Bytes of memory that are free now."""
        return self._count("available_global_memory")

    @property
    def max_clock_rate(self) -> int | None:
        """Highest clock in kHz; None where the system does not tell."""
        return self._count("max_clock_rate")

    @property
    def max_threads_per_block(self) -> int | None:
        """Threads of one block; None for a CPU, which has no blocks."""
        return self._count("max_threads_per_block")

    @property
    def max_thread_dimensions(self) -> tuple[int, ...] | None:
        """Largest extents of a block, x first; None for a CPU."""
        value = self.attribute("max_thread_dimensions")
        return value if isinstance(value, tuple) else None

    @property
    def max_shared_memory_per_block(self) -> int | None:
        """Bytes of shared memory that one block may have; None for a CPU."""
        return self._count("max_shared_memory_per_block")

    @property
    def max_registers_per_block(self) -> int | None:
        """Registers of 32 bits that one block may have; None where the device does not tell."""
        return self._count("max_registers_per_block")

    @property
    def warp_size(self) -> int | None:
        """Threads that run in lockstep; None for a CPU, which has vectors instead."""
        return self._count("warp_size")

    @property
    def l2_cache_size_bytes(self) -> int | None:
        """Bytes of the second-level cache; None where the device does not tell."""
        return self._count("l2_cache_size_bytes")

    @property
    def compute_version(self) -> str | None:
        """Compute capability, such as ``9.0``, or version of OpenCL; None for a CPU."""
        value = self.attribute("compute_version")
        return None if value is None else str(value)

    @property
    def api_version(self) -> int | None:
        """Version of the interface that drives the device; None for a CPU."""
        return self._count("api_version")

    @property
    def driver_version(self) -> str | None:
        """Version of the driver as it tells it; None for a CPU."""
        value = self.attribute("driver_version")
        return None if value is None else str(value)

    @property
    def cache_sizes(self) -> dict[str, int]:
        """Bytes of the caches that core 0 of a CPU sees, ``{"L1d": ..., "L2": ..., "L3": ...}``.

        A level that the system does not tell is absent; no guesses. Of other devices the second
        level alone.
        """
        self.require()
        if self.device_type == HOST:
            return cache_sizes()
        level = self.l2_cache_size_bytes
        return {} if level is None else {"L2": level}

    def _count(self, name: str) -> int | None:
        value = self.attribute(name)
        return value if isinstance(value, int) else None

    def require(self) -> None:
        """Raise UsageError where kernels cannot run on it, with the missing part and its remedy."""
        if not self.exist:
            raise UsageError(f"{self} cannot be used: {self.why_absent()}")

    def why_absent(self) -> str:
        """The reason why it cannot be used, and what would install what is missing; else empty."""
        if self.exist:
            return ""
        api = find_device_api(self.device_type)
        if api is None:
            names = {**other_names(), **NAMES}
            driven = ", ".join(names[code] for code in device_api_types())
            return f"this version runs kernels on {driven}, not on {self.name}"
        return why_missing(api, self.name, self.device_id) or ""

    def sync(self, stream: Stream | None = None) -> None:
        """Wait for all work on the device, or in one of its streams.

        UsageError where the device cannot be used, RunError where something that ran has failed.
        """
        self.api.synchronize(self.device_id, stream)

    def create_raw_stream(self) -> Stream:
        """A new stream, by the name that TVM has for it."""
        return self.api.create_stream(self.device_id)

    def free_raw_stream(self, stream: Stream) -> None:
        """Wait for a stream and give it back."""
        free_stream(stream)

    def set_raw_stream(self, stream: Stream | None) -> None:
        """Make a stream the calling thread's current one; None: the default stream."""
        self.api.set_stream(self.device_id, stream)

    @contextmanager
    def stream(self) -> Iterator[Stream]:
        """A new stream, the calling thread's current one inside the block, which waits for it."""
        api, before = self.api, self.api.current_stream(self.device_id)
        stream = api.create_stream(self.device_id)
        api.set_stream(self.device_id, stream)
        try:
            yield stream
        finally:
            api.set_stream(self.device_id, before)
            free_stream(stream)

    def __str__(self) -> str:
        return f"{self.name}({self.device_id})"

    __repr__ = __str__


def _number(device_id: object) -> int:
    try:
        return operator.index(device_id)  # type: ignore[arg-type]
    except TypeError:
        raise UsageError(
            f"device number {device_id!r} is no integer; devices count from 0"
        ) from None


def cpu(device_id: int = 0) -> Device:
    """The host's processor, ``cpu(0)``; UsageError for another number.

    Example:
        >>> print(lw.cpu(0), lw.cuda(1), lw.gpu(), lw.opencl())
        cpu(0) cuda(1) cuda(0) opencl(0)
        >>> print(lw.metal().exist, lw.rocm().exist)
        False False
    """
    return Device(DEVICE_TYPES["cpu"], device_id)


def cuda(device_id: int = 0) -> Device:
    """A GPU of NVIDIA; ``exist`` of it says whether there is one."""
    return Device("cuda", device_id)


#: The same function by its older name.
gpu = cuda


def opencl(device_id: int = 0) -> Device:
    """A device of OpenCL; those of all platforms are counted one after the other."""
    return Device("opencl", device_id)


def metal(device_id: int = 0) -> Device:
    """A GPU of Apple. It has a name only: nothing drives it in this version."""
    return Device("metal", device_id)


def rocm(device_id: int = 0) -> Device:
    """A GPU of AMD. It has a name only: nothing drives it in this version."""
    return Device("rocm", device_id)


def device(dev_type: str | int | Device, dev_id: int | None = None) -> Device:
    """Parse a device: ``"cpu"``, ``"cpu:0"`` or ``"cpu(0)"``; a `Device` is returned as it is.

    ``loopwright.context`` is the same by its older name. UsageError where the name is unknown, or
    there is no such device.

    Args:
        dev_type: a name of `DEVICE_TYPES`, its DLPack code, or a target, of which the first word
            counts (``llvm`` and ``c`` run on ``cpu``).
        dev_id: the number, default 0; where `dev_type` has one, too, both are the same.

    Example:
        >>> print(lw.runtime.device("cpu:0"), lw.runtime.device("llvm"))
        cpu(0) cpu(0)
    """
    if isinstance(dev_type, Device):
        return dev_type
    if not isinstance(dev_type, str):
        return Device(dev_type, dev_id or 0)
    text = dev_type.split(" -")[0]
    match = re.fullmatch(r"(\w+)(?:\((\d+)\)|:(\d+))?", text.strip())
    if match is None:
        raise UsageError(f"device {text!r} is not understood; write it as cpu, cpu:0 or cpu(0)")
    code, number = code_of_name(match[1], text), match[2] or match[3]
    if number and dev_id not in (None, 0, int(number)):
        raise UsageError(f"device {text!r} and the number {dev_id} are two devices; name one")
    return Device(code, int(number) if number else dev_id or 0)


def enabled(target: str) -> bool:
    """Whether kernels for a target, or on a device of that name, can run here.

    Options of the target, as in ``"llvm -mcpu=x86-64-v3"``, say nothing here.
    """
    if not isinstance(target, str):
        raise UsageError(f"enabled: expected the text of a target or device, got {target!r}")
    name = type_name(target.split(" ")[0])
    return (name in DEVICE_TYPES or name in other_names().values()) and Device(name).exist


def device_facts(device: Device) -> dict[str, str | int]:
    """Describe a device for a record's ``env``; unknown values are left out.

    ``{"kind": "opencl", "name": model, "uuid": identity, "driver": version, "arch": architecture of
    machine code, "processors": number}``.
    """
    facts = {
        "kind": device.name,
        "name": device.device_name,
        "uuid": device.api.uuid(device.device_id),
        "driver": device.attribute("driver_version"),
        "arch": device.attribute("arch"),
        "processors": device.multi_processor_count,
    }
    return {name: v for name, v in facts.items() if isinstance(v, str | int) and v != ""}


def runs_on_cpu(target: str) -> bool:
    return device_of_target(target) in (None, "cpu")


def names_of(wanted: str) -> list[str]:
    """The names in a list of devices, such as ``"opencl:0,opencl:1"``."""
    return [name.strip() for name in wanted.split(",") if name.strip()]


def facts_here(target: str, wanted: str = "") -> dict[str, str | int] | None:
    """`device_facts` of the device that runs kernels for a kind of target; None for the CPU.

    `wanted` are names of the devices in use; empty: the first of the kind. None where it is not
    here.
    """
    if runs_on_cpu(target):
        return None
    first = device((names_of(wanted) or [target])[0])
    return device_facts(first) if first.exist else None


def models_here(target: str) -> set[str]:
    """Names of all models here that run kernels for a kind of target; none for the CPU."""
    if runs_on_cpu(target):
        return set()
    first = device(target)
    count = first.api.count() if first.exist else 0
    return {Device(first.device_type, number).device_name for number in range(count)}


def unlike(one: Device, other: Device) -> str:
    """Differences of two devices, as ``multi_processor_count: 2 and 4``; empty for none."""
    for name in LIMITS:
        a, b = one.attribute(name), other.attribute(name)
        if a != b:
            return f"{name}: {a} and {b}"
    return ""

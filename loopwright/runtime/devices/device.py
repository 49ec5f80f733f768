"""Devices: which processor holds an array and runs a kernel.

`Device` is a value (type code and number) with the attributes that tuning asks for. Today only the
CPU can run kernels; the other DLPack types have names and codes so that they can be told apart.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from loopwright import env
from loopwright.errors import UsageError, did_you_mean
from loopwright.runtime.artifacts import kinds as artifact_kinds

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
_NAMES = {code: name for name, code in DEVICE_TYPES.items()}
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
#: Where Linux tells the highest clock of core 0, in kHz; virtual machines have no such file.
CLOCK_FILE = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")


class DeviceType(IntEnum):
    """DLPack's names and codes of device types; only ``kDLCPU`` can be used in this version.

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


@dataclass(frozen=True, slots=True, init=False)
class Device:
    """One device: a DLPack type code and a number, printed as ``cpu(0)``.

    Attributes:
        device_type: DLPack code, see `DEVICE_TYPES` and `DeviceType`. ``Device`` takes the type's
            name too: ``Device("cpu", 0)``.
        device_id: number among the devices of this type, from 0.

    Raises:
        UsageError: the type is unknown, or there is no device of that number.

    Example:
        >>> print(lw.runtime.Device("cpu", 0))
        cpu(0)
    """

    device_type: int
    device_id: int = 0

    def __init__(self, device_type: int | str, device_id: int = 0) -> None:
        object.__setattr__(self, "device_type", _type_code(device_type))
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
        return _NAMES[self.device_type]

    @property
    def exist(self) -> bool:
        """True where this device is here and kernels can run on it."""
        return self.device_type == DEVICE_TYPES["cpu"]

    @property
    def device_name(self) -> str:
        """Model of the processor."""
        self.require()
        return env.cpu_info()[0]

    @property
    def multi_processor_count(self) -> int:
        """Cores that the calling thread may use."""
        self.require()
        return len(env.usable_cpus())

    @property
    def total_memory(self) -> int:
        """Bytes of memory."""
        self.require()
        return env.total_memory()

    @property
    def max_clock_rate(self) -> int | None:
        """Highest clock of core 0 in kHz; None where the system does not tell."""
        self.require()
        try:
            return int(CLOCK_FILE.read_text())
        except (OSError, ValueError):
            return None

    @property
    def max_threads_per_block(self) -> int | None:
        """Threads of one block: None, a CPU has no blocks. See `multi_processor_count`."""
        self.require()
        return None

    @property
    def warp_size(self) -> int | None:
        """Threads that run in lockstep: None, a CPU has vectors instead."""
        self.require()
        return None

    @property
    def compute_version(self) -> str | None:
        """Compute capability, such as ``9.0``: None, a CPU has features instead (see `Target`)."""
        self.require()
        return None

    @property
    def api_version(self) -> int | None:
        """Version of the driver's interface: None, a CPU is used without a driver."""
        self.require()
        return None

    @property
    def cache_sizes(self) -> dict[str, int]:
        """Bytes of the caches that core 0 sees, ``{"L1d": ..., "L2": ..., "L3": ...}``.

        A level that the system does not tell is absent; no guesses.
        """
        self.require()
        return _cache_sizes()

    def require(self) -> None:
        """Refuse a device that cannot be used.

        Raises:
            UsageError: kernels cannot run on it.

        Example:
            >>> lw.cpu(0).require()
        """
        if not self.exist:
            raise UsageError(f"{self} cannot be used: only cpu(0) runs kernels in this version")

    def sync(self) -> None:
        """Wait for what runs on the device; on a CPU nothing does once a call has returned.

        Raises:
            UsageError: kernels cannot run on it.

        Example:
            >>> lw.cpu(0).sync()
        """
        self.require()

    def __str__(self) -> str:
        return f"{self.name}({self.device_id})"

    __repr__ = __str__


def _type_code(device_type: int | str) -> int:
    if isinstance(device_type, str):
        name = _type_name(device_type.strip())
        if name not in DEVICE_TYPES:
            raise _unknown(device_type, name)
        return DEVICE_TYPES[name]
    if isinstance(device_type, bool) or device_type not in _NAMES:
        raise UsageError(
            f"device type {device_type!r} is unknown; the codes are "
            + ", ".join(f"{code} ({name})" for code, name in _NAMES.items())
        )
    return int(device_type)


def _type_name(text: str) -> str:
    """The name of a type of devices, which may be given by a target whose code runs there."""
    name = text.lower()
    return _ALIASES.get(name) or artifact_kinds.device_of_target(name) or name


def _number(device_id: int) -> int:
    try:
        return operator.index(device_id)
    except TypeError:
        raise UsageError(
            f"device number {device_id!r} is no integer; devices count from 0"
        ) from None


def _unknown(text: str, name: str) -> UsageError:
    return UsageError(
        f"unknown device {text!r}{did_you_mean(name, [*DEVICE_TYPES, *_ALIASES])}; "
        f"known: {', '.join(DEVICE_TYPES)}"
    )


def _cache_sizes() -> dict[str, int]:
    sizes = {}
    for index in sorted(_CACHES.glob("index[0-9]*")):
        kind = (index / "type").read_text().strip()
        match = re.fullmatch(r"([0-9]+)K", (index / "size").read_text().strip())
        if kind == "Instruction" or match is None:
            continue
        level = (index / "level").read_text().strip()
        sizes[f"L{level}d" if level == "1" else f"L{level}"] = int(match[1]) * 1024
    return sizes


def cpu(device_id: int = 0) -> Device:
    """The host's processor, ``cpu(0)``.

    Raises:
        UsageError: the number is not 0.

    Example:
        >>> print(lw.cpu(0))
        cpu(0)
    """
    return Device(DEVICE_TYPES["cpu"], device_id)


def device(dev_type: str | int | Device, dev_id: int | None = None) -> Device:
    """Parse a device: ``"cpu"``, ``"cpu:0"`` or ``"cpu(0)"``; a `Device` is returned as it is.

    ``device("llvm", 0)`` is ``cpu(0)``. ``loopwright.context`` is the same by its older name.

    Args:
        dev_type: a name of `DEVICE_TYPES`, its DLPack code, or a target, of which the first word
            counts (``llvm`` and ``c`` run on ``cpu``).
        dev_id: the number, where `dev_type` has none; default 0.

    Raises:
        UsageError: the name is unknown, or there is no such device.

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
    name = _type_name(match[1])
    if name not in DEVICE_TYPES:
        raise _unknown(text, name)
    number = match[2] or match[3]
    return Device(DEVICE_TYPES[name], int(number) if number else dev_id or 0)


def enabled(target: str) -> bool:
    """Whether kernels for a target, or on a device of that name, can run here.

    Args:
        target: such as ``"llvm"``, ``"llvm -mcpu=x86-64-v3"`` or ``"cpu"``; its options say nothing
            here.

    Example:
        >>> print(lw.runtime.enabled("llvm"), lw.runtime.enabled("cuda"))
        True False
    """
    name = _type_name(target.split(" ")[0])
    return name in DEVICE_TYPES and Device(name).exist

"""Devices: which processor holds an array and runs a kernel.

`Device` is a value (type code and number) with the attributes that tuning asks for. Today only the
CPU can run kernels; the other DLPack types have names and codes so that they can be told apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from loopwright import env
from loopwright.errors import UsageError, did_you_mean

#: Names and DLPack codes of device types.
DEVICE_TYPES = {
    "cpu": 1,
    "cuda": 2,
    "opencl": 4,
    "vulkan": 7,
    "metal": 8,
    "vpi": 9,
    "rocm": 10,
    "micro_dev": 12,
    "ext_dev": 13,
}
_ALIASES = {"llvm": "cpu", "c": "cpu", "interp": "cpu", "gpu": "cuda", "cl": "opencl"}
_NAMES = {code: name for name, code in DEVICE_TYPES.items()}
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True, slots=True)
class Device:
    """One device: a DLPack type code and a number, printed as ``cpu(0)``.

    Attributes:
        device_type: DLPack code, see `DEVICE_TYPES`.
        device_id: number among the devices of this type, from 0.
    """

    device_type: int
    device_id: int = 0

    def __post_init__(self) -> None:
        if self.device_type not in _NAMES:
            raise UsageError(
                f"device type {self.device_type} is unknown; the codes are "
                + ", ".join(f"{code} ({name})" for code, name in _NAMES.items())
            )
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
        self._present()
        return env.cpu_info()[0]

    @property
    def multi_processor_count(self) -> int:
        """Cores that the calling thread may use."""
        self._present()
        return len(env.usable_cpus())

    @property
    def total_memory(self) -> int:
        """Bytes of memory."""
        self._present()
        return env.total_memory()

    @property
    def cache_sizes(self) -> dict[str, int]:
        """Bytes of the caches that core 0 sees, ``{"L1d": ..., "L2": ..., "L3": ...}``.

        A level that the system does not tell is absent; no guesses.
        """
        self._present()
        return _cache_sizes()

    def _present(self) -> None:
        if not self.exist:
            raise UsageError(f"{self} cannot be used: only cpu(0) runs kernels in this version")

    def __str__(self) -> str:
        return f"{self.name}({self.device_id})"

    __repr__ = __str__


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
    """
    return Device(DEVICE_TYPES["cpu"], device_id)


def device(text: str | Device, device_id: int | None = None) -> Device:
    """Parse a device: ``"cpu"``, ``"cpu:0"`` or ``"cpu(0)"``; a `Device` is returned as it is.

    Args:
        text: a name of `DEVICE_TYPES`, or of a target (``llvm`` and ``c`` run on ``cpu``).
        device_id: the number, where `text` has none; default 0.

    Raises:
        UsageError: the name is unknown, or there is no such device.
    """
    if isinstance(text, Device):
        return text
    match = re.fullmatch(r"(\w+)(?:\((\d+)\)|:(\d+))?", text.strip())
    if match is None:
        raise UsageError(f"device {text!r} is not understood; write it as cpu, cpu:0 or cpu(0)")
    name = match[1].lower()
    name = _ALIASES.get(name, name)
    if name not in DEVICE_TYPES:
        raise UsageError(
            f"unknown device {text!r}{did_you_mean(name, [*DEVICE_TYPES, *_ALIASES])}; "
            f"known: {', '.join(DEVICE_TYPES)}"
        )
    number = match[2] or match[3]
    return Device(DEVICE_TYPES[name], int(number) if number else device_id or 0)

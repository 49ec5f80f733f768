"""The CPU as a device: memory of the process, and streams that finish all work at once."""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from loopwright import env
from loopwright.errors import OutOfMemoryError, UsageError
from loopwright.runtime.devices.driver import DriverAllocation, DriverAPI
from loopwright.runtime.devices.interface import (
    HOST,
    AttributeValue,
    Event,
    Memory,
    Program,
    Stream,
    check_device,
)

#: Default alignment of the CPU's memory in bytes: a cache line.
CPU_ALIGNMENT = 64
#: Where Linux tells the highest clock of core 0, in kHz; virtual machines have no such file.
CLOCK_FILE = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


class CpuAPI(DriverAPI):
    """The host's processor. A call has done its work when it returns, whatever its stream."""

    device_type = HOST
    name = "cpu"
    unified = True

    def __init__(self) -> None:
        super().__init__()
        self._default = Stream(HOST, 0, 0)
        self._streams = 0

    def count(self) -> int:
        return 1

    def why_absent(self) -> str:
        return ""

    def attribute(self, device_id: int, name: str) -> AttributeValue:
        ask = _ATTRIBUTES.get(name)
        return None if ask is None else ask()

    def alignment(self, device_id: int) -> int:
        return CPU_ALIGNMENT

    def _allocate(self, device_id: int, nbytes: int, alignment: int) -> Memory:
        try:
            block = np.empty(nbytes + alignment, dtype=np.uint8)
        except (MemoryError, ValueError):  # more than there is, or than NumPy can count
            raise OutOfMemoryError(f"cpu(0): no memory for {nbytes} bytes") from None
        address = int(block.ctypes.data)
        start = address + -address % alignment
        return Memory(HOST, 0, start, nbytes, owner=DriverAllocation(block))

    def free(self, memory: Memory) -> None:
        """Nothing to do: the bytes go when the last reference to the memory does."""
        self.release(memory)

    def _copy(self, device_id: int, source: Memory, target: Memory, stream: Stream | None) -> None:
        ctypes.memmove(int(target.address), int(source.address), int(source.nbytes))

    def _fill(self, memory: Memory, value: int, stream: Stream | None) -> None:
        ctypes.memset(memory.address, value, memory.nbytes)

    def create_stream(self, device_id: int) -> Stream:
        check_device(self, device_id)
        self._streams += 1
        return Stream(HOST, device_id, self._streams)

    def _default_stream(self, device_id: int) -> Stream:
        return self._default

    def synchronize(self, device_id: int, stream: Stream | None = None) -> None:
        if stream is not None:
            self.check_stream("synchronize", stream, device_id)

    def sync_stream_from_to(self, device_id: int, first: Stream, then: Stream) -> None:
        for stream in (first, then):
            self.check_stream("sync_stream_from_to", stream, device_id)

    def record_event(self, device_id: int, stream: Stream | None = None) -> Event:
        return Event(HOST, device_id, time.perf_counter())

    def wait_event(self, event: Event) -> None:
        self.check_event("wait_event", event)

    def elapsed(self, first: Event, then: Event) -> float:
        for event in (first, then):
            self.check_event("elapsed", event)
        assert isinstance(first.owner, float)
        assert isinstance(then.owner, float)
        return then.owner - first.owner

    def load(self, device_id: int, image: bytes, kernels: Sequence[str]) -> Program:
        raise UsageError("cpu(0) runs functions that a linker takes, no kernels; see load_module")


def cache_sizes() -> dict[str, int]:
    """Bytes of the caches that core 0 sees, ``{"L1d": ..., "L2": ..., "L3": ...}``."""
    sizes = {}
    for index in sorted(_CACHES.glob("index[0-9]*")):
        kind = (index / "type").read_text().strip()
        match = re.fullmatch(r"([0-9]+)K", (index / "size").read_text().strip())
        if kind == "Instruction" or match is None:
            continue
        level = (index / "level").read_text().strip()
        sizes[f"L{level}d" if level == "1" else f"L{level}"] = int(match[1]) * 1024
    return sizes


def _clock() -> int | None:
    try:
        return int(CLOCK_FILE.read_text())
    except (OSError, ValueError):
        return None


def _available() -> int | None:
    """Bytes that new programs may take, as Linux estimates it."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.M)
    return int(match[1]) * 1024 if match else None


#: Attributes that a CPU has; all others are None: it has no blocks and no warps.
_ATTRIBUTES: dict[str, Callable[[], AttributeValue]] = {
    "device_name": lambda: env.cpu_info()[0],
    "multi_processor_count": lambda: len(env.usable_cpus()),
    "max_clock_rate": _clock,
    "total_global_memory": env.total_memory,
    "available_global_memory": _available,
    "l2_cache_size_bytes": lambda: cache_sizes().get("L2"),
}

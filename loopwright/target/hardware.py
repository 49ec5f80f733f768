"""Parameters of a target's machine for cost models and rules, in one value."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

_SYSFS = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
#: Sizes taken where the system does not say: a common size of each level.
DEFAULTS = {1: 32 << 10, 2: 1 << 20, 3: 16 << 20}


@dataclass(frozen=True, slots=True)
class Caches:
    """Bytes of the data caches of the first three levels, and of a line."""

    l1: int
    l2: int
    l3: int
    line: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Bytes of levels 1 to 3."""
        return self.l1, self.l2, self.l3


@lru_cache(maxsize=1)
def host_caches() -> Caches:
    """The caches that Linux names for the first CPU; `DEFAULTS` and lines of 64 bytes elsewhere.

    The third level is shared by all cores. Where there is none, it is as large as the second.
    """
    return read_caches(_SYSFS)


def read_caches(folder: Path) -> Caches:
    """The caches described by a folder laid out as sysfs has it; defaults as of `host_caches`."""
    sizes: dict[int, int] = {}
    line = 64
    for index in sorted(folder.glob("index*")):
        with suppress(OSError, ValueError):  # the system does not tell all of this cache
            if _text(index, "type") == "Instruction":
                continue
            size = _text(index, "size")
            sizes[int(_text(index, "level"))] = int(size.rstrip("KMG")) * _UNITS.get(size[-1:], 1)
            line = int(_text(index, "coherency_line_size"))
    if not sizes:
        sizes = dict(DEFAULTS)
    l1 = sizes.get(1, DEFAULTS[1])
    l2 = sizes.get(2, max(l1, DEFAULTS[2]))
    return Caches(l1, l2, max(sizes.get(3, l2), l2), line if line > 0 else 64)


def caches_of(options: Mapping[str, Any]) -> Caches:
    """The host's caches, except as options of a target say; a level that is not given is at least
    as large as the one below it."""
    host = host_caches()
    l1 = options.get("l1_cache_bytes") or host.l1
    l2 = options.get("l2_cache_bytes") or max(l1, host.l2)
    l3 = options.get("l3_cache_bytes") or max(l2, host.l3)
    return Caches(l1, l2, l3, options.get("cache_line_bytes") or host.line)


def _text(index: Path, name: str) -> str:
    return (index / name).read_text().strip()


@dataclass(frozen=True, slots=True)
class HardwareParams:
    """Parameters of a target's machine; Ansor's ``HardwareParams``.

    Each has an option of the target that overrides what was found. Sizes of caches and vectors are
    those of a CPU, the last five those of a device that runs kernels; of the other kind all are 0.

    Attributes:
        num_cores: threads of parallel loops (option ``num_threads``), or processors that run blocks
            (``multi_processor_count``); 0 for all that this machine has.
        vector_unit_bytes: bytes of a vector register (``prefer_vector_width``, in bits), or what a
            thread of a device reads or writes at once (``max_vector_bytes``).
        vector_registers: vector registers of a core (``mattr``).
        caches: bytes of the data caches and of a line (``l1_cache_bytes`` and so on).
        max_shared_memory_per_block, max_local_memory_per_thread: bytes of shared memory of a block,
            and of a thread's own buffers (options of the same names, as ``max_threads_per_block``).
        max_vthread_extent: virtual threads of one loop (``max_vthread``).
        warp_size: threads that run in lockstep (``thread_warp_size``).

    Example:
        >>> target = lw.Target("llvm -mcpu=x86-64-v3 -l2-cache-bytes=524288 -num-threads=4")
        >>> print(target.hardware.caches.l2, target.hardware.vector_unit_bytes)
        524288 32
    """

    num_cores: int
    vector_unit_bytes: int
    vector_registers: int
    caches: Caches
    max_threads_per_block: int = 0
    max_shared_memory_per_block: int = 0
    max_local_memory_per_thread: int = 0
    max_vthread_extent: int = 0
    warp_size: int = 0

    @property
    def cache_line_bytes(self) -> int:
        """Bytes of a cache line."""
        return self.caches.line

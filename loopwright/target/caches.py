"""Sizes of the host's data caches, for estimates of what fits where."""

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
    for index in filter(_holds_data, sorted(folder.glob("index*"))):
        with suppress(OSError, ValueError):  # the system does not tell all of this cache
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


def _holds_data(index: Path) -> bool:
    try:
        return _text(index, "type") != "Instruction"
    except OSError:
        return False


def _text(index: Path, name: str) -> str:
    return (index / name).read_text().strip()

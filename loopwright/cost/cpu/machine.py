"""Properties of a CPU that features and the analytical model use."""

from __future__ import annotations

from dataclasses import dataclass

from loopwright.runtime import pool
from loopwright.target import Caches, Target, caches_of

_HALF = ("znver4",)  #: CPUs that do vectors of 64 bytes in two halves


@dataclass(frozen=True, slots=True)
class Machine:
    threads: int
    caches: Caches
    vector_bytes: int
    registers: int
    datapath: int  # bytes of a vector that one unit processes at once

    def lanes(self, itemsize: int) -> int:
        return max(1, self.vector_bytes // itemsize)


def machine_of(target: Target) -> Machine:
    wide = int(target.vector_bytes)
    threads = int(target.options.get("num_threads", 0)) or pool.get_num_threads()
    half = wide == 64 and target.options.get("mcpu") in _HALF
    return Machine(
        threads,
        caches_of(target.options),
        wide,
        target.vector_registers,
        wide // 2 if half else wide,
    )

"""What features and the analytical model know of the machine that a task is tuned for."""

from __future__ import annotations

from dataclasses import dataclass

from loopwright.runtime import pool
from loopwright.target import Target
from loopwright.target.caches import Caches, caches_of

#: CPUs that do vectors of 64 bytes in two halves.
_HALF = ("znver4",)


@dataclass(frozen=True, slots=True)
class Machine:
    """Threads of parallel loops, caches, and the vector unit.

    ``datapath`` is how many bytes of a vector one unit works on at once.
    """

    threads: int
    caches: Caches
    vector_bytes: int
    registers: int
    datapath: int

    def lanes(self, itemsize: int) -> int:
        """Elements of a vector register."""
        return max(1, self.vector_bytes // itemsize)


def machine_of(target: Target) -> Machine:
    """The machine of a target: what its options say, else this host."""
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

"""What features and the analytical model know of the machine that a task is tuned for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loopwright.runtime import pool
from loopwright.target.caches import Caches, host_caches


@dataclass(frozen=True, slots=True)
class Machine:
    """Threads of parallel loops, caches, and the vector unit."""

    threads: int
    caches: Caches
    vector_bytes: int
    registers: int

    def lanes(self, itemsize: int) -> int:
        """Elements of a vector register."""
        return max(1, self.vector_bytes // itemsize)


def machine_of(target: Any) -> Machine:
    """The machine of a target; its caches are taken to be those of this host."""
    options = getattr(target, "options", {})
    wide = int(target.vector_bytes)
    many = wide == 64 or "+neon" in str(options.get("mattr", ""))
    threads = int(options.get("num_threads", 0)) or pool.get_num_threads()
    return Machine(threads, host_caches(), wide, 32 if many else 16)

"""Cycles in which data comes to a core from the levels of memory behind its first cache.

Levels work side by side, each at its rate: prefetching asks the third level for what the second
will be asked for next. What an earlier stage touched in the same iteration of the loops around both
is still there, where all that the iteration touches fits.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.cost.cpu.buffer_usage import BufferUsage
from loopwright.cost.cpu.footprint import Touched, Touches
from loopwright.cost.cpu.machine import Machine
from loopwright.cost.symbolic.symbols import Number, at_most, most, total, where

#: Bytes per cycle that come from the second level, the third level, and memory.
L2, L3, MEMORY = 48, 22, 5
#: Bytes of a way of the first cache, which is looked up by the address within a page; ways of the
#: other caches.
PAGE, WAYS = 4096, 16
#: How much longer a line takes that falls into a crowded set of the second cache: nothing asks for
#: it ahead of time, since what was asked for ahead is gone again.
CROWDED = 5


class Memory:
    """The memory behind the first cache, for all stages of a program.

    Args:
        stages: what each stage touches, in the order in which they run.
        usage: who reads and writes which buffer.
    """

    def __init__(self, stages: Sequence[Touches], usage: BufferUsage) -> None:
        self._stages, self._usage = list(stages), usage

    def cycles(self, t: Touches) -> Number:
        """Cycles of all that one stage touches, its threads together."""
        out: Number = 0
        for capacity, way, rate, crowded in _levels(t.machine):
            moved = total(self._moved(t, a, capacity, way, crowded) for a in t.accesses)
            out = most(out, where(at_most(self._usage.used, capacity), 0, moved / rate))
        return out

    def _moved(self, t: Touches, a: Touched, capacity: int, way: int, crowded: int) -> Number:
        moved = t.moved(a, capacity) + t.crowded(a, capacity, way) * crowded
        for depth in self._touched_before(t, a):
            together = total(s.bytes[depth] for s in self._stages if _common(s, t) >= depth)
            moved = where(at_most(together, capacity), 0, moved)
        return moved

    def _touched_before(self, t: Touches, a: Touched) -> list[int]:
        """How many loops are around this stage and earlier ones that touch the same buffer."""
        buffer = a.access.buffer.stage
        found = set()
        for s in self._stages[: self._stages.index(t)]:
            common = _common(s, t)
            if common and any(x.access.buffer.stage == buffer for x in s.accesses):
                found.add(common)
        return sorted(found)


def _levels(machine: Machine) -> list[tuple[int, int, int, int]]:
    """Capacity, bytes of a way, bytes a cycle from behind it, and the factor of crowded lines."""
    caches = machine.caches
    last = caches.l3 // machine.threads
    return [
        (caches.l1, PAGE, L2, 1),
        (caches.l2, caches.l2 // WAYS, L3, CROWDED),
        (last, last // WAYS, MEMORY, 1),
    ]


def _common(s: Touches, t: Touches) -> int:
    """Loops that are around both of two stages."""
    count = 0
    for x, y in zip(s.nest.loops, t.nest.loops, strict=False):
        if x.key != y.key:
            break
        count += 1
    return count

"""Cycles in which data comes to a core from the memory levels behind its first cache.

Levels work in parallel, each at its rate: prefetching asks the third level for the data that the
second will be asked for next. Data of an earlier stage in the same iteration of the loops around
both is still cached where all data of the iteration fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopwright.cost.cpu.buffer_usage import BufferUsage
from loopwright.cost.cpu.footprint import PAGE, Touched, Touches
from loopwright.cost.cpu.machine import Machine
from loopwright.cost.symbolic.symbols import Number, at_most, least, most, product, total, where

#: Bytes per cycle that come from the second level, the third level, and memory.
L2, L3, MEMORY = 40, 22, 5
#: Ways of the caches but the first, a way of which is a page.
WAYS = 16
#: Share of the first cache's ways that a loop can count on: replacement is not quite least recently
#: used, and other lines come in between.
COUNTED_ON = 0.75
#: Factor for lines that fall into a crowded set of the second cache: prefetched lines are evicted
#: before their use.
CROWDED = 5
#: Share of the traffic of a written line that streaming stores save: it is not read before, only
#: written back.
UNREAD = 0.5
#: Rows that a core prefetches as streams; cycles of a piece of a row where there are more of them,
#: in the third cache and in memory: nothing was prefetched, and the address of another page has to
#: be looked up.
STREAMS, JUMP_L3, JUMP_MEMORY = 32, 10, 30
#: Pages whose addresses a core caches, and cycles to move to another one, even if its data is
#: cached.
PAGES, PAGE_MOVE = 64, 6


@dataclass(frozen=True, slots=True)
class Level:
    capacity: int  # bytes
    way: int  # bytes of a way
    ways: float  # ways that can be counted on
    rate: int  # bytes per cycle from behind it
    crowded: int  # factor by which lines in crowded sets take longer
    jump: int  # cycles to move to another page behind it


class Memory:
    """Memory behind the first cache for all stages of a program, given in execution order."""

    def __init__(self, stages: Sequence[Touches], usage: BufferUsage) -> None:
        self._stages, self._usage = list(stages), usage

    def cycles(self, t: Touches) -> Number:
        """Cycles for all data that one stage touches, summed over its threads."""
        asked: Number = t.nest.stage.nontemporal
        through = self._through_caches(t, t)
        if isinstance(asked, int) and not asked:
            return through
        loads = t.without_store()
        # All of the result goes to memory, also where a cache would have held it.
        stored = t.moved(t.accesses[:1], t.fitting(t.machine.caches.l3))
        past = stored * UNREAD / MEMORY
        return where(asked, self._through_caches(t, loads) + past, through)

    def _through_caches(self, t: Touches, part: Touches) -> Number:
        """Cycles in which the data of a stage, or of a part of it, comes through the caches."""
        out: Number = 0
        for level in _levels(t.machine):
            moved = self._moved(t, part, level)
            cycles = total(moved.values()) / level.rate
            if level.jump:
                cycles = cycles + total(n * _jumps(a) for a, n in moved.items()) * level.jump
            out = most(out, where(at_most(self._usage.used, level.capacity), 0, cycles))
        return most(out, part.page_moves(PAGES) * PAGE_MOVE)

    def _moved(self, stage: Touches, t: Touches, level: Level) -> dict[Touched, Number]:
        """Bytes of each access of a part of a stage from behind a level, weighted by slowness."""
        before = {a: self._touched_before(stage, a) for a in t.accesses}
        fits = t.fitting(level.capacity)
        out = {a: t.moved([a], fits) for a in t.accesses}
        for a, depths in before.items():
            for depth in depths:
                together = total(s.bytes[depth] for s in self._stages if _common(s, t) >= depth)
                out[a] = where(at_most(together, level.capacity), 0, out[a])
        crowded = t.crowded(level.way)
        if not crowded:
            return out
        # Sets that need a few lines more than they have lose some, and lose all that need twice.
        ways = t.ways(level.way)
        held = [where(at_most(n, level.ways), x, False) for n, x in zip(ways, fits, strict=True)]
        lost = t.outermost(fits, [least(most(n / level.ways - 1, 0), 1) for n in ways], 0)
        for a in crowded:
            again = t.moved([a], held) - t.moved([a], fits)
            out[a] = out[a] + again * lost * level.crowded
        return out

    def _touched_before(self, t: Touches, a: Touched) -> list[int]:
        """Numbers of loops around both this stage and earlier ones that touch the same buffer."""
        buffer = a.access.buffer.stage
        found = set()
        for s in self._stages[: self._stages.index(t)]:
            common = _common(s, t)
            if common and any(x.access.buffer.stage == buffer for x in s.accesses):
                found.add(common)
        return sorted(found)


def _jumps(a: Touched) -> Number:
    """Page changes of an access per byte: with more rows than prefetch streams, each piece of a row
    is a page change.
    """
    size, dims = a.access.buffer.itemsize, a.access.buffer.dims
    if len(dims) < 2:
        return 0
    apart = least(dims[-2].stride * size / PAGE, 1)
    out: Number = 0
    for *rows, row in a.boxes:
        out = where(at_most(product(rows), STREAMS), out, apart / (row * size))
    return out


def _levels(machine: Machine) -> list[Level]:
    caches = machine.caches
    last = caches.l3 // machine.threads
    return [
        Level(caches.l1, PAGE, caches.l1 / PAGE * COUNTED_ON, L2, 1, 0),
        Level(caches.l2, caches.l2 // WAYS, WAYS, L3, CROWDED, JUMP_L3),
        Level(last, last // WAYS, WAYS, MEMORY, 1, JUMP_MEMORY),
    ]


def _common(s: Touches, t: Touches) -> int:
    """Number of loops around both of two stages."""
    count = 0
    for x, y in zip(s.nest.loops, t.nest.loops, strict=False):
        if x.key != y.key:
            break
        count += 1
    return count

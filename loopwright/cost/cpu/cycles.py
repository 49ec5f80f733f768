"""Estimated cycles of a schedule, stage by stage.

A roofline (Williams et al., CACM 2009) over the core and each level of memory. Rates are those of a
recent CPU, per core and cycle: the order of candidates matters, not the absolute time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from loopwright.cost.cpu.core import OPERATIONS, Core, operations
from loopwright.cost.cpu.footprint import PAGE, BufferUsage, Touched, Touches, kept
from loopwright.cost.cpu.machine import Machine
from loopwright.cost.symbolic.index_steps import extent_of
from loopwright.cost.symbolic.loop_nest import nests_of
from loopwright.cost.symbolic.symbols import Number, at_most, least, most, product, total, where
from loopwright.schedule import Attach, FuseRel, Shares, SplitRel, StageId, StageState, State


def unfused(state: State) -> State:
    """State in which the original loops replace fused parallel ones, nested.

    A fused loop runs its inner loop again in each iteration of the outer one, and touches data that
    moves with the inner one again: only two loops show that. The result is no valid schedule state.
    """
    stages: dict[StageId, StageState] = {}
    innermost: dict[tuple[StageId, str], str] = {}
    for sid, stage in state.stages.items():
        stages[sid], ends = _unfused(stage)
        innermost |= {(sid, fused): inner for fused, inner in ends.items()}
    if not innermost:
        return state
    for sid, stage in stages.items():
        at, store = _moved(stage.attach, innermost), stage.store and _moved(stage.store, innermost)
        stages[sid] = replace(stage, attach=at, store=store)
    return replace(state, stages=stages)


def _unfused(stage: StageState) -> tuple[StageState, dict[str, str]]:
    """Stage with its fused parallel loops replaced, and the innermost loop of each."""
    leaves, marks = list(stage.leaves), dict(stage.marks)
    kept: list[SplitRel | FuseRel] = []
    ends: dict[str, str] = {}
    for rel in reversed(stage.relations):
        mark = marks.get(rel.fused) if isinstance(rel, FuseRel) else None
        if not isinstance(rel, FuseRel) or mark is None or mark.kind != "parallel":
            kept.insert(0, rel)
            continue
        at = leaves.index(rel.fused)
        leaves[at : at + 1] = [rel.outer, rel.inner]
        del marks[rel.fused]
        marks |= {rel.outer: mark, rel.inner: mark}
        ends[rel.fused] = rel.inner
    if not ends:
        return stage, ends
    return replace(stage, leaves=tuple(leaves), marks=marks, relations=tuple(kept)), ends


def _moved(at: Attach, innermost: dict[tuple[StageId, str], str]) -> Attach:
    """Attachment point inside the loops of a fused one."""
    while (at.stage, at.loop) in innermost:
        at = replace(at, loop=innermost[at.stage, at.loop])
    return at


#: Bytes per cycle that come from the second level, the third level, and memory.
L2, L3, MEMORY = 40, 22, 5
WAYS = 16  #: ways of the caches but the first, a way of which is a page
#: Share of the first cache's ways that a loop can count on: replacement is not quite least recently
#: used, and other lines come in between.
COUNTED_ON = 0.75
#: Factor for lines that fall into a crowded set of the second cache: prefetched lines are evicted
#: before their use.
CROWDED = 5
#: Share of the traffic of a written line that streaming stores save: it is not read before, only
#: written back.
UNREAD = 0.5
#: Bytes of a kernel's data up to which a result is written into caches at their rate: the last one
#: may be that of a whole host, shared with other guests (64 MiB of one of 260 MiB were written at
#: the rate of memory, and twice as fast past it).
HELD = 1 << 24
#: Cycles of a piece of a row where there are more than `STREAMS` of them, in the third cache and in
#: memory: nothing was prefetched, and the address of another page has to be looked up.
JUMP_L3, JUMP_MEMORY = 10, 30
#: Pages whose addresses a core caches, and cycles to move to another one, even if its data is
#: cached.
PAGES, PAGE_MOVE = 64, 6


#: Cycles for each byte of weights in which a stage waits for them, unless it prefetches them: the
#: rest of its model went through the caches since the last call, and hardware prefetches no page.
COLD = 0.18


# Levels of memory work in parallel, each at its rate: prefetching moves data from the third
# level to the second before it is needed.


@dataclass(frozen=True, slots=True)
class Level:
    capacity: int  # bytes
    way_bytes: int
    effective_ways: float  # those that a loop can count on
    bytes_per_cycle: int  # from behind it
    conflict_penalty: int  # factor by which lines in crowded sets take longer
    page_cross_cycles: int  # to move to another page behind it


class MemoryModel:
    """Memory behind the first cache for all stages of a program, given in execution order."""

    def __init__(
        self, stages: Sequence[Touches], usage: BufferUsage, cold: Collection[StageId] = ()
    ) -> None:
        self._stages, self._usage, self._cold = list(stages), usage, cold

    @kept
    def _bytes_together(self, t: Touches, depth: int) -> Number:
        """Bytes that all stages touch inside the loops of a depth around one of them."""
        return total(s.bytes[depth] for s in self._stages if _common(s, t) >= depth)

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
        written = where(at_most(self._usage.used, HELD), 0, stored / MEMORY)
        return where(asked, self._through_caches(t, loads) + past, most(through, written))

    def wait(self, t: Touches) -> Number:
        """Cycles in which a stage waits for weights, summed over its threads."""
        fits = t.fitting(int(t.machine.caches.l2 * COUNTED_ON))
        out: Number = 0
        for a in t.accesses[1:]:
            if a.access.buffer.stage in self._cold:
                each = COLD + a.jumps * JUMP_L3
                moved = t.moved([a], fits) * _threads_reading(t, a)
                out = out + moved * _not_fetched(t, a) * each
        return out

    def _through_caches(self, t: Touches, part: Touches) -> Number:
        """Cycles in which the data of a stage, or of a part of it, comes through the caches."""
        out: Number = 0
        for level in _levels(t.machine):
            moved = self._moved(t, part, level)
            cycles = total(moved.values()) / level.bytes_per_cycle
            if level.page_cross_cycles:
                jumps = total(n * a.jumps for a, n in moved.items())
                cycles = cycles + jumps * level.page_cross_cycles
            out = most(out, where(at_most(self._usage.used, level.capacity), 0, cycles))
        return most(out, part.page_moves(PAGES) * PAGE_MOVE)

    def _moved(self, stage: Touches, t: Touches, level: Level) -> dict[Touched, Number]:
        """Bytes of each access of a part of a stage from behind a level, weighted by slowness."""
        fits = t.fitting(level.capacity)
        out = {a: t.moved([a], fits) for a in t.accesses}
        for a in t.accesses:  # data of an earlier stage is cached where all of the iteration fits
            for depth in self._touched_before(stage, a):
                here = at_most(self._bytes_together(t, depth), level.capacity)
                out[a] = where(here, 0, out[a])
        crowded = t.crowded(level.way_bytes)
        if not crowded:
            return out
        # Sets that need a few lines more than they have lose some, and lose all that need twice.
        ways = t.ways(level.way_bytes)
        held = [
            where(at_most(n, level.effective_ways), x, False)
            for n, x in zip(ways, fits, strict=True)
        ]
        lost = t.outermost(fits, [least(most(n / level.effective_ways - 1, 0), 1) for n in ways], 0)
        for a in crowded:
            again = t.moved([a], held) - t.moved([a], fits)
            out[a] = out[a] + again * lost * level.conflict_penalty
        return out

    @kept
    def _touched_before(self, t: Touches, a: Touched) -> list[int]:
        """Numbers of loops around both this stage and earlier ones that touch the same buffer."""
        buffer = a.access.buffer.stage
        depths = set()
        for s in self._stages[: self._stages.index(t)]:
            common = _common(s, t)
            if common and any(x.access.buffer.stage == buffer for x in s.accesses):
                depths.add(common)
        return sorted(depths)


def _threads_reading(t: Touches, a: Touched) -> Number:
    """Number of threads that read all of an access: 1 where they share it out."""
    out: Number = 1
    for x, moves in reversed(list(zip(t.nest.loops, a.moves, strict=True))):
        if x.mark == "parallel":
            out = where(at_most(x.extent, 1), out, 1 if moves else t.machine.threads)
    return out


def _not_fetched(t: Touches, a: Touched) -> Number:
    """Share of the data of an access that a stage does not prefetch: all of it, or that of the
    first task of each thread."""
    loops = zip(t.nest.loops, a.moves, strict=True)
    panels = product(x.extent for x, moves in loops if moves and x.mark == "parallel")
    out: Number = 1
    for note in t.nest.stage.notes:
        if isinstance(note, Shares) and note.ahead.source == a.access.buffer.stage:
            first = least(t.machine.threads / panels, 1)
            out = where(at_most(note.ahead.offset, 0), out, first)
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
    pairs = zip(s.nest.loops, t.nest.loops, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].key == pair[1].key, pairs))


#: Share of the shorter one of computing and waiting for data that does not overlap: little, since
#: data that is read along memory is prefetched.
APART = 0.15
#: Cycles of starting a parallel loop and waiting for its end, and more for each thread: set high,
#: so that threads are woken where they bring more than a loop of calls would show.
LAUNCH, LAUNCH_THREAD = 7000, 550


def slowdown(state: State, machine: Machine, constants: Collection[StageId] = ()) -> Number:
    """Cycles of a schedule over those of its arithmetic at the machine's peak, at least about 1.

    ``constants`` are inputs known before the call: stages at root computed from these alone, such
    as a packed copy, cost nothing. Split factors of ``state`` may be `Sym`.
    """
    computed = [op for op in (state.stages[i].op for i in state.order) if op.body is not None]
    work = total(product(map(extent_of, op.extents)) * operations(op) for op in computed)
    lanes = machine.datapath // 4 * OPERATIONS * machine.threads
    return cycles(state, machine, constants) / most(work / lanes, 1)


def cycles(state: State, machine: Machine, constants: Collection[StageId] = ()) -> Number:
    nests = nests_of(state)
    usage = BufferUsage(nests)
    stages = [Touches(nest, machine) for nest in nests]
    as_loops = unfused(state)
    cached = stages if as_loops is state else [Touches(n, machine) for n in nests_of(as_loops)]
    # Constant inputs, and the stages at root that need no others.
    done = set(constants)
    for nest in nests:
        sources = {read.source for read in nest.op.reads()}
        if sources and sources <= done and not nest.attached:
            done.add(nest.stage.id)
    memory = MemoryModel(cached, usage, done)
    timed = [(t, c) for t, c in zip(stages, cached, strict=True) if t.nest.stage.id not in done]
    return total(stage_cycles(t, usage, memory.cycles(c), memory.wait(c)) for t, c in timed)


def stage_cycles(t: Touches, usage: BufferUsage, moved: Number, wait: Number = 0) -> Number:
    """Cycles of one stage, summed over its threads, if its data takes ``moved`` cycles to come, and
    ``wait`` more in which it does nothing else."""
    busy = Core(t, usage.resident).cycles
    cycles = most(busy, moved) + least(busy, moved) * APART + wait
    threads, nest = t.machine.threads, t.nest
    cycles = cycles / most(t.balance * threads, 1)
    if threads == 1:
        return cycles
    # One iteration needs no other thread to be woken.
    own = nest.loops[len(nest.loops) - nest.own :]
    each = LAUNCH + LAUNCH_THREAD * threads
    return cycles + total(where(at_most(x.extent, 1), 0, each) for x in own if x.mark == "parallel")

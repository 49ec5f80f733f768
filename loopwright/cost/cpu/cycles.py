"""Estimated cycles of a schedule, stage by stage.

A roofline (Williams et al., CACM 2009) over the core (`loopwright.cost.cpu.core`) and each level of
memory, with parallel loops and tasks that leave threads idle. Rates are those of a recent CPU, per
core and cycle: the order of candidates matters, not the absolute time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from loopwright.cost.cpu.buffer_usage import BufferUsage
from loopwright.cost.cpu.core import OPERATIONS, Core, operations
from loopwright.cost.cpu.footprint import Touches
from loopwright.cost.cpu.machine import Machine
from loopwright.cost.cpu.memory import Memory
from loopwright.cost.cpu.unfused import unfused
from loopwright.cost.symbolic.index_steps import extent_of
from loopwright.cost.symbolic.loop_nest import StageNest, nests_of
from loopwright.cost.symbolic.symbols import (
    Number,
    at_most,
    least,
    most,
    product,
    total,
    where,
)
from loopwright.schedule.state import StageId, State

#: Share of the shorter one of computing and waiting for data that does not overlap: little, since
#: data that is read along memory is prefetched.
APART = 0.15
#: Cycles of starting a parallel loop and waiting for its end, and more for each thread: set high,
#: so that threads are woken where they bring more than a loop of calls would show.
LAUNCH, LAUNCH_THREAD = 7000, 550


def slowdown(
    state: State, machine: Machine, constants: Collection[StageId] = frozenset()
) -> Number:
    """Cycles of a schedule over those of its arithmetic at the machine's peak, at least about 1.

    ``constants`` are inputs known before the program is called: stages at root computed from these
    alone, such as a packed copy, cost nothing. Split factors of ``state`` may be `Sym`.
    """
    return cycles(state, machine, constants) / _ideal(state, machine)


def cycles(state: State, machine: Machine, constants: Collection[StageId] = frozenset()) -> Number:
    """Cycles of a schedule, with the arguments of `slowdown`."""
    nests = nests_of(state)
    usage = BufferUsage(nests)
    stages = [Touches(nest, machine) for nest in nests]
    as_loops = unfused(state)
    cached = stages
    if as_loops is not state:
        cached = [Touches(nest, machine) for nest in nests_of(as_loops)]
    memory = Memory(cached, usage)
    done = _done_before(nests, constants)
    timed = [(t, c) for t, c in zip(stages, cached, strict=True) if t.nest.stage.id not in done]
    return total(stage_cycles(t, usage, memory.cycles(c)) for t, c in timed)


def _done_before(nests: Sequence[StageNest], constants: Collection[StageId]) -> set[StageId]:
    """Constant inputs, and the stages at root that need no others."""
    done = set(constants)
    for nest in nests:
        sources = {read.source for read in nest.op.reads()}
        if sources and sources <= done and not nest.attached:
            done.add(nest.stage.id)
    return done


def _ideal(state: State, machine: Machine) -> Number:
    """Cycles of the arithmetic on all lanes of all threads, whatever the schedule."""
    ops = [state.stages[i].op for i in state.order]
    work = total(
        product(extent_of(n) for n in op.extents) * operations(op)
        for op in ops
        if op.body is not None
    )
    lanes = machine.datapath // 4 * OPERATIONS * machine.threads
    return most(work / lanes, 1)


def stage_cycles(t: Touches, usage: BufferUsage, moved: Number) -> Number:
    """Cycles of one stage, summed over its threads, if its data takes ``moved`` cycles to come."""
    busy = Core(t, usage.resident).cycles
    cycles = most(busy, moved) + least(busy, moved) * APART
    at_once = most(t.balance * t.machine.threads, 1)
    return cycles / at_once + _launches(t.nest, t.machine.threads)


def _launches(nest: StageNest, threads: int) -> Number:
    """Cycles to start the parallel loop of a stage; one thread, or one iteration, needs none."""
    if threads == 1:
        return 0
    own = nest.loops[len(nest.loops) - nest.own :]
    each = LAUNCH + LAUNCH_THREAD * threads
    return total(where(at_most(x.extent, 1), 0, each) for x in own if x.mark == "parallel")

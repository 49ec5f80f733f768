"""Cycles that a schedule takes, estimated stage by stage.

A roofline (Williams et al., CACM 2009) over what the core does (`loopwright.cost.cpu.core`)
and each level of memory; parallel loops, and tasks that leave threads idle. Rates are those of a
recent CPU, per core and cycle: what matters is the order of candidates.
"""

from __future__ import annotations

from loopwright.cost.cpu.buffer_usage import BufferUsage
from loopwright.cost.cpu.core import OPERATIONS, Core, operations
from loopwright.cost.cpu.footprint import Touches
from loopwright.cost.cpu.machine import Machine
from loopwright.cost.cpu.stage_order import by_arithmetic
from loopwright.cost.symbolic.index_steps import extent_of
from loopwright.cost.symbolic.loop_nest import StageNest
from loopwright.cost.symbolic.symbols import Number, at_most, least, most, product, total, where
from loopwright.schedule.state import State

#: Bytes per cycle that come from the second level, the third level, and memory.
L2, L3, MEMORY = 32, 16, 5
#: Cycles a thread of starting a parallel loop while the pool still spins: 0.3 us of two threads.
LAUNCH = 1000


def slowdown(state: State, machine: Machine) -> Number:
    """Cycles of a schedule over those of its arithmetic at the machine's peak, at least about 1.

    Args:
        state: the schedule's state; split factors may be `Sym`.
        machine: what it runs on.
    """
    nests = by_arithmetic(state)
    usage = BufferUsage(nests)
    cycles = total(stage_cycles(Touches(nest, machine), usage) for nest in nests)
    return cycles / _ideal(state, machine)


def _ideal(state: State, machine: Machine) -> Number:
    """Cycles of the arithmetic on all lanes of all threads, however it is scheduled."""
    ops = [state.stages[i].op for i in state.order]
    work = total(
        product(extent_of(n) for n in op.extents) * operations(op)
        for op in ops
        if op.body is not None
    )
    lanes = machine.datapath // 4 * OPERATIONS * machine.threads
    return most(work / lanes, 1)


def stage_cycles(t: Touches, usage: BufferUsage) -> Number:
    """Cycles of one stage, all its threads together."""
    busy = Core(t, usage.resident).cycles
    caches = t.machine.caches
    levels = ((caches.l1, L2), (caches.l2, L3), (caches.l3 // t.machine.threads, MEMORY))
    moved = total(where(at_most(usage.used, c), 0, t.traffic(c) / rate) for c, rate in levels)
    cycles = most(busy, moved) + least(busy, moved) / 4
    at_once = most(t.balance * t.machine.threads, 1)
    launches = LAUNCH * t.machine.threads if _launches(t.nest) else 0
    return cycles / at_once + launches


def _launches(nest: StageNest) -> bool:
    own = nest.loops[len(nest.loops) - nest.own :]
    return any(x.mark == "parallel" for x in own)

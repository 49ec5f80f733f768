"""Cycles that a schedule takes, estimated stage by stage.

A roofline (Williams et al., CACM 2009) over the arithmetic units, the load and store ports and each
level of memory; accumulators that exceed the vector registers are loaded and stored around every
operation; few accumulators wait for one another; loops, packing and uneven tasks cost what they
cost. Rates are those of a recent CPU, per core and cycle: what matters is the order of candidates.
"""

from __future__ import annotations

from math import gcd

from loopwright.schedule.state import State
from loopwright.tuner.features.itervar import ranked
from loopwright.tuner.features.machine import Machine
from loopwright.tuner.features.nest import StageNest
from loopwright.tuner.features.symbols import Number, at_most, ceil_div, least, most, where
from loopwright.tuner.features.touch import Touched, Touches
from loopwright.tuner.features.work import work_of

#: Per cycle: vector operations, vector loads, vector stores.
OPERATIONS, LOADS, STORES = 2, 2, 1
#: Bytes per cycle that come from the second level, the third level, and memory.
L2, L3, MEMORY = 64, 16, 5
#: Cycles until a result can be used; of an iteration of a loop; of starting a parallel loop.
LATENCY, LOOP, LAUNCH = 4, 2, 12000
#: Ways of the first cache, and loads that one costs which falls out of it each time.
WAYS, CONFLICT = 8, 3
#: Instructions of an unrolled body that still come fast.
BODY = 1200
#: Cycles of a division and of a function of a vector.
DIVISION, FUNCTION = 8, 20


def slowdown(state: State, machine: Machine) -> Number:
    """Cycles of a schedule over those of its arithmetic at the machine's peak, at least about 1.

    Args:
        state: the schedule's state; split factors may be `Sym`.
        machine: what it runs on.
    """
    nests = ranked(state)
    cycles: Number = 0
    ideal: Number = 0
    for nest in nests:
        cycles = cycles + stage_cycles(Touches(nest, machine))
        ideal = ideal + _ideal(nest, machine)
    return cycles / most(ideal, 1)


def _ideal(nest: StageNest, machine: Machine) -> float:
    """Cycles of the useful arithmetic on all lanes of all threads."""
    n: Number = 1
    for extent in [*nest.op.shape, *(a.extent for a in nest.op.reduce_axes)]:
        n = n * extent
    size = nest.accesses[0].buffer.itemsize
    return n * most(_operations(nest), 1) / (OPERATIONS * machine.lanes(size) * machine.threads)


def _operations(nest: StageNest) -> int:
    """Vector operations of one element; a product and a sum are one."""
    w = work_of(nest.op)
    return max(w.add, w.mul) + w.other + DIVISION * w.div + FUNCTION * w.call


def stage_cycles(t: Touches) -> Number:
    """Cycles of one stage, all its threads together."""
    per_tile = _tile_cycles(t)
    times = t.outer[t.tile]
    loops: Number = 0
    for d in range(t.tile - 1):
        loops = loops + t.outer[d + 1]
    moved = (
        t.traffic(t.machine.caches.l1) / L2
        + t.traffic(t.machine.caches.l2) / L3
        + t.traffic(t.machine.caches.l3 // t.machine.threads) / MEMORY
    )
    busy = most(per_tile * times, moved) + least(per_tile * times, moved) / 4 + loops * LOOP
    at_once = most(t.balance * t.machine.threads, 1)
    launches = LAUNCH * t.machine.threads if _launches(t.nest) else 0
    return busy / at_once + launches


def _launches(nest: StageNest) -> bool:
    own = nest.loops[len(nest.loops) - nest.own :]
    return any(x.mark == "parallel" for x in own)


def _tile_cycles(t: Touches) -> Number:
    """Cycles of one run of what stands inside the unrolled and vectorized loops."""
    store, *loads = t.accesses
    reduction = t.nest.op.reduction is not None
    body = _body(t)
    arithmetic = body * _operations(t.nest) / OPERATIONS
    wanted: Number = 0
    for a in loads:
        wanted = wanted + _loaded(t, a) * _conflict(t, a)
    held = t.vectors(store)
    stored = held * _scatter(t, store)
    if not reduction:
        ports = most(wanted / LOADS, stored / STORES)
        return _fetched(most(arithmetic, ports), body)
    most_held = t.machine.registers - 2
    spilled = most(held - most_held, 0)
    kept = _stays(t, store)
    # What does not stay in registers is loaded and stored around every step of the reduction.
    again: Number = spilled * 2 if kept else held * 2
    ports = most((wanted + again) / LOADS, (spilled if kept else stored) / STORES)
    chain = LATENCY * (body / most(held, 1))
    return _fetched(most(most(arithmetic, ports), chain), body)


def _fetched(cycles: Number, body: Number) -> Number:
    """Cycles of a body with those of fetching it, where it is too long."""
    return cycles * (1 + most(body - BODY, 0) / BODY / 2)


def _body(t: Touches) -> Number:
    """Vector operations of one kind in the body."""
    lanes = t.machine.lanes(t.nest.accesses[0].buffer.itemsize)
    out: Number = 1
    for x in t.nest.loops[t.tile :]:
        out = out * (ceil_div(x.extent, lanes) if x.mark == "vectorized" else x.extent)
    return out


def _loaded(t: Touches, a: Touched) -> Number:
    """Loads of an access in the body: vectors, or elements where lanes lie apart."""
    return t.vectors(a) * _scatter(t, a)


def _conflict(t: Touches, a: Touched) -> Number:
    """How much more the loads of a tile cost where its rows share sets of the first cache.

    Rows that are a power of two apart fall into few sets; what does not stay there is brought from
    the second level each time.
    """
    caches = t.machine.caches
    way = caches.l1 // WAYS
    for d in range(t.tile, len(t.nest.loops)):
        x, stride = t.nest.loops[d], a.strides[d]
        if x.mark != "unrolled" or not isinstance(stride, int) or stride < caches.line:
            continue
        room = way // gcd(stride, way) * WAYS // 2
        return where(at_most(x.extent, room), 1, CONFLICT)
    return 1


def _scatter(t: Touches, a: Touched) -> Number:
    """1 where lanes of an access are neighbours or one element, else the number of lanes."""
    if t.vector_loop is None:
        return 1
    size = a.access.buffer.itemsize
    lanes = least(t.nest.loops[t.vector_loop].extent, t.machine.lanes(size))
    return where(at_most(a.strides[t.vector_loop], size), 1, lanes)


def _stays(t: Touches, store: Touched) -> bool:
    """Whether results stay in registers over the loop around the tile."""
    return t.tile > 0 and not store.moves[t.tile - 1]

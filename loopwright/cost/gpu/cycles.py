"""Cycles of the kernels of a schedule.

A roofline (Williams et al., CACM 2009) over processors and memory, beside the time in which the
warps of a processor wait (Hong and Kim, ISCA 2009: memory and computation of as many warps as there
are overlap), in waves of blocks. Rates are those of a usual card: the order of candidates matters,
not the absolute time.
"""

from __future__ import annotations

from loopwright.cost.gpu.device import GpuProperties
from loopwright.cost.gpu.kernel import GpuKernel, KernelStage, ThreadAccess, kernels_of
from loopwright.cost.symbolic.index_steps import extent_of
from loopwright.cost.symbolic.symbols import (
    Number,
    at_most,
    ceil_div,
    largest,
    least,
    most,
    product,
    total,
    where,
)
from loopwright.ir.kinds import SHARED
from loopwright.schedule import State

_SCHEDULERS = 4  #: warps that issue an instruction in a cycle
_LOOP, _ADDRESS = 2, 1  #: instructions of one iteration of a loop, and of the address of an access
#: Barriers and accesses of shared memory of a combination across threads: a tree of five levels.
_LEVELS = 5
#: Accesses of local memory of a register that is spilled, for each step of the innermost loops.
_SPILL = 2
#: Cycles of a CPU's core for the code of a thread between barriers: an operation, which is hardly
#: ever vectorized there; factors for more results than registers, and for contexts of all threads
#: that fill the first cache; a result loaded from the context and stored back; an iteration of a
#: loop; an access of contexts that leave that cache.
#: Fitted to random points of a product on PoCL.
_SCALAR, _MANY, _FULL, _RESULT, _TURN, _FAR = 0.8, 1.7, 2.1, 2.9, 3.5, 31
#: Results in registers; bytes of contexts that leave room in the first cache, and that it holds.
_HELD, _ROOM, _NEAR = 64, 16 << 10, 48 << 10


def slowdown(state: State, device: GpuProperties) -> Number:
    """Cycles over those of the arithmetic at peak, at least about 1; factors may be `Sym`."""
    ideal = most(_points(state) / (device.processor.lanes * device.processors), 1)
    return cycles(state, device) / ideal


def cycles(state: State, device: GpuProperties) -> Number:
    kernels = kernels_of(state, device)
    # Without any kernel nothing of it can run on the device.
    return total(kernel_cycles(k) for k in kernels) if kernels else _points(state)


def _points(state: State) -> Number:
    """Iterations of all computed stages, whatever the schedule."""
    ops = [state.stages[i].op for i in state.order]
    return total(product(map(extent_of, op.extents)) for op in ops if op.body is not None)


def kernel_cycles(k: GpuKernel) -> Number:
    """Cycles from the launch of a kernel to that of the next."""
    d = k.device
    each = ceil_div(k.grid, d.processors)
    busy = block_cycles(k) * each
    waiting = block_latency(k) * ceil_div(k.grid, k.at_once)
    moved = memory_bytes(k) / d.memory_rate
    bound = most(busy, moved)
    cycles = most(bound, waiting) + least(bound, waiting) / 4 + least(busy, moved) / 4
    # A kernel that does not fit runs nowhere.
    return where(at_most(1, k.resident), cycles, cycles * 16) + d.launch


def block_cycles(k: GpuKernel) -> Number:
    """Cycles in which a block occupies the busiest part of a processor."""
    d = k.device
    arithmetic = total(s.operations * s.iterations * s.warps for s in k.stages) * d.warp
    outside = total(_traffic(a, s, d) for s in k.stages for a in s.accesses if a.scope == "global")
    parts = [arithmetic / d.processor.lanes, shared_wavefronts(k), outside / d.l2_rate]
    if not d.lockstep:
        return largest(parts) + _one_by_one(k)
    return largest([*parts, total(_instructions(s, k) for s in k.stages) / _SCHEDULERS])


def _one_by_one(k: GpuKernel) -> Number:
    """Cycles of a core that runs a block's threads in turn; their contexts lie in memory."""
    out = barriers(k) * k.device.barrier[1] * k.threads
    if not k.meets:
        return out
    contexts = k.threads * k.local_bytes
    for s in k.stages:
        done = s.operations * s.iterations * s.threads
        kept = total(a.requests * s.threads for a in s.accesses if a.scope == "local")
        out = out + done * (_SCALAR + where(at_most(contexts, _ROOM), 0, _FULL))
        out = out + where(at_most(contexts, _NEAR), 0, kept * _FAR) + s.chain * s.threads * _TURN
        if s.nest.op.reduction is not None:
            out = out + s.accesses[0].requests * s.threads * _RESULT
            out = out + where(at_most(s.independent, _HELD), 0, done * _MANY)
    return out


def _instructions(s: KernelStage, k: GpuKernel) -> Number:
    """Instructions of the warps of a block for a stage."""
    accesses = total(a.requests * (1 + _ADDRESS) for a in s.accesses if a.scope != "local")
    spills = k.spilled * _SPILL * s.chain if s.nest.op.reduction is not None else 0
    return (s.operations * s.iterations + accesses + s.chain * _LOOP + spills) * s.warps


def shared_wavefronts(k: GpuKernel) -> Number:
    turns = total(
        a.requests * a.wavefronts * s.warps
        for s in k.stages
        for a in s.accesses
        if a.scope == "shared"
    )
    return turns + total(s.combinations * s.warps * 3 * _LEVELS for s in k.stages)


def _traffic(a: ThreadAccess, s: KernelStage, d: GpuProperties) -> Number:
    """Bytes that a block moves from or to the second-level cache."""
    return a.requests * s.warps * a.sectors * d.segment


def memory_bytes(k: GpuKernel) -> Number:
    """Bytes from and to memory; what blocks share, or the second-level cache holds, comes once."""
    out: Number = 0
    accesses = [(s, a) for s in k.stages for a in s.accesses if a.scope == "global"]
    for s, a in accesses:
        buffer = a.access.buffer
        once = buffer.elements * buffer.itemsize
        traffic = _traffic(a, s, k.device) * k.grid
        again = traffic * a.wave_share(least(k.at_once, k.grid))
        kept = at_most(once, k.device.l2 // 2)
        out = out + where(kept, least(once, traffic), most(least(once, traffic), again))
    return out


def barriers(k: GpuKernel) -> Number:
    """Barriers of a block: around writes of shared memory, and between levels of combinations."""
    out: Number = 0
    for s in k.stages:
        if s.nest.attached and s.nest.scope in SHARED:
            assert s.nest.buffer is not None
            again = where(at_most(s.nest.buffer.places, 1), 2, 1)
            # Number of times that a block computes the stage.
            outside = s.nest.loops[: len(s.nest.loops) - s.nest.own]
            out = out + product(x.extent for x in outside if x.mark != "thread") * again
        if s.crosses:
            out = out + s.combinations * (_LEVELS + 1)
    return out


def block_latency(k: GpuKernel) -> Number:
    """Cycles that a thread of a block waits: for memory, barriers, and its own results."""
    d = k.device
    out = barriers(k) * d.barrier[0]
    for s in k.stages:
        ahead = s.nest.buffer.places if s.nest.buffer is not None else 1
        loads = [a for a in s.accesses[1:] if a.scope == "global"]
        if loads:
            out = out + largest((a.steps for a in loads), 1) * d.memory_latency / ahead
        if any(a.scope == "shared" for a in s.accesses[1:]):
            out = out + s.chain * d.shared_latency
        own = s.operations * s.iterations * most(d.latency / most(s.independent, 1), 1)
        out = out + (own if d.lockstep else 0)
    return out

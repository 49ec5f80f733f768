"""Kernel features, with which rows of the family ``gpu`` begin: blocks, warps, memory of a GPU."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from loopwright.cost.features.feature import AnySlot, Feature, ScheduleFigures, Slot
from loopwright.cost.gpu import cycles
from loopwright.cost.gpu.kernel import GpuKernel, KernelStage, ThreadAccess
from loopwright.cost.symbolic.symbols import Number, largest, most, total

OTHERS = 2  #: kernels besides the main one that have slots


def _accesses(k: GpuKernel, scope: str, write: bool) -> Iterable[tuple[KernelStage, ThreadAccess]]:
    for s in k.stages:
        for a in s.accesses:
            if a.scope == scope and a.access.write == write:
                yield s, a


def _coalescing(k: GpuKernel, write: bool) -> Number:
    """Segments of global memory that a block touches, over those of dense accesses."""
    found = list(_accesses(k, "global", write))
    dense = total(a.requests * s.warps * a.dense for s, a in found)
    return total(a.requests * s.warps * a.sectors for s, a in found) / most(dense, 1)


def _conflicts(k: GpuKernel, write: bool) -> Number:
    """Turns of a block's shared-memory accesses, over those without bank conflicts."""
    found = list(_accesses(k, "shared", write))
    fewest = total(a.requests * s.warps * a.fewest_turns for s, a in found)
    return total(a.requests * s.warps * a.wavefronts for s, a in found) / most(fewest, 1)


def _requests(k: GpuKernel, scope: str) -> Number:
    """Instructions of a block's warps that access a memory scope."""
    both = (*_accesses(k, scope, False), *_accesses(k, scope, True))
    return total(a.requests * s.warps for s, a in both)


_LAUNCH: tuple[Feature[GpuKernel], ...] = (
    Feature("blocks", "blocks", lambda k: k.grid),
    Feature("threads", "threads of a block", lambda k: k.threads),
    Feature("occupancy", "warps that a processor holds of those it could", lambda k: k.occupancy,
            logged=False),
    Feature("cycles", "cycles by the analytical model", cycles.kernel_cycles),
)  # fmt: skip
_KERNEL: tuple[Feature[GpuKernel], ...] = (
    *_LAUNCH,
    Feature("warps", "warps of a block", lambda k: k.warps),
    Feature("vthreads", "virtual threads of a thread", lambda k: k.vthreads),
    Feature("resident", "blocks that a processor holds", lambda k: k.resident),
    Feature("waves", "turns in which blocks run", lambda k: k.waves),
    Feature("tail", "share of the turns' places that have a block", lambda k: k.tail, logged=False),
    Feature("shared", "bytes of shared memory of a block", lambda k: k.shared_bytes),
    Feature("local", "bytes of buffers of a thread", lambda k: k.local_bytes),
    Feature("registers", "registers of a thread, estimated", lambda k: k.registers),
    Feature("spilled", "registers that a thread wants and cannot have", lambda k: k.spilled),
    Feature("unrolled", "copies of the statement with most of them",
            lambda k: largest((s.written for s in k.stages), 1)),
    Feature("independent", "results of a thread that do not wait for one another",
            lambda k: max(k.stages, key=lambda s: s.operations).independent),
    Feature("arithmetic", "operations of the warps of a block",
            lambda k: total(s.operations * s.iterations * s.warps for s in k.stages)),
    Feature("barriers", "barriers of a block", cycles.barriers),
    Feature("global_requests", "accesses of global memory of the warps of a block",
            partial(_requests, scope="global")),
    Feature("shared_requests", "accesses of shared memory of the warps of a block",
            partial(_requests, scope="shared")),
    Feature("load_bytes", "bytes that a thread loads from global memory at once",
            lambda k: largest(a.width for _, a in _accesses(k, "global", False))),
    Feature("load_coalescing", "segments that loads of global memory touch, over the fewest",
            partial(_coalescing, write=False)),
    Feature("store_coalescing", "segments that stores to global memory touch, over the fewest",
            partial(_coalescing, write=True)),
    Feature("load_conflicts", "turns of loads of shared memory, over the fewest",
            partial(_conflicts, write=False)),
    Feature("store_conflicts", "turns of stores to shared memory, over the fewest",
            partial(_conflicts, write=True)),
    Feature("memory", "bytes that come from memory or go there", cycles.memory_bytes),
    Feature("busy", "cycles of the busiest part of a processor, for a block",
            cycles.block_cycles),
    Feature("latency", "cycles that a block waits", cycles.block_latency),
)  # fmt: skip
_SCHEDULE: tuple[Feature[ScheduleFigures], ...] = (
    Feature("kernels", "kernels", lambda p: len(p.kernels), logged=False),
)

SLOTS: tuple[AnySlot, ...] = (
    Slot("", "", _SCHEDULE, lambda p: p),
    Slot("kernel", "kernel of the main stage", _KERNEL, partial(ScheduleFigures.kernel, number=0)),
    *(
        Slot(f"kernel{k}", f"kernel {k + 1} of the others", _LAUNCH,
             partial(ScheduleFigures.kernel, number=k + 1))
        for k in range(OTHERS)
    ),
)  # fmt: skip

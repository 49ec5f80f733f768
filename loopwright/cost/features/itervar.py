"""The features of loops: those of AutoTVM's name, with a fixed length.

The stage with the most arithmetic is described loop by loop (`LOOPS` slots, innermost first; loops
further out share the last one) and, for its store and first `READS` loads, buffer by buffer; three
more stages in short; the rest in sums. What there is not is 0. Counts and bytes are logarithms:
``log2(1 + x)``; shares are as they are. The idea of describing accesses by touched bytes, reuse and
stride is that of AutoTVM (NeurIPS 2018) and Ansor (OSDI 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from loopwright.cost.cpu.arithmetic import Work, work_of
from loopwright.cost.cpu.buffer_usage import Whole
from loopwright.cost.cpu.core import Core
from loopwright.cost.cpu.footprint import Touched, Touches
from loopwright.cost.cpu.machine import Machine
from loopwright.cost.symbolic.index_steps import extent_of, number_of
from loopwright.cost.symbolic.loop_nest import NestLoop, StageNest, nests_of
from loopwright.cost.symbolic.symbols import Number, most, product, total
from loopwright.schedule.state import State

LOOPS, READS, OTHERS = 12, 3, 3
LEVELS = ("l1", "l2", "l3")
_WHOLE = ("flop", "bytes", "stages", "copied", "threads", "lanes")
_MAIN = (
    "iterations",
    "excess",
    "parallel",
    "balance",
    "vector_share",
    "vector_bytes",
    "store_stride",
    "tile",
    "accumulators",
    "live",
    "spilled",
    "independent",
    "loads_per_flop",
    "stores_per_flop",
    "tests",
    "guarded",
    "own_iterations",
    "cycles",
    "reduce_inner",
    "own_loops",
    "outer_loops",
    *(f"traffic_{c}" for c in LEVELS),
    *(f"intensity_{c}" for c in LEVELS),
)
_LOOP = ("extent", "inner", "vectorized", "unrolled", "parallel", "reduce", "bytes", "intensity")
_ACCESS = ("bytes", "stride", "reuse")
_OTHER = (
    "iterations",
    "excess",
    "parallel",
    "balance",
    "vector_share",
    "tests",
    "cycles",
    "load_stride",
    "store_stride",
    "buffer",
    "region",
    "traffic_l1",
    "traffic_l2",
)
#: Features that are shares or flags, not counts: no logarithm is taken.
_SHARES = (
    "balance",
    "vector_share",
    "vectorized",
    "unrolled",
    "reduce",
    "loads_per_flop",
    "stores_per_flop",
    "own_loops",
    "outer_loops",
    "stages",
)


#: Names of the features that do not describe single loops.
SUMS = (
    *_WHOLE,
    *(f"main.{x}" for x in _MAIN),
    *(f"stage{k}.{x}" for k in range(OTHERS) for x in _OTHER),
)
_SLOTS = ("store", *(f"load{k}" for k in range(READS)))
#: Names of the features, the same for every task.
NAMES = (
    *SUMS,
    *(f"loop{k}.{x}" for k in range(LOOPS) for x in _LOOP),
    *(f"{a}.loop{k}.{x}" for a in _SLOTS for k in range(LOOPS) for x in _ACCESS),
)


def is_logged(name: str) -> bool:
    """Whether the logarithm of a feature is taken."""
    group, _, what = name.rpartition(".")
    flag = group.startswith("loop") and what == "parallel"
    return what not in _SHARES and not flag


#: Whether the logarithm of a feature is taken.
LOGGED = tuple(map(is_logged, NAMES))


def itervar(state: State, machine: Machine) -> list[Number]:
    """The features `NAMES` of a schedule; see the text of this module.

    Args:
        state: the schedule's state; split factors may be `Sym`.
        machine: what it runs on.
    """
    touches = [Touches(n, machine) for n in ranked(state)]
    main = touches[0]
    return [*sums(touches), *_loops(main, work_of(main.nest.op)), *_accesses(main)]


def sums(touches: Sequence[Touches]) -> list[Number]:
    """The features `SUMS` of stages, the main one first."""
    nests = [t.nest for t in touches]
    works = [work_of(n.op) for n in nests]
    machine = touches[0].machine
    whole = Whole(nests)
    cores = [Core(t, whole.resident) for t in touches[: OTHERS + 1]]
    out = [*_whole(nests, works, machine, whole), *_main(touches[0], cores[0], works[0], machine)]
    for k in range(1, OTHERS + 1):
        out += _other(touches[k], cores[k]) if k < len(touches) else [0] * len(_OTHER)
    return out


def ranked(state: State) -> list[StageNest]:
    """The stages that are computed, the most arithmetic of the program first.

    What a schedule repeats does not count: one program has one order.
    """
    nests = nests_of(state)
    order = sorted(range(len(nests)), key=lambda i: (-nominal(nests[i]), -i))
    return [nests[i] for i in order]


def nominal(nest: StageNest) -> int:
    """Arithmetic of a stage's whole tensor, 1 an element at least; unknown extents count 1."""
    extents = [*nest.op.shape, *(number_of(a.extent) for a in nest.op.reduce_axes)]
    known = [n for n in extents if isinstance(n, int)]
    return prod(known) * (1 + work_of(nest.op).flop)


def _elements(nest: StageNest) -> Number:
    """Iterations that the stage would have, were nothing computed twice."""
    return product(map(extent_of, nest.op.extents))


def _whole(
    nests: Sequence[StageNest], works: Sequence[Work], machine: Machine, whole: Whole
) -> list[Number]:
    flop = total(n.iterations * w.flop for n, w in zip(nests, works, strict=True))
    copied = total(n.iterations for n, w in zip(nests, works, strict=True) if not w.flop)
    lanes = machine.lanes(nests[0].accesses[0].buffer.itemsize)
    return [flop, whole.used, len(nests), copied, machine.threads, lanes]


def _main(t: Touches, core: Core, work: Work, machine: Machine) -> list[Number]:
    nest, tile = t.nest, core.tile
    flop = t.inner[0] * most(work.flop, 1)
    traffic = [t.traffic(c) for c in machine.caches.sizes]
    own = nest.loops[len(nest.loops) - nest.own :]
    tests, guarded = core.guards
    again, stored = core.results
    return [
        nest.iterations,
        nest.iterations / _elements(nest),
        t.parallel,
        t.balance,
        t.vector_share,
        vector_bytes(t),
        vector_stride(t, t.accesses[0]),
        tile.instructions(machine.vector_bytes),
        tile.held,
        tile.live,
        core.spilled,
        tile.independent,
        core.loaded[1] / flop,
        (again + stored) / flop,
        tests,
        guarded,
        core.loops[0],
        core.cycles,
        product(x.extent for x in own if x.kind == "reduce"),
        nest.own,
        len(nest.loops) - nest.own,
        *traffic,
        *(flop / most(x, 1) for x in traffic),
    ]


def vector_bytes(t: Touches) -> Number:
    """Bytes of the vectorized loop's results; one element where there is none."""
    size = t.nest.accesses[0].buffer.itemsize
    return size if t.vector_loop is None else t.nest.loops[t.vector_loop].extent * size


def vector_stride(t: Touches, access: Touched) -> Number:
    """Bytes between neighbouring lanes of an access."""
    return 0 if t.vector_loop is None else access.strides[t.vector_loop]


def _loops(t: Touches, work: Work) -> list[Number]:
    depths = range(len(t.nest.loops) - 1, -1, -1)
    out: list[Number] = []
    for slot in range(LOOPS):
        if slot >= len(depths):
            out += [0] * len(_LOOP)
            continue
        d = depths[slot]
        x, extent = t.nest.loops[d], t.nest.loops[d].extent
        if slot == LOOPS - 1 and d > 0:
            extent, d = t.outer[d + 1], 0
        out += [
            extent,
            t.inner[d],
            _is(x, "vectorized"),
            _is(x, "unrolled"),
            _is(x, "parallel"),
            int(x.kind == "reduce"),
            t.bytes[d],
            t.inner[d] * most(work.flop, 1) / t.bytes[d],
        ]
    return out


def _is(x: NestLoop, mark: str) -> int:
    return int(x.mark == mark)


def _accesses(t: Touches) -> list[Number]:
    out: list[Number] = []
    depths = range(len(t.nest.loops) - 1, -1, -1)
    for k in range(READS + 1):
        for slot in range(LOOPS):
            if k >= len(t.accesses) or slot >= len(depths):
                out += [0] * len(_ACCESS)
                continue
            a, d = t.accesses[k], depths[slot]
            stride = a.strides[d]
            if slot == LOOPS - 1:
                d = 0
            touched = a.elements[d] * a.access.buffer.itemsize
            out += [touched, stride, t.inner[d] / a.elements[d]]
    return out


def _other(t: Touches, core: Core) -> list[Number]:
    nest = t.nest
    store, *loads = t.accesses
    assert nest.buffer is not None
    strides = [vector_stride(t, a) for a in loads]
    longest: Number = 0
    for s in strides:
        longest = most(longest, s)
    return [
        nest.iterations,
        nest.iterations / _elements(nest),
        t.parallel,
        t.balance,
        t.vector_share,
        core.guards[0],
        core.cycles,
        longest,
        vector_stride(t, store),
        nest.buffer.elements * nest.buffer.itemsize,
        product(nest.shape),
        t.traffic(t.machine.caches.l1),
        t.traffic(t.machine.caches.l2),
    ]

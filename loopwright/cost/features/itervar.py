"""Loop features, of the name that AutoTVM uses, with a fixed length.

The stage with the most arithmetic is described loop by loop, and for its store and first `READS`
loads buffer by buffer, by touched bytes, reuse and stride as in AutoTVM (NeurIPS 2018) and Ansor
(OSDI 2020); `OTHERS` more stages in short.
"""

from __future__ import annotations

from functools import partial

from loopwright.cost.features.feature import (
    AccessFigures,
    AnySlot,
    Feature,
    FeatureType,
    LoopFigures,
    ScheduleFigures,
    Slot,
    StageFigures,
    WindowView,
)
from loopwright.cost.symbolic.symbols import Number, most, product

#: Loops of the main stage, its loads, and stages besides the main one that have slots.
LOOPS, READS, OTHERS = 12, 3, 3


# Constructors of features that are shares and flags, of CPUs, and both.
_plain, _host = partial(Feature, logged=False), partial(Feature, host=True)
_host_plain = partial(_host, logged=False)


def _intensity(s: StageFigures, level: int) -> Number:
    return s.flop / most(s.traffic[level], 1)


_SCHEDULE: tuple[Feature[ScheduleFigures], ...] = (
    Feature("flop", "arithmetic operations in all, repeated ones included", lambda p: p.flop),
    Feature("bytes", "bytes touched", lambda p: p.usage.used),
    _plain("stages", "stages that are computed", lambda p: len(p.stages)),
    Feature("copied", "iterations of stages without arithmetic", lambda p: p.copied),
    _host("threads", "threads of the machine", lambda p: p.machine.threads),
    _host("lanes", "elements of a vector register", lambda p: p.lanes),
)
#: Features that every stage has.
_STAGE: tuple[Feature[StageFigures], ...] = (
    Feature("iterations", "iterations of its statement", lambda s: s.nest.iterations),
    Feature("excess", "iterations over those needed once", lambda s: s.excess),
    _host("parallel", "parallel tasks", lambda s: s.touches.parallel),
    _host_plain("balance", "share of the threads' time used when tasks are equally long",
                lambda s: s.touches.balance),
    _host_plain("vector_share", "lanes at work of those of the vector registers",
                lambda s: s.touches.vector_share),
)  # fmt: skip
_STORE_STRIDE: Feature[StageFigures] = Feature(
    "store_stride",
    "bytes between lanes of the store",
    lambda s: s.lane_stride(s.touches.accesses[0]),
)
_TESTS: Feature[StageFigures] = Feature(
    "tests", "instructions of conditions (inlined padding)", lambda s: s.core.guards.tests
)
_CYCLES: Feature[StageFigures] = _host(
    "cycles", "cycles by the analytical model, caches left out", lambda s: s.core.cycles
)
_TRAFFIC: tuple[Feature[StageFigures], ...] = (
    _host("traffic_l1", "bytes from beyond the first cache", lambda s: s.traffic[0]),
    _host("traffic_l2", "bytes from beyond the second cache", lambda s: s.traffic[1]),
    _host("traffic_l3", "bytes from beyond the third cache", lambda s: s.traffic[2]),
)
_MAIN: tuple[Feature[StageFigures], ...] = (
    *_STAGE,
    Feature("vector_bytes", "bytes of a vectorized loop", lambda s: s.vector_bytes),
    _STORE_STRIDE,
    _host("tile", "vector operations inside the unrolled and vectorized loops",
          lambda s: s.core.tile.instructions(s.touches.machine.vector_bytes)),
    _host("accumulators", "vectors of results of a tile", lambda s: s.core.tile.held),
    _host("live", "vectors of results that are needed at once", lambda s: s.core.tile.live),
    _host("spilled", "vectors of results for which there is no register",
          lambda s: s.core.spilled),
    _host("independent", "vectors of results updated between two updates of one",
          lambda s: s.core.tile.independent),
    _host_plain("loads_per_flop", "loads of operands for each operation",
                lambda s: s.core.loaded[1] / s.flop),
    _host_plain("stores_per_flop", "loads and stores of results for each operation",
                lambda s: (s.core.results[0] + s.core.results[1]) / s.flop),
    _TESTS,
    Feature("guarded", "reads under conditions", lambda s: s.core.guards.reads),
    _host("own_iterations", "iterations of its own loops that remain", lambda s: s.core.loops[0]),
    _CYCLES,
    Feature("reduce_inner", "iterations of its own reduction loops", lambda s: s.own_reduction),
    _plain("own_loops", "loops of its own", lambda s: s.nest.own),
    _plain("outer_loops", "loops around it of other stages",
           lambda s: len(s.nest.loops) - s.nest.own),
    *_TRAFFIC,
    *(
        _host(f"intensity_l{level + 1}", f"operations for each byte from beyond the {name} cache",
              partial(_intensity, level=level))
        for level, name in enumerate(("first", "second", "third"))
    ),
)  # fmt: skip
_OTHER: tuple[Feature[StageFigures], ...] = (
    *_STAGE,
    _TESTS,
    _CYCLES,
    Feature(
        "load_stride", "bytes between lanes of a load, the farthest", lambda s: s.farthest_load
    ),
    _STORE_STRIDE,
    Feature("buffer", "bytes of its buffer", lambda s: s.buffer_bytes),
    Feature("region", "elements that it covers at once", lambda s: product(s.nest.shape)),
    *_TRAFFIC[:2],
)
LOOP_FEATURES: tuple[Feature[LoopFigures], ...] = (
    Feature("extent", "iterations of the loop", lambda x: x.extent),
    Feature("inner", "iterations of it and of the loops inside", lambda x: x.inner),
    _plain("vectorized", "is vectorized", lambda x: x.is_marked("vectorized")),
    _plain("unrolled", "is unrolled", lambda x: x.is_marked("unrolled")),
    _plain("parallel", "runs in parallel", lambda x: x.is_marked("parallel")),
    _plain("reduce", "is a reduction", lambda x: int(x.loop.kind == "reduce")),
    Feature("bytes", "bytes touched", lambda x: x.bytes),
    Feature("intensity", "operations for each byte touched", lambda x: x.intensity),
)
_ACCESS: tuple[Feature[AccessFigures], ...] = (
    Feature("bytes", "bytes touched", lambda a: a.bytes),
    Feature("stride", "bytes from one iteration to the next", lambda a: a.stride),
    Feature("reuse", "uses of each element", lambda a: a.reuse),
)

#: Accesses of the main stage that have slots: their names, and the same in words.
ACCESSES = (("store", "store"), *((f"load{k}", f"load {k + 1}") for k in range(READS)))
#: The slots that do not describe single loops.
SUMS: tuple[AnySlot, ...] = (
    Slot("", "", _SCHEDULE, lambda p: p),
    Slot("main", "main stage", _MAIN, lambda p: p.main),
    *(
        Slot(f"stage{k}", f"stage {k + 1} by arithmetic after the main one", _OTHER,
             partial(ScheduleFigures.stage, number=k + 1))
        for k in range(OTHERS)
    ),
)  # fmt: skip


def _loop_in_words(number: int) -> str:
    return f"loop {number} from the inside" if number else "innermost loop"


FEATURES = FeatureType(
    [
        *SUMS,
        *(
            Slot(f"loop{k}", _loop_in_words(k), LOOP_FEATURES,
                 partial(ScheduleFigures.loop, number=k, last=LOOPS - 1))
            for k in range(LOOPS)
        ),
        *(
            Slot(f"{name}.loop{k}", f"{words}, {_loop_in_words(k)}", _ACCESS,
                 partial(ScheduleFigures.access, number=number, loop=k, last=LOOPS - 1))
            for number, (name, words) in enumerate(ACCESSES)
            for k in range(LOOPS)
        ),
    ]
)  # fmt: skip


SAMPLES = 12  #: points of a curve: 1, 4, 16, ... iterations
_WINDOW: tuple[Feature[WindowView], ...] = (
    Feature("bytes", "bytes touched", lambda w: w.elements * w.itemsize),
    Feature("reuse", "uses of each element", lambda w: w.iterations / w.elements),
)


#: Data touched within a number of iterations, whatever the loops are: curves that compare programs
#: of different structure (AutoTVM, NeurIPS 2018, context relation features).
CURVE_FEATURES = FeatureType(
    [
        *SUMS,
        *(
            Slot(f"{name}.at{4**k}", f"{words}, within {4**k} iterations", _WINDOW,
                 partial(ScheduleFigures.window, number=number, iterations=4**k))
            for number, (name, words) in enumerate(ACCESSES)
            for k in range(SAMPLES)
        ),
    ]
)  # fmt: skip

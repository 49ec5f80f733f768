"""Limits of the machine: the one that bounds a kernel, and times that none can reach."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from loopwright import dtypes, runtime
from loopwright.measure.candidate import Candidate
from loopwright.measure.inputs import arguments
from loopwright.measure.result import ErrorKind, MeasureError
from loopwright.runtime import Artifact, assumed_peak, out_of_reach
from loopwright.target import Roof, Target, roof_of
from loopwright.te import Dag, call_work

#: Names of limits by moving the arguments: from and to memory, or the last cache.
BANDWIDTH, CACHE_BANDWIDTH = "memory bandwidth", "cache bandwidth"
#: Seconds of one sample.
_SAMPLE_S = 0.02
#: Arrays of fewer bytes are assumed to stay in the cache of a device that reports none.
_CACHE = 4 << 20


@dataclass(frozen=True)
class MachineLimit:
    """Known limit of all kernels of a task: the roofline.

    Arrays that fit into the last cache are bounded by that cache, not by memory, and those in the
    cores' own caches by neither. Of two limits the one counts at which a call takes longer
    (Williams, Waterman, Patterson, "Roofline", CACM 52, 2009).
    """

    name: str  # such as ``"FMA peak (AVX2)"`` (of float32) or `BANDWIDTH`
    work: float  # operations or bytes of one call
    #: Measures operations or bytes per second; may raise a LoopwrightError on a device.
    rate: Callable[[], float]

    @property
    def each_round(self) -> bool:
        return not self.by_moving

    @property
    def by_moving(self) -> bool:
        return self.name in (BANDWIDTH, CACHE_BANDWIDTH)

    def sample(self) -> float:
        """Seconds of one call at the limit, measured now."""
        return self.work / self.rate()


def arithmetic_of(dag: Dag) -> str:
    """Operand type of products: ``"float32"``, ``"float64"``, ``"int8"`` or ``"int16"`` for what
    is summed up as int32, ``"bfloat16"`` likewise in float32; empty for anything else.

    Half floats that are rounded after each operation have no known limit, nor wider integers.
    """
    from loopwright.ir.expr import Binary, Cast  # not at the top: runners import no compiler
    from loopwright.ir.visitor import nodes

    products: set[tuple[str, str]] = set()
    floats: set[str] = set()
    every = (e for op in dag.ops if op.body is not None for e in nodes(op.body))
    for e in every:
        if not isinstance(e, Binary):
            continue
        if dtypes.is_float(e.dtype) and e.op not in ("max", "min"):
            floats.add(e.dtype)
        if e.op == "*" and isinstance(e.a, Cast) and isinstance(e.b, Cast):
            products.update((x.value.dtype, e.dtype) for x in (e.a, e.b))
    if {("int8", "int32"), ("uint8", "int32")} & products:
        return "int8"
    if ("int16", "int32") in products:
        return "int16"
    if ("bfloat16", "float32") in products:
        return "bfloat16"
    return next((dtype for dtype in ("float32", "float64") if dtype in floats), "")


def arithmetic_roof(target: Target, dag: Dag) -> Roof | None:
    return roof_of(target, arithmetic_of(dag))


def limit_of(nbytes: int, flop: int, threads: int, roof: Roof | None) -> MachineLimit | None:
    """The limit of CPU kernels with arguments of ``nbytes``; ``flop`` may be 0, ``roof`` None."""
    arithmetic = None
    if flop and roof is not None:
        arithmetic = MachineLimit(roof.name, flop, partial(_peak, threads, roof))
    return higher(arithmetic, moving(nbytes, threads))


def moving(nbytes: int, threads: int) -> MachineLimit | None:
    """The limit by moving bytes on the CPU, of memory or its last cache; None in cores' caches."""
    caches = sorted(runtime.cpu(0).cache_sizes.values())
    if caches and nbytes > caches[-1]:
        return MachineLimit(BANDWIDTH, nbytes, partial(_bandwidth, threads, None))
    if len(caches) < 2 or nbytes <= threads * caches[-2]:
        return None
    return MachineLimit(CACHE_BANDWIDTH, nbytes, partial(_bandwidth, threads, nbytes // 3))


def higher(arithmetic: MachineLimit | None, memory: MachineLimit | None) -> MachineLimit | None:
    """The limit at which a call takes longer, both measured now."""
    if arithmetic is None or memory is None:
        return arithmetic or memory
    return max(arithmetic, memory, key=MachineLimit.sample)


def bytes_of(artifact: Artifact) -> int:
    """Bytes of all arguments of a kernel: the least that it must move."""
    return sum(arg.nbytes for arg in arguments(artifact))


def stays_in_cache(nbytes: int, device: runtime.Device) -> bool:
    return nbytes <= max(device.cache_sizes.values(), default=_CACHE)


def _peak(threads: int, roof: Roof) -> float:
    with runtime.pinned(threads):
        return runtime.fma_peak(threads, _SAMPLE_S, roof)


def _bandwidth(threads: int, nbytes: int | None) -> float:
    with runtime.pinned(threads):
        return runtime.bandwidth(threads, seconds=_SAMPLE_S, nbytes=nbytes)


#: A time that a CPU of so few cycles a second reaches needs no closer look.
_SLOW_HZ = 1.5e9


def time_out_of_reach(
    target: Target, candidate: Candidate, times: Sequence[float]
) -> MeasureError | None:
    """An error where no call on the CPU can take so little time, in seconds per call.

    The operations are those of the expression, and where these are too many, the ones left in the
    lowered program, against the FMA peak now: the runner must be idle, the device held.
    """
    if not times:  # a playoff whose time was up before its first round
        return None
    seconds = statistics.median(times)
    stored, shortest, flop = call_work(candidate.dag, candidate.arg_ids)
    threads = target.canonical.get("num_threads") or runtime.get_num_threads()
    unit = target.vector_unit
    peak = assumed_peak(threads, unit, _SLOW_HZ)
    if not out_of_reach(seconds, stored, flop, shortest, peak):
        return None
    with runtime.pinned(threads):
        peak = runtime.fma_peak(threads, _SAMPLE_S, unit)
    if out_of_reach(seconds, stored, flop, shortest, peak):
        left = min(flop, _operations(candidate))
        problem = out_of_reach(seconds, stored, left, shortest, peak)
        if problem:
            return MeasureError(ErrorKind.RUN_ERROR, f"no machine is so fast: {problem}")
    return None


def _operations(c: Candidate) -> int:
    """Arithmetic of the lowered program; each operation counts as often as its operands change.

    An operation that does not change in a loop may be computed once, and compilers replace sums of
    integers that depend on the loop variable alone by a formula.
    """
    from loopwright.driver import lower_trace  # not at the top: runners import no compiler
    from loopwright.ir.buffer import Load
    from loopwright.ir.expr import Binary, Call, Expr, Unary, Var
    from loopwright.ir.node import Node
    from loopwright.ir.stmt import For, Let, Store
    from loopwright.ir.visitor import contains, free_vars

    extents: dict[Var, int] = {}
    depends: dict[Var, set[Var]] = {}
    total = 0

    def loads_in(e: Node) -> list[Node]:
        if isinstance(e, Load):
            return [e]
        return [load for child in e.children() for load in loads_in(child)]

    def count(e: Node) -> None:
        nonlocal total
        if isinstance(e, Load):
            return
        if isinstance(e, Binary | Unary | Call) and contains(e, Load):
            changing = loads_in(e) if dtypes.is_int(e.dtype) else [e]
            loops = {loop for x in changing for v in free_vars(x) for loop in depends.get(v, ())}
            total += prod(extents[loop] for loop in loops)
        for child in e.children():
            count(child)

    def visit(s: Node) -> None:
        match s:
            case For(var=v, extent=int(n)):
                extents[v], depends[v] = n, {v}
            case Let(var=v, value=e):
                depends[v] = {loop for x in free_vars(e) for loop in depends.get(x, ())}
                count(e)
            case Store(value=e):
                count(e)
        for child in s.children():
            if not isinstance(child, Expr):
                visit(child)

    visit(lower_trace(c.dag, c.trace, c.arg_ids, c.name, c.passes or None).func.body)
    return total

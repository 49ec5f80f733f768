"""The limit of the machine that bounds a kernel: arithmetic, or memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from loopwright import dtypes, runtime
from loopwright.measure.arguments import arguments
from loopwright.runtime import Artifact
from loopwright.target import Roof
from loopwright.te import Dag

#: Names of limits by moving the arguments: from and to memory, or the last cache.
BANDWIDTH, CACHE_BANDWIDTH = "memory bandwidth", "cache bandwidth"
#: Seconds of one sample.
_SAMPLE_S = 0.02
#: Arrays of fewer bytes are assumed to stay in the cache of a device that reports none.
_CACHE = 4 << 20


@dataclass(frozen=True)
class MachineLimit:
    """Known limit of all kernels of a task: the roofline.

    Arrays that fit into the last cache are not bounded by memory, but by that cache, and those that
    the cores' own caches hold by neither. Of two limits it is the one at which a call takes longer
    (Williams, Waterman, Patterson, "Roofline", CACM 52, 2009).
    """

    name: str  # such as ``"FMA peak (AVX2)"`` (of float32) or `BANDWIDTH`
    work: float  # operations or bytes of one call
    #: Measures operations or bytes per second; may raise a LoopwrightError on a device.
    rate: Callable[[], float]

    @property
    def each_round(self) -> bool:
        """Whether a sample is quick enough to be taken in every round."""
        return not self.by_moving

    @property
    def by_moving(self) -> bool:
        """Whether the time is that of moving the arguments."""
        return self.name in (BANDWIDTH, CACHE_BANDWIDTH)

    def sample(self) -> float:
        """Seconds of one call at the limit, measured now."""
        return self.work / self.rate()


def arithmetic_of(dag: Dag) -> str:
    """Operand type of products: ``"float32"``, ``"float64"``, ``"int8"`` for bytes that are summed
    up as int32, ``"bfloat16"`` likewise in float32; empty for anything else.

    Half floats that are rounded after each operation have no known limit, nor have integers of more
    than 8 bits.
    """
    from loopwright.ir.expr import Binary, Cast  # not at the top: runners import no compiler
    from loopwright.ir.node import Node
    from loopwright.ir.visitor import walk

    products: set[tuple[str, str]] = set()
    floats: set[str] = set()

    def visit(e: Node) -> None:
        if not isinstance(e, Binary):
            return
        if dtypes.is_float(e.dtype) and e.op not in ("max", "min"):
            floats.add(e.dtype)
        if e.op == "*" and isinstance(e.a, Cast) and isinstance(e.b, Cast):
            products.update((x.value.dtype, e.dtype) for x in (e.a, e.b))

    for op in dag.ops:
        if op.body is not None:
            walk(op.body, visit)
    if {("int8", "int32"), ("uint8", "int32")} & products:
        return "int8"
    if ("bfloat16", "float32") in products:
        return "bfloat16"
    return next((dtype for dtype in ("float32", "float64") if dtype in floats), "")


def limit_of(nbytes: int, flop: int, threads: int, roof: Roof | None) -> MachineLimit | None:
    """The limit that bounds kernels of the CPU with these arguments; None where none is known.

    ``nbytes`` is the size of all arguments, ``flop`` the operations of one call, or 0, ``roof`` the
    instruction that bounds the arithmetic, or None.
    """
    arithmetic = None
    if flop and roof is not None:
        arithmetic = MachineLimit(roof.name, flop, partial(_peak, threads, roof))
    return higher(arithmetic, moving(nbytes, threads))


def moving(nbytes: int, threads: int) -> MachineLimit | None:
    """The limit by moving so many bytes on the CPU: of memory, or of its last cache; None where
    they stay in the caches of the cores.
    """
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
    """Whether arrays of so many bytes together fit into the last cache of a device."""
    return nbytes <= max(device.cache_sizes.values(), default=_CACHE)


def _peak(threads: int, roof: Roof) -> float:
    with runtime.pinned(threads):
        return runtime.fma_peak(threads, _SAMPLE_S, roof)


def _bandwidth(threads: int, nbytes: int | None) -> float:
    with runtime.pinned(threads):
        return runtime.bandwidth(threads, seconds=_SAMPLE_S, nbytes=nbytes)

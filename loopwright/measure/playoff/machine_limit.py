"""The limit of the machine that bounds a kernel: arithmetic, or memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from loopwright import runtime
from loopwright.measure.arguments import arguments
from loopwright.runtime import Artifact
from loopwright.target import VectorUnit

#: The name of the limit for arithmetic where the target has no vector unit.
FMA_PEAK = "FMA peak"
BANDWIDTH = "memory bandwidth"
#: Seconds of one sample.
_SAMPLE_S = 0.02
#: Arrays of fewer bytes are taken to stay in the cache of a device that tells of none.
_CACHE = 4 << 20


@dataclass(frozen=True)
class MachineLimit:
    """What no kernel of a task can exceed, as far as it is known: the roofline.

    Arrays that fit into the last cache are not held up by memory; for others the limit is the one
    at which a call takes longer (Williams, Waterman, Patterson, "Roofline", CACM 52, 2009).

    Attributes:
        name: such as ``"FMA peak (AVX2)"`` (of float32), or `BANDWIDTH`.
        work: operations or bytes of one call.
        rate: measures how many of them the machine does in a second; may raise a LoopwrightError
            where that is a device.
    """

    name: str
    work: float
    rate: Callable[[], float]

    @property
    def each_round(self) -> bool:
        """True when a sample is quick enough to be taken in every round."""
        return self.name != BANDWIDTH

    def sample(self) -> float:
        """Seconds that one call takes at the limit, measured now."""
        return self.work / self.rate()


def limit_of(
    artifact: Artifact, flop: int, threads: int, unit: VectorUnit | None = None
) -> MachineLimit | None:
    """The limit that bounds kernels of the CPU with these arguments; None where neither is known
    to.

    Args:
        artifact: any kernel of the task.
        flop: floating point operations of one call; 0 where there are none to count.
        threads: of the kernels.
        unit: the vector instructions of their target; None: this machine's.
    """
    nbytes = bytes_of(artifact)
    name = FMA_PEAK if unit is None else unit.peak
    arithmetic = MachineLimit(name, flop, partial(_fma_peak, threads, unit)) if flop else None
    memory = MachineLimit(BANDWIDTH, nbytes, partial(_bandwidth, threads))
    caches = runtime.cpu(0).cache_sizes
    in_cache = not caches or nbytes <= max(caches.values())
    return higher(arithmetic, None if in_cache else memory)


def higher(arithmetic: MachineLimit | None, memory: MachineLimit | None) -> MachineLimit | None:
    """Of two limits the one at which a call takes longer, both measured now."""
    if arithmetic is None or memory is None:
        return arithmetic or memory
    return max(arithmetic, memory, key=MachineLimit.sample)


def bytes_of(artifact: Artifact) -> int:
    """Bytes of all arguments of a kernel: what it must move at least."""
    return sum(arg.nbytes for arg in arguments(artifact))


def stays_in_cache(nbytes: int, device: runtime.Device) -> bool:
    """Whether arrays of so many bytes together fit into the last cache of a device."""
    return nbytes <= max(device.cache_sizes.values(), default=_CACHE)


def _fma_peak(threads: int, unit: VectorUnit | None) -> float:
    with runtime.pinned(threads):
        return runtime.fma_peak(threads, _SAMPLE_S, unit)


def _bandwidth(threads: int) -> float:
    with runtime.pinned(threads):
        return runtime.bandwidth(threads, seconds=_SAMPLE_S)

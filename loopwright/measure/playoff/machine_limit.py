"""The limit of the machine that bounds a kernel: arithmetic, or memory."""

from __future__ import annotations

from dataclasses import dataclass

from loopwright import runtime
from loopwright.measure.arguments import arguments
from loopwright.runtime import Artifact
from loopwright.target import VectorUnit

#: The name of the limit for arithmetic where the target has no vector unit.
FMA_PEAK = "FMA peak"
BANDWIDTH = "memory bandwidth"
#: Seconds of one sample.
_SAMPLE_S = 0.02


@dataclass(frozen=True)
class MachineLimit:
    """What no kernel of a task can exceed, as far as it is known: the roofline.

    Arrays that fit into the last cache are not held up by memory; for others the limit is the one
    at which a call takes longer (Williams, Waterman, Patterson, "Roofline", CACM 52, 2009).

    Attributes:
        name: such as ``"FMA peak (AVX2)"`` (of float32), or `BANDWIDTH`.
        work: operations or bytes of one call.
        threads: of the kernel.
        unit: the vector instructions of the kernel's target; None: this machine's.
    """

    name: str
    work: float
    threads: int
    unit: VectorUnit | None = None

    @property
    def each_round(self) -> bool:
        """True when a sample is quick enough to be taken in every round."""
        return self.name != BANDWIDTH

    def sample(self) -> float:
        """Seconds that one call takes at the limit, measured now."""
        with runtime.pinned(self.threads):
            if self.name != BANDWIDTH:
                return self.work / runtime.fma_peak(self.threads, _SAMPLE_S, self.unit)
            return self.work / runtime.bandwidth(self.threads, seconds=_SAMPLE_S)


def limit_of(
    artifact: Artifact, flop: int, threads: int, unit: VectorUnit | None = None
) -> MachineLimit | None:
    """The limit that bounds kernels with these arguments; None where neither is known to.

    Args:
        artifact: any kernel of the task.
        flop: floating point operations of one call; 0 where there are none to count.
        threads: of the kernels.
        unit: the vector instructions of their target; None: this machine's.
    """
    nbytes = sum(arg.nbytes for arg in arguments(artifact))
    name = FMA_PEAK if unit is None else unit.peak
    arithmetic = MachineLimit(name, flop, threads, unit) if flop else None
    caches = runtime.cpu(0).cache_sizes
    if not caches or nbytes <= max(caches.values()):
        return arithmetic
    memory = MachineLimit(BANDWIDTH, nbytes, threads)
    if arithmetic is None:
        return memory
    return max(arithmetic, memory, key=MachineLimit.sample)

"""Times that no CPU can reach: results stored faster than its first-level cache takes them, or more
arithmetic than its vector units do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.runtime.peak import host_unit, shape_of

if TYPE_CHECKING:
    from loopwright.target import VectorUnit

#: Multiply-adds of float32 vectors in a cycle, and cycles in a second, of the fastest CPUs.
_PER_CYCLE, _FASTEST_HZ = 2, 6.5e9
#: Two vectors stored in a cycle are two bytes an operation of the FMA peak; twice that is allowed.
_STORED_PER_FLOP = 4.0
#: Times the roof that are allowed; the roof is that of numbers of at least `_ROOF_BYTES` bytes.
_ROOFS, _ROOF_BYTES = 4.0, 4


def assumed_peak(threads: int, unit: VectorUnit | None = None, hertz: float = _FASTEST_HZ) -> float:
    """The FMA peak of the fastest CPUs in float32 operations a second; `hertz` is their clock."""
    lanes, _ = shape_of(unit or host_unit())
    return 2 * _PER_CYCLE * lanes * hertz * threads


def out_of_reach(
    seconds: float, stored: int, operations: int, element_bytes: int, peak: float
) -> str:
    """The reason why no call can take so few seconds; empty where one could.

    `stored` is in bytes, `peak` in float32 operations a second of fused multiply-adds.
    `element_bytes` is the shortest type that it reads: a vector holds more elements of it.
    """
    took = f"a call of {seconds * 1e9:.3g} ns"
    most = _STORED_PER_FLOP * peak
    if stored > most * seconds:
        return (
            f"{took} stores {stored / seconds / 1e9:.3g} GB/s, where the first-level cache takes "
            f"at most {most / 1e9:.3g} GB/s"
        )
    roof = peak * _ROOF_BYTES / min(element_bytes, _ROOF_BYTES)
    if operations > _ROOFS * roof * seconds:
        return (
            f"{took} does {operations} operations, {operations / seconds / roof:.3g} times what "
            f"vector instructions can do ({roof / 1e9:.3g} GFLOP/s)"
        )
    return ""

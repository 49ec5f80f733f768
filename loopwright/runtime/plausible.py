"""Times that no CPU can reach: results stored faster than its first-level cache takes them, or more
arithmetic than its vector units do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.runtime.peak import host_unit, shape_of

if TYPE_CHECKING:
    from loopwright.target import VectorUnit

#: Multiply-adds of float32 vectors in a cycle, and cycles in a second, of the fastest CPUs.
_PER_CYCLE, _FASTEST_HZ = 2, 6.5e9
#: Two vectors stored in a cycle are two bytes an operation of the FMA peak; twice that is allowed.
_STORED_PER_FLOP = 4.0
#: So many times the roof are allowed, which is that of numbers of so many bytes, or more.
_ROOFS, _ROOF_BYTES = 4.0, 4


def assumed_peak(threads: int, unit: VectorUnit | None = None, hertz: float = _FASTEST_HZ) -> float:
    """The FMA peak of the fastest CPUs, in float32 operations a second.

    Args:
        threads: of the kernel.
        unit: vector instructions of its target; None: this machine's.
        hertz: cycles in a second.
    """
    lanes, _ = shape_of(unit or host_unit())
    return 2 * _PER_CYCLE * lanes * hertz * threads


def out_of_reach(
    seconds: float, stored: int, operations: int, element_bytes: int, peak: float
) -> str:
    """Why no call can take so little time; empty where one could.

    Args:
        seconds: of a call.
        stored: bytes of its results.
        operations: arithmetic that it must do.
        element_bytes: of the shortest numbers that it reads: a vector holds more of them.
        peak: float32 operations a second of fused multiply-adds.

    Example:
        >>> from loopwright.runtime.plausible import out_of_reach
        >>> print(out_of_reach(1e-9, 1 << 20, 0, 4, 1e11))
        a call of 1 ns stores 1.05e+06 GB/s, where the first-level cache takes at most 400 GB/s
        >>> print(out_of_reach(1e-3, 1 << 20, 1 << 20, 4, 1e11) == "")
        True
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

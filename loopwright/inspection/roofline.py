"""How a kernel compares with the limits of the machine that it was measured on: the roofline.

The limits are those that the log holds: a playoff samples the limit that bounds its kernels beside
them, and its verdict keeps the share of it. A limit of another machine, or of today, is never used.
The model is that of Williams, Waterman and Patterson, "Roofline", CACM 52 (2009).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from loopwright.errors import RecordError
from loopwright.inspection.work import Work, work_of
from loopwright.records import Log, Record, Verdict, fields_of

#: The names of arithmetic limits: those of `loopwright.target.Roof`, and of logs from before they
#: named the vector instructions.
_ARITHMETIC = re.compile(
    r"(float64 )?(FMA peak( \(.*\))?|peak \(.*, no FMA\))|(int8|bfloat16) peak \(.*\)"
)


@dataclass(frozen=True)
class Limits:
    """Limits of one machine with one number of threads, as playoffs of a log sampled them.

    Attributes:
        flops: arithmetic with the instructions of the target, in operations a second; None where
            not sampled.
        bandwidth: of memory, in bytes a second; None where not sampled.
        flops_from: id of the record whose verdict says so; empty where not sampled.
        bandwidth_from: the same for the bandwidth.
        flops_name: what the verdict calls the limit, such as ``"FMA peak (AVX2)"``.
    """

    flops: float | None = None
    bandwidth: float | None = None
    flops_from: str = ""
    bandwidth_from: str = ""
    flops_name: str = ""


@dataclass(frozen=True)
class RooflinePoint:
    """Where a kernel stands.

    Attributes:
        intensity: operations for each byte of its arguments, each moved once.
        speed: operations a second.
        limits: of its machine.
    """

    intensity: float
    speed: float
    limits: Limits

    @property
    def of_flops(self) -> float | None:
        """Share of the arithmetic limit that it reaches; None where that is not known."""
        return self.speed / self.limits.flops if self.limits.flops else None

    @property
    def of_bandwidth(self) -> float | None:
        """Share of the memory limit that it reaches; above 1 where its data stay in caches."""
        if not self.limits.bandwidth:
            return None
        return self.speed / self.intensity / self.limits.bandwidth


def limits_in(log: Log, records: Sequence[Record]) -> Limits:
    """The limits that the verdicts of some records tell; the latest of each counts.

    Args:
        log: where they are from.
        records: those of one hardware and one number of threads, of any tasks that compute in one
            type.
    """
    from loopwright.measure.playoff.machine_limit import BANDWIDTH

    limits = Limits()
    verdicts, medians, ids = fields_of(records, "verdict", "median", "id")
    for record, said, seconds, name in zip(records, verdicts, medians, ids, strict=True):
        verdict = None if said is None else _verdict(said)
        if verdict is None or seconds is None or not 0 < verdict.of_peak <= 1:
            continue
        work = work_of(log, record)
        if work is None:
            continue
        if _ARITHMETIC.fullmatch(verdict.peak) and work.flop:
            flops = work.flop / seconds / verdict.of_peak
            limits = replace(limits, flops=flops, flops_from=name, flops_name=verdict.peak)
        if verdict.peak == BANDWIDTH and work.bytes:
            bandwidth = work.bytes / seconds / verdict.of_peak
            limits = replace(limits, bandwidth=bandwidth, bandwidth_from=name)
    return limits


def roofline_point(work: Work, seconds: float, limits: Limits) -> RooflinePoint | None:
    """Where a kernel stands; None where it computes nothing, or has no arguments.

    Args:
        work: of one call.
        seconds: that one call takes.
        limits: of the machine that these seconds were measured on.
    """
    if not work.flop or not work.bytes:
        return None
    return RooflinePoint(work.flop / work.bytes, work.flop / seconds, limits)


def _verdict(said: object) -> Verdict | None:
    try:
        return Verdict.from_json(said)  # type: ignore[arg-type]
    except RecordError:
        return None

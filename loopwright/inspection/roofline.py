"""Kernels beside the limits of the machine that they were measured on: the roofline.

The limits are those that the log holds: a playoff samples the limit that bounds its kernels beside
them, and its verdict keeps the share of it. A limit of another machine, or of today, is never used.
The model is that of Williams, Waterman and Patterson, "Roofline", CACM 52 (2009).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from loopwright.errors import RecordError
from loopwright.inspection.speed import Work, work_of
from loopwright.records import Log, Record, Verdict, fields_of

#: The names of arithmetic limits: those of `loopwright.target.Roof`, and of logs from before they
#: named the vector instructions.
_ARITHMETIC = re.compile(
    r"(float64 )?(FMA peak( \(.*\))?|peak \(.*, no FMA\))|(int8|bfloat16) peak \(.*\)"
)


@dataclass(frozen=True)
class Limits:
    """Limits of one machine with one number of threads, as playoffs of a log sampled them."""

    #: operations a second with the instructions of the target; None where not sampled
    flops: float | None = None
    bandwidth: float | None = None  # of memory, in bytes a second; None where not sampled
    flops_from: str = ""  # id of the record with the verdict; empty where not sampled
    bandwidth_from: str = ""  # the same for the bandwidth
    flops_name: str = ""  # name of the limit in the verdict, such as ``"FMA peak (AVX2)"``


@dataclass(frozen=True)
class RooflinePoint:
    """Position of a kernel below the roofline."""

    intensity: float  # operations for each byte of its arguments, each moved once
    speed: float  # operations a second
    limits: Limits

    @property
    def of_flops(self) -> float | None:
        return self.speed / self.limits.flops if self.limits.flops else None

    @property
    def of_bandwidth(self) -> float | None:
        """Share of the memory limit that it reaches; above 1 where its data stay in caches."""
        if not self.limits.bandwidth:
            return None
        return self.speed / self.intensity / self.limits.bandwidth


def limits_in(log: Log, records: Sequence[Record]) -> Limits:
    """Limits in the verdicts of some records; the latest of each counts.

    They are of one hardware and one number of threads, of any tasks that compute in one type.
    """
    from loopwright.measure import BANDWIDTH

    limits = Limits()
    verdicts, medians, ids = fields_of(records, "verdict", "median", "id")
    for record, data, seconds, name in zip(records, verdicts, medians, ids, strict=True):
        try:
            verdict = None if data is None else Verdict.from_json(data)
        except RecordError:
            continue
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
    """Position of a kernel on the machine of ``limits``; None without operations or arguments."""
    if not work.flop or not work.bytes:
        return None
    return RooflinePoint(work.flop / work.bytes, work.flop / seconds, limits)

"""Work of a record's kernel, and its times and speeds in words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from loopwright.dtypes import nbytes
from loopwright.errors import LoopwrightError, RecordError
from loopwright.history import dag_of, expression_of
from loopwright.presenting import counted
from loopwright.records import Expression, Log, Record, Verdict, fields_of


@dataclass(frozen=True)
class Work:
    """Work of one call of a kernel, independent of its schedule.

    Example:
        >>> from loopwright.inspection import Work
        >>> print(Work(flop=2_000_000, bytes=4096).gflops(1e-3))
        2.0
    """

    flop: int  #: arithmetic operations; a multiply and an add count one each
    bytes: int  #: size of all arguments: the least traffic, each element once

    def gflops(self, seconds: float) -> float | None:
        """Speed of a call in GFLOP/s; None where there is no arithmetic to count."""
        return self.flop / seconds / 1e9 if self.flop else None


def work_of(log: Log, record: Record) -> Work | None:
    """Find the work of a record's kernel, if the log tells it.

    None for a record from before logs kept their expressions, for one of AutoTVM, for a damaged
    expression, and for one whose sizes are not fixed. Records of one ``dag`` have the same work:
    ask once for each.
    """
    from loopwright.te import read_arg_id

    try:
        expression = expression_of(log, record)
        dag = dag_of(expression)
        args = [read_arg_id(arg) for arg in expression.arg_ids]
        sizes = [
            math.prod(dag.ops[op].static_shape) * nbytes(dag.ops[op].dtypes[output])
            for op, output in args
        ]
        return Work(dag.flop, sum(sizes))
    except (LoopwrightError, LookupError):
        return None


def seed_of(expression: Expression) -> int:
    seed = expression.inputs.get("seed", 0)
    return seed if type(seed) is int and seed >= 0 else 0


def arithmetic_in(log: Log, records: Iterable[Record]) -> str:
    """Operand type of the products in the records' expression; empty where not known."""
    from loopwright.measure import arithmetic_of

    for record in records:
        if record.dag:
            try:
                return arithmetic_of(dag_of(expression_of(log, record)))
            except LoopwrightError:
                return ""
    return ""


def works_of(log: Log, records: Iterable[Record]) -> list[Work | None]:
    """Find `work_of` many records of a log, once for each expression."""
    records = list(records)
    (dags,) = fields_of(records, "dag")
    works: dict[str, Work | None] = {}
    for dag, record in zip(dags, records, strict=True):
        if dag not in works:
            works[dag] = work_of(log, record)
    return [works[dag] for dag in dags]


_UNITS = ("s", "ms", "us", "ns")


def time_text(seconds: float) -> str:
    """Time per call with four digits and a fitting unit, such as ``153.2 us``."""
    exponent = min(3, max(0, -math.floor(math.log10(seconds) / 3)))
    return f"{seconds * 1000**exponent:.4g} {_UNITS[exponent]}"


def speed_text(seconds: float, flop: int) -> str:
    """Speed of a call in GFLOP/s, or its time where ``flop`` is 0, unknown."""
    return f"{flop / seconds / 1e9:.4g} GFLOP/s" if flop else time_text(seconds)


def duration_text(seconds: float) -> str:
    """Duration as ``42s``, ``3m05s``, ``2h07m`` or ``3d04h``."""
    total = round(seconds)
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m{total % 60:02d}s"
    if total < 86400:
        return f"{total // 3600}h{total % 3600 // 60:02d}m"
    return f"{total // 86400}d{total % 86400 // 3600:02d}h"


def threads_text(count: int) -> str:
    """Number of threads, as ``2 threads``; empty for 0, which stands for an unknown number."""
    return counted(count, "thread") if count else ""


#: The names of arithmetic limits: those of `loopwright.target.Roof`, and of logs from before they
#: named the vector instructions.
_ARITHMETIC = re.compile(
    r"(float64 )?(FMA peak( \(.*\))?|peak \(.*, no FMA\))|(int8|bfloat16) peak \(.*\)"
)


@dataclass(frozen=True)
class Limits:
    #: operations a second with the instructions of the target; None where not sampled
    flops: float | None = None
    bandwidth: float | None = None  # of memory, in bytes a second; None where not sampled
    flops_from: str = ""  # id of the record with the verdict; empty where not sampled
    bandwidth_from: str = ""  # the same for the bandwidth
    flops_name: str = ""  # name of the limit in the verdict, such as ``"FMA peak (AVX2)"``


@dataclass(frozen=True)
class RooflinePoint:
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
    """Latest limits that playoffs of this log sampled, never those of another machine or
    of today.
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
    """Place below the roofline (Williams et al., CACM 52, 2009); None without work or arguments."""
    if not work.flop or not work.bytes:
        return None
    return RooflinePoint(work.flop / work.bytes, work.flop / seconds, limits)

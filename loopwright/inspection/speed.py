"""Work of a record's kernel, and its times and speeds in words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from loopwright.dtypes import nbytes
from loopwright.errors import LoopwrightError
from loopwright.history import dag_of, expression_of
from loopwright.presenting import counted
from loopwright.records import Expression, Log, Record, fields_of


@dataclass(frozen=True)
class Work:
    """Work of one call of a kernel, independent of its schedule.

    Attributes:
        flop: arithmetic operations; a multiply and an add count one each.
        bytes: size of all arguments: the least traffic, each element once.

    Example:
        >>> from loopwright.inspection import Work
        >>> print(Work(flop=2_000_000, bytes=4096).gflops(1e-3))
        2.0
    """

    flop: int
    bytes: int

    def gflops(self, seconds: float) -> float | None:
        """Speed of a call in GFLOP/s; None where there is no arithmetic to count."""
        return self.flop / seconds / 1e9 if self.flop else None


def work_of(log: Log, record: Record) -> Work | None:
    """Find the work of a record's kernel; None where the log does not tell.

    That is so for a record from before logs kept their expressions, for one of AutoTVM, for a
    damaged expression, and for one whose sizes are not fixed. Records of one ``dag`` have the same
    work: ask once for each.

    Example:
        >>> from loopwright.inspection import work_of
        >>> log = lw.records.load("matmul.jsonl")
        >>> work = work_of(log, log.records[0])
        >>> print(work.flop, work.bytes)
        524288 49152
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
    """Operand type of the products in the records' expression, see `arithmetic_of`; empty where the
    log does not hold it.
    """
    from loopwright.measure import arithmetic_of

    for record in records:
        if record.dag:
            try:
                return arithmetic_of(dag_of(expression_of(log, record)))
            except LoopwrightError:
                return ""
    return ""


def works_of(log: Log, records: Iterable[Record]) -> list[Work | None]:
    """Find `work_of` many records of a log, once for each expression.

    Example:
        >>> from loopwright.inspection import works_of
        >>> log = lw.records.load("matmul.jsonl")
        >>> print({work.flop for work in works_of(log, log.records)})
        {524288}
    """
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

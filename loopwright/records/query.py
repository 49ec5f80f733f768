"""Queries of a set of records: the best, the best few, by task, and what their rank rests on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from loopwright.records.bulk import fields_of, grouped
from loopwright.records.ranking import is_of_playoff, playoffs, ranked
from loopwright.records.record import Checked, Record
from loopwright.records.verdict import Verdict, verdict_of

_R = TypeVar("_R")


def keys_of(records: Iterable[Record]) -> list[str]:
    """The key of each record's task: that of its expression, whatever the task is called.

    Where the records of one task name have several expressions, since knobs shape the expression or
    the template was edited, their key is that name, as it is for records of an unknown expression.
    Trials that failed before there was an expression go with the others of their name.

    Example:
        >>> records = lw.records.load("matmul.jsonl").records
        >>> print(set(lw.records.keys_of(records)) == {records[0].expression})
        True
    """
    records = list(records)
    names, dags = fields_of(records, "task", "dag")
    expressions: dict[str, dict[str, str]] = {}
    for record, name, dag in zip(records, names, dags, strict=True):
        keys = expressions.setdefault(name, {})
        if dag and dag not in keys:
            keys[dag] = record.expression
    only = {
        name: next(iter(keys.values())) if len(keys) == 1 else name
        for name, keys in expressions.items()
    }
    return [only[name] for name in names]


def by_task(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Group records by the key of their task, see `keys_of`, in order of first appearance.

    Example:
        >>> records = lw.records.load("matmul.jsonl").records
        >>> for key, group in lw.records.by_task(records).items():
        ...     print(key, len(group) == len(records))
        {"expression":"ddfa1230279f5a90","kind":"llvm"} True
    """
    records = list(records)
    return grouped(records, keys_of(records))


def measured(records: Iterable[_R], *, again: bool = True) -> list[_R]:
    """The records that are measurements, not copies that share the samples of an equal program;
    without ``again`` only trials of the search, no repeated measurements of a candidate.

    Example:
        >>> print(len(lw.records.measured(lw.records.load("matmul.jsonl"), again=False)))
        6
    """
    records = list(records)
    copies, phases = fields_of(records, "same_as", "phase")
    rows = zip(records, copies, phases, strict=True)
    return [record for record, copy, phase in rows if not copy and (again or not phase)]


def top_k(
    records: Iterable[Record],
    k: int,
    task: str | None = None,
    *,
    hardware: str | None = None,
    threads: int | None = None,
) -> list[Record]:
    """The ``k`` fastest candidates by median time, fastest first.

    The rule is that of `Ranking`: failed and dropped records never appear, those that took part in
    a playoff rank before others, a candidate is judged by its latest measurement, one that ever
    gave a wrong answer is excluded, and of equals the earlier line ranks first.

    Args:
        task: Only records of this task, by its key or by a name of it; None for all.
        hardware, threads: Only records of this hardware, and number of threads; None for all.

    Example:
        >>> print([one.op for one in lw.records.top_k(lw.records.load("matmul.jsonl"), 2)])
        ['matmul', 'matmul']
    """
    chosen = list(records)
    if task is not None:
        (names,) = fields_of(chosen, "task")
        rows = zip(chosen, names, keys_of(chosen), strict=True)
        chosen = [record for record, *own in rows if task in own]
    for name, value in {"hardware": hardware, "threads": threads}.items():
        if value is not None:
            (values,) = fields_of(chosen, name)
            chosen = [r for r, own in zip(chosen, values, strict=True) if own == value]
    return ranked(chosen, k)


def best(
    records: Iterable[Record],
    task: str | None = None,
    *,
    hardware: str | None = None,
    threads: int | None = None,
) -> Record | None:
    """The fastest usable record by median time, or None; rules and arguments as :func:`top_k`.

    Example:
        >>> best = lw.records.best(lw.records.load("matmul.jsonl"))
        >>> print(best.op, best.median > 0, best.checked.value)
        matmul True yes
    """
    return next(iter(top_k(records, 1, task, hardware=hardware, threads=threads)), None)


def latest_verdict(record: Record, records: Iterable[Record]) -> Record | None:
    """The record with the latest verdict on a record's candidate; None where none has one."""
    records = list(records)
    (verdicts,) = fields_of(records, "verdict")
    judged = [r for r, verdict in zip(records, verdicts, strict=True) if verdict is not None]
    verdicts_on_it = [r for r in judged if r.candidate == record.candidate]
    return max(verdicts_on_it, key=lambda r: r.ts, default=None)


def verdict_on(record: Record, records: Iterable[Record]) -> Verdict | None:
    """The latest verdict on a record's candidate; None where there is none that can be read."""
    latest = latest_verdict(record, records)
    return None if latest is None else verdict_of(latest.verdict)


def distill(records: Iterable[Record]) -> list[Record]:
    """The best record of each task, hardware and number of threads, in order of appearance.

    Example:
        >>> print(len(lw.records.distill(lw.records.load("matmul.jsonl"))))
        1
    """
    winners = (best(group) for group in by_conditions(records).values())
    return [record for record in winners if record is not None]


def kept(records: Iterable[Record], k: int = 1) -> list[Record]:
    """The best ``k`` records of each task, hardware and thread count, with their evidence, in the
    order of ``records``. A log of these records alone gives the same ranking.

    These are, for each of the best, the record by which its answer counts as checked, the one that
    holds its verdict, and the winner of the playoff in which it was placed; and the latest record
    of every candidate that gave a wrong answer, so that no merge with another log brings it back.

    Example:
        >>> records = lw.records.load("matmul.jsonl").records
        >>> print(lw.records.best(records) in lw.records.kept(records))
        True
    """
    records = list(records)
    winners = [winner for group in by_conditions(records).values() for winner in ranked(group, k)]
    names = {(winner.candidate, winner.build) for winner in winners}
    wrong: dict[tuple[str, str], Record] = {}
    checked: dict[tuple[str, str], Record] = {}
    verdicts: dict[tuple[str, str], Record] = {}
    for record in sorted(records, key=lambda record: record.ts):
        name = (record.candidate, record.build)
        if record.wrong:
            wrong[name] = record
        elif name in names and record.checked is Checked.YES:
            checked[name] = record
        if name in names and record.verdict:
            verdicts[name] = record
    for winner in winners:
        if winner.checked is Checked.YES:
            checked.pop((winner.candidate, winner.build), None)
    # The winners of the playoffs in which these took part.
    phases, judged = fields_of(records, "phase", "verdict")
    played = [r for r, *kind in zip(records, phases, judged, strict=True) if is_of_playoff(*kind)]
    numbers = playoffs(played)
    wanted = {numbers[r.id] for r in (*winners, *verdicts.values()) if r.id in numbers}
    placed = [r for r in played if r.verdict is not None and numbers[r.id] in wanted]
    rests_on = [*winners, *wrong.values(), *checked.values(), *verdicts.values(), *placed]
    chosen = {id(record) for record in rests_on}
    return [record for record in records if id(record) in chosen]


def by_conditions(records: Iterable[Record]) -> dict[tuple[str, str, int], list[Record]]:
    """Records by task, hardware and number of threads, in order of first appearance."""
    records = list(records)
    columns = (keys_of(records), *fields_of(records, "hardware", "threads"))
    return grouped(records, zip(*columns, strict=True))

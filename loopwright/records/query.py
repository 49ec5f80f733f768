"""Questions to a set of records: the best, the best few, by task, and a log of only the best."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from loopwright.errors import RecordError
from loopwright.records.log import load
from loopwright.records.ranking import ranked
from loopwright.records.record import Record
from loopwright.records.store import Store


def by_task(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Group records by the key of their task, in order of first appearance."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.task, []).append(record)
    return groups


def top_k(
    records: Iterable[Record],
    k: int,
    task: str | None = None,
    *,
    hardware: str | None = None,
    threads: int | None = None,
) -> list[Record]:
    """The ``k`` fastest candidates by median time, fastest first.

    `Ranking` has the rule: failed and dropped records never appear, a candidate is judged by its
    latest measurement, one that gave a wrong answer at any time is out, and among equals the
    earlier line leads.

    Args:
        records: Any iterable of records, a :class:`Log` too.
        k: How many at most.
        task: Only records of this task key; None for all.
        hardware: Only records of this hardware; None for all.
        threads: Only records of this number of threads; None for all.
    """
    chosen = (
        record
        for record in records
        if (task is None or record.task == task)
        and (hardware is None or record.hardware == hardware)
        and (threads is None or record.threads == threads)
    )
    return ranked(chosen, k)


def best(
    records: Iterable[Record],
    task: str | None = None,
    *,
    hardware: str | None = None,
    threads: int | None = None,
) -> Record | None:
    """The fastest usable record by median time, or None; rules and arguments as :func:`top_k`."""
    return next(iter(top_k(records, 1, task, hardware=hardware, threads=threads)), None)


def distill(records: Iterable[Record]) -> list[Record]:
    """The best record of each task, hardware and number of threads, in order of appearance."""
    groups: dict[tuple[str, str, int], list[Record]] = {}
    for record in records:
        groups.setdefault((record.task, record.hardware, record.threads), []).append(record)
    winners = (best(group) for group in groups.values())
    return [record for record in winners if record is not None]


def pick_best(source: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[Record]:
    """Write a log that holds only the best records of ``source`` and of ``out``, if that exists.

    The new file replaces the old one in one step, so that a failure leaves ``out`` as it was.

    Returns:
        What was written.

    Raises:
        RecordError: a log cannot be read or written.
    """
    records = list(load(source))
    if Path(out).exists():
        records += load(out)
    kept = distill(records)
    partial = Path(f"{os.fspath(out)}.{os.getpid()}.partial")
    try:
        _write(partial, kept)
        os.replace(partial, out)
    except OSError as exc:
        raise RecordError(f"cannot write {os.fspath(out)!r}: {exc.strerror or exc}") from exc
    finally:
        partial.unlink(missing_ok=True)
    return kept


def _write(path: Path, records: Iterable[Record]) -> None:
    with Store(path) as store:
        for record in records:
            store.append(record)
        store.sync()

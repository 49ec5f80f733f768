"""Which record of a log is meant: by its id, as the best, or by the number of its trial."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeAlias

from loopwright.errors import RecordError, UsageError, shown
from loopwright.records import Log, Record, best, by_task, fields_of, open_log

#: A log, or the path of one.
LogLike: TypeAlias = "Log | str | os.PathLike[str]"
#: Stands for the best record where an id is asked for.
BEST = "best"
#: Records that an error lists, at most.
_LISTED = 5


def log_of(log: LogLike) -> Log:
    """A log that is open already, or the one at a path.

    Raises:
        RecordError: there is none, or it cannot be read.
    """
    return log if isinstance(log, Log) else open_log(log)


def choose(
    log: LogLike, record: str | None = None, *, trial: int | None = None, run: str | None = None
) -> Record:
    """One record of a log.

    Args:
        log: the log, or its path.
        record: its id or the beginning of it, or ``"best"`` for the best one of the log's task.
        trial: the number of a trial instead, where one task and one run make it unique.
        run: the run in which it was measured, or the beginning of its name.

    Raises:
        RecordError: the log holds no such record.
        UsageError: neither or both of ``record`` and ``trial`` were given; or several records are
            meant, and the message says which.

    Example:
        >>> from loopwright.inspection import choose
        >>> print(choose("matmul.jsonl", "best").op)
        matmul
    """
    if (record is None) == (trial is None):
        raise UsageError("say which record is meant: give its id, or the number of its trial")
    opened = log_of(log)
    records = _of_run(opened, run)
    if record is None:
        assert trial is not None
        return _by_trial(opened, records, trial)
    return _best(opened, records) if record == BEST else _by_id(opened, records, record)


def _of_run(log: Log, run: str | None) -> list[Record]:
    records = list(log.records)
    if not records:
        if log.skipped:
            raise RecordError(
                f"{log.path} is no log that is understood here: none of its lines is a record, "
                f"line {log.skipped[0].line} for example: {log.skipped[0].reason}; check the path"
            )
        raise RecordError(f"{log.path} holds no record; tune first, or check the path")
    if run is None:
        return records
    (runs,) = fields_of(records, "run")
    chosen = [r for r, own in zip(records, runs, strict=True) if own.startswith(run)]
    if not chosen:
        there = ", ".join(dict.fromkeys(runs))
        raise RecordError(f"{log.path} has no run {run!r}; it has {shown(there)}")
    return chosen


def _by_id(log: Log, records: Sequence[Record], wanted: str) -> Record:
    (ids,) = fields_of(records, "id")
    chosen = [r for r, own in zip(records, ids, strict=True) if wanted and own.startswith(wanted)]
    if not chosen:
        raise RecordError(
            f"{log.path} has no record {wanted!r}; `loopwright records list {log.path}` shows ids"
        )
    # A log that was merged with itself holds one record twice.
    if len({r.id for r in chosen}) > 1:
        raise UsageError(
            f"{len(chosen)} records of {log.path} have ids that begin with {wanted!r}: "
            f"{_listed(chosen, len(chosen))}; give more digits"
        )
    return chosen[0]


def _best(log: Log, records: Sequence[Record]) -> Record:
    groups = by_task(records)
    if len(groups) > 1:
        some = list(groups.values())[:_LISTED]
        listed = _listed([best(group) or group[0] for group in some], len(groups))
        raise UsageError(
            f"{log.path} holds {len(groups)} tasks; name the record: the best ones are {listed}"
        )
    found = best(records)
    if found is None:
        raise RecordError(
            f"{log.path} has no usable record among {len(records)}: none ran to a time"
        )
    return found


def _by_trial(log: Log, records: Sequence[Record], trial: int) -> Record:
    trials, phases = fields_of(records, "trial", "phase")
    chosen = [
        r
        for r, number, phase in zip(records, trials, phases, strict=True)
        if number == trial and not phase  # a later measurement of a trial is none itself
    ]
    if not chosen:
        last = max(trials)
        raise RecordError(f"{log.path} has no trial {trial}; its trials go from 0 to {last}")
    if len({r.id for r in chosen}) > 1:
        raise UsageError(
            f"{len(chosen)} records of {log.path} are trial {trial}: "
            f"{_listed(chosen, len(chosen))}; give the run with --run (run=), or the id of one"
        )
    return chosen[0]


def _listed(records: Sequence[Record], count: int) -> str:
    """The first few of ``count`` records."""
    parts = [f"{r.id} ({title(r)}, run {r.run or 'unknown'})" for r in records[:_LISTED]]
    more = count - _LISTED
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "")


def title(record: Record) -> str:
    """The task of a record for people: ``matmul(64, 64, 64)``."""
    args = ", ".join(map(str, record.args))
    return f"{record.op}({args if len(args) <= 60 else f'{args[:57]}...'})"

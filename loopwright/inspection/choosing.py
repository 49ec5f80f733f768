"""Choice of a record of a log: by its id, by a word for it, or by the number of its trial."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from loopwright.errors import RecordError, UsageError, shown
from loopwright.records import (
    Log,
    Record,
    best,
    by_setup,
    check_has_records,
    default_record,
    fields_of,
    load,
    setup_titles,
    verdict_on,
)

#: A log, or the path of one.
LogLike: TypeAlias = "Log | str | os.PathLike[str]"
#: Stand for the best record, and for the default configuration, where an id is expected.
BEST, DEFAULT = "best", "default"
WORDS = (BEST, DEFAULT)
#: Records that an error lists, at most.
_LISTED = 5


def log_of(log: LogLike) -> Log:
    return log if isinstance(log, Log) else load(log)


def choose(
    log: LogLike,
    record: str | None = None,
    *,
    trial: int | None = None,
    run: str | None = None,
    among: Iterable[Record] | None = None,
) -> Record:
    """Choose one record of a log.

    Args:
        log: the log, or its path.
        record: its id or the beginning of it; ``"best"`` for the best one, or ``"default"`` for the
            latest measurement of the default configuration, where all records are of one task on
            one machine.
        trial: the number of a trial instead, where one task and one run make it unique.
        run: the run in which it was measured, or the beginning of its name.
        among: records to choose from; None: all of them.

    Raises:
        RecordError: the log holds no such record.
        UsageError: neither or both of ``record`` and ``trial`` were given; or several records
            match, which the message lists.
    """
    if (record is None) == (trial is None):
        raise UsageError("say which record is meant: give its id, or the number of its trial")
    opened = log_of(log)
    check_has_records(opened)
    records = of_run(opened, opened.records if among is None else among, run)
    if not records:
        raise RecordError(f"{opened.path} has no record among those that are meant")
    if record is None:
        assert trial is not None
        return _by_trial(opened, records, trial)
    return _by_word(opened, records, record) if record in WORDS else _by_id(opened, records, record)


def of_run(log: Log, records: Iterable[Record], run: str | None) -> list[Record]:
    """Records of the run whose name begins with ``run``, or all; `RecordError` if there is none."""
    records = list(records)
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
    different = list({r.id: r for r in chosen}.values())
    if len(different) > 1:
        raise UsageError(
            f"{len(different)} records of {log.path} have ids that begin with {wanted!r}: "
            f"{_listed(different)}; give more digits"
        )
    return chosen[0]


def _by_word(log: Log, records: Sequence[Record], word: str) -> Record:
    setups = by_setup(records)
    groups = list(setups.values())
    if len(groups) > 1:
        tasks = len({setup.task for setup in setups})
        what = f"{tasks} tasks" if tasks > 1 else f"{len(groups)} machines or numbers of threads"
        of_each = [best(group) or group[0] for group in groups[:_LISTED]]
        titles = zip(of_each, setup_titles(of_each), strict=True)
        listed = ", ".join(f"{record.id} ({title})" for record, title in titles)
        raise UsageError(
            f"{log.path} has records of {what}, so {word!r} may be any of them; name the record: "
            f"the best ones are {listed}{_more(len(groups))}"
        )
    winner = best(records)
    if word == DEFAULT:
        # That of the winner's verdict, if any.
        verdict = None if winner is None else verdict_on(winner, records)
        if (default := default_record(records, verdict)) is not None:
            return default
        raise RecordError(
            f"{log.path} has no usable record of the default configuration among {len(records)}; "
            f"`loopwright records list {log.path}` shows ids"
        )
    if winner is None:
        raise RecordError(
            f"{log.path} has no usable record among {len(records)}: none ran to a time; "
            f"`loopwright records errors {log.path}` shows why"
        )
    return winner


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
    different = list({r.id: r for r in chosen}.values())
    if len(different) > 1:
        raise UsageError(
            f"{len(different)} records of {log.path} are trial {trial}: {_listed(different)}; "
            "give the run with --run (run=), or the id of one"
        )
    return chosen[0]


def _listed(records: Sequence[Record]) -> str:
    parts = [f"{r.id} ({title(r)}, run {r.run or 'unknown'})" for r in records[:_LISTED]]
    return ", ".join(parts) + _more(len(records))


def _more(count: int) -> str:
    return f" and {count - _LISTED} more" if count > _LISTED else ""


def title(record: Record) -> str:
    """Task of a record for people, cut where its arguments are long: ``matmul(64, 64, 64)``."""
    args = ", ".join(map(str, record.args))
    return f"{record.op}({args if len(args) <= 60 else f'{args[:57]}...'})"

"""What all verbs that read a log have in common: opening it, and choosing from it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from itertools import compress
from typing import TYPE_CHECKING

import click

from loopwright.cli.harmless import echo
from loopwright.errors import RecordError, UsageError

if TYPE_CHECKING:
    from loopwright.records import Log, Record
    from loopwright.records.reports.setups import Setup

#: Stands for the best record, and for the default configuration, where an id is asked for.
BEST, DEFAULT = "best", "default"
#: So many new objects may come before the collector of cycles looks at them.
_COLLECTED_AFTER = 200_000

log_argument = click.argument("log")
task_option = click.option("--task", help="Only tasks whose key contains this text.")
target_option = click.option("--target", help="Only records of this kind of target, such as llvm.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
csv_option = click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")


def decorated(*decorators: Callable[..., object]) -> Callable[..., Callable[..., object]]:
    """Options that several verbs share, as one decorator."""

    def decorate(command: Callable[..., object]) -> Callable[..., object]:
        for one in reversed(decorators):
            command = one(command)
        return command

    return decorate


log_options = decorated(log_argument, task_option, target_option)


def load_log(path: str, *, records: bool = True) -> Log:
    """Open a log, and say on standard error what of it was not understood.

    Args:
        path: the file.
        records: False where a log without records will do.

    Raises:
        RecordError: the path names no log, or the log has no record.
    """
    from loopwright.records import open_log
    from loopwright.records.log import check_is_log

    log = open_log(path)
    check_is_log(log)
    if complaint := log.complaint():
        echo(complaint, err=True)
    if records and not log.records:
        raise RecordError(without_records(log))
    # Records have no cycles and stay until the verb ends: a collector that goes through all of them
    # again and again takes a fifth of the time.
    gc.freeze()
    gc.set_threshold(_COLLECTED_AFTER)
    return log


def without_records(log: Log) -> str:
    """What is said of a log without records."""
    runs = f"{len(log.headers)} run{'s' * (len(log.headers) != 1)} began"
    return (
        f"{log.path} has no record yet ({runs}, and no trial has ended): wait, or go on with the "
        "same `loopwright tune ... --log`"
    )


def of_task(log: Log, task: str | None, target: str | None) -> list[Record]:
    """The records of a log that two filters leave.

    Raises:
        UsageError: a filter leaves none; the message says what there is.
    """
    from loopwright.records import fields_of

    chosen = list(log.records)
    if task is not None:
        (tasks,) = fields_of(chosen, "task")
        chosen = list(compress(chosen, (task in own for own in tasks)))
        if not chosen and log.records:
            there = _few(dict.fromkeys(tasks))
            raise UsageError(f"{log.path} has no task with {task!r} in its key; it has {there}")
    if target is not None:
        (targets,) = fields_of(chosen, "target")
        kinds = [str(own.get("kind", "")) for own in targets]
        chosen = list(compress(chosen, (kind == target for kind in kinds)))
        if not chosen and log.records:
            there = _few(dict.fromkeys(kinds))
            raise UsageError(f"{log.path} has no record for target {target!r}; it has {there}")
    return chosen


def _few(names: dict[str, None]) -> str:
    shown = ", ".join(list(names)[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def setups_of(log: Log, task: str | None, target: str | None) -> list[list[Record]]:
    """The records of a log that two filters leave, one list for each setup."""
    from loopwright.records.reports.setups import by_setup

    return list(by_setup(of_task(log, task, target)).values())


def only_setup(log: Log, task: str | None, target: str | None) -> list[Record]:
    """The records of one setup: of the one task that two filters leave, and of the machine on which
    most of it was measured; standard error says where there are others.

    Raises:
        UsageError: they leave several tasks; the message says which, and how to name one.
    """
    from loopwright.cli.logs.words import setup_title

    groups = list(by_setup_of_one_task(log, of_task(log, task, target)).values())
    most = max(groups, key=len)
    if len(groups) > 1:
        others = "; ".join(setup_title(group[0]) for group in groups if group is not most)
        echo(
            f"{log.path} has this task for {len(groups)} machines or numbers of threads; this is "
            f"{setup_title(most[0])}, which has most records, and not {others}",
            err=True,
        )
    return most


def by_setup_of_one_task(log: Log, records: Sequence[Record]) -> dict[Setup, list[Record]]:
    """Records of one task, by their setup.

    Raises:
        UsageError: they are of several tasks; the message says which, and how to name one.
    """
    from loopwright.cli.logs.words import setup_title
    from loopwright.records.reports.setups import by_setup

    groups = by_setup(records)
    firsts = {setup.task: group[0] for setup, group in reversed(groups.items())}
    if len(firsts) == 1:
        return groups
    titles = [setup_title(record) for record in reversed(firsts.values())]
    shown = "; ".join(titles[:3])
    more = f"; and {len(titles) - 3} more" if len(titles) > 3 else ""
    raise UsageError(
        f"{log.path} has {len(titles)} tasks; name one with --task TEXT or --target KIND: "
        f"{shown}{more}"
    )


def find_record(log: Log, records: Sequence[Record], wanted: str) -> Record:
    """The record that was asked for: its id or the beginning of it, `BEST` or `DEFAULT`.

    Args:
        log: where the records are from, for messages.
        records: those among which it is looked for.
        wanted: what was asked for.

    Raises:
        UsageError: there is none such, or there are several.
    """
    from loopwright.records import best, fields_of
    from loopwright.records.reports.standings import default_record

    hint = f"`loopwright records list {log.path}` shows ids"
    if wanted in (BEST, DEFAULT):
        by_setup_of_one_task(log, records)  # the best of several tasks is no answer
        found = best(records) if wanted == BEST else default_record(records)
        if found is None:
            raise RecordError(f"{log.path} has no usable record to be the {wanted}; {hint}")
        return found
    (ids,) = fields_of(records, "id")
    rows = [row for row, name in enumerate(ids) if wanted and name.startswith(wanted)]
    # A log that was merged with itself holds one record twice.
    names = dict.fromkeys(ids[row] for row in rows)
    if len(names) == 1:
        return records[rows[0]]
    if not names:
        raise UsageError(f"{log.path} has no record {wanted!r}; {hint}")
    raise UsageError(
        f"{log.path} has {len(names)} records whose id begins with {wanted!r} "
        f"({_few(names)}); give more digits"
    )

"""Opening a log, choosing records from it, and printing rows, for all verbs that read one."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING

import click

from loopwright.cli.console import announce
from loopwright.cli.options import flag, option
from loopwright.cli.tables import print_csv, print_lines
from loopwright.errors import RecordError, UsageError
from loopwright.presenting import counted

if TYPE_CHECKING:
    from loopwright.records import Json, Log, Record, Setup

#: So many new objects may come before the collector of cycles looks at them.
_COLLECTED_AFTER = 200_000
#: Things that an error lists, at most.
_LISTED = 3


@dataclass(frozen=True)
class OutputForm:
    """The form of a verb's output: text for people, unless one of these is chosen."""

    as_json: bool = flag("--json", "Print JSON lines.")
    as_csv: bool = flag("--csv", "Print comma-separated values.")

    def __post_init__(self) -> None:
        if self.as_json and self.as_csv:
            raise UsageError("--json and --csv are two forms of one output; give one of both")

    @property
    def for_programs(self) -> bool:
        return self.as_json or self.as_csv

    def print_rows(
        self,
        titles: Sequence[str],
        rows: Iterable[Sequence[Json]],
        more: Iterable[dict[str, Json]] | None = None,
    ) -> None:
        """Print rows for programs; ``more`` are further fields of each row, in JSON alone."""
        if self.as_csv:
            print_csv(titles, rows)
            return
        objects = (dict(zip(titles, row, strict=True)) for row in rows)
        if more is not None:
            objects = ({**one, **fields} for one, fields in zip(objects, more, strict=True))
        print_lines(json.dumps(one) for one in objects)


@dataclass(frozen=True)
class Filters:
    task: str | None = option("--task TEXT", "Only tasks whose key contains this text.")
    target: str | None = option(
        "--target KIND", "Only records of this kind of target, such as llvm."
    )
    hardware: str | None = option(
        "--hardware TEXT",
        "Only records of hardware whose name contains this text, such as EPYC.",
    )
    threads: int | None = option(
        "--threads N", "Only records of kernels with this many threads.", type=click.IntRange(1)
    )

    def of(self, log: Log) -> list[Record]:
        """The records of a log that pass; if there are none, the message lists possible values."""
        from loopwright.cli.logs.record_text import threads_texts
        from loopwright.records import fields_of, hardware_names

        chosen = list(log.records)

        def keep(fits: Sequence[bool], missing: str, values: Sequence[str]) -> None:
            nonlocal chosen
            if not any(fits) and values:
                few = _few(dict.fromkeys(values))
                raise UsageError(f"{log.path} has {missing}; it has {few}")
            chosen = list(compress(chosen, fits))

        if self.task is not None:
            (tasks,) = fields_of(chosen, "task")
            missing = f"no task with {self.task!r} in its key"
            keep([self.task in key for key in tasks], missing, tasks)
        if self.target is not None:
            kinds = [str(target.get("kind", "")) for target in fields_of(chosen, "target")[0]]
            keep([k == self.target for k in kinds], f"no record for target {self.target!r}", kinds)
        if self.hardware is not None:
            # Short or whole names, in any case; they are those of all records: so they are printed.
            names = hardware_names(fields_of(log.records, "hardware")[0])
            text, (machines,) = self.hardware.casefold(), fields_of(chosen, "hardware")
            fit = {hard for hard, name in names.items() if text in f"{name} {hard}".casefold()}
            missing = f"no record of hardware with {self.hardware!r} in its name"
            keep([hard in fit for hard in machines], missing, [names[hard] for hard in machines])
        if self.threads is not None:
            (counts,) = fields_of(chosen, "threads")
            missing = f"no record of {counted(self.threads, 'thread')}"
            keep([count == self.threads for count in counts], missing, threads_texts(chosen))
        return chosen

    def words(self) -> str:
        return " and ".join(f"{name} {value!r}" for name, value in vars(self).items() if value)


def load_log(path: str, *, records: bool = True) -> Log:
    """Open a log, and report its malformed lines on standard error; ``records`` requires some."""
    from loopwright.records import check_has_records, check_is_log, load

    log = load(path)
    check = check_has_records if records else check_is_log
    check(log)
    if log.records and (complaint := log.complaint()):
        announce(complaint)
    # Records have no cycles and stay until the verb ends: a collector that goes through all of them
    # again and again takes a fifth of the time.
    gc.freeze()
    gc.set_threshold(_COLLECTED_AFTER)
    return log


def _few(names: Iterable[str], separator: str = ", ") -> str:
    listed = list(names)
    more = f"{separator}and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return separator.join(listed[:_LISTED]) + more


def largest_setup(log: Log, filters: Filters) -> list[Record]:
    """The records of one setup: of the one task that passes some filters, and of the machine on
    which most of it was measured; standard error names the others. Several tasks are refused.
    """
    from loopwright.records import setup_titles

    groups = _setups_of_one_task(log, filters.of(log))
    largest = max(groups, key=lambda setup: len(groups[setup]))
    if len(groups) > 1:
        titles = dict(zip(groups, setup_titles(g[0] for g in groups.values()), strict=True))
        chosen = titles.pop(largest)
        announce(
            f"{_several(log, groups)}; this is {chosen}, which has most records, and not "
            f"{_few(titles.values(), '; ')}; {_picked_by(groups)} picks another"
        )
    return groups[largest]


def _several(log: Log, groups: Sized) -> str:
    return f"{log.path} has this task for {len(groups)} machines or numbers of threads"


def check_one_setup(log: Log, records: Iterable[Record]) -> None:
    """Refuse records of several tasks or machines, among which none is the best."""
    from loopwright.records import setup_titles

    groups = _setups_of_one_task(log, records)
    if len(groups) > 1:
        titles = _few(setup_titles(group[0] for group in groups.values()), "; ")
        raise UsageError(f"{_several(log, groups)}; name one with {_picked_by(groups)}: {titles}")


def _picked_by(setups: Iterable[Setup]) -> str:
    setups = list(setups)
    options = ["--hardware TEXT"] * (len({setup.hardware for setup in setups}) > 1)
    options += ["--threads N"] * (len({setup.threads for setup in setups}) > 1)
    return " or ".join(options)


def _setups_of_one_task(log: Log, records: Iterable[Record]) -> dict[Setup, list[Record]]:
    """Records of one task, by their setup; several tasks are refused."""
    from loopwright.records import by_setup, setup_titles

    groups = by_setup(records)
    firsts = {setup.task: group[0] for setup, group in reversed(groups.items())}
    if len(firsts) > 1:
        titles = _few(setup_titles(reversed(firsts.values())), "; ")
        raise UsageError(
            f"{log.path} has {len(firsts)} tasks; name one with --task TEXT or --target KIND: "
            f"{titles}"
        )
    return groups


def find_record(
    log: Log,
    records: Sequence[Record],
    wanted: str | None,
    *,
    trial: int | None = None,
    run: str | None = None,
) -> Record:
    """The wanted record, see :func:`loopwright.inspection.choose`; where that is ambiguous, the
    message names the option that makes it clear. ``wanted`` is an id, the beginning of one,
    ``best`` or ``default``; None where a trial is given. A missing record is a `UsageError`, since
    naming it was a wrong call.
    """
    from loopwright.inspection import WORDS, choose, of_run

    try:
        if wanted in WORDS:
            check_one_setup(log, of_run(log, records, run))
        return choose(log, wanted, trial=trial, run=run, among=records)
    except RecordError as error:
        if wanted in WORDS:
            raise
        raise UsageError(str(error)) from error

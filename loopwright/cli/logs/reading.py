"""Opening a log and choosing records from it, for all verbs that read one."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING

import click

from loopwright.cli.console import echo
from loopwright.errors import RecordError, UsageError

if TYPE_CHECKING:
    from loopwright.records import Log, Record
    from loopwright.records.reports.setups import Setup

#: So many new objects may come before the collector of cycles looks at them.
_COLLECTED_AFTER = 200_000
#: Things that an error lists, at most.
_LISTED = 3

log_argument = click.argument("log")


def _one_form(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    other = "as_csv" if parameter.name == "as_json" else "as_json"
    if value and context.params.get(other):
        raise UsageError("--json and --csv are two forms of one output; give one of both")
    return value


json_option = click.option(
    "--json", "as_json", is_flag=True, callback=_one_form, help="Print JSON lines."
)
csv_option = click.option(
    "--csv", "as_csv", is_flag=True, callback=_one_form, help="Print comma-separated values."
)


@dataclass(frozen=True)
class Filters:
    """The filters --task, --target, --hardware and --threads of records; None: all."""

    #: A part of the key of the task.
    task: str | None = None
    #: The kind of the target.
    target: str | None = None
    #: A part of the name of the hardware.
    hardware: str | None = None
    threads: int | None = None

    def of(self, log: Log) -> list[Record]:
        """The records of a log that pass; if there are none, the message lists the possible
        values.
        """
        from loopwright.cli.logs.record_text import threads_texts
        from loopwright.records import fields_of

        chosen = list(log.records)
        if self.task is not None:
            (tasks,) = fields_of(chosen, "task")
            fits = [self.task in own for own in tasks]
            _check_left(log, f"no task with {self.task!r} in its key", tasks, fits)
            chosen = list(compress(chosen, fits))
        if self.target is not None:
            (targets,) = fields_of(chosen, "target")
            kinds = [str(own.get("kind", "")) for own in targets]
            fits = [kind == self.target for kind in kinds]
            _check_left(log, f"no record for target {self.target!r}", kinds, fits)
            chosen = list(compress(chosen, fits))
        if self.hardware is not None:
            chosen = self._on_hardware(log, chosen, self.hardware)
        if self.threads is not None:
            (counts,) = fields_of(chosen, "threads")
            fits = [count == self.threads for count in counts]
            threads = f"{self.threads} thread{'s' * (self.threads != 1)}"
            _check_left(log, f"no record of {threads}", threads_texts(chosen), fits)
            chosen = list(compress(chosen, fits))
        return chosen

    def _on_hardware(self, log: Log, records: Sequence[Record], wanted: str) -> list[Record]:
        """Records whose hardware has a text in its name, short or whole, in any case."""
        from loopwright.records import fields_of
        from loopwright.records.reports.setups import hardware_names

        (own,) = fields_of(records, "hardware")
        # The names are those of all records: so they are printed.
        names = hardware_names(fields_of(log.records, "hardware")[0])
        text = wanted.casefold()
        fit = {hard for hard, name in names.items() if text in f"{name} {hard}".casefold()}
        fits = [hard in fit for hard in own]
        there = [names[hard] for hard in own]
        _check_left(log, f"no record of hardware with {wanted!r} in its name", there, fits)
        return list(compress(records, fits))

    def words(self) -> str:
        """The given filters for a message; empty where there are none."""
        said = {
            "task": self.task,
            "target": self.target,
            "hardware": self.hardware,
            "threads": self.threads,
        }
        return " and ".join(f"{name} {value!r}" for name, value in said.items() if value)


def _check_left(log: Log, missing: str, there: Sequence[str], fits: Sequence[bool]) -> None:
    """Refuse a filter that leaves nothing."""
    if not any(fits) and there:
        raise UsageError(f"{log.path} has {missing}; it has {_few(dict.fromkeys(there))}")


def filter_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add the options that choose among the records of a log; the command gets `Filters`."""

    @functools.wraps(command)
    def filtered(
        *args: object,
        task: str | None,
        target: str | None,
        hardware: str | None,
        threads: int | None,
        **more: object,
    ) -> object:
        return command(*args, filters=Filters(task, target, hardware, threads), **more)

    options = (
        click.option("--task", metavar="TEXT", help="Only tasks whose key contains this text."),
        click.option(
            "--target", metavar="KIND", help="Only records of this kind of target, such as llvm."
        ),
        click.option(
            "--hardware",
            metavar="TEXT",
            help="Only records of hardware whose name contains this text, such as EPYC.",
        ),
        click.option(
            "--threads",
            metavar="N",
            type=click.IntRange(1),
            help="Only records of kernels with this many threads.",
        ),
    )
    with_options: Callable[..., object] = filtered
    for option in reversed(options):
        with_options = option(with_options)
    return with_options


def log_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add the argument LOG and the options that choose among its records."""
    return log_argument(filter_options(command))


def load_log(path: str, *, records: bool = True) -> Log:
    """Open a log, and report its malformed lines on standard error; ``records`` requires some."""
    from loopwright.records import open_log
    from loopwright.records.log import check_has_records, check_is_log

    log = open_log(path)
    check = check_has_records if records else check_is_log
    check(log)
    if log.records and (complaint := log.complaint()):
        echo(complaint, err=True)
    # Records have no cycles and stay until the verb ends: a collector that goes through all of them
    # again and again takes a fifth of the time.
    gc.freeze()
    gc.set_threshold(_COLLECTED_AFTER)
    return log


def _few(names: Iterable[str], separator: str = ", ") -> str:
    """The first few of some names, and the number of the others."""
    listed = list(names)
    more = f"{separator}and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return separator.join(listed[:_LISTED]) + more


def setups_of(log: Log, filters: Filters) -> list[list[Record]]:
    """The records of a log that pass some filters, one list for each setup."""
    from loopwright.records.reports.setups import by_setup

    return list(by_setup(filters.of(log)).values())


def largest_setup(log: Log, filters: Filters) -> list[Record]:
    """The records of one setup: of the one task that passes some filters, and of the machine on
    which most of it was measured; standard error names the others. Several tasks are refused.
    """
    from loopwright.records.reports.setups import setup_titles

    groups = by_setup_of_one_task(log, filters.of(log))
    most = max(groups.values(), key=len)
    if len(groups) > 1:
        titles = setup_titles(group[0] for group in groups.values())
        told = dict(zip(map(id, groups.values()), titles, strict=True))
        others = _few((title for key, title in told.items() if key != id(most)), "; ")
        echo(
            f"{log.path} has this task for {len(groups)} machines or numbers of threads; this is "
            f"{told[id(most)]}, which has most records, and not {others}; "
            f"{_picked_by(groups)} picks another",
            err=True,
        )
    return most


def _picked_by(setups: Iterable[Setup]) -> str:
    """The options that pick one of several setups of a task."""
    setups = list(setups)
    options = ["--hardware TEXT"] * (len({setup.hardware for setup in setups}) > 1)
    options += ["--threads N"] * (len({setup.threads for setup in setups}) > 1)
    return " or ".join(options)


def by_setup_of_one_task(log: Log, records: Iterable[Record]) -> dict[Setup, list[Record]]:
    """Records of one task, by their setup; several tasks are refused."""
    from loopwright.records.reports.setups import by_setup, setup_titles

    groups = by_setup(records)
    firsts = {setup.task: group[0] for setup, group in reversed(groups.items())}
    if len(firsts) > 1:
        titles = _few(setup_titles(reversed(firsts.values())), "; ")
        raise UsageError(
            f"{log.path} has {len(firsts)} tasks; name one with --task TEXT or --target KIND: "
            f"{titles}"
        )
    return groups


def check_one_setup(log: Log, records: Iterable[Record]) -> None:
    """Refuse records of several tasks or machines, among which none is the best."""
    from loopwright.records.reports.setups import setup_titles

    groups = by_setup_of_one_task(log, records)
    if len(groups) > 1:
        titles = _few(setup_titles(group[0] for group in groups.values()), "; ")
        raise UsageError(
            f"{log.path} has this task for {len(groups)} machines or numbers of threads; name one "
            f"with {_picked_by(groups)}: {titles}"
        )


def find_record(
    log: Log,
    records: Sequence[Record],
    wanted: str | None,
    *,
    trial: int | None = None,
    run: str | None = None,
) -> Record:
    """The wanted record, see :func:`loopwright.inspection.choose`; where that is ambiguous, the
    message names the option that makes it clear.

    ``wanted`` is an id, the beginning of one, ``best`` or ``default``; None where a trial is given.
    A missing record is a `UsageError`, since naming it was a wrong call.
    """
    from loopwright.inspection.choosing import WORDS, choose, of_run

    try:
        if wanted in WORDS:
            check_one_setup(log, of_run(log, records, run))
        return choose(log, wanted, trial=trial, run=run, among=records)
    except RecordError as error:
        if wanted in WORDS:
            raise
        raise UsageError(str(error)) from error

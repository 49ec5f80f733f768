"""``loopwright records merge | split | pick | distill | validate``: whole logs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from loopwright.cli.harmless import echo, harmless
from loopwright.cli.logs.columns import print_csv, print_lines, wrapped
from loopwright.cli.logs.reading import csv_option, json_option, log_argument
from loopwright.cli.logs.words import counted

if TYPE_CHECKING:
    from loopwright.records import Record
    from loopwright.records.validation import LineReport, Validation

#: Lines that `validate` names unless all are asked for.
_NAMED = 20

_logs = click.argument("logs", nargs=-1, required=True, metavar="LOG...")
_out = click.option("-o", "--out", required=True, metavar="OUT", help="The log to be written.")
_top = click.option("-k", "--top", type=click.IntRange(1), default=1, help="How many per task.")


@click.command("pick", short_help="The best of each task, added to a log.")
@_logs
@_out
@_top
def pick(logs: Sequence[str], out: str, top: int) -> None:
    """Write the best records of LOG... and of OUT, if that exists, to OUT.

    Records by which a candidate is known to be wrong are kept, so that it never comes back.
    """
    from loopwright import records

    _picked(records.pick, logs, out, top)


@click.command("distill", short_help="The best of each task alone.")
@_logs
@_out
@_top
def distill(logs: Sequence[str], out: str, top: int) -> None:
    """Write the best records of LOG... alone to OUT, which must be new or one of LOG...."""
    from loopwright import records

    _picked(records.distill_file, logs, out, top)


@click.command("merge", short_help="Several logs as one.")
@_logs
@_out
def merge(logs: Sequence[str], out: str) -> None:
    """Write all lines of LOG... and of OUT, if that exists, to OUT; equal ones once."""
    from loopwright import records

    count, twice = records.merge(logs, out)
    echo(f"wrote {counted(count, 'line')} to {out}; {twice} stood there already")


@click.command("split", short_help="A log for each task.")
@log_argument
@click.option("-o", "--out", required=True, metavar="DIR", help="The folder of the files.")
def split(log: str, out: str) -> None:
    """Write the records of each task of LOG to a file of its own in DIR."""
    from loopwright import records

    for path, count in records.split(log, out, _say).items():
        echo(f"{path}: {counted(count, 'record')}")


@click.command("validate", short_help="What each line is, and which are damaged.")
@log_argument
@click.option(
    "--all", "everything", is_flag=True, help="Name every line, those that are sound too."
)
@json_option
@csv_option
def validate(log: str, everything: bool, as_json: bool, as_csv: bool) -> None:
    """Check every line of LOG: is it a record, and is it whole?

    Names the lines that are torn (cut off by a crash), damaged (they do not fit their checksum) or
    malformed, and those of a version that is not read. Exits with 1 where a line is damaged in one
    of these ways; a line of a newer version is whole. Readers skip all of them, so the rest of the
    log can be used. --json and --csv print one row for each line that is named.
    """
    from loopwright.records import open_log
    from loopwright.records.log import check_is_log
    from loopwright.records.validation import line_reports, validate

    found = validate(log)
    if not found.sound:
        check_is_log(open_log(log))  # a file in which nothing is of a log is not called damaged
    lines = line_reports(log) if everything else iter(found.notable)
    titles = ("line", "kind", "detail")
    rows = ((line.number, str(line.kind), line.detail) for line in lines)
    if as_json:
        print_lines(json.dumps(dict(zip(titles, row, strict=True))) for row in rows)
    elif as_csv:
        print_csv(titles, rows)
    elif everything:
        print_lines(harmless(f"line {n}: {kind}{f': {d}' * bool(d)}") for n, kind, d in rows)
    else:
        _name(found.notable)
    if not as_json and not as_csv:
        echo(wrapped(_summary(log, found)))
    if found.bad:
        raise SystemExit(1)


def _name(lines: Sequence[LineReport]) -> None:
    for line in lines[:_NAMED]:
        echo(f"line {line.number}: {line.kind}{f': {line.detail}' * bool(line.detail)}")
    if len(lines) > _NAMED:
        echo(f"and {counted(len(lines) - _NAMED, 'more line')}; --json names all of them")


def _summary(log: str, found: Validation) -> str:
    counts = ", ".join(f"{count} x {kind}" for kind, count in found.lines.most_common())
    words = [f"{log}: {counted(found.lines.total(), 'line')} ({counts})"]
    if found.unsealed:
        words.append(
            f"{found.unsealed} of them without a checksum, since an earlier version wrote them: "
            "damage to those may not show"
        )
    bad = f"{counted(found.bad, 'damaged line')}, which readers skip"
    words.append(bad if found.bad else "no line is damaged")
    return "; ".join(words)


def _picked(
    write: Callable[[Sequence[str], str, int, Callable[[str], None]], Sequence[Record]],
    logs: Sequence[str],
    out: str,
    top: int,
) -> None:
    written = write(logs, out, top, _say)
    from loopwright.records import keys_of

    tasks = len(set(keys_of(written)))
    wrong = sum(record.wrong for record in written)
    said = f", {wrong} of them of wrong candidates" if wrong else ""
    echo(f"wrote {counted(len(written), 'record')} of {counted(tasks, 'task')} to {out}{said}")


def _say(text: str) -> None:
    echo(text, err=True)


VERBS = (merge, split, pick, distill, validate)

"""``loopwright records pick | distill | merge | split``: logs from logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from loopwright.cli.harmless import echo

if TYPE_CHECKING:
    from loopwright.records import Record

_logs = click.argument("logs", nargs=-1, required=True, metavar="LOG...")
_out = click.option("-o", "--out", required=True, metavar="OUT", help="The log to be written.")
_top = click.option("-k", "--top", type=click.IntRange(1), default=1, help="How many per task.")


@click.command("pick")
@_logs
@_out
@_top
def pick(logs: Sequence[str], out: str, top: int) -> None:
    """Write the best records of LOG... and of OUT, if that exists, to OUT.

    Records by which a candidate is known to be wrong are kept, so that it never comes back.
    """
    from loopwright import records

    _picked(records.pick, logs, out, top)


@click.command("distill")
@_logs
@_out
@_top
def distill(logs: Sequence[str], out: str, top: int) -> None:
    """Write the best records of LOG... alone to OUT, which must be new or one of LOG...."""
    from loopwright import records

    _picked(records.distill_file, logs, out, top)


@click.command("merge")
@_logs
@_out
def merge(logs: Sequence[str], out: str) -> None:
    """Write all lines of LOG... and of OUT, if that exists, to OUT; equal ones once."""
    from loopwright import records

    count, twice = records.merge(logs, out)
    echo(f"wrote {count} lines to {out}; {twice} stood there already")


@click.command("split")
@click.argument("log")
@click.option("-o", "--out", required=True, metavar="DIR", help="The folder of the files.")
def split(log: str, out: str) -> None:
    """Write the records of each task of LOG to a file of its own in DIR."""
    from loopwright import records

    for path, count in records.split(log, out).items():
        echo(f"{path}: {count} records")


def _picked(
    write: Callable[[Sequence[str], str, int], Sequence[Record]],
    logs: Sequence[str],
    out: str,
    top: int,
) -> None:
    written = write(logs, out, top)
    tasks = len({record.task for record in written})
    wrong = sum(record.wrong for record in written)
    said = f", {wrong} of them of wrong candidates" if wrong else ""
    echo(f"wrote {len(written)} records of {tasks} tasks to {out}{said}")

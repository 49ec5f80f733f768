"""``loopwright records export | rerun | merge | split | pick | distill | validate``: kernels and
whole logs as files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import click

from loopwright.cli.console import announce, echo, harmless
from loopwright.cli.logs.reading import Filters, OutputForm, find_record, load_log, log_argument
from loopwright.cli.options import (
    RecordOptions,
    device_option,
    emit_option,
    force_option,
    json_option,
    takes,
)
from loopwright.cli.tables import print_lines, wrapped
from loopwright.errors import UsageError
from loopwright.presenting import counted

if TYPE_CHECKING:
    from loopwright.records import Record


@click.command("export", short_help="Write a kernel as a Python file.")
@click.argument("log")
@click.argument("record", default="best")
@takes(filters=Filters)
@click.option("-o", "--out", metavar="FILE", help="The Python file [default: print it].")
@click.option("--as-data", is_flag=True, help="Program and schedule as JSON, not as Python.")
@force_option
def export(
    log: str, record: str, filters: Filters, out: str | None, as_data: bool, force: bool
) -> None:
    """Write one RECORD of LOG, its id (or the beginning of it), `best` or `default`, as a Python
    file.

    The file builds the kernel, checks its answer and times it: it needs loopwright and NumPy, but
    neither the log nor the template. `python FILE --help` says what else it does.
    """
    from loopwright import inspection

    read = load_log(log)
    chosen = find_record(read, filters.of(read), record)
    text = inspection.export(read, chosen, out, form="data" if as_data else "python", force=force)
    if out is None:
        echo(text.rstrip("\n"))
        return
    echo(f"wrote {out} ({len(text.encode())} bytes)")
    echo(f"run it: python {out}")


@click.command("rerun", short_help="Build, check and time a kernel again.")
@click.argument("log")
@click.argument("named", required=False, metavar="[RECORD]")
@takes(record=RecordOptions)
@takes(filters=Filters)
@emit_option
@click.option("--ir", "emit", flag_value="nest", help="The same as --emit nest.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    default=10.0,
    show_default=True,
    help="Time limit of building, and of running.",
)
@device_option
@json_option
@click.pass_context
def rerun(
    context: click.Context,
    log: str,
    named: str | None,
    record: RecordOptions,
    filters: Filters,
    emit: str | None,
    timeout: float,
    device: str | None,
    as_json: bool,
) -> None:
    """Build, check and time the kernel of one RECORD of LOG again, beside what LOG says.

    The kernel is rebuilt from LOG alone. It runs in a process of its own, which is ended when it
    takes too long. With --emit or --ir nothing runs: a text of the kernel is printed.
    """
    from loopwright import inspection

    if named is not None and record.record is not None:
        raise UsageError(
            f"the record is named twice, {named!r} and {record.record!r}; name it once"
        )
    wanted = record.record if named is None else named
    read = load_log(log)
    chosen = find_record(read, filters.of(read), wanted, trial=record.trial, run=record.run)
    if emit is not None:
        echo(inspection.text_of(read, chosen, emit))
        return
    done = inspection.rerun(read, chosen, timeout=timeout, announce=announce, device=device or "")
    if as_json:
        click.echo(json.dumps(done.to_json()))
    else:
        echo("\n".join(done.lines()))
    context.exit(1 if done.result.error is not None else 0)


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
    """Write only the best records of LOG... to OUT, which must be new or one of LOG...."""
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

    for path, count in records.split(log, out, announce).items():
        echo(f"{path}: {counted(count, 'record')}")


@click.command("validate", short_help="What each line is, and which are damaged.")
@log_argument
@click.option(
    "--all", "everything", is_flag=True, help="Name every line, those that are sound too."
)
@takes(form=OutputForm)
def validate(log: str, everything: bool, form: OutputForm) -> None:
    """Check every line of LOG: is it a record, and is it whole?

    Names the lines that are torn (cut off by a crash), damaged (they do not fit their checksum) or
    malformed, and those of a version that is not read. Exits with 1 where a line is damaged in one
    of these ways; a line of a newer version is whole. Readers skip all of them, so the rest of the
    log can be used. --json and --csv print one row for each line that is named.
    """
    from loopwright.records import check_is_log, line_reports, open_log, validate

    result = validate(log)
    if not result.sound:
        check_is_log(open_log(log))  # a file in which nothing is of a log is not called damaged
    lines = line_reports(log) if everything else iter(result.notable)
    if form.for_programs:
        rows = ((line.number, str(line.kind), line.detail) for line in lines)
        form.print_rows(("line", "kind", "detail"), rows)
    else:
        shown = lines if everything else islice(lines, _NAMED)
        print_lines(
            harmless(f"line {x.number}: {x.kind}{f': {x.detail}' * bool(x.detail)}") for x in shown
        )
        if not everything and len(result.notable) > _NAMED:
            more = counted(len(result.notable) - _NAMED, "more line")
            echo(f"and {more}; --json names all of them")
        counts = ", ".join(f"{count} x {kind}" for kind, count in result.lines.most_common())
        words = [f"{log}: {counted(result.lines.total(), 'line')} ({counts})"]
        if result.unsealed:
            words.append(
                f"{result.unsealed} of them without a checksum, since an earlier version wrote "
                "them: damage to those may not show"
            )
        bad = f"{counted(result.bad, 'damaged line')}, which readers skip"
        words.append(bad if result.bad else "no line is damaged")
        echo(wrapped("; ".join(words)))
    if result.bad:
        raise SystemExit(1)


def _picked(
    write: Callable[[Sequence[str], str, int, Callable[[str], None]], Sequence[Record]],
    logs: Sequence[str],
    out: str,
    top: int,
) -> None:
    from loopwright.records import keys_of

    written = write(logs, out, top, announce)
    tasks = len(set(keys_of(written)))
    wrong = sum(record.wrong for record in written)
    kept = f", {wrong} of them of wrong candidates" if wrong else ""
    echo(f"wrote {counted(len(written), 'record')} of {counted(tasks, 'task')} to {out}{kept}")


VERBS = (export, rerun, merge, split, pick, distill, validate)

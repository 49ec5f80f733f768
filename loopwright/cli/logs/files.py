"""``records export | rerun | merge | split | pick | distill | validate``: kernels and logs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import click

from loopwright.cli import options as cli
from loopwright.cli.console import announce, echo, harmless
from loopwright.cli.logs.reading import Filters, OutputForm, find_record, load_log
from loopwright.cli.tables import print_lines, wrapped
from loopwright.errors import UsageError
from loopwright.presenting import counted

if TYPE_CHECKING:
    from loopwright.records import Record


@cli.verb("export", "Write a kernel as a Python file.")
def export(
    *,
    log: str = cli.argument(),
    record: str = cli.argument(default="best"),
    filters: Filters,
    out: str | None = cli.option("-o --out FILE", "The Python file [default: print it]."),
    as_data: bool = cli.flag("--as-data", "Program and schedule as JSON, not as Python."),
    force: bool = cli.force_option(),
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


@cli.verb("rerun", "Build, check and time a kernel again.")
def rerun(
    *,
    log: str = cli.argument(),
    named: str | None = cli.argument(required=False, metavar="[RECORD]"),
    record: cli.RecordOptions,
    filters: Filters,
    emit: str | None = cli.any_of(
        cli.emit_option(), cli.option("--ir", "The same as --emit nest.", flag_value="nest")
    ),
    timeout: float = cli.option(
        "--timeout SECONDS",
        "Time limit of building, and of running.",
        type=click.FloatRange(0, min_open=True),
        shown=10.0,
    ),
    device: str | None = cli.device_option(),
    as_json: bool = cli.json_option(),
) -> int:
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
        return 0
    done = inspection.rerun(read, chosen, timeout=timeout, announce=announce, device=device or "")
    if as_json:
        click.echo(json.dumps(done.to_json()))
    else:
        echo("\n".join(done.lines()))
    return 1 if done.result.error is not None else 0


#: Lines that `validate` names unless all are requested.
_NAMED = 20
#: Writes the best records of logs to another, so many of each task, and says what it leaves out.
_Write = Callable[[Sequence[str], str, int, Callable[[str], None]], "Sequence[Record]"]


@dataclass(frozen=True)
class _Merged:
    logs: tuple[str, ...] = cli.argument(nargs=-1, required=True, metavar="LOG...")
    out: str = cli.option("-o --out OUT", "The log to be written.", required=True)


@dataclass(frozen=True)
class _Picked(_Merged):
    top: int = cli.option("-k --top", "How many per task.", type=click.IntRange(1), default=1)

    def write(self, write: _Write) -> None:
        from loopwright.records import keys_of

        written = write(self.logs, self.out, self.top, announce)
        tasks = len(set(keys_of(written)))
        wrong = sum(record.wrong for record in written)
        kept = f", {wrong} of them of wrong candidates" if wrong else ""
        records = f"{counted(len(written), 'record')} of {counted(tasks, 'task')}"
        echo(f"wrote {records} to {self.out}{kept}")


@cli.verb("pick", "The best of each task, added to a log.")
def pick(picked: _Picked) -> None:
    """Write the best records of LOG... and of OUT, if that exists, to OUT.

    Records by which a candidate is known to be wrong are kept, so that it never comes back.
    """
    from loopwright import records

    picked.write(records.pick)


@cli.verb("distill", "The best of each task alone.")
def distill(picked: _Picked) -> None:
    """Write only the best records of LOG... to OUT, which must be new or one of LOG...."""
    from loopwright import records

    picked.write(records.distill_file)


@cli.verb("merge", "Several logs as one.")
def merge(merged: _Merged) -> None:
    """Write all lines of LOG... and of OUT, if that exists, to OUT; equal ones once."""
    from loopwright import records

    count, twice = records.merge(merged.logs, merged.out)
    echo(f"wrote {counted(count, 'line')} to {merged.out}; {twice} stood there already")


@cli.verb("split", "A log for each task.")
def split(
    log: str = cli.argument(),
    out: str = cli.option("-o --out DIR", "The folder of the files.", required=True),
) -> None:
    """Write the records of each task of LOG to a file of its own in DIR."""
    from loopwright import records

    for path, count in records.split(log, out, announce).items():
        echo(f"{path}: {counted(count, 'record')}")


@cli.verb("validate", "What each line is, and which are damaged.")
def validate(
    *,
    log: str = cli.argument(),
    everything: bool = cli.flag("--all", "Name every line, those that are sound too."),
    form: OutputForm,
) -> int:
    """Check every line of LOG: is it a record, and is it whole?

    Names the lines that are torn (cut off by a crash), damaged (they do not fit their checksum) or
    malformed, and those of a version that is not read. Exits with 1 where a line is damaged in one
    of these ways; a line of a newer version is whole. Readers skip all of them, so the rest of the
    log can be used. --json and --csv print one row for each line that is named.
    """
    from loopwright.records import check_is_log, line_reports, load, validate

    result = validate(log)
    if not result.sound:
        check_is_log(load(log))  # a file in which nothing is of a log is not called damaged
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
            why = "since an earlier version wrote them: damage to those may not show"
            words.append(f"{result.unsealed} of them without a checksum, {why}")
        bad = f"{counted(result.bad, 'damaged line')}, which readers skip"
        words.append(bad if result.bad else "no line is damaged")
        echo(wrapped("; ".join(words)))
    return 1 if result.bad else 0


VERBS = (export, rerun, merge, split, pick, distill, validate)

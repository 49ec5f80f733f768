"""``loopwright records export | rerun``: the kernel of one record as a file, and run again."""

from __future__ import annotations

import json

import click

from loopwright.cli.device_option import device_option
from loopwright.cli.force_option import force_option
from loopwright.cli.harmless import echo
from loopwright.cli.kernels.chosen_record import emit_option, record_options
from loopwright.cli.logs.reading import Filters, filter_options, find_record, load_log
from loopwright.errors import UsageError


@click.command("export", short_help="Write a kernel as a Python file.")
@click.argument("log")
@click.argument("record", default="best")
@filter_options
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
@record_options
@filter_options
@emit_option
@click.option("--ir", "emit", flag_value="nest", help="The same as --emit nest.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    default=10.0,
    show_default=True,
    help="That building, and that running, may take.",
)
@device_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.pass_context
def rerun(
    context: click.Context,
    log: str,
    named: str | None,
    record: str | None,
    trial: int | None,
    run: str | None,
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

    if named is not None and record is not None:
        raise UsageError(f"the record is named twice, {named!r} and {record!r}; name it once")
    record = record if named is None else named
    read = load_log(log)
    chosen = find_record(read, filters.of(read), record, trial=trial, run=run)
    if emit is not None:
        echo(inspection.text_of(read, chosen, emit))
        return
    done = inspection.rerun(read, chosen, timeout=timeout, announce=_say, device=device or "")
    if as_json:
        click.echo(json.dumps(done.to_json()))
    else:
        echo("\n".join(done.lines()))
    context.exit(1 if done.result.error is not None else 0)


def _say(text: str) -> None:
    echo(text, err=True)

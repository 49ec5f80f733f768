"""``loopwright records``: what a log holds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from loopwright.cli import record_files
from loopwright.cli.harmless import echo, harmless
from loopwright.errors import RecordError, UsageError

if TYPE_CHECKING:
    from loopwright.records import Json, Log, Record

_TITLES = ("id", "task", "threads", "trial", "median", "status", "when", "config")
#: Tables of more records are not fitted to the width of a terminal.
_MOST_WRAPPED = 500
#: Lines that are printed at once.
_AT_ONCE = 1000
# What the records of a log have in common, in words: by key of the task, by the minute since the
# epoch, and by the repr of a knob's value.
_TASKS: dict[str, str] = {}
_MINUTES: dict[float, str] = {}
_TEXTS: dict[str, str] = {}


def log_options(command: Callable[..., object]) -> Callable[..., object]:
    """The argument and the filters that list, best and show share."""
    decorators = (
        click.argument("log"),
        click.option("--task", help="Only tasks whose key contains this text."),
        click.option("--target", help="Only records of this kind of target, such as llvm."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON lines."),
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


@click.group("records", short_help="Inspect logs, and put them together: list, best, show, pick.")
def command() -> None:
    """Inspect logs of measurements, and put them together."""


for _verb in (record_files.pick, record_files.distill, record_files.merge, record_files.split):
    command.add_command(_verb)


@command.command("list")
@log_options
@click.option("--run", help="Only records of this run.")
@click.option(
    "--status",
    type=click.Choice(["valid", "usable", "dropped", "failed"]),
    help="Only records with this status.",
)
@click.option("--begin", type=click.IntRange(0), default=0, help="Leave out so many of the first.")
@click.option("--end", type=click.IntRange(0), help="Only so many of the first.")
@click.option("--limit", type=click.IntRange(1), help="At most this many: the last ones.")
@click.option("--sort", type=click.Choice(["log", "time"]), default="log", show_default=True)
def list_records(
    log: str,
    task: str | None,
    target: str | None,
    as_json: bool,
    run: str | None,
    status: str | None,
    begin: int,
    end: int | None,
    limit: int | None,
    sort: str,
) -> None:
    """List the records of LOG, one per line.

    --begin and --end count the records that the other filters leave, in the order of the log.
    """
    read = _load(log)
    chosen = [r for r in _filtered(read, task, target) if run is None or r.run == run]
    chosen = [r for r in chosen if status is None or _is(r, status)][begin:end]
    if sort == "time":
        chosen.sort(key=lambda r: r.median or float("inf"))
        chosen = chosen[:limit]
    elif limit is not None:
        chosen = chosen[-limit:]
    _print(chosen, as_json)
    if not as_json:
        _footer(read, len(chosen))


@command.command("best")
@log_options
@click.option("-k", "--top", type=click.IntRange(1), default=1, help="How many per task.")
def best(log: str, task: str | None, target: str | None, as_json: bool, top: int) -> None:
    """Show the best records of each task in LOG, for each hardware and number of threads."""
    from loopwright.records import by_task, top_k

    read = _load(log)
    winners: list[Record] = []
    for records in by_task(_filtered(read, task, target)).values():
        for hardware, threads in dict.fromkeys((r.hardware, r.threads) for r in records):
            winners += top_k(records, top, hardware=hardware, threads=threads)
    if not winners:
        raise RecordError(
            f"{log} has no usable record{_such(task, target)} among {len(read)}; "
            f"`loopwright records list {log}` shows what it holds"
        )
    _print(winners, as_json)


@command.command("show")
@log_options
@click.argument("record")
@click.option("--expr", "part", flag_value="expr", help="Print its tensor expression as Python.")
@click.option("--ir", "part", flag_value="ir", help="Print its loop nest.")
@click.option("--code", "part", flag_value="code", help="Print its code, as the target has it.")
def show(
    log: str, task: str | None, target: str | None, as_json: bool, record: str, part: str | None
) -> None:
    """Show one RECORD of LOG in full: its id (or the beginning of it), or `best`.

    --expr, --ir and --code need no template: the log holds the expression and the schedule.
    """
    from loopwright.records import best as best_of

    records = _filtered(_load(log), task, target)
    if record == "best":
        winner = best_of(records)
        chosen = [] if winner is None else [winner]
    else:
        chosen = [r for r in records if r.id.startswith(record)]
    if len(chosen) != 1:
        what = "no record" if not chosen else f"{len(chosen)} records"
        raise UsageError(f"{log} has {what} {record!r}; `loopwright records list {log}` shows ids")
    if part is not None:
        echo(_part(log, chosen[0], part))
    elif as_json:
        click.echo(chosen[0].to_line())
    else:
        for name, value in chosen[0].to_json().items():
            echo(f"{harmless(name) + ':':11}{json.dumps(value)}")


def _part(path: str, record: Record, part: str) -> str:
    """The expression, loop nest or code of a record, made from the log alone."""
    from loopwright.driver import build
    from loopwright.lowering import lower
    from loopwright.records import load_expressions
    from loopwright.task.rebuild import rebuild

    rebuilt = rebuild(load_expressions(path), record)
    if part == "expr":
        return rebuilt.schedule.dag.as_python()
    with rebuilt.passes:
        if part == "ir":
            return str(lower(rebuilt.schedule, rebuilt.args))
        return build(rebuilt.schedule, rebuilt.args, rebuilt.target).get_source()


def _load(path: str) -> Log:
    """Read a log, and say what of it was not understood."""
    from loopwright.records import open_log

    read = open_log(path)
    if complaint := read.complaint():
        echo(complaint, err=True)
    return read


def _filtered(log: Log, task: str | None, target: str | None) -> list[Record]:
    return [
        record
        for record in log
        if (task is None or task in record.task) and (target is None or record.kind == target)
    ]


def _is(record: Record, status: str) -> bool:
    match status:
        case "failed":
            return record.error is not None
        case "dropped":
            return record.dropped
        case "usable":
            return record.usable
    return record.valid


def _such(task: str | None, target: str | None) -> str:
    words = [f"task {task!r}"] if task else []
    words += [f"target {target!r}"] if target else []
    return f" of {' and '.join(words)}" if words else ""


def _print(records: Sequence[Record], as_json: bool) -> None:
    if as_json:
        for record in records:
            click.echo(record.to_line())
        return
    rows = [_cells(record) for record in records]
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal or len(rows) > _MOST_WRAPPED:
        _print_lines([_TITLES, *rows])
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(*_TITLES, box=None)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _cells(record: Record) -> tuple[str, ...]:
    """A record in words, one for each of the titles."""
    if record.task not in _TASKS:
        _TASKS[record.task] = harmless(f"{record.op}({', '.join(map(str, record.args))})")
    minute = record.ts // 60
    if minute not in _MINUTES:
        _MINUTES[minute] = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.ts))
    config = " ".join(f"{name}={_json(value)}" for name, value in record.config.items())
    median = record.median
    return (
        record.id,
        _TASKS[record.task],
        str(record.threads or "?"),
        str(record.trial),
        "-" if median is None else f"{median * 1e3:.4g} ms",
        harmless(_status(record)),
        _MINUTES[minute],
        harmless(config),
    )


def _json(value: Json) -> str:
    """A knob's value as JSON; a log has few different ones."""
    key = repr(value)
    if key not in _TEXTS:
        _TEXTS[key] = json.dumps(value)
    return _TEXTS[key]


def _print_lines(rows: Sequence[Sequence[str]]) -> None:
    """Print a table in whole lines, whatever the width of the screen: rich needs a minute for a
    hundred thousand."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    # The last column is as wide as each line needs it.
    form = " ".join([f"{{:{width}}}" for width in widths[:-1]] + ["{}"])
    for at in range(0, len(rows), _AT_ONCE):
        click.echo("\n".join(form.format(*row) for row in rows[at : at + _AT_ONCE]))


def _status(record: Record) -> str:
    if record.error is not None:
        return str(record.error["kind"])
    return "dropped" if record.dropped else record.phase or "ok"


def _footer(log: Log, shown: int) -> None:
    failed = sum(record.error is not None for record in log)
    click.echo(
        f"{shown} of {len(log)} records shown, {failed} failed, "
        f"{len({r.task for r in log})} tasks, {len(log.headers)} runs, "
        f"{len(log.skipped)} lines skipped"
    )

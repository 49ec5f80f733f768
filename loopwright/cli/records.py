"""``loopwright records``: what a log holds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import click

from loopwright.cli import record_files, record_kernels
from loopwright.cli.harmless import echo, harmless
from loopwright.errors import RecordError, UsageError

if TYPE_CHECKING:
    from loopwright.records import Json, Log, Record

_TITLES = ("id", "task", "threads", "trial", "median", "status", "when", "config")
#: Tables of more records are not fitted to the width of a terminal.
_MOST_WRAPPED = 500
#: Lines that are printed at once.
_AT_ONCE = 1000


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


command.add_command(record_kernels.export)
command.add_command(record_kernels.rerun)


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
    chosen = _filtered(read, task, target)
    if run is not None:
        chosen = [record for record in chosen if record.run == run]
    if status is not None:
        chosen = [record for record in chosen if _is(record, status)]
    chosen = chosen[begin:end]
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
    from loopwright.records import by_task, fields_of, top_k

    read = _load(log)
    winners: list[Record] = []
    for records in by_task(_filtered(read, task, target)).values():
        machines = zip(*fields_of(records, "hardware", "threads"), strict=True)
        for hardware, threads in dict.fromkeys(machines):
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
    from loopwright.records import fields_of

    records = _filtered(_load(log), task, target)
    if record == "best":
        winner = best_of(records)
        chosen = [] if winner is None else [winner]
    else:
        (ids,) = fields_of(records, "id")
        chosen = [r for r, name in zip(records, ids, strict=True) if name.startswith(record)]
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
    chosen = log.records
    if task is not None:
        chosen = [record for record in chosen if task in record.task]
    if target is not None:
        chosen = [record for record in chosen if record.kind == target]
    return list(chosen)


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
    columns = _columns(records)
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal or len(records) > _MOST_WRAPPED:
        _print_lines(columns)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(*_TITLES, box=None)
    for row in zip(*columns, strict=True):
        table.add_row(*map(Text, row))
    console.print(table)


def _columns(records: Sequence[Record]) -> list[list[str]]:
    """Records in words: a column for each of the titles."""
    from loopwright.records import fields_of

    ids, threads, trials, medians, configs = fields_of(
        records, "id", "threads", "trial", "median", "config"
    )
    tasks, ops, args = fields_of(records, "task", "op", "args")
    errors, dropped, phases, clocks = fields_of(records, "error", "dropped", "phase", "ts")
    firsts = {task: row for row, task in reversed(list(enumerate(tasks)))}
    names = {task: _task(ops[row], args[row]) for task, row in firsts.items()}
    minutes = {clock // 60: clock for clock in reversed(clocks)}
    times = {minute: _minute(clock) for minute, clock in minutes.items()}
    return [
        ids,
        [names[task] for task in tasks],
        [str(count or "?") for count in threads],
        list(map(str, trials)),
        ["-" if median is None else f"{median * 1e3:.4g} ms" for median in medians],
        list(map(_status, errors, dropped, phases)),
        [times[clock // 60] for clock in clocks],
        _knobs(configs),
    ]


def _task(op: str, args: Sequence[Json]) -> str:
    return harmless(f"{op}({', '.join(map(str, args))})")


def _minute(clock: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(clock))


def _knobs(configs: Sequence[Mapping[str, Json]]) -> list[str]:
    """The knobs of each record in words."""
    # A log has few different values; those that an index holds are the same objects.
    texts: dict[int, str] = {}
    for value in chain.from_iterable(config.values() for config in configs):
        if id(value) not in texts:
            texts[id(value)] = json.dumps(value)
    return [
        harmless(" ".join([f"{name}={texts[id(value)]}" for name, value in config.items()]))
        for config in configs
    ]


def _print_lines(columns: Sequence[Sequence[str]]) -> None:
    """Print a table in whole lines, whatever the width of the screen: rich needs a minute for a
    hundred thousand."""
    titled = [[title, *column] for title, column in zip(_TITLES, columns, strict=True)]
    # The last column is as wide as each line needs it.
    widths = [max(map(len, column)) for column in titled[:-1]]
    form = " ".join([f"%-{width}s" for width in widths] + ["%s"])
    lines = [form % row for row in zip(*titled, strict=True)]
    for at in range(0, len(lines), _AT_ONCE):
        click.echo("\n".join(lines[at : at + _AT_ONCE]))


def _status(error: Mapping[str, str] | None, dropped: bool, phase: str) -> str:
    if error is not None:
        return harmless(str(error["kind"]))
    return "dropped" if dropped else harmless(phase or "ok")


def _footer(log: Log, shown: int) -> None:
    from loopwright.records import fields_of

    errors, tasks = fields_of(log, "error", "task")
    failed = len(errors) - errors.count(None)
    click.echo(
        f"{shown} of {len(log)} records shown, {failed} failed, "
        f"{len(set(tasks))} tasks, {len(log.headers)} runs, "
        f"{len(log.skipped)} lines skipped"
    )

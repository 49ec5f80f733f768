"""``loopwright records``: the contents of a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from loopwright.cli.console import echo
from loopwright.cli.logs import compare, files, show, statistics
from loopwright.cli.logs.reading import (
    Filters,
    csv_option,
    json_option,
    load_log,
    log_options,
    setups_of,
)
from loopwright.cli.tables import (
    Column,
    print_csv,
    print_lines,
    print_table,
    terminal_width,
    wrapped,
)
from loopwright.errors import RecordError

if TYPE_CHECKING:
    from loopwright.records import Log, Record
    from loopwright.records.reports.differences import Ratio
    from loopwright.records.reports.standings import Standing, Standings


class _InOrder(click.Group):
    """A group that lists its verbs in the usual order of use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    "records",
    cls=_InOrder,
    short_help="Inspect logs, and put them together: list, best, show, importance, pick.",
    invoke_without_command=True,
)
@click.pass_context
def command(context: click.Context) -> None:
    """Inspect logs of measurements, and put them together.

    LOG is a file that `loopwright tune` wrote, or one of AutoTVM (version 0.2). A RECORD is named
    by its id, as `list` shows it, or the beginning of it; `best` and `default` name these.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@command.command("list", short_help="Every record, one a line.")
@log_options
@json_option
@csv_option
@click.option("--run", help="Only records of this run; the beginning of its name will do.")
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
    filters: Filters,
    as_json: bool,
    as_csv: bool,
    run: str | None,
    status: str | None,
    begin: int,
    end: int | None,
    limit: int | None,
    sort: str,
) -> None:
    """List the records of LOG, one per line.

    The speed is the median of the timed windows; the spread is how far the middle half of them
    lies apart. --begin and --end count the records that the other filters leave, in the order of
    the log; --sort time puts the fastest first. A copy is the program of another record, whose
    times it shows: it was not measured.
    """
    from loopwright.inspection.choosing import of_run
    from loopwright.records.log import without_records

    read = load_log(log, records=False)
    if not read.records and read.skipped:
        raise RecordError(without_records(read))
    if not read.records:  # a run that has just begun is no failure
        echo(without_records(read), err=True)
        return
    chosen = _of_status(of_run(read, filters.of(read), run), status)[begin:end]
    if sort == "time":
        chosen = _fastest_first(chosen)[:limit]
    elif limit is not None:
        chosen = chosen[-limit:]
    print_records(read, chosen, as_json, as_csv)
    if not as_json and not as_csv:
        _footer(read, len(chosen))


@command.command("best", short_help="The best of each task.")
@log_options
@json_option
@csv_option
@click.option("-k", "--top", type=click.IntRange(1), default=1, help="How many per task.")
def best(log: str, filters: Filters, as_json: bool, as_csv: bool, top: int) -> None:
    """Show the best records of each task in LOG, for each hardware and number of threads.

    Candidates whose answer was checked go before all others, then those of a playoff, by their
    ratio to the default in the same rounds, and then the fastest. What is not built as the best one
    is, or was not compared with the default, is said on standard error.
    """
    from loopwright.records import top_k

    read = load_log(log)
    groups = setups_of(read, filters)
    winners = [r for group in groups for r in top_k(group, top)]
    if not winners:
        raise _no_usable(read, filters)
    print_records(read, winners, as_json, as_csv)
    for group in groups:
        for winner in top_k(group, 1):
            if doubt := _doubt(winner, group):
                echo(f"record {winner.id}: {doubt}", err=True)


def _doubt(winner: Record, group: Sequence[Record]) -> str:
    """The reason why the best record of a task may not be what is built; empty where it is."""
    from loopwright.records.playoffs import ratios
    from loopwright.records.query import verdict_on

    verdict = verdict_on(winner, group)
    if verdict is not None and verdict.nothing_faster and not verdict.is_default:
        return f"{verdict.text('it')}; the default is built"
    if winner.candidate not in ratios(group):
        return "unverified, since no playoff compared it with the default"
    return ""


@command.command("top", short_help="The N best, beside the best and the default.")
@log_options
@json_option
@csv_option
@click.argument("count", metavar="[N]", type=click.IntRange(1), default=10)
def top(log: str, filters: Filters, as_json: bool, as_csv: bool, count: int) -> None:
    """Show the N best candidates (10) of each task in LOG, beside the best and the default.

    `to best` is the time by that of the best one, with the interval of 95 % that the timed windows
    give: where it holds 1.00, the two cannot be told apart. `to default` is the same for the
    default configuration (0.50 takes half as long); its interval needs a wide terminal.
    """
    from loopwright.records.reports.setups import setup_titles
    from loopwright.records.reports.standings import standings

    read = load_log(log)
    tables = [s for s in standings(filters.of(read), count) if s.places]
    if not tables:
        raise _no_usable(read, filters)
    places = [(standing, place) for standing in tables for place in standing.places]
    if as_json or as_csv:
        _top_for_programs(read, places, as_json)
        return
    titles = setup_titles(standing.places[0].record for standing in tables)
    for number, (standing, title) in enumerate(zip(tables, titles, strict=True)):
        if number:
            click.echo()
        echo(wrapped(title, 2))
        _print_standings(read, standing)


def print_records(log: Log, records: Sequence[Record], as_json: bool, as_csv: bool) -> None:
    """Print records as lines of a log, as comma-separated values, or as a table."""
    from loopwright.cli.logs import record_text
    from loopwright.records.many import lines_of

    if as_json:
        print_lines(lines_of(records))
    elif as_csv:
        titles, rows = record_text.record_rows(log, records)
        print_csv(titles, rows)
    elif not records:
        click.echo("no record is left by these filters")
    else:
        if terminal_width() is not None:
            echo("\n".join(wrapped(line, 2) for line in record_text.heading(records)))
        print_table(record_text.record_columns(log, records, terminal_width()))


def _top_for_programs(
    log: Log, places: Sequence[tuple[Standings, Standing]], as_json: bool
) -> None:
    """Print the best candidates, with the columns of `top` beside the fields of a list."""
    import json

    from loopwright.cli.logs import record_text

    titles, rows = record_text.record_rows(log, [place.record for _, place in places])
    titles = ["place", *titles, "to_best", "to_best_low", "to_best_high", "to_default"]
    full = [
        [
            place.place,
            *row,
            place.to_best.value,
            place.to_best.low,
            place.to_best.high,
            None if place.to_default is None else place.to_default.value,
        ]
        for (_, place), row in zip(places, rows, strict=True)
    ]
    if not as_json:
        print_csv(titles, full)
        return
    print_lines(json.dumps(dict(zip(titles, row, strict=True))) for row in full)


def _print_standings(log: Log, standing: Standings) -> None:
    from loopwright.cli.logs import record_text

    width = terminal_width()
    records = [place.record for place in standing.places]
    columns = record_text.record_columns(log, records, width)
    to_best = ["1" if p.place == 1 else _ratio(p.to_best) for p in standing.places]
    wide = width is None or width >= record_text.WIDE
    to_default = [
        "-" if p.to_default is None else _ratio(p.to_default, wide) for p in standing.places
    ]
    kept = [c for c in columns if c.title not in ("task", "threads", "spread", "when", "trial")]
    more = [Column("to best", to_best), Column("to default", to_default)]
    print_table([*kept[:-2], *more, *kept[-2:]])
    said = [f"{len(records)} of {record_text.counted(standing.candidates, 'candidate')}"]
    if standing.default is None:
        said.append("the default configuration is not known")
    else:
        speed = record_text.speed_text(None, standing.default.median)
        said.append(f"the default (record {standing.default.id}) takes {speed}")
    if standing.verdict is not None:
        said.append(f"the playoff says: {standing.verdict.text()}")
    echo(wrapped("; ".join(said)))


def _ratio(ratio: Ratio, interval: bool = True) -> str:
    if ratio.low is None or not interval:
        return f"{ratio.value:.2f}"
    return f"{ratio.value:.2f} ({ratio.low:.2f}-{ratio.high:.2f})"


def _of_status(records: list[Record], status: str | None) -> list[Record]:
    from loopwright.records import fields_of

    if status == "failed":
        (errors,) = fields_of(records, "error")
        return [r for r, error in zip(records, errors, strict=True) if error is not None]
    if status is not None:
        (flags,) = fields_of(records, status)
        return [r for r, flag in zip(records, flags, strict=True) if flag]
    return records


def _fastest_first(records: list[Record]) -> list[Record]:
    from loopwright.records import fields_of

    (medians,) = fields_of(records, "median")
    keys = [float("inf") if median is None else median for median in medians]
    return [records[row] for row in sorted(range(len(records)), key=keys.__getitem__)]


def _no_usable(log: Log, filters: Filters) -> RecordError:
    such = f" of {words}" if (words := filters.words()) else ""
    return RecordError(
        f"{log.path} has no usable record{such} among {len(log)}: all failed or were dropped; "
        f"`loopwright records errors {log.path}` shows why"
    )


def _footer(log: Log, shown: int) -> None:
    from loopwright.cli.logs import record_text
    from loopwright.records import fields_of

    errors, tasks, copies = fields_of(log, "error", "task", "same_as")
    failed = len(errors) - errors.count(None)
    copied = len(copies) - copies.count("")
    counts = {"task": len(set(tasks)), "run": len(log.headers), "skipped line": len(log.skipped)}
    said = [f"{failed} failed"]
    said += [f"{copied} copies of programs, which were not measured"] if copied else []
    said += [record_text.counted(count, what) for what, count in counts.items()]
    click.echo(f"{shown} of {record_text.counted(len(log), 'record')} shown: {', '.join(said)}")


for _verb in (
    show.show,
    compare.compare,
    *statistics.VERBS,
    *files.VERBS,
):
    command.add_command(_verb)

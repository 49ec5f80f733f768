"""``loopwright records``: the contents of a log."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING

import click

from loopwright.cli.console import announce, echo
from loopwright.cli.logs import compare, files, record_text, show, statistics
from loopwright.cli.logs.reading import Filters, OutputForm, load_log
from loopwright.cli.options import argument, option, verb
from loopwright.cli.tables import TextColumn, print_lines, print_table, terminal_width, wrapped
from loopwright.errors import RecordError
from loopwright.presenting import counted

if TYPE_CHECKING:
    from loopwright.records import Log, Ratio, Record, Standings


class _InOrder(click.Group):
    """A group that lists its verbs in the usual order of use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group("records", cls=_InOrder, invoke_without_command=True)
@click.pass_context
def records_command(context: click.Context) -> None:
    """Inspect logs of measurements, and put them together.

    LOG is a file that `loopwright tune` wrote, a log of AutoTVM (0.1, 0.2) or Ansor (v0.2 to v0.6),
    a cache of Kernel Tuner, results in the T4 format, or the JSON of KTT; each may be gzip'd. A
    RECORD is named by its id, as `list` shows it, or the beginning of it; `best` and `default` name
    these.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@verb("list", "Every record, one a line.")
def list_records(
    *,
    log: str = argument(),
    filters: Filters,
    form: OutputForm,
    run: str | None = option(
        "--run", "Only records of this run; the beginning of its name will do."
    ),
    status: str | None = option(
        "--status",
        "Only records with this status.",
        type=click.Choice(["valid", "usable", "dropped", "failed"]),
    ),
    begin: int = option("--begin", "Skip this many records.", type=click.IntRange(0), default=0),
    end: int | None = option(
        "--end", "Stop after this many records, skipped ones included.", type=click.IntRange(0)
    ),
    limit: int | None = option(
        "--limit",
        "At most this many: the last, or with --sort time the fastest.",
        type=click.IntRange(1),
    ),
    sort: str = option("--sort", type=click.Choice(["log", "time"]), shown="log"),
) -> None:
    """List the records of LOG, one per line.

    The speed is the median of the timed windows; the spread is how far the middle half of them
    lies apart. --begin and --end count the records that the other filters leave, in the order of
    the log; --sort time puts the fastest first. A copy is the program of another record, whose
    times it shows: it was not measured.
    """
    from loopwright.inspection import of_run
    from loopwright.records import fields_of, without_records

    read = load_log(log, records=False)
    if not read.records:
        if read.skipped:
            raise RecordError(without_records(read))
        announce(without_records(read))  # a run that has just begun is no failure
        return
    chosen = of_run(read, filters.of(read), run)
    if status == "failed":
        (errors,) = fields_of(chosen, "error")
        chosen = list(compress(chosen, (error is not None for error in errors)))
    elif status is not None:
        chosen = list(compress(chosen, *fields_of(chosen, status)))
    chosen = chosen[begin:end]
    if sort == "time":
        (medians,) = fields_of(chosen, "median")
        keys = [float("inf") if median is None else median for median in medians]
        chosen = [chosen[n] for n in sorted(range(len(chosen)), key=keys.__getitem__)[:limit]]
    elif limit is not None:
        chosen = chosen[-limit:]
    print_records(read, chosen, form)
    if not form.for_programs:
        _print_footer(read, len(chosen))


@verb("best", "The best of each task.")
def best(
    *,
    log: str = argument(),
    filters: Filters,
    form: OutputForm,
    top: int = option("-k --top", "How many per task.", type=click.IntRange(1), default=1),
) -> None:
    """Show the best records of each task in LOG, for each hardware and number of threads.

    Candidates whose answer was checked come first, then those of a playoff, by their ratio to the
    default in the same rounds, and then the fastest. A note on standard error says where the best
    record is not what is built, or was never compared with the default.
    """
    from loopwright.records import by_setup, ratios, top_k, verdict_on

    read = load_log(log)
    groups = list(by_setup(filters.of(read)).values())
    leading = [top_k(group, top) for group in groups]
    winners = [record for first in leading for record in first]
    if not winners:
        raise _no_usable(read, filters)
    print_records(read, winners, form)
    for group, winner in [
        (some, first[0]) for some, first in zip(groups, leading, strict=True) if first
    ]:
        verdict = verdict_on(winner, group)
        if verdict is not None and verdict.nothing_faster and not verdict.is_default:
            announce(f"record {winner.id}: {verdict.text('it')}; the default is built")
        elif winner.candidate not in ratios(group):
            why = "unverified, since no playoff compared it with the default"
            announce(f"record {winner.id}: {why}")


@verb("top", "The N best, beside the best and the default.")
def top(
    *,
    log: str = argument(),
    filters: Filters,
    form: OutputForm,
    count: int = argument(metavar="[N]", type=click.IntRange(1), default=10),
) -> None:
    """Show the N best candidates (10) of each task in LOG, beside the best and the default.

    `to best` is the time divided by that of the best one, with the 95 % interval of the timed
    windows: where it holds 1.00, the two cannot be told apart. `to default` is the same for the
    default configuration (0.50 takes half as long); its interval needs a wide terminal.
    """
    from loopwright.records import setup_titles, standings

    read = load_log(log)
    tables = [s for s in standings(filters.of(read), count) if s.places]
    if not tables:
        raise _no_usable(read, filters)
    places = [(standing, place) for standing in tables for place in standing.places]
    if form.for_programs:
        titles, rows = record_text.record_rows(read, [place.record for _, place in places])
        titles = ["place", *titles, "to_best", "to_best_low", "to_best_high", "to_default"]
        for row, (_, place) in zip(rows, places, strict=True):
            to_default = None if place.to_default is None else place.to_default.value
            best = place.to_best
            row[:] = [place.place, *row, best.value, best.low, best.high, to_default]
        form.print_rows(titles, rows)
        return
    titles = setup_titles(standing.places[0].record for standing in tables)
    for number, (standing, title) in enumerate(zip(tables, titles, strict=True)):
        if number:
            click.echo()
        echo(wrapped(title, 2))
        _print_standings(read, standing)


def print_records(log: Log, records: Sequence[Record], form: OutputForm) -> None:
    if form.as_json:
        print_lines(record.to_line() for record in records)
    elif form.as_csv:
        form.print_rows(*record_text.record_rows(log, records))
    elif not records:
        click.echo("no record is left by these filters")
    else:
        if terminal_width() is not None:
            echo("\n".join(wrapped(line, 2) for line in record_text.heading(records)))
        print_table(record_text.record_columns(log, records, terminal_width()))
        _print_legend(log, records)


def _print_legend(log: Log, records: Sequence[Record]) -> None:
    from loopwright.records import STRUCTURE, value_text

    shown = {value_text(r.config[STRUCTURE]) for r in records if STRUCTURE in r.config}
    for line in record_text.structures_legend(log, shown):
        echo(line)


def _print_standings(log: Log, standing: Standings) -> None:
    width = terminal_width()
    records = [place.record for place in standing.places]
    columns = record_text.record_columns(log, records, width)
    wide, places = width is None or width >= record_text.WIDE, standing.places
    to_best = ["1" if p.place == 1 else _ratio(p.to_best) for p in places]
    to_default = ["-" if p.to_default is None else _ratio(p.to_default, wide) for p in places]
    kept = [c for c in columns if c.title not in ("task", "threads", "spread", "when", "trial")]
    more = [TextColumn("to best", to_best), TextColumn("to default", to_default)]
    print_table([*kept[:-2], *more, *kept[-2:]])
    _print_legend(log, records)
    parts = [f"{len(records)} of {counted(standing.candidates, 'candidate')}"]
    if standing.default is None:
        parts.append("the default configuration is not known")
    else:
        speed = record_text.speed_text(None, standing.default.median)
        parts.append(f"the default (record {standing.default.id}) takes {speed}")
    if standing.verdict is not None:
        parts.append(f"the playoff says: {standing.verdict.text()}")
    echo(wrapped("; ".join(parts)))


def _ratio(ratio: Ratio, interval: bool = True) -> str:
    if ratio.low is None or not interval:
        return f"{ratio.value:.2f}"
    return f"{ratio.value:.2f} ({ratio.low:.2f}-{ratio.high:.2f})"


def _no_usable(log: Log, filters: Filters) -> RecordError:
    such = f" of {words}" if (words := filters.words()) else ""
    return RecordError(
        f"{log.path} has no usable record{such} among {len(log)}: all failed or were dropped; "
        f"`loopwright records errors {log.path}` shows why"
    )


def _print_footer(log: Log, shown: int) -> None:
    from loopwright.records import fields_of

    errors, tasks, copies = fields_of(log, "error", "task", "same_as")
    failed = len(errors) - errors.count(None)
    copied = len(copies) - copies.count("")
    counts = {"task": len(set(tasks)), "run": len(log.headers), "skipped line": len(log.skipped)}
    parts = [f"{failed} failed"]
    parts += [f"{copied} copies of programs, which were not measured"] if copied else []
    parts += [counted(count, what) for what, count in counts.items()]
    click.echo(f"{shown} of {counted(len(log), 'record')} shown: {', '.join(parts)}")


for _verb in (list_records, best, top, show.show, compare.compare, *statistics.VERBS, *files.VERBS):
    records_command.add_command(_verb)

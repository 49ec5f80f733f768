"""``loopwright records curve | errors | importance``: statistics over the trials of a log."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopwright.cli.console import echo, harmless
from loopwright.cli.logs.reading import Filters, OutputForm, largest_setup, load_log
from loopwright.cli.options import argument, force_option, option, verb
from loopwright.cli.tables import TextColumn, bars, cut, print_table, terminal_width, wrapped
from loopwright.errors import RecordError, UsageError
from loopwright.extras import install
from loopwright.files import FileKind, Output, check, write
from loopwright.presenting import counted

if TYPE_CHECKING:
    from loopwright.inspection import Work
    from loopwright.records import Curve, Failures, Importance, Json, Log, Record


#: Size of a plot where there is no terminal to ask, and its height.
_PLOT_WIDTH, _PLOT_HEIGHT = 80, 12
#: Steps of a curve that are listed, and values of knobs for each kind of failure.
_STEPS, _VALUES = 12, 5
_BAR = 20
#: Kinds of pictures, with the field that says who made one; and how that begins.
_CREATOR = {".png": "Software", ".svg": "Creator", ".pdf": "Creator"}
_BY = "loopwright records curve"
_PICTURE = FileKind("a picture", lambda data: _BY.encode() in data)


@verb("curve", "The best so far, trial after trial.")
def curve(
    *,
    log: str = argument(),
    filters: Filters,
    form: OutputForm,
    out: str | None = option(
        "-o --out FILE",
        "Draw it as a picture instead: x.png, x.svg or x.pdf (needs matplotlib).",
    ),
    force: bool = force_option(),
) -> None:
    """Show the best speed so far, trial after trial, for one task of LOG.

    Failed trials and those that racing dropped are never the best. Runs that were resumed are
    joined. --csv and --json print a row for each trial: number, clock (seconds of running), time
    of the trial, the best time so far.
    """
    from loopwright.inspection import work_of
    from loopwright.records import best_so_far

    if out is not None and form.for_programs:
        raise UsageError("-o draws a picture, --json and --csv print rows; give one of them")
    read = load_log(log)
    records = largest_setup(read, filters)
    best = best_so_far(records, read.headers)
    if form.for_programs:
        titles = ("trial", "clock", "seconds", "best", "counts", "run")
        columns = (best.clock, best.seconds, best.best, best.counts, best.runs)
        rows: Iterator[list[Json]] = (
            [n, *(None if isinstance(x, float) and math.isnan(x) else x for x in row)]
            for n, row in enumerate(zip(*(c.tolist() for c in columns), strict=True), 1)
        )
        form.print_rows(titles, rows)
        return
    if not best.steps:
        raise RecordError(
            f"{log} has no trial that may be best among {len(best)}; "
            f"`loopwright records errors {log}` shows what failed"
        )
    work = work_of(read, best.steps[-1].record)
    if out is None:
        _print_curve(best, work, records[0])
    else:
        _draw(best, work, records[0], out, force=force)


def _print_curve(curve: Curve, work: Work | None, first: Record) -> None:
    from loopwright.cli.logs.record_text import gflops, setup_title, speed_text
    from loopwright.presenting import duration

    width = terminal_width() or _PLOT_WIDTH
    unit, values = _speeds(curve, work)
    echo(wrapped(setup_title(first), 2))
    echo(f"best so far in {unit}, over {counted(len(curve), 'trial')}")
    for line in bars(values, width, _PLOT_HEIGHT):
        click.echo(line)
    shown = curve.steps[-_STEPS:]
    if len(shown) < len(curve.steps):
        echo(f"the last {len(shown)} of {len(curve.steps)} improvements:")
    seconds = [step.seconds for step in curve.steps]
    gains = ["-", *(f"{slow / fast - 1.0:.1%}" for slow, fast in pairwise(seconds))][-_STEPS:]
    speeds = [gflops(work, step.seconds) for step in shown]
    columns = [
        TextColumn("trial", [str(step.number) for step in shown], right=True),
        TextColumn("after", [duration(step.clock) for step in shown], right=True),
        TextColumn("time", [duration(step.seconds) for step in shown], right=True),
        TextColumn("GFLOP/s", [f"{speed:.1f}" if speed else "-" for speed in speeds], right=True),
        TextColumn("gain", gains, right=True),
        TextColumn("windows from - to", [f"{duration(s.low)} - {duration(s.high)}" for s in shown]),
        TextColumn("record", [step.record.id for step in shown]),
    ]
    print_table(columns)
    if curve.final is not None and curve.final.id != curve.steps[-1].record.id:
        speed = speed_text(work, curve.final.median)
        text = f"measured again and ranked, the best is record {curve.final.id}: {speed}"
        luck = "the fastest of many single measurements owes something to luck"
        echo(wrapped(f"{text} ({luck})"))


def _speeds(curve: Curve, work: Work | None) -> tuple[str, list[float]]:
    """The curve as a speed: in GFLOP/s, or in calls per second where the work is not known."""
    best = curve.best.tolist()
    if work is not None and work.flop:
        return "GFLOP/s", [work.flop / seconds / 1e9 for seconds in best]
    return "calls per second", [1.0 / seconds for seconds in best]


def _draw(curve: Curve, work: Work | None, first: Record, out: str, *, force: bool) -> None:
    from loopwright.cli.logs.record_text import setup_title

    try:
        from matplotlib.figure import Figure
    except ImportError as exc:
        raise UsageError(
            f"-o needs matplotlib: {install('plot')}; without -o a text plot is printed"
        ) from exc
    kind = os.path.splitext(out)[1]
    if kind not in _CREATOR:
        raise UsageError(f"-o {out}: name a file that ends in {', '.join(_CREATOR)}")
    check((Path(out), _PICTURE), force=force, error=RecordError)
    unit, values = _speeds(curve, work)
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    scale = [best * value for best, value in zip(curve.best.tolist(), values, strict=True)]
    largest = max((s for s in scale if not math.isnan(s)), default=1.0)
    points = [largest / seconds for seconds in curve.seconds.tolist()]
    numbers = range(1, len(curve) + 1)
    axes.plot(numbers, points, ".", markersize=3, alpha=0.5, label="trials")
    axes.step(numbers, values, where="post", label="best so far")
    axes.set_xlabel("trial")
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    # A dollar sign in a name is no formula.
    axes.set_title(setup_title(first).replace("$", r"\$"), fontsize=9)
    axes.legend()
    drawn = io.BytesIO()
    figure.savefig(drawn, format=kind[1:], metadata={_CREATOR[kind]: _BY})
    write(Output(Path(out), drawn.getvalue(), _PICTURE), force=force, error=RecordError)
    echo(f"wrote {out}")


@verb("errors", "What failed, and which knobs go with it.")
def errors(*, log: str = argument(), filters: Filters, form: OutputForm) -> None:
    """Show what failed in LOG: the kinds, their shares, the first example of each.

    Below each kind stand the values of knobs that go with it: values whose candidates failed more
    often than chance allows (Fisher's exact test, p below 0.01 after a correction for the number
    of values that were looked at).
    """
    from loopwright.cli.logs.record_text import structures_legend
    from loopwright.records import failures, structure_ids

    read = load_log(log)
    report = failures(filters.of(read))
    if form.for_programs:
        titles = ("kind", "count", "share", "first", "trial", "text")
        rows = ((k.kind, k.count, k.share, k.first.id, k.first.trial, k.text) for k in report.kinds)
        form.print_rows(titles, rows, ({"values": _values(kind)} for kind in report.kinds))
        return
    echo(
        wrapped(
            f"{report.failed} of {counted(report.trials, 'trial')} failed; {report.dropped} were "
            "dropped by racing, which is no failure; "
            f"{report.again} of the further measurements failed"
        )
    )
    width, ids = terminal_width(), structure_ids(read.records)
    for kind in report.kinds:
        click.echo()
        echo(f"{kind.kind}: {counted(kind.count, 'record')}, {kind.share:.1%}")
        lines = [f"  first: record {kind.first.id}, trial {kind.first.trial}: {kind.text}"]
        lines += [
            f"  {value.knob} = {ids.get(value.value, value.value)}: {value.share:.0%} fail so "
            f"({value.failed} of {value.trials}), {value.overall:.0%} of all"
            for value in kind.values[:_VALUES]
        ]
        for line in lines:
            echo(line if width is None else cut(harmless(line), width))
        if len(kind.values) > _VALUES:
            echo(f"  and {len(kind.values) - _VALUES} more values; --json names them")
    named = {value.value for kind in report.kinds for value in kind.values[:_VALUES]}
    for line in structures_legend(read, named):
        echo(line)


def _values(kind: Failures) -> list[Json]:
    names = {"knob": "knob", "value": "value", "failed": "failed", "records": "trials"}
    names |= {name: name for name in ("share", "overall", "p")}
    return [{name: getattr(v, field) for name, field in names.items()} for v in kind.values]


@verb("importance", "Which knobs matter.")
def importance(
    *,
    log: str = argument(),
    filters: Filters,
    form: OutputForm,
    seed: int = option("--seed", "Seed of the random samples.", shown=0),
) -> None:
    """Show which knobs matter for one task of LOG, with the best and the worst value of each.

    The share is the part of the variance of log(time) that a knob explains by itself: functional
    ANOVA (Hutter and others, 2014) over boosted trees that learn from the log. `slower` is how
    many times as long the worst value takes as the best, all other knobs varying.
    """
    from loopwright.records import importance as knob_importance

    read = load_log(log)
    result = knob_importance(largest_setup(read, filters), seed)
    if not form.for_programs:
        _print_importance(read, result)
        return
    titles = ("knob", "share", "best", "worst", "slower", "records", "rank_correlation")
    rows = [
        (k.knob, k.share, k.best.text, k.worst.text, k.worst.slower, result.records,
         result.rank_correlation)
        for k in result.knobs
    ]  # fmt: skip
    fields = ("count", "slower", "fastest")
    values = (
        [{"value": v.text, **{name: getattr(v, name) for name in fields}} for v in knob.values]
        for knob in result.knobs
    )
    form.print_rows(titles, rows, ({"values": one} for one in values))


def _print_importance(read: Log, result: Importance) -> None:
    from loopwright.cli.logs.record_text import structures_legend
    from loopwright.records import structure_ids

    ids = structure_ids(read.records)
    rows = [*((k.share, k.knob) for k in result.knobs), (result.together, "(combinations)")]
    blank, knobs = [""], result.knobs
    columns = [
        TextColumn("knob", [harmless(name) for _, name in rows]),
        TextColumn("share", [f"{share:.1%}" for share, _ in rows], right=True),
        TextColumn("", ["█" * round(share * _BAR) for share, _ in rows]),
        TextColumn("slower", [f"{k.worst.slower:.2f} x" for k in knobs] + blank, right=True),
        TextColumn("best", [harmless(ids.get(k.best.text, k.best.text)) for k in knobs] + blank),
        TextColumn(
            "worst",
            [harmless(ids.get(k.worst.text, k.worst.text)) for k in knobs] + blank,
            cut=True,
        ),
    ]
    print_table(columns)
    for line in structures_legend(
        read, {text for k in knobs for text in (k.best.text, k.worst.text)}
    ):
        echo(line)
    dropped = f" ({result.dropped} of them dropped by racing, with rough times)"
    learned = "" if result.learned == result.records else f", learned from {result.learned} of them"
    echo(
        wrapped(
            f"{result.method}, over {result.records} records{dropped if result.dropped else ''}"
            f"{learned}; rank correlation {result.rank_correlation:.2f} on what it had not seen"
        )
    )
    if result.rank_correlation < 0.3:
        echo("That is low: the trees learned little, and these shares say little; tune for longer")


VERBS = (curve, errors, importance)

"""``loopwright records compare``: two records, two logs, or two machines."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import click

from loopwright.cli.console import echo, harmless
from loopwright.cli.logs.reading import Filters, OutputForm, find_record, load_log
from loopwright.cli.options import argument, option, verb
from loopwright.cli.tables import TextColumn, print_table, wrapped
from loopwright.errors import UsageError
from loopwright.presenting import counted

if TYPE_CHECKING:
    from loopwright.records import Json, Log, Record, Side, TaskComparison


@verb("compare", "Two logs, two records, or two machines.")
def compare(
    *,
    what: Sequence[str] = argument(nargs=-1, required=True, metavar="A [B]"),
    log: str | None = option("--log", "The log of the records A and B."),
    filters: Filters,
    form: OutputForm,
) -> None:
    """Compare two logs task by task, two records of a log, or the machines of one log.

    \b
    compare A.jsonl B.jsonl       the best of each task in both, and what only one has
    compare LOG RECORD RECORD     which decisions differ; also: RECORD RECORD --log LOG
    compare LOG RECORD            the record and the best one of its task and machine
    compare LOG                   the machines of one log, or its numbers of threads

    A RECORD is an id or the beginning of it, `best` or `default`. The ratio is the time of B
    divided by that of A: below 1 where B is faster.
    """
    path, names = _log_and_names(what, log)
    read = load_log(path)
    if len(names) == 1 and log is None and os.path.exists(names[0]):
        sides = [filters.of(part) for part in (read, load_log(names[0]))]
        _print_tasks([(path, names[0], sides[0], sides[1])], form)
        return
    if not names:
        _print_tasks(_machines(path, filters.of(read)), form)
        return
    one, other = _pair(read, filters.of(read), (*names, "best")[:2])
    if form.as_csv:
        raise UsageError("two records are compared in words, or with --json; --csv is for logs")
    _print_pair(read, one, other, form.as_json)


def _log_and_names(what: Sequence[str], log: str | None) -> tuple[str, Sequence[str]]:
    """The log, and the other words; words that can be neither a log nor a record are refused."""
    path, names = (what[0], what[1:]) if log is None else (log, what)
    if len(names) > 2:
        raise UsageError(
            f"compare takes two logs, or a log and up to two records; got {len(what)} words"
        )
    if len(names) != 1 or log is not None or os.path.exists(names[0]):
        return path, names
    if not os.path.exists(path) and names[0] not in ("best", "default"):
        raise UsageError(
            f"neither {path!r} nor {names[0]!r} is a file; for two records name their log: "
            "compare LOG RECORD RECORD"
        )
    if not re.fullmatch("[0-9a-f]+|best|default", names[0]):
        raise UsageError(
            f"{names[0]!r} is no file, and no id of a record: name another log, or a record of "
            f"{path} (`loopwright records list {path}` shows ids)"
        )
    return path, names


def _pair(log: Log, records: Sequence[Record], wanted: Sequence[str]) -> tuple[Record, Record]:
    """The two named records; `best` is that of the task and machine of the other."""
    from loopwright.inspection import WORDS
    from loopwright.records import of_one_setup

    if wanted[0] in WORDS and wanted[1] not in WORDS:
        other, one = _pair(log, records, wanted[::-1])
        return one, other
    one = find_record(log, records, wanted[0])
    if wanted[1] in WORDS:
        records = of_one_setup(records, one)
    return one, find_record(log, records, wanted[1])


def _print_pair(log: Log, one: Record, other: Record, as_json: bool) -> None:
    from loopwright.cli.logs.record_text import setup_title, speed_text, structures_legend
    from loopwright.inspection import works_of
    from loopwright.records import STRUCTURE, record_differences, structure_ids, time_ratio

    ratio, differences = time_ratio(one, other), record_differences(one, other)
    if as_json:
        words = [{"what": d.what, "one": d.one, "other": d.other} for d in differences]
        figures = ratio and {"value": ratio.value, "low": ratio.low, "high": ratio.high}
        line = {"one": one.id, "other": other.id, "ratio": figures, "differs": words}
        click.echo(json.dumps(line))
        return
    for name, record, work in zip("AB", (one, other), works_of(log, [one, other]), strict=True):
        if record.valid:
            text = speed_text(work, record.median)
        else:
            text = f"failed ({record.error.get('kind')})" if record.error else "no time"
        echo(wrapped(f"{name}: record {record.id}, {setup_title(record)}: {text}", 3))
    if ratio:
        text = f"B takes {ratio.value:.3g} x as long as A"
        if ratio.low is None or ratio.high is None:
            text += f" ({ratio.why_no_interval})"
        else:
            interval = f"{ratio.low:.3g} to {ratio.high:.3g}"
            same = "; they cannot be told apart" if ratio.same else ""
            text += f" (95 % interval {interval}, by the windows){same}"
        echo(wrapped(text))
    else:
        missing = [name for name, r in (("A", one), ("B", other)) if not r.valid]
        has = "has" if len(missing) == 1 else "have"
        echo(wrapped(f"no ratio: {' and '.join(missing)} {has} no time"))
    if not differences:
        echo("no decision differs: the same knobs, schedule, target and machine")
        return
    ids = structure_ids(log.records) if STRUCTURE in one.config else {}
    columns = [
        TextColumn("differs", [harmless(d.what) for d in differences]),
        TextColumn("A", [harmless(ids.get(d.one, d.one)) for d in differences]),
        TextColumn("B", [harmless(ids.get(d.other, d.other)) for d in differences], cut=True),
    ]
    print_table(columns)
    if ids:
        for legend in structures_legend(log, {t for d in differences for t in (d.one, d.other)}):
            echo(legend)


#: Names of two sets of records, and the sets.
_Pair: TypeAlias = "tuple[str, str, Sequence[Record], Sequence[Record]]"


def _machines(path: str, records: Sequence[Record]) -> list[_Pair]:
    """Every pair of neighbouring machines of one log; a single one is refused."""
    from loopwright.records import machines, setup_titles

    groups = machines(records)
    if len(groups) < 2:
        raise UsageError(
            f"{path} has records of one machine and one number of threads "
            f"({setup_titles(records[:1])[0]}); name another log, or two records of this one"
        )
    return [(a, b, groups[a], groups[b]) for a, b in pairwise(groups)]


def _print_tasks(pairs: Sequence[_Pair], form: OutputForm) -> None:
    from loopwright.records import compare_logs

    compared = ((a, b, compare_logs(one, other)) for a, b, one, other in pairs)
    if form.for_programs:
        titles = ("task", "one", "other", "one_seconds", "other_seconds", "ratio", "low", "high")
        lines = ([*_values(row), a, b] for a, b, rows in compared for row in rows)
        form.print_rows((*titles, "a", "b"), lines)
        return
    for number, (a, b, rows) in enumerate(compared):
        echo("\n" * bool(number) + f"A: {a}\nB: {b}")
        _print_two(rows)


def _print_two(rows: Sequence[TaskComparison]) -> None:
    both = [row for row in rows if row.ratio is not None]
    if both:
        print_table(_task_columns(both))
    for row in both:
        conditions = [d for d in row.differences if not d.what.startswith(("knob", "schedule"))]
        if conditions:
            text = "; ".join(map(str, conditions))
            echo(wrapped(f"{row.task} was measured under other conditions: {text}"))
    for row in rows:
        if row.ratio is None:
            echo(wrapped(_only(row)))
    ratios = [row.ratio for row in both if row.ratio is not None]
    same = sum(bool(ratio.same) for ratio in ratios)
    faster = sum(ratio.value < 1.0 and not ratio.same for ratio in ratios)
    count, slower = counted(len(both), "task"), len(ratios) - same - faster
    echo(f"{count} in both: A is faster in {slower}, B in {faster}; {same} cannot be told apart")


def _task_columns(rows: Sequence[TaskComparison]) -> list[TextColumn]:
    from loopwright.presenting import duration

    def of(side: Side | None) -> str:
        assert side is not None
        assert side.record is not None
        assert side.record.median is not None
        return duration(side.record.median)

    def gain(side: Side | None) -> str:
        if side is None or side.verdict is None:
            return "-"
        return f"{side.verdict.gain:+.0%} +-{side.verdict.margin:.0%}"

    ratios = [row.ratio for row in rows if row.ratio is not None]
    intervals = [
        r.why_no_interval if r.low is None else f"{r.low:.2f} to {r.high:.2f}" for r in ratios
    ]
    return [
        TextColumn("A", [of(row.one) for row in rows], right=True),
        TextColumn("B", [of(row.other) for row in rows], right=True),
        TextColumn("B/A", [f"{r.value:.2f}" for r in ratios], right=True),
        TextColumn("interval", intervals),
        TextColumn("A to default", [gain(row.one) for row in rows], needs=110),
        TextColumn("B to default", [gain(row.other) for row in rows], needs=110),
        TextColumn("task", [harmless(row.task) for row in rows], cut=True),
    ]


def _only(row: TaskComparison) -> str:
    if row.one is None:
        return f"only in B: {row.task}"
    if row.other is None:
        return f"only in A: {row.task}"
    where = "A" if row.one.record is None else "B"
    return f"not comparable: {row.task} has no usable record in {where}"


def _values(row: TaskComparison) -> list[Json]:
    sides = [None if side is None else side.record for side in (row.one, row.other)]
    ids = [None if record is None else record.id for record in sides]
    seconds = [None if record is None else record.median for record in sides]
    ratio = row.ratio
    figures = (None,) * 3 if ratio is None else (ratio.value, ratio.low, ratio.high)
    return [row.task, *ids, *seconds, *figures]

"""Records in the words of tables: speed, status, knobs, and the heading of their task."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from loopwright.cli.harmless import harmless
from loopwright.cli.logs.columns import Column

if TYPE_CHECKING:
    from loopwright.inspection import Work
    from loopwright.records import Json, Log, Record

#: Widths of a terminal from which the time, and when it was measured, are shown too.
_WIDE, _WIDER = 100, 120


def setup_title(record: Record) -> str:
    """The task of a record, and what it ran on."""
    return f"{_task_text(record)} {_conditions(record)}"


def _task_text(record: Record) -> str:
    from loopwright.records.reports.setups import task_text

    return harmless(task_text(record.op, record.args))


def _conditions(record: Record) -> str:
    """What a record ran on, such as ``on llvm, 2 threads, AMD EPYC``."""
    parts = [f"on {record.kind or 'an unknown target'}"]
    if record.threads:
        parts.append(f"{record.threads} thread{'s' * (record.threads != 1)}")
    if cpu := record.env.get("cpu"):
        parts.append(str(cpu))
    return harmless(", ".join(parts))


def record_columns(log: Log, records: Sequence[Record], width: int | None) -> list[Column]:
    """A table of records: what identifies each, its speed, and the knobs that vary.

    Args:
        log: where the records are from.
        records: what is to be shown.
        width: of the terminal; None for a table that says everything.
    """
    from loopwright.inspection import works_of
    from loopwright.records import fields_of
    from loopwright.records.reports.knobs import config_texts, varying_knobs
    from loopwright.records.reports.spread import spreads
    from loopwright.task.applying.as_called import duration

    ids, trials, threads, medians, times, clocks = fields_of(
        records, "id", "trial", "threads", "median", "times", "ts"
    )
    works = works_of(log, records)
    speeds = [gflops(work, median) for work, median in zip(works, medians, strict=True)]
    spoken = [speed is not None or m is None for speed, m in zip(speeds, medians, strict=True)]
    # Where not every speed is known, times are what can be compared.
    fast = all(spoken) and any(speed is not None for speed in speeds)
    varies = width is None or len(set(threads)) > 1
    names = varying_knobs(records) if width is not None and len(records) > 1 else None
    columns = [
        Column("id", ids),
        *_task_columns(records, width),
        Column("threads", [str(n or "?") for n in threads], right=True),
        Column("trial", list(map(str, trials)), right=True),
        Column("GFLOP/s", [_figure(speed) for speed in speeds], right=True),
        Column(
            "time",
            ["-" if m is None else duration(m) for m in medians],
            right=True,
            needs=_WIDE if fast else 0,
        ),
        Column("spread", ["-" if s is None else f"{s:.1%}" for s in spreads(times)], right=True),
        Column("status", statuses(records)),
        Column("when", _times(clocks), needs=_WIDER),
        Column("knobs", [harmless(text) for text in config_texts(records, names)], cut=True),
    ]
    left_out = {"threads": not varies, "GFLOP/s": not fast and width is not None}
    return [column for column in columns if not left_out.get(column.title)]


def heading(records: Sequence[Record]) -> list[str]:
    """What stands above a table on a terminal: its tasks, numbered where there are several."""
    firsts = list(_first_of_task(records).values())
    if len(firsts) == 1:
        return [setup_title(firsts[0])]
    common = {_conditions(record) for record in firsts}
    told = _task_text if len(common) == 1 else setup_title
    titles = [f"task {number}: {told(record)}" for number, record in enumerate(firsts, 1)]
    return [*titles, f"all {common.pop()}"] if len(common) == 1 else titles


def _task_columns(records: Sequence[Record], width: int | None) -> list[Column]:
    """The task of each record; on a terminal its number in the heading, where there are several."""
    from loopwright.records import fields_of

    firsts = _first_of_task(records)
    if len(firsts) == 1 and width is not None:
        return []
    (tasks,) = fields_of(records, "task")
    if width is not None:
        numbers = {task: str(number) for number, task in enumerate(firsts, 1)}
        return [Column("task", [numbers[task] for task in tasks], right=True)]
    texts = {task: _task_text(first) for task, first in firsts.items()}
    return [Column("task", [texts[task] for task in tasks])]


def _first_of_task(records: Sequence[Record]) -> dict[str, Record]:
    from loopwright.records import fields_of

    (tasks,) = fields_of(records, "task")
    firsts: dict[str, Record] = {}
    for task, record in zip(tasks, records, strict=True):
        if task not in firsts:
            firsts[task] = record
    return firsts


def statuses(records: Sequence[Record]) -> list[str]:
    """For each record whether it failed, was dropped, was checked, and in which phase it is."""
    from loopwright.records import fields_of

    columns = fields_of(records, "error", "dropped", "checked", "phase")
    return [_status(*row) for row in zip(*columns, strict=True)]


def _status(error: Mapping[str, str] | None, dropped: bool, checked: str, phase: str) -> str:
    if error is not None:
        return harmless(str(error.get("kind", "failed")))
    if dropped:
        return "dropped"
    said = "checked" if checked == "yes" else "unchecked"
    if not phase:
        return said
    return harmless(phase) if said == "checked" else harmless(f"{phase}, {said}")


def gflops(work: Work | None, seconds: float | None) -> float | None:
    """Speed of a call in GFLOP/s; None where it is not known."""
    return None if work is None or seconds is None else work.gflops(seconds)


def speed_text(work: Work | None, seconds: float | None) -> str:
    """The speed of a call for people, such as ``246.3 GFLOP/s, 136.2 us a call``."""
    from loopwright.task.applying.as_called import duration

    if seconds is None:
        return "no time"
    speed = gflops(work, seconds)
    return "".join([f"{_figure(speed)} GFLOP/s, " if speed else "", f"{duration(seconds)} a call"])


def _figure(speed: float | None) -> str:
    if speed is None:
        return "-"
    return f"{speed:.1f}" if speed >= 1 else f"{speed:.3g}"


def _times(clocks: Sequence[float]) -> list[str]:
    """When each was measured, to the minute, in local time."""
    minutes = {clock // 60: clock for clock in clocks}
    texts = {minute: minute_text(clock) for minute, clock in minutes.items()}
    return [texts[clock // 60] for clock in clocks]


def minute_text(clock: float) -> str:
    """A moment for people, in local time; ``-`` where it is not known."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(clock)) if clock else "-"


def record_rows(log: Log, records: Sequence[Record]) -> tuple[list[str], list[list[Json]]]:
    """Records as a table of values for programs: titles and rows, with a column for each knob."""
    from loopwright.inspection import works_of
    from loopwright.records import fields_of
    from loopwright.records.reports.knobs import value_text
    from loopwright.records.reports.spread import spreads

    names = ("id", "op", "args", "target", "threads", "run", "trial", "phase", "median", "times")
    columns = dict(zip(names, fields_of(records, *names), strict=True))
    (configs,) = fields_of(records, "config")
    (clocks,) = fields_of(records, "ts")
    knobs = list(dict.fromkeys(name for config in configs for name in config))
    works = works_of(log, records)
    found: dict[str, list[Json]] = {
        **{name: columns[name] for name in ("id", "op")},
        "args": [value_text(args) for args in columns["args"]],
        "target": [str(target.get("kind", "")) for target in columns["target"]],
        **{name: columns[name] for name in ("threads", "run", "trial", "phase")},
        "status": statuses(records),
        "seconds": columns["median"],
        "gflops": [gflops(w, m) for w, m in zip(works, columns["median"], strict=True)],
        "spread": spreads(columns["times"]),
        "ts": clocks,
    }
    for name in knobs:
        found[f"config.{name}"] = [
            value_text(config[name]) if name in config else None for config in configs
        ]
    return list(found), [list(row) for row in zip(*found.values(), strict=True)]

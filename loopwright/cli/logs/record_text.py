"""Records in the words of tables: speed, status, knobs, and the heading of their task."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from loopwright.cli.console import harmless
from loopwright.cli.tables import TextColumn, wrapped

if TYPE_CHECKING:
    from loopwright.inspection import Work
    from loopwright.records import Json, Log, Record


#: Widths of a terminal from which the time, and when it was measured, are shown too.
WIDE, _WIDER = 100, 120


def setup_title(record: Record) -> str:
    from loopwright.records import setup_titles

    return harmless(setup_titles([record])[0])


def record_columns(log: Log, records: Sequence[Record], width: int | None) -> list[TextColumn]:
    """A table of records: id, speed, and the knobs that vary; all facts where ``width`` is None."""
    from loopwright.inspection import works_of
    from loopwright.presenting import duration
    from loopwright.records import (
        STRUCTURE,
        config_texts,
        fields_of,
        spreads,
        structure_ids,
        varying_knobs,
    )

    ids, trials, threads, medians, times, clocks = fields_of(
        records, "id", "trial", "threads", "median", "times", "ts"
    )
    works = works_of(log, records)
    speeds = [gflops(work, median) for work, median in zip(works, medians, strict=True)]
    spoken = [speed is not None or m is None for speed, m in zip(speeds, medians, strict=True)]
    # Where not every speed is known, times are what can be compared.
    fast = all(spoken) and any(speed is not None for speed in speeds)
    by_minute = {clock // 60: clock for clock in clocks}
    minutes = {minute: minute_text(clock) for minute, clock in by_minute.items()}
    varies = width is None or len(set(threads)) > 1
    names = varying_knobs(records) if width is not None and len(records) > 1 else None
    (configs,) = fields_of(records, "config")
    structures = structure_ids(log.records) if any(STRUCTURE in c for c in configs) else None
    texts = config_texts(records, names, structures)
    seconds = ["-" if m is None else duration(m) for m in medians]
    apart = ["-" if s is None else f"{s:.1%}" for s in spreads(times)]
    columns = [
        TextColumn("id", ids),
        *_task_columns(records, width),
        TextColumn("threads", threads_texts(records), right=True),
        TextColumn("trial", list(map(str, trials)), right=True),
        TextColumn("GFLOP/s", [_figure(speed) for speed in speeds], right=True),
        TextColumn("time", seconds, right=True, needs=WIDE if fast else 0),
        TextColumn("spread", apart, right=True),
        TextColumn("status", statuses(records)),
        TextColumn("when", [minutes[clock // 60] for clock in clocks], needs=_WIDER),
        TextColumn("knobs", [harmless(text) for text in texts], cut=True),
    ]
    left_out = {"threads": not varies, "GFLOP/s": not fast and width is not None}
    return [column for column in columns if not left_out.get(column.title)]


def structures_legend(log: Log, shown: Collection[str]) -> Iterator[str]:
    """The lines below a table that say what the ids of its structures stand for."""
    from loopwright.records import structure_ids, structure_legend

    legend = list(structure_legend(structure_ids(log.records) if shown else {}, shown))
    if legend:
        yield "structures, numbered in the order in which the log has them:"
    for number, name in legend:
        yield wrapped(f"{number:4} {harmless(name)}", 5)


def heading(records: Sequence[Record]) -> list[str]:
    """The lines above a table: tasks and hardware of the records, numbered if there are several."""
    from loopwright.records import conditions_text, fields_of, hardware_names

    groups = _by_machine(records)
    names = hardware_names(hardware for _, hardware in groups)
    tasks = [_task_text(group[0]) for group in groups.values()]
    one_count = [len(set(fields_of(group, "threads")[0])) == 1 for group in groups.values()]
    conditions = [
        harmless(conditions_text(group[0], names, threads=one))
        for group, one in zip(groups.values(), one_count, strict=True)
    ]
    if len(groups) == 1:
        return [f"{tasks[0]} {conditions[0]}"]
    title = _title(groups)
    if len(set(conditions)) > 1:
        numbered = enumerate(zip(tasks, conditions, strict=True), 1)
        return [f"{title} {number}: {task} {text}" for number, (task, text) in numbered]
    titles = [f"{title} {number}: {task}" for number, task in enumerate(tasks, 1)]
    return [*titles, f"all {conditions[0]}"]


def _task_columns(records: Sequence[Record], width: int | None) -> list[TextColumn]:
    """The task and hardware of each record; on a terminal their number in a longer heading."""
    from loopwright.records import fields_of, hardware_names

    groups = _by_machine(records)
    if len(groups) == 1 and width is not None:
        return []
    places = list(zip(*fields_of(records, "task", "hardware"), strict=True))
    if width is not None:
        numbers = {place: str(number) for number, place in enumerate(groups, 1)}
        return [TextColumn(_title(groups), [numbers[place] for place in places], right=True)]
    texts = {task: _task_text(group[0]) for (task, _), group in reversed(groups.items())}
    names = hardware_names(hardware for _, hardware in groups)
    titles = {hardware: harmless(name) for hardware, name in names.items()}
    tasks = TextColumn("task", [texts[task] for task, _ in places])
    if len(titles) == 1:
        return [tasks]
    return [tasks, TextColumn("hardware", [titles[hardware] for _, hardware in places])]


def _task_text(record: Record) -> str:
    from loopwright.records import task_text

    return harmless(task_text(record.op, record.args))


def threads_texts(records: Sequence[Record]) -> list[str]:
    """The number of threads of each; for a device its kind, since it has no threads of the CPU."""
    from loopwright.records import device_of, fields_of

    return [
        str(count or device_of(env).get("kind") or "?")
        for count, env in zip(*fields_of(records, "threads", "env"), strict=True)
    ]


def _title(groups: Mapping[tuple[str, str], object]) -> str:
    """The meaning of numbers in a heading: tasks, or setups where a task ran on several."""
    return "task" if len({task for task, _ in groups}) == len(groups) else "setup"


def _by_machine(records: Sequence[Record]) -> dict[tuple[str, str], list[Record]]:
    from loopwright.records import fields_of

    groups: dict[tuple[str, str], list[Record]] = {}
    places = zip(*fields_of(records, "task", "hardware"), strict=True)
    for record, place in zip(records, places, strict=True):
        groups.setdefault(place, []).append(record)
    return groups


def statuses(records: Sequence[Record]) -> list[str]:
    """Status of each record: a copy, failed, dropped, or checked and in which phase."""
    from loopwright.records import fields_of

    columns = fields_of(records, "same_as", "error", "dropped", "checked", "phase")
    return [_status(*row) for row in zip(*columns, strict=True)]


def _status(
    same_as: str, error: Mapping[str, str] | None, dropped: bool, checked: str, phase: str
) -> str:
    if same_as:  # no measurement: it is the program of another record, whose samples it shows
        return harmless(f"copy of {same_as}")
    if error is not None:
        return harmless(str(error.get("kind", "failed")))
    if dropped:
        return "dropped"
    if checked == "yes":
        return harmless(phase) if phase else "checked"
    return harmless(f"{phase}, unchecked") if phase else "unchecked"


def gflops(work: Work | None, seconds: float | None) -> float | None:
    return None if work is None or seconds is None else work.gflops(seconds)


def speed_text(work: Work | None, seconds: float | None) -> str:
    """The speed of a call for people, such as ``246.3 GFLOP/s, 136.2 us a call``."""
    from loopwright.presenting import duration

    if seconds is None:
        return "no time"
    speed = gflops(work, seconds)
    return (f"{_figure(speed)} GFLOP/s, " if speed else "") + f"{duration(seconds)} a call"


def _figure(speed: float | None) -> str:
    if speed is None:
        return "-"
    return f"{speed:.1f}" if speed >= 1 else f"{speed:.3g}"


def minute_text(clock: float) -> str:
    """A moment for people, in local time; ``-`` where it is not known."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(clock)) if clock else "-"


def record_rows(log: Log, records: Sequence[Record]) -> tuple[list[str], list[list[Json]]]:
    """Records as a table of values for programs: titles and rows, with a column for each knob."""
    from loopwright.inspection import works_of
    from loopwright.records import (
        ABSENT,
        fields_of,
        hardware_names,
        knobs_of,
        once_for_equal,
        spreads,
        value_text,
    )

    names = ("id", "op", "target", "threads", "run", "trial", "phase", "median", "times")
    columns = dict(zip(names, fields_of(records, *names), strict=True))
    (clocks,) = fields_of(records, "ts")
    works = works_of(log, records)
    (machines,) = fields_of(records, "hardware")
    hardware = hardware_names(machines)
    fields: dict[str, list[Json]] = {
        **{name: columns[name] for name in ("id", "op")},
        "args": once_for_equal(lambda record: value_text(record.args), records, ["args"]),
        "target": [str(target.get("kind", "")) for target in columns["target"]],
        "hardware": [hardware[machine] for machine in machines],
        **{name: columns[name] for name in ("threads", "run", "trial", "phase")},
        "status": statuses(records),
        "seconds": columns["median"],
        "gflops": [gflops(w, m) for w, m in zip(works, columns["median"], strict=True)],
        "spread": spreads(columns["times"]),
        "ts": clocks,
    }
    for knob in knobs_of(records):
        texts = [None if text == ABSENT else text for text in knob.texts]
        fields[f"config.{knob.name}"] = [texts[code] for code in knob.codes.tolist()]
    return list(fields), [list(row) for row in zip(*fields.values(), strict=True)]

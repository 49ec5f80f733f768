"""HTML of logs and records for notebooks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping

from loopwright.presenting import html_block, html_folded, html_table, html_text
from loopwright.records.json_value import Json
from loopwright.records.log import Log
from loopwright.records.many import fields_of
from loopwright.records.provenance import device_of
from loopwright.records.query import best, by_task
from loopwright.records.record import Record

#: Tasks of a log that are shown.
_TASKS = 20


def html_of_log(log: Log) -> str:
    """A table with one row for each task of a log: its best record."""
    groups = by_task(log)
    rows = [_row(group) for group in list(groups.values())[:_TASKS]]
    more = len(groups) - len(rows)
    parts = [html_table(rows, ("task", "records", "failed", "best", "record"))] if rows else []
    parts += [html_text(f"... and {more} more tasks")] if more else []
    parts += [html_text(log.complaint())] if log.skipped else []
    title = f"{log.path}: {_counted(len(log), 'record')} of {_counted(len(groups), 'task')}, "
    return html_block(title + _counted(len(log.headers), "run"), *parts)


def html_of_record(record: Record) -> str:
    """A table of a record: its measurement, its knobs, and its machine."""
    knobs = html_table((name, json.dumps(value)) for name, value in record.config.items())
    steps = html_text("\n".join(json.dumps(step) for step in record.trace))
    return html_block(
        f"Record {record.id}: {_task(record)}",
        html_table(_facts(record)),
        html_folded(_counted(len(record.config), "knob"), knobs),
        html_folded(_counted(len(record.trace), "step"), steps),
    )


def _row(records: list[Record]) -> tuple[object, ...]:
    (errors,) = fields_of(records, "error")
    winner = best(records)
    failed = len(errors) - errors.count(None)
    names = ("-", "-") if winner is None else (_milliseconds(winner), winner.id)
    return _task(records[0]), len(records), failed, *names


def _facts(record: Record) -> Iterator[tuple[str, object]]:
    """Names and values of the facts that the record holds."""
    if record.error is not None:
        yield "failed", f"{record.error.get('kind')}: {record.error.get('text')}"
    if record.times:
        low, high = (f"{t * 1e3:.4g}" for t in (min(record.times), max(record.times)))
        windows = _counted(len(record.times), "window")
        rough = ", dropped as too slow" * record.dropped
        yield "time", f"{_milliseconds(record)} ({low} to {high} ms, {windows}{rough})"
    reason = f": {record.check_reason}" if record.check_reason else ""
    yield "answer", "checked" if record.checked == "yes" else f"not checked{reason}"
    yield "trial", f"{record.trial} of run {record.run or 'unknown'}{_clock(record.ts)}"
    yield "target", _target(record.target)
    yield "hardware", _hardware(record)


def _hardware(record: Record) -> str:
    if device := device_of(record.env):
        return f"{device.get('name') or 'unknown'} ({device.get('kind') or 'a device'})"
    return f"{record.env.get('cpu') or 'unknown'}, threads: {record.threads or '?'}"


def _target(target: Mapping[str, Json]) -> str:
    long = ("kind", "mattr", "num_threads")
    parts = [f"{name}={value}" for name, value in target.items() if name not in long and value]
    return " ".join([str(target.get("kind", "unknown")), *parts])


def _clock(ts: float) -> str:
    if not 0 < ts < 1e11:
        return ""
    return time.strftime(", %Y-%m-%d %H:%M UTC", time.gmtime(ts))


def _milliseconds(record: Record) -> str:
    return "-" if record.median is None else f"{record.median * 1e3:.4g} ms"


def _task(record: Record) -> str:
    return f"{record.op}({', '.join(map(str, record.args))})"


def _counted(count: int, name: str) -> str:
    return f"{count} {name}{'s' * (count != 1)}"

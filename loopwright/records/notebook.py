"""Logs and records in notebooks: HTML, and a table of pandas with a row for each record."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from loopwright.errors import UsageError
from loopwright.extras import install
from loopwright.presenting import counted, html_block, html_folded, html_table, html_text
from loopwright.records.bulk import fields_of
from loopwright.records.line import Json
from loopwright.records.log import Log, load
from loopwright.records.provenance import device_of
from loopwright.records.query import best, by_task
from loopwright.records.record import Record
from loopwright.records.reports.setups import task_text

if TYPE_CHECKING:
    import pandas as pd


#: A log, its path, or records of several logs.
RecordsLike: TypeAlias = "Log | str | os.PathLike[str] | Iterable[Record]"
KNOB = "config."  # before the name of a knob in the name of its column
#: Columns of text that has few different values.
_WORDS = (
    *("task", "op", "kind", "hardware", "cpu", "run", "error", "checked", "check_reason"),
    *("outcome", "phase", "dag", "space", "build"),
)
_TEXTS = ("id", "error_text", "program", "code", "same_as", "times_of")
_COUNTS = ("threads", "round", "trial", "windows")
_FIGURES = ("median_s", "min_s", "max_s", "build_s", "run_s", "max_error", "gain", "gain_margin")
_DTYPES = {
    **dict.fromkeys(_WORDS, "category"),
    **dict.fromkeys(_TEXTS, "object"),
    **dict.fromkeys(_FIGURES, "float64"),
    **dict.fromkeys(("usable", "dropped"), "bool"),
    "args": "object",
}
#: Fields that are read from the records.
_FIELDS = (
    *("id", "task", "op", "args", "target", "hardware", "threads", "round", "trial", "run", "seed"),
    *("env", "ts", "median", "times", "usable", "dropped", "error", "checked", "check_reason"),
    *("max_error", "build_s", "run_s", "verdict", "phase", "dag", "space", "build", "program"),
    *("code", "same_as", "times_of", "config"),
)


def to_dataframe(records: RecordsLike) -> pd.DataFrame:
    """A table of records for pandas, in their order.

    Times are seconds per call: ``median_s``, ``min_s`` and ``max_s`` of ``windows`` samples, all
    empty where a trial failed; then ``error`` is the kind of its failure and ``error_text`` its
    text. ``ts`` is when the trial ended. ``gain`` and ``gain_margin`` are those of a verdict. Each
    knob has a column ``config.NAME``, empty for records without that knob; the factors of a split
    are a tuple. Whole numbers, texts with few different values and answers of yes or no have the
    dtypes of pandas for them.

    Of 100 000 records it takes about two seconds. UsageError where pandas is not installed,
    RecordError where there is no log at the path, or it cannot be read.

    Example:
        >>> table = lw.records.to_dataframe("matmul.jsonl")
        >>> print(table.op.unique().tolist(), bool((table.median_s > 0).all()))
        ['matmul'] True
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise UsageError(
            "to_dataframe makes a table of pandas, which is not installed; "
            f"install it with: {install('pandas')}"
        ) from error
    if isinstance(records, str | os.PathLike):
        records = load(records)
    values = dict(zip(_FIELDS, fields_of(list(records), *_FIELDS), strict=True))
    columns = {name: _typed(name, column) for name, column in _columns(values).items()}
    return pd.DataFrame(columns)


def _columns(values: Mapping[str, list[Json]]) -> dict[str, list[Json]]:
    times = values["times"]
    errors = values["error"]
    verdicts = [verdict or {} for verdict in values["verdict"]]
    columns = {name: values[name] for name in ("id", "task", "op")}
    columns["args"] = _tuples(values["args"])
    columns["kind"] = [str(target.get("kind", "")) for target in values["target"]]
    columns |= {name: values[name] for name in ("hardware", "threads")}
    columns["cpu"] = [_of_type(str, env.get("cpu")) for env in values["env"]]
    columns |= {name: values[name] for name in ("round", "trial", "run", "seed", "ts")}
    columns["median_s"] = values["median"]
    columns["min_s"] = [min(t, default=None) for t in times]
    columns["max_s"] = [max(t, default=None) for t in times]
    columns["windows"] = list(map(len, times))
    columns |= {name: values[name] for name in ("usable", "dropped")}
    columns["error"] = [None if e is None else e.get("kind") for e in errors]
    columns["error_text"] = [None if e is None else e.get("text") for e in errors]
    columns["checked"] = list(map(str, values["checked"]))
    columns |= {name: values[name] for name in ("check_reason", "max_error", "build_s", "run_s")}
    columns["outcome"] = [_of_type(str, verdict.get("outcome")) for verdict in verdicts]
    columns["gain"] = [_of_type(float, verdict.get("gain")) for verdict in verdicts]
    columns["gain_margin"] = [_of_type(float, verdict.get("margin")) for verdict in verdicts]
    rest = ("phase", "dag", "space", "build", "program", "code", "same_as", "times_of")
    columns |= {name: values[name] for name in rest}
    return columns | _knobs(values["config"])


def _of_type(wanted: type, value: Json) -> Json:
    """A value if it has the type that its field should have: a log may hold anything."""
    return value if isinstance(value, wanted) else None


def _knobs(configs: Sequence[Mapping[str, Json]]) -> dict[str, list[Json]]:
    names = dict.fromkeys(name for config in configs for name in config)
    return {KNOB + name: _tuples([c.get(name) for c in configs]) for name in names}


def _tuples(column: Sequence[Json]) -> list[Json]:
    """A column with tuples in place of lists, so that pandas can group by it."""
    if not any(isinstance(value, list | tuple) for value in column):
        return list(column)
    # A log has few different values, and equal ones are mostly the same objects.
    tuples = {key: _tuple(value) for key, value in {id(v): v for v in column}.items()}
    return [tuples[id(value)] for value in column]


def _tuple(value: Json) -> Json:
    return tuple(map(_tuple, value)) if isinstance(value, list | tuple) else value


def _typed(name: str, values: list[Json]) -> pd.Series[Any]:
    import pandas as pd

    if name == "ts":
        # The clock of some logs says nothing, which is no moment of 1970.
        moments = [ts if ts else None for ts in values]
        times = pd.Series(moments, dtype="float64")
        return pd.to_datetime(times, unit="s", utc=True, errors="coerce")
    dtype = _DTYPES.get(name) or _dtype_of(values)
    if dtype == "category":
        values = _encodable(values)
    counts = name in _COUNTS and (dtype == "Int64" or not values)
    return pd.Series(values, dtype="int64" if counts else dtype)


def _encodable(words: Sequence[Json]) -> list[Json]:
    """Texts with lone surrogates escaped, since pandas cannot take them."""
    escaped = {
        word: word.encode("utf-8", "backslashreplace").decode() if isinstance(word, str) else None
        for word in set(words)
    }
    return [escaped[word] for word in words]


def _dtype_of(values: Sequence[Json]) -> str:
    """The dtype of a knob, or of a field of which only the values are known."""
    types = {type(value) for value in values if value is not None}
    if types == {bool}:
        return "boolean"
    if types == {int} and all(-(2**63) <= v < 2**63 for v in values if v is not None):
        return "Int64"
    if types and types <= {int, float}:
        return "Float64"
    return "category" if types == {str} else "object"


_TASKS = 20  # tasks of a log that are shown


def html_of_log(log: Log) -> str:
    """A table with one row for each task of a log: its best record."""
    groups = by_task(log)
    rows = [_row(group) for group in list(groups.values())[:_TASKS]]
    more = len(groups) - len(rows)
    parts = [html_table(rows, ("task", "records", "failed", "best", "record"))] if rows else []
    parts += [html_text(f"... and {more} more tasks")] if more else []
    parts += [html_text(log.complaint())] if log.skipped else []
    title = f"{log.path}: {counted(len(log), 'record')} of {counted(len(groups), 'task')}, "
    return html_block(title + counted(len(log.headers), "run"), *parts)


def html_of_record(record: Record) -> str:
    """A table of a record: its measurement, its knobs, and its machine."""
    knobs = html_table((name, json.dumps(value)) for name, value in record.config.items())
    steps = html_text("\n".join(json.dumps(step) for step in record.trace))
    return html_block(
        f"Record {record.id}: {task_text(record.op, record.args)}",
        html_table(_facts(record)),
        html_folded(counted(len(record.config), "knob"), knobs),
        html_folded(counted(len(record.trace), "step"), steps),
    )


def _row(records: list[Record]) -> tuple[object, ...]:
    (errors,) = fields_of(records, "error")
    winner = best(records)
    failed = len(errors) - errors.count(None)
    names = ("-", "-") if winner is None else (_milliseconds(winner), winner.id)
    return task_text(records[0].op, records[0].args), len(records), failed, *names


def _facts(record: Record) -> Iterator[tuple[str, object]]:
    if record.error is not None:
        yield "failed", f"{record.error.get('kind')}: {record.error.get('text')}"
    if record.times:
        low, high = (f"{t * 1e3:.4g}" for t in (min(record.times), max(record.times)))
        windows = counted(len(record.times), "window")
        rough = ", dropped as too slow" * record.dropped
        yield "time", f"{_milliseconds(record)} ({low} to {high} ms, {windows}{rough})"
    reason = f": {record.check_reason}" if record.check_reason else ""
    yield "answer", "checked" if record.checked == "yes" else f"not checked{reason}"
    dated = 0 < record.ts < 1e11
    when = time.strftime(", %Y-%m-%d %H:%M UTC", time.gmtime(record.ts)) if dated else ""
    yield "trial", f"{record.trial} of run {record.run or 'unknown'}{when}"
    long = ("kind", "mattr", "num_threads")
    options = [f"{n}={value}" for n, value in record.target.items() if n not in long and value]
    yield "target", " ".join([str(record.target.get("kind", "unknown")), *options])
    if device := device_of(record.env):
        name, kind = device.get("name") or "unknown", device.get("kind") or "a device"
        yield "hardware", f"{name} ({kind})"
    else:
        cpu = record.env.get("cpu") or "unknown"
        yield "hardware", f"{cpu}, threads: {record.threads or '?'}"


def _milliseconds(record: Record) -> str:
    return "-" if record.median is None else f"{record.median * 1e3:.4g} ms"

"""Sources of logs for ``apply_history_best``: paths, folders, open files, lines, records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from loopwright.errors import RecordError, UsageError
from loopwright.records import Log, Record, Store, load_lines, open_log


class HasRecord(Protocol):
    """An object that knows its record, as `loopwright.autotvm.record.load_from_file` yields it."""

    record: Record


#: One log, or a part of one. An open file, and an iterator of lines, are iterables of text.
Source: TypeAlias = str | bytes | os.PathLike[str] | Record | HasRecord | Log | Store


def logs_of(source: Source | Iterable[Any] | None) -> Iterator[Log]:
    """The logs of a source, which for a folder are all ``*.jsonl`` in it, and for None are none."""
    if source is None:
        return
    if isinstance(source, Log):
        yield source
    elif isinstance(source, Store):
        yield open_log(source.path)
    elif (record := _record(source)) is not None:
        yield _loose([record])
    elif isinstance(source, (str, os.PathLike)) and not _is_line(source):
        yield from map(open_log, _files(Path(source)))
    elif isinstance(source, (str, bytes)):
        yield load_lines([source])
    elif hasattr(source, "readline"):
        file = cast(Iterable[str | bytes], source)
        yield load_lines(file, str(getattr(source, "name", "an open file")))
    elif isinstance(source, Iterable):
        yield from _parts(source)
    else:
        raise _neither(source)


def _parts(source: Iterable[Any]) -> Iterator[Log]:
    """The logs of an iterable; its lines and loose records make up one log each."""
    lines: list[str | bytes] = []
    records: list[Record] = []
    for part in source:
        if _is_line(part):
            lines.append(part)
        elif (record := _record(part)) is not None:
            records.append(record)
        else:
            yield from logs_of(part)
    if lines:
        yield load_lines(lines)
    if records:
        yield _loose(records)


def _record(source: object) -> Record | None:
    own = source if isinstance(source, Record) else getattr(source, "record", None)
    return own if isinstance(own, Record) else None


def _is_line(source: object) -> bool:
    """Whether it is a line of a log, as a file yields it, and no path."""
    if isinstance(source, bytes):
        return True
    return isinstance(source, str) and (source.endswith("\n") or source.lstrip()[:1] in ("{", "#"))


def _loose(records: list[Record]) -> Log:
    return Log(Path("records"), records)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    # A pipe in a folder would be waited for.
    files = sorted(file for file in path.glob("*.jsonl") if file.is_file())
    if not files:
        raise RecordError(f"the folder {str(path)!r} holds no *.jsonl; name a log file")
    return files


def _neither(source: object) -> UsageError:
    return UsageError(
        "apply_history_best takes the path of a log or of a folder of *.jsonl, an open file, its "
        f"lines, records, a Log, a Store, or a list of these; got {source!r:.60}"
    )

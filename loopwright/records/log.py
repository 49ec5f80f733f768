"""Reading a log: every line that can be understood, and a count of those that cannot."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from loopwright.errors import RecordError
from loopwright.records import autotvm
from loopwright.records.json_value import Json
from loopwright.records.record import NotJsonError, Record, check_version, parse_line


class Skipped(NamedTuple):
    """A line that was not understood: its number, from 1, and why."""

    line: int
    reason: str


@dataclass
class Log:
    """What a file of records holds, in the order of its lines.

    Attributes:
        path: Where it was read from.
        records: The measurements.
        headers: The lines that open a run, as dictionaries.
        skipped: The lines that were not understood.
    """

    path: Path
    records: list[Record] = field(default_factory=list)
    headers: list[dict[str, Json]] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def complaint(self) -> str:
        """One line that says how many lines were skipped and why; empty when none was."""
        if not self.skipped:
            return ""
        reasons = Counter(item.reason for item in self.skipped)
        lines = "1 line" if len(self.skipped) == 1 else f"{len(self.skipped)} lines"
        first = self.skipped[0].line
        what = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(4))
        more = f"; {len(reasons) - 4} more reasons" if len(reasons) > 4 else ""
        return f"{self.path}: {lines} skipped, the first is line {first} ({what}{more})"


def load(path: str | os.PathLike[str]) -> Log:
    """Read a log of loopwright, or one of AutoTVM (version 0.2), or a mixture.

    Torn lines, lines of other programs and lines of a newer version are skipped and counted. Blank
    lines and lines that start with ``#`` are passed over.

    Args:
        path: The file.

    Returns:
        The records, headers and skipped lines.

    Raises:
        RecordError: the file does not exist or cannot be read.
    """
    log = Log(Path(path))
    try:
        _read(log)
    except FileNotFoundError as exc:
        raise RecordError(f"no log at {str(path)!r}; tune first, or check the path") from exc
    except IsADirectoryError as exc:
        raise RecordError(f"{str(path)!r} is a directory; name a log file") from exc
    except OSError as exc:
        raise RecordError(f"cannot read the log {str(path)!r}: {exc.strerror or exc}") from exc
    return log


def load_lines(lines: Iterable[str | bytes], name: str | None = None) -> Log:
    """Read the lines of a log that is open, or held in memory; see `load`.

    Args:
        lines: whole lines, such as an open file yields.
        name: what the log is called in what is said of it.
    """
    log = Log(Path(name or "lines of a log"))
    for number, raw in enumerate(lines, 1):
        _take(log, number, raw.encode() if isinstance(raw, str) else raw)
    return log


def _read(log: Log) -> None:
    with open(log.path, "rb") as file, _no_collector():
        for number, raw in enumerate(file, 1):
            _take(log, number, raw)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Pause the cyclic garbage collector: parsed JSON has no cycles, and looking for them took 5 of
    the 8 seconds of reading 100 000 records."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _take(log: Log, number: int, raw: bytes) -> None:
    line = raw.strip()
    if not line or line.startswith(b"#"):
        return
    try:
        data = parse_line(line)
        if autotvm.is_foreign(data):
            log.records.append(autotvm.read(data))
        elif "header" in data:
            check_version(data)
            log.headers.append(_header(data["header"]))
        else:
            log.records.append(Record.from_json(_shared(log, data)))
    except NotJsonError as exc:
        torn = line.startswith(b"{") or not raw.endswith(b"\n")
        log.skipped.append(Skipped(number, "torn line" if torn else str(exc)))
    except RecordError as exc:
        log.skipped.append(Skipped(number, str(exc)))


def _shared(log: Log, data: dict[str, Json]) -> dict[str, Json]:
    """Let a record share what it has in common with the one before: most of its size."""
    if not log.records:
        return data
    before = log.records[-1]
    for name in ("task", "target", "env"):
        if data.get(name) == getattr(before, name):
            data[name] = getattr(before, name)
    return data


def _header(data: object) -> dict[str, Json]:
    if not isinstance(data, dict):
        raise RecordError("field 'header' is not an object")
    return data

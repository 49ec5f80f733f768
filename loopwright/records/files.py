"""Logs from logs: only the best records, several logs as one, one log for each task.

A written file replaces the old one in one step, while a lock keeps others from appending to the old
one, so that no failure loses a measurement. The output may be one of the inputs where nothing of it
is left out.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeAlias

from loopwright.errors import RecordError, UsageError
from loopwright.files import LOCKS, destination, flock, replaced
from loopwright.records.foreign import is_lines, is_result
from loopwright.records.line import BEGINNING, BOM, MAX_LINE
from loopwright.records.log import (
    LOG,
    Log,
    check_has_records,
    check_is_log,
    lines_of,
    load,
    read_line,
    without_records,
)
from loopwright.records.query import by_task, kept
from loopwright.records.record import Record, header_line

AnyPath: TypeAlias = str | os.PathLike[str]
Announce: TypeAlias = Callable[[str], None]  # told what a person should know


def pick(
    sources: Sequence[AnyPath], out: AnyPath, k: int = 1, announce: Announce | None = None
) -> list[Record]:
    """Write a log of the best records of ``sources`` and of ``out``, if that exists.

    The lines that their rank rests on (see `kept`) and their expressions are written too; headers
    and comments are not. Returns the records that were written. RecordError where a log cannot be
    read or written, or there is nothing to write; ``out`` has lines that cannot be read, or is a
    source or the log of a run, whose measurements would be lost.

    Args:
        k: Number of records of each task, hardware (CPU and board) and number of threads.
        announce: Called with one line of text about skipped lines of the sources; None: not
            reported.

    Example:
        >>> picked = lw.records.pick(["matmul.jsonl"], "best.jsonl")
        >>> print(len(lw.records.load("best.jsonl").records) == len(picked))
        True
    """
    with _replaced(out) as file:
        logs = [*(_load_log(path, announce) for path in sources), *_own(out, sources)]
        chosen = kept([record for log in logs for record in log], k)
        count = sum(map(len, logs))
        if not count:
            raise RecordError(without_records(logs[0]))
        if not chosen:
            names = ", ".join(str(log.path) for log in logs)
            raise RecordError(
                f"{names}: no usable record among {count}, all failed or were dropped; `loopwright "
                f"records errors {logs[0].path}` shows why"
            )
        _check_keeps(out, sources, chosen)
        _write(file, logs, chosen)
    return chosen


def pick_best(source: AnyPath, out: AnyPath) -> list[Record]:
    """Write a log of the best of ``source`` and ``out``: `pick`, and its errors, as in AutoTVM.

    Example:
        >>> picked = lw.records.pick_best("matmul.jsonl", "best.jsonl")
        >>> print(len(lw.records.load("best.jsonl").records) == len(picked))
        True
    """
    return pick([source], out)


def distill_file(
    sources: Sequence[AnyPath], out: AnyPath, k: int = 1, announce: Announce | None = None
) -> list[Record]:
    """Write a log of the best records of ``sources`` alone; arguments and result as of `pick`.

    RecordError, too, where ``out`` exists, and is none of the sources.

    Example:
        >>> print(len(lw.records.distill_file(["matmul.jsonl"], "best.jsonl")) >= 1)
        True
    """
    if os.path.exists(out) and not _is_among(out, sources):
        raise RecordError(f"{os.fspath(out)!r} exists; remove it, or add to it with `pick`")
    return pick(sources, out, k, announce)


def merge(sources: Sequence[AnyPath], out: AnyPath) -> tuple[int, int]:
    """Write a log of all lines of ``sources`` and of ``out``, if that exists; equal ones once.

    Lines are copied as they are, so that those of a newer version, or damaged ones, are not lost.
    Returns the number of lines written, and the number left out as duplicates. RecordError where a
    log cannot be read or written, or one holds nothing that is a record.

    Example:
        >>> written, left_out = lw.records.merge(["matmul.jsonl", "matmul.jsonl"], "all.jsonl")
        >>> print(written > 0, left_out > 0)
        True True
    """
    seen: set[bytes] = set()
    count = 0
    with _replaced(out) as file:
        existing = [] if _is_among(out, sources) or not os.path.exists(out) else [out]
        for path in [*existing, *sources]:
            _load_log(path)
            for line in _raw_lines(path):
                count += 1
                digest = hashlib.sha256(line).digest()
                if digest not in seen:
                    seen.add(digest)
                    file.write(line + b"\n")
    return len(seen), count - len(seen)


def split(source: AnyPath, folder: AnyPath, announce: Announce | None = None) -> dict[Path, int]:
    """Write the records of each task of a log into a file of its own in ``folder``, with their
    expressions and the headers of their runs. A record that such a file holds already is not added
    again; ``announce`` gets one line of text about skipped lines.

    RecordError where the log cannot be read or holds no record, or a file cannot be written.

    Returns:
        The number of records in each file.

    Example:
        >>> files = lw.records.split("matmul.jsonl", "by_task")
        >>> print(len(files), list(files.values())[0] > 0)
        1 True
    """
    log = _load_log(source, announce)
    check_has_records(log)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise RecordError(f"cannot make the folder {str(folder)!r}: {exc.strerror}") from exc
    counts = {}
    for key, records in by_task(log).items():
        # A readable name that no other task has, such as ``matmul_16x16_3fa2b1c0.jsonl``.
        first = records[0]
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", first.op).strip(".")[:60] or "task"
        sizes = "x".join(str(arg) for arg in first.args if type(arg) is int)[:60]
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        path = folder / ("_".join(filter(None, [name, sizes, digest])) + ".jsonl")
        with _replaced(path) as file:
            existing = _own(path, ())
            lines = {record.to_line(): record for part in existing for record in part}
            lines |= {record.to_line(): record for record in records}
            _write(file, [*existing, log], list(lines.values()), headers=True)
        counts[path] = len(lines)
    return counts


def _load_log(path: AnyPath, announce: Announce | None = None) -> Log:
    log = load(path)
    check_is_log(log)
    if announce is not None and log.records and (complaint := log.complaint()):
        announce(complaint)
    return log


def _own(out: AnyPath, sources: Sequence[AnyPath]) -> list[Log]:
    """The log that is about to be overwritten, unless it is a source; it must be fully readable."""
    if not os.path.exists(out):
        return []
    log = load(out)
    if log.skipped:
        raise RecordError(f"{log.complaint()}; they would be lost: give another file to write to")
    return [] if _is_among(out, sources) else [log]


def _check_keeps(out: AnyPath, sources: Sequence[AnyPath], chosen: Sequence[Record]) -> None:
    """Refuse to leave measurements out of a log that may have been chosen by mistake; in a file
    that `pick` wrote, without headers and no source, better records replace good ones.
    """
    if not os.path.exists(out):
        return
    log, ids = load(out), {record.id for record in chosen}
    lost = sum(record.id not in ids for record in log)
    if lost and (log.headers or _is_among(out, sources)):
        raise RecordError(
            f"{os.fspath(out)!r} has measurements, of which {lost} would be lost: give another "
            "file to write to"
        )


def _is_among(path: AnyPath, others: Iterable[AnyPath]) -> bool:
    there = os.path.exists(path)
    return there and any(os.path.exists(o) and os.path.samefile(path, o) for o in others)


def _write(
    file: BinaryIO, logs: Sequence[Log], records: Sequence[Record], *, headers: bool = False
) -> None:
    """Write records, each expression before the first one that names it."""
    if headers:
        runs = {record.run for record in records}
        headed = ((h.get("run"), h) for log in logs for h in log.headers)
        opened = [h for run, h in headed if isinstance(run, str | None) and run in runs]
        file.writelines(f"{line}\n".encode() for line in dict.fromkeys(map(header_line, opened)))
    written: set[str] = set()
    for record in records:
        for expression in (e for log in logs for e in log.dags.get(record.dag, [])):
            if expression.identity not in written:
                written.add(expression.identity)
                file.write(f"{expression.to_line()}\n".encode())
        file.write(f"{record.to_line()}\n".encode())


def _raw_lines(path: AnyPath) -> Iterator[bytes]:
    with open(path, "rb") as file:
        if not is_lines(file.peek(BEGINNING)):
            yield from filter(None, map(_own_line, lines_of(file)))
            return
        raw = file.readline(MAX_LINE).removeprefix(BOM)
        while raw:
            if line := raw.rstrip(b"\r\n"):
                yield line
            raw = file.readline(MAX_LINE)


def _own_line(raw: bytes) -> bytes:
    """A line as it is, without its newline; a result of another tuner as a line of a record."""
    with suppress(RecordError):
        if is_result(raw) and isinstance(record := read_line(raw), Record):
            return record.to_line().encode()
    return raw.rstrip(b"\r\n")


@contextmanager
def _replaced(path: AnyPath) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path`` when the block ends without an error; a `Store` that
    appends to the old file waits, and goes on with the new one.
    """
    try:
        target = destination(Path(path), LOG, force=None)
        with _locked(target), replaced(target) as file:
            yield file
    except UsageError as exc:
        raise RecordError(str(exc)) from None
    except OSError as exc:
        raise RecordError(f"cannot write {os.fspath(path)}: {exc.strerror or exc}") from exc


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep others from appending to a file, which may be replaced while this waits for them."""
    while LOCKS and path.exists():
        with path.open("rb") as file:
            flock(file.fileno())
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield
                return
    yield

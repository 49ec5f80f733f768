"""Records with an index: their long fields are parsed from the line on first access."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from loopwright.errors import RecordError
from loopwright.records.index.block import Block, parse
from loopwright.records.index.columns import COLUMNS, LONG, PROPERTIES, agrees
from loopwright.records.json_value import Json
from loopwright.records.line import BOM
from loopwright.records.record import Record


class LogFile:
    """A log that stays open for reading as long as a record of it is in use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)

    @property
    def size(self) -> int:
        """Present length in bytes."""
        return os.fstat(self._fd).st_size

    def read(self, start: int, length: int) -> bytes:
        """Bytes from ``start``; fewer only at the end of the file."""
        parts, left = [], length
        while left and (part := os.pread(self._fd, left, start + length - left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


class StoredBlock:
    """A block with its log.

    ``values`` holds one value for each record, by field or property.
    """

    def __init__(self, file: LogFile, block: Block) -> None:
        self.file, self.block = file, block
        self.values = _Values(self)

    def records(self) -> Iterable[StoredRecord]:
        return (StoredRecord.at(self, row) for row in range(self.block.count))

    def column(self, name: str) -> list[Json]:
        """The values of one field or property; raises a RecordError for a malformed index."""
        try:
            return self.block.values[name]
        except RecordError as exc:
            raise RecordError(f"{exc}; {self._remedy()}") from exc

    def parsed(self, row: int) -> Record:
        """The record in a row, parsed from its line.

        Raises a RecordError where the log cannot be read any more, or the line differs from what
        the index held when the log was opened.
        """
        path, block = self.file.path, self.block
        position = block.positions[row]
        begin = block.begins[position]
        try:
            line = self.file.read(begin, block.lengths[position])
            record = parse(line.removeprefix(BOM) if begin == 0 else line)
        except OSError as exc:
            raise RecordError(f"cannot read the log {str(path)!r}: {exc.strerror or exc}") from exc
        if record is None or not agrees(self.values, COLUMNS, row, record):
            raise RecordError(
                f"{path}: the line at byte {begin} is not what its index says: the log was changed "
                f"just now, or somebody else made the index; {self._remedy()}"
            )
        return record

    def lines(self, rows: Sequence[int]) -> list[bytes]:
        """The lines of some rows as they are in the log, with their newlines."""
        block = self.block
        try:
            data = self.file.read(block.start, block.end - block.start)
        except OSError as exc:
            path = str(self.file.path)
            raise RecordError(f"cannot read the log {path!r}: {exc.strerror or exc}") from exc
        begins = [block.begins[block.positions[row]] - block.start for row in rows]
        ends = [at + block.lengths[block.positions[r]] for at, r in zip(begins, rows, strict=True)]
        return [data[begin:end] for begin, end in zip(begins, ends, strict=True)]

    def _remedy(self) -> str:
        return f"remove {str(index_path(self.file.path))!r} and run the same command again"


class _Values(dict[str, list[Json]]):
    """Values of columns, each put in on first access."""

    def __init__(self, block: StoredBlock) -> None:
        self._column = block.column

    def __missing__(self, name: str) -> list[Json]:
        values = self[name] = self._column(name)
        return values


class StoredRecord(Record):
    """A record of a log with an index.

    Its trace, and fields of other versions, are parsed from the line on first access, and all other
    fields are then compared with those of the index.
    """

    _place: tuple[StoredBlock, int]

    @classmethod
    def at(cls, block: StoredBlock, row: int) -> StoredRecord:
        record = object.__new__(cls)
        object.__setattr__(record, "_place", (block, row))
        return record

    def __reduce__(self) -> tuple[Callable[[str], Record], tuple[str]]:
        return Record.from_line, (self.to_line(),)


class _Known:
    """A field or property of a stored record that the index holds."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._computed = vars(Record).get(name) if name in PROPERTIES else None

    def __get__(self, record: StoredRecord | None, owner: type | None = None) -> Any:
        if record is None:
            return self
        try:
            block, row = record._place
        except AttributeError:
            # A copy with other fields (``dataclasses.replace``) is no row of an index.
            assert self._computed is not None
            return self._computed.__get__(record, owner)
        return block.values[self._name][row]


class _Long:
    """A field that only the line holds."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, record: StoredRecord | None, owner: type | None = None) -> Any:
        if record is None:
            return self
        block, row = record._place
        parsed = block.parsed(row)
        for name in LONG:
            object.__setattr__(record, name, getattr(parsed, name))
        return getattr(parsed, self._name)


for _name in COLUMNS:
    setattr(StoredRecord, _name, _Known(_name))
for _name in LONG:
    setattr(StoredRecord, _name, _Long(_name))


def index_path(log: Path) -> Path:
    """The file of a log's index: ``.NAME.index`` beside it."""
    return log.with_name(f".{log.name}.index")

"""A block of a log: some whole lines, and the values that the index keeps of them."""

from __future__ import annotations

import functools
import hashlib
import io
import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from loopwright.errors import RecordError
from loopwright.records.failures.kind import ErrorKind
from loopwright.records.index.columns import (
    CHOOSING,
    COLUMNS,
    NESTED,
    agrees,
    can_be_kept,
    columns_of,
)
from loopwright.records.index.encoding import Values, decode, first_rows
from loopwright.records.json_value import Json
from loopwright.records.line import BOM
from loopwright.records.log import Log, take_line
from loopwright.records.record import Record

#: Parts of lines that exclude a candidate: wrong answers, and failures when it was measured again,
#: which are records of a phase.
_REFUTING = (ErrorKind.WRONG_ANSWER.encode(), b'"phase":')
#: The part of a block in the file with the length of each line.
_LENGTHS = "lengths"


@dataclass(frozen=True)
class Block:
    """The bytes ``start`` to ``end`` of a log, whole lines, with their values in the index."""

    start: int
    end: int
    digest: str  # SHA-256 of the bytes
    lengths: Sequence[int]  # bytes of each line, with its newline
    #: Ascending numbers of the lines that are no records, or that the index cannot keep.
    others: Sequence[int]
    #: Encoded values, one for each record, by the name of the field or property.
    columns: Mapping[str, bytes | memoryview]
    known: Values = field(repr=False)  # values that the blocks of the log share

    @classmethod
    def of(cls, path: Path, start: int, data: bytes, known: Values) -> Block:
        """Parse lines; ``data`` ends with a newline."""
        log = Log(path)
        lengths, others = [], []
        for position, raw in enumerate(io.BytesIO(data)):
            lengths.append(len(raw))
            before = len(log.records)
            first = start == 0 and position == 0
            take_line(log, position, raw.removeprefix(BOM) if first else raw)
            if len(log.records) == before:
                others.append(position)
            elif not can_be_kept(log.records[-1]):
                others.append(position)
                log.records.pop()
        digest = hashlib.sha256(data).hexdigest()
        columns = columns_of(log.records)
        return cls(start, start + len(data), digest, lengths, others, columns, known)

    @property
    def count(self) -> int:
        return len(self.lengths) - len(self.others)

    @functools.cached_property
    def values(self) -> Mapping[str, list[Json]]:
        """The values of each column, one for each record.

        A malformed column, made by another program, raises a RecordError when it is first read.
        """
        return _Decoded(self)

    @functools.cached_property
    def begins(self) -> list[int]:
        """Offset of each line in the log."""
        return list(accumulate(self.lengths[:-1], initial=self.start))

    @functools.cached_property
    def positions(self) -> list[int]:
        """Line number of each record within the block."""
        others = set(self.others)
        return [position for position in range(len(self.lengths)) if position not in others]

    # -- the form in the file -------------------------------------------------------------------

    def to_parts(self) -> tuple[bytes, bytes]:
        """The form in the file: a JSON object, and the bytes of the columns."""
        parts = {_LENGTHS: array("Q", self.lengths).tobytes(), **self.columns}
        data = {
            "start": self.start,
            "end": self.end,
            "digest": self.digest,
            "others": list(self.others),
            "parts": {name: len(part) for name, part in parts.items()},
        }
        return json.dumps(data, separators=(",", ":")).encode("ascii"), b"".join(parts.values())

    @classmethod
    def from_parts(cls, head: bytes, body: memoryview, known: Values) -> Block:
        """Read the result of `to_parts`; raises a RecordError where it is malformed."""
        try:
            data = json.loads(head)
            start, end, digest, others = (data[n] for n in ("start", "end", "digest", "others"))
            parts = _cut(data["parts"], body)
            lengths = array("Q")
            lengths.frombytes(parts.pop(_LENGTHS))
            whole = {type(start), type(end), *map(type, others)} == {int} and start >= 0
            whole = whole and min(lengths) > 0 and sum(lengths) == end - start
            inside = set(others) <= set(range(len(lengths))) and others == sorted(set(others))
        except (ValueError, TypeError, KeyError, RecursionError) as exc:
            raise RecordError("a block of the index is malformed") from exc
        if not whole or not inside or set(parts) != set(COLUMNS):
            raise RecordError("a block of the index is malformed")
        return cls(start, end, digest, lengths, others, parts, known)

    # -- against the log ------------------------------------------------------------------------

    def fits(self, data: bytes, confirmed: set[tuple[str, bytes]]) -> bool:
        """Whether the log still has the lines of this block at its place.

        Lines that contain a wrong answer or a later failure are parsed and compared, and so is one
        line for each value that has parts; ``confirmed`` collects the columns and values that were
        compared. So a forged file cannot hide that a candidate was refuted, nor bring in a value of
        another form, nor leave out a line: each ends where a line of the log does, and all that it
        calls no record is parsed.
        """
        if len(data) != self.end - self.start or data.count(b"\n") != len(self.lengths):
            return False
        ends = [end - self.start - 1 for end in (*self.begins[1:], self.end)]
        if set(map(data.__getitem__, ends)) != {ord("\n")}:
            return False
        if hashlib.sha256(data).hexdigest() != self.digest:
            return False
        try:
            fresh = self._unconfirmed(confirmed)
            rows = {*fresh.values(), *self._refuting(data)}
            if not all(self._is_true(data, row) for row in rows):
                return False
        except RecordError:
            return False
        confirmed.update(fresh)
        return True

    def _line(self, data: bytes, position: int) -> bytes:
        at = self.begins[position] - self.start
        return data[at : at + self.lengths[position]]

    def _is_true(self, data: bytes, row: int) -> bool:
        record = parse(self._line(data, self.positions[row]))
        return record is not None and agrees(self.values, CHOOSING, row, record)

    def _unconfirmed(self, confirmed: set[tuple[str, bytes]]) -> dict[tuple[str, bytes], int]:
        """One row for each value with parts that has not been compared with a line yet."""
        return {
            (name, text): row
            for name in NESTED
            for text, row in first_rows(name, memoryview(self.columns[name]), self.count).items()
            if (name, text) not in confirmed
        }

    def _refuting(self, data: bytes) -> set[int]:
        """Rows that exclude a candidate, by the index or by words of their lines."""
        rows = {row for row, wrong in enumerate(self.values["wrong"]) if wrong}
        if any(word in data for word in _REFUTING):
            lines = map(functools.partial(self._line, data), self.positions)
            rows.update(row for row, line in enumerate(lines) if any(w in line for w in _REFUTING))
        return rows


class _Decoded(dict[str, list[Json]]):
    """Values of columns, each decoded on first access."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self._columns, self._count, self._known = block.columns, block.count, block.known

    def __missing__(self, name: str) -> list[Json]:
        data = memoryview(self._columns[name])
        values = self[name] = decode(name, data, self._count, self._known)
        return values


def _cut(sizes: Mapping[str, int], body: memoryview) -> dict[str, memoryview]:
    """The parts of a body by name; raises ValueError or TypeError where they do not fill it."""
    if type(sizes) is not dict:
        raise TypeError("the parts have no names")
    parts, at = {}, 0
    for name, size in sizes.items():
        if type(size) is not int or size < 0:
            raise ValueError(name)
        parts[name] = body[at : at + size]
        at += size
    if at != len(body):
        raise ValueError("the parts are not the whole")
    return parts


def parse(line: bytes) -> Record | None:
    """The record of a line; None where it is none."""
    log = Log(Path())
    take_line(log, 1, line)
    return log.records[0] if log.records else None

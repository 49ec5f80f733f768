"""A block of a log: some whole lines, and what the index knows of them."""

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

#: What the lines contain that take a candidate out: wrong answers, and failures when it was
#: measured again, which are records of a phase.
_REFUTING = (ErrorKind.WRONG_ANSWER.encode(), b'"phase":')
#: The part of a block in the file that says how long each line is.
_LENGTHS = "lengths"


@dataclass(frozen=True)
class Block:
    """What is known of the bytes ``start`` to ``end`` of a log, which are whole lines.

    Attributes:
        start, end: where in the log.
        digest: SHA-256 of those bytes.
        lengths: of every line, its newline included.
        others: which of the lines are no records, or such that the index cannot keep; ascending.
        columns: a value for each record, encoded, by the name of the field or property.
        known: the values of the log, which its blocks share.
    """

    start: int
    end: int
    digest: str
    lengths: Sequence[int]
    others: Sequence[int]
    columns: Mapping[str, bytes | memoryview]
    known: Values = field(repr=False)

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
        """How many records it has."""
        return len(self.lengths) - len(self.others)

    @functools.cached_property
    def values(self) -> Mapping[str, list[Json]]:
        """The values of each column, one for each record.

        Raises:
            RecordError: of a column when it is first asked for: somebody else made the index, and
                it is malformed.
        """
        return _Decoded(self)

    @functools.cached_property
    def begins(self) -> list[int]:
        """Where each line begins in the log."""
        return list(accumulate(self.lengths[:-1], initial=self.start))

    @functools.cached_property
    def positions(self) -> list[int]:
        """Of each record: which line of the block it is."""
        others = set(self.others)
        return [position for position in range(len(self.lengths)) if position not in others]

    # -- the form in the file -------------------------------------------------------------------

    def to_parts(self) -> tuple[bytes, bytes]:
        """The form in the file: an object of JSON, and the bytes of the columns."""
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
        """Read what `to_parts` gave, or somebody else made.

        Raises:
            RecordError: it is malformed.
        """
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
        """Whether the bytes of the log at its place are those that were read, line by line.

        Lines that speak of a wrong answer or a later failure are parsed and compared, and so is a
        line for each value that has parts. So a file that somebody prepared cannot hide that a
        candidate was refuted, nor bring in a value of another form; nor leave out a line, since
        each ends where a line of the log does, and what it calls no record is parsed in any case.

        Args:
            data: the bytes.
            confirmed: columns and values with parts that a line of the log holds; those of this
                block are added.
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
        """A row for each value with parts that no line was compared with yet."""
        return {
            (name, text): row
            for name in NESTED
            for text, row in first_rows(name, memoryview(self.columns[name]), self.count).items()
            if (name, text) not in confirmed
        }

    def _refuting(self, data: bytes) -> set[int]:
        """Rows that take a candidate out by the index or by words of their lines."""
        rows = {row for row, wrong in enumerate(self.values["wrong"]) if wrong}
        if any(word in data for word in _REFUTING):
            lines = map(functools.partial(self._line, data), self.positions)
            rows.update(row for row, line in enumerate(lines) if any(w in line for w in _REFUTING))
        return rows


class _Decoded(dict[str, list[Json]]):
    """The values of columns, each put in when it is first asked for."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self._columns, self._count, self._known = block.columns, block.count, block.known

    def __missing__(self, name: str) -> list[Json]:
        data = memoryview(self._columns[name])
        values = self[name] = decode(name, data, self._count, self._known)
        return values


def _cut(sizes: Mapping[str, int], body: memoryview) -> dict[str, memoryview]:
    """The parts of a body by name.

    Raises:
        ValueError, TypeError: they do not fill the body.
    """
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
    """The record of a line, or None where it is none."""
    log = Log(Path())
    take_line(log, 1, line)
    return log.records[0] if log.records else None

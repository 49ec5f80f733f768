"""A block of a log: some whole lines, and what the index knows of them."""

from __future__ import annotations

import functools
import hashlib
import io
import json
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from loopwright.errors import RecordError
from loopwright.records.error_kind import ErrorKind
from loopwright.records.index.columns import (
    CHOOSING,
    DESCRIBING,
    NESTED,
    Column,
    Columns,
    agrees,
    can_be_kept,
    columns_of,
    read_columns,
    write_columns,
)
from loopwright.records.json_value import Json
from loopwright.records.log import BOM, Log, take_line
from loopwright.records.record import Record

#: What the lines contain that take a candidate out: wrong answers, and failures when it was
#: measured again, which are records of a phase.
_REFUTING = (ErrorKind.WRONG_ANSWER.encode(), b'"phase":')


@dataclass(frozen=True)
class Block:
    """What is known of the bytes ``start`` to ``end`` of a log, which are whole lines.

    Attributes:
        start, end: where in the log.
        digest: SHA-256 of those bytes.
        lengths: of every line, its newline included.
        others: which of the lines are no records, or such that the index cannot keep; ascending.
        choosing: the columns by which records are chosen.
        description: the text of the other columns.
    """

    start: int
    end: int
    digest: str
    lengths: list[int]
    others: list[int]
    choosing: Columns
    description: bytes

    @classmethod
    def of(cls, path: Path, start: int, data: bytes) -> Block:
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
        columns = columns_of(log.records)
        return cls(
            start,
            start + len(data),
            hashlib.sha256(data).hexdigest(),
            lengths,
            others,
            {name: columns[name] for name in CHOOSING},
            _dumped(write_columns(columns, DESCRIBING)),
        )

    @property
    def count(self) -> int:
        """How many records it has."""
        return len(self.lengths) - len(self.others)

    @functools.cached_property
    def describing(self) -> Columns:
        """The columns that are not needed to choose records.

        Raises:
            RecordError: they are malformed.
        """
        return read_columns(_loaded(self.description), DESCRIBING, self.count)

    def column(self, name: str) -> Column:
        """The values of one field or property."""
        return self.choosing[name] if name in self.choosing else self.describing[name]

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

    def to_text(self) -> bytes:
        """One line of JSON; ``description`` is another."""
        data = {
            "start": self.start,
            "end": self.end,
            "digest": self.digest,
            "lengths": self.lengths,
            "others": self.others,
            "choosing": write_columns(self.choosing, CHOOSING),
            "description": hashlib.sha256(self.description).hexdigest(),
        }
        return _dumped(data)

    @classmethod
    def from_text(cls, text: bytes, description: bytes) -> Block:
        """Read what `to_text` wrote, or somebody else.

        Raises:
            RecordError: it is malformed, or the description is that of another block.
        """
        data = _loaded(text)
        try:
            start, end, digest = data["start"], data["end"], data["digest"]
            lengths, others = data["lengths"], data["others"]
            numbers = {type(start), type(end), *map(type, lengths), *map(type, others)}
            whole = numbers == {int} and start >= 0 and min(lengths) > 0
            inside = set(others) <= set(range(len(lengths))) and others == sorted(set(others))
            whole = whole and inside and sum(lengths) == end - start
            whole = whole and data["description"] == hashlib.sha256(description).hexdigest()
            if not whole:
                raise RecordError("a block of the index is malformed")
            choosing = read_columns(data["choosing"], CHOOSING, len(lengths) - len(others))
        except (ValueError, TypeError, KeyError) as exc:
            raise RecordError("a block of the index is malformed") from exc
        return cls(start, end, digest, lengths, others, choosing, description)

    # -- against the log ------------------------------------------------------------------------

    def fits(self, data: bytes) -> bool:
        """Whether the bytes of the log at its place are those that were read, line by line.

        Lines that speak of a wrong answer or a later failure are parsed and compared, and so is a
        line for each value that has parts. So a file that somebody prepared cannot hide that a
        candidate was refuted, nor bring in a value of another form; nor leave out a line, since
        what it calls no record is parsed in any case.
        """
        if len(data) != self.end - self.start or data.count(b"\n") != len(self.lengths):
            return False
        if hashlib.sha256(data).hexdigest() != self.digest:
            return False
        return all(self._is_true(data, row) for row in self._doubtful(data))

    def _line(self, data: bytes, position: int) -> bytes:
        at = self.begins[position] - self.start
        return data[at : at + self.lengths[position]]

    def _is_true(self, data: bytes, row: int) -> bool:
        record = parse(self._line(data, self.positions[row]))
        return record is not None and agrees(self.choosing, row, record)

    def _doubtful(self, data: bytes) -> set[int]:
        """Rows that are compared with their lines."""
        rows: set[int] = set()
        for name in NESTED:
            rows.update(self.choosing[name].rows_of_values())
        wrong = self.choosing["wrong"]
        if any(wrong.values):
            rows.update(row for row in range(self.count) if wrong[row])
        if any(word in data for word in _REFUTING):
            lines = map(functools.partial(self._line, data), self.positions)
            rows.update(row for row, line in enumerate(lines) if any(w in line for w in _REFUTING))
        return rows


def parse(line: bytes) -> Record | None:
    """The record of a line, or None where it is none."""
    log = Log(Path())
    take_line(log, 1, line)
    return log.records[0] if log.records else None


def _dumped(data: Json) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode("ascii")


def _loaded(text: bytes) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise RecordError("a block of the index is not JSON") from exc

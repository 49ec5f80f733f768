"""A block of a log: some whole lines, the values that the index keeps of them, and its records.

The index has a column for each field of records, except the longest, which are parsed from the line
on first access. Floats are in the form of the machine, the rest is JSON; the first byte of a column
names its form. Reading one never executes anything; whatever its bytes are, it gives values of the
types that the field has, or a `RecordError`.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import math
import os
import weakref
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate, chain, islice, repeat
from pathlib import Path
from typing import Any

from loopwright.errors import RecordError
from loopwright.records.error_kinds import ErrorKind
from loopwright.records.line import BOM, Json
from loopwright.records.log import Log, take_line
from loopwright.records.record import Checked, Record

#: Types of values; other fields are text.
_TYPES: dict[str, frozenset[type]] = {
    **dict.fromkeys(("round", "trial", "v", "threads"), frozenset({int})),
    **dict.fromkeys(("build_s", "run_s", "prepare_s", "ts"), frozenset({int, float})),
    **dict.fromkeys(("median", "max_error"), frozenset({int, float, type(None)})),
    **dict.fromkeys(("dropped", "valid", "usable", "wrong", "failed_again"), frozenset({bool})),
    **dict.fromkeys(("target", "env"), frozenset({dict})),
    **dict.fromkeys(("error", "resources", "verdict"), frozenset({dict, type(None)})),
    **dict.fromkeys(("args", "names"), frozenset({list})),
    "seed": frozenset({int, type(None)}),
}
_TEXT: frozenset[type] = frozenset({str})
#: Columns in which hardly a value occurs twice: of texts and whole numbers, and of floats.
_UNIQUE = ("id", "candidate", "program", "code", "trial", "round")
_FLOATS = ("median", "ts", "build_s", "run_s")

#: Forms: a list as JSON; doubles, with NaN for null; the distinct values with the index of each
#: record's value among them, in a byte or in four; times; knobs.
_JSON, _DOUBLES, _FEW, _MANY, _TIMES, _CONFIGS = b"j", b"d", b"B", b"I", b"T", b"C"


class SharedValues(dict[bytes, Json]):
    """Values by their JSON text, so that the columns of a log share equal ones."""

    def __missing__(self, text: bytes) -> Json:
        value = self[text] = json.loads(text)
        return value


def text_of(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"))


def encode(name: str, values: Sequence[Json]) -> bytes:
    if name == "times":
        counts = array("I", map(len, values))
        return _TIMES + counts.tobytes() + array("d", chain.from_iterable(values)).tobytes()
    if name == "config":
        names = _encode_table([list(config) for config in values])
        own = _encode_table(list(chain.from_iterable(config.values() for config in values)))
        return _CONFIGS + array("Q", [len(names)]).tobytes() + names + own
    if name in _FLOATS and all(v is None or (type(v) is float and v == v) for v in values):
        return _DOUBLES + array("d", (math.nan if v is None else v for v in values)).tobytes()
    if name in _UNIQUE or name in _FLOATS:
        return _JSON + text_of(values).encode("ascii")
    return _encode_table(values)


def _encode_table(values: Sequence[Json]) -> bytes:
    # Equal objects are often one object, since lines share what they have in common.
    texts = {key: text_of(value) for key, value in {id(v): v for v in values}.items()}
    places = {text: place for place, text in enumerate(sorted(set(texts.values())))}
    form = _FEW if len(places) <= 256 else _MANY
    table = array(form.decode(), [places[texts[id(value)]] for value in values])
    return form + table.tobytes() + "\n".join(places).encode("ascii")


def decode(name: str, data: memoryview, count: int, known: SharedValues) -> list[Json]:
    """Decode a column; raises a RecordError unless it has ``count`` values of its field's types."""
    try:
        values = _READERS[bytes(data[:1])](name, data, count, known)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, RuntimeError) as exc:
        raise RecordError(f"column {name!r} of the index is malformed") from exc
    if len(values) != count:
        raise RecordError(f"column {name!r} of the index is malformed")
    return values


def first_rows(name: str, data: memoryview, count: int) -> dict[bytes, int]:
    """One row for each distinct value, by its text; RecordError where the column is no table."""
    if bytes(data[:1]) not in (_FEW, _MANY):
        raise RecordError(f"column {name!r} of the index is malformed")
    places, texts = _places_and_texts(data, count)
    return {texts[place]: places.index(place) for place in set(places) if place < len(texts)}


def _places_and_texts(data: memoryview, count: int) -> tuple[array[int], list[bytes]]:
    places = array(bytes(data[:1]).decode())
    end = 1 + count * places.itemsize
    places.frombytes(data[1:end])
    return places, bytes(data[end:]).split(b"\n") if count else []


def _checked_types(name: str, values: Sequence[Json]) -> Sequence[Json]:
    """The values as records have them; raises TypeError or ValueError for another type."""
    if not set(map(type, values)) <= _TYPES.get(name, _TEXT):
        raise TypeError(name)
    if name == "names" and not set(map(type, chain.from_iterable(values))) <= _TEXT:
        raise TypeError(name)
    if name == "error":
        parts = chain.from_iterable(error.values() for error in values if error is not None)
        if not set(map(type, parts)) <= _TEXT:
            raise TypeError(name)
    return list(map(Checked, values)) if name == "checked" else values


def _read_table(name: str, data: memoryview, count: int, known: SharedValues) -> list[Json]:
    places, texts = _places_and_texts(data, count)
    values = _checked_types(name, [known[text] for text in texts])
    return list(map(values.__getitem__, places))


def _read_json(name: str, data: memoryview, count: int, known: SharedValues) -> list[Json]:
    values = json.loads(bytes(data[1:]))
    if type(values) is not list:
        raise TypeError(name)
    return list(_checked_types(name, values))


def _read_doubles(name: str, data: memoryview, count: int, known: SharedValues) -> list[Json]:
    numbers = array("d")
    numbers.frombytes(data[1:])
    values: list[Json] = numbers.tolist()
    if any(map(math.isnan, numbers)):
        values = [None if math.isnan(value) else value for value in values]
    _checked_types(name, values)
    return values


def _read_times(name: str, data: memoryview, count: int, known: SharedValues) -> list[Json]:
    counts, times = array("I"), array("d")
    end = 1 + count * counts.itemsize
    counts.frombytes(data[1:end])
    times.frombytes(data[end:])
    if sum(counts) != len(times) or name != "times":
        raise ValueError(name)
    parts = map(islice, repeat(iter(times)), counts)
    return [tuple(part) for part in parts]


def _read_configs(name: str, data: memoryview, count: int, known: SharedValues) -> list[Json]:
    """Configurations from two tables: of the lists of their names, and of all values in order."""
    end = 9 + array("Q", bytes(data[1:9]))[0]
    names = _read_table("names", data[9:end], count, known)
    total = sum(map(len, names))
    places, texts = _places_and_texts(data[end:], total)
    if name != "config" or len(places) != total or len(names) != count:
        raise ValueError(name)
    values = map([known[text] for text in texts].__getitem__, places)
    # Each list of names takes its values; being first, it ends without taking one more.
    return [dict(zip(own, values, strict=False)) for own in names]


_READERS: dict[bytes, Callable[[str, memoryview, int, SharedValues], list[Json]]] = {
    **{_JSON: _read_json, _DOUBLES: _read_doubles, _FEW: _read_table, _MANY: _read_table},
    **{_TIMES: _read_times, _CONFIGS: _read_configs},
}

#: Fields that are parsed from the line on first access: most of its length.
LONG = ("trace", "extra")
#: Fields of the index, and properties of records that it keeps so that they need not be computed.
FIELDS = tuple(item.name for item in fields(Record) if item.name not in LONG)
PROPERTIES = (
    *("id", "candidate", "median", "hardware", "threads"),
    *("valid", "usable", "wrong", "failed_again"),
)
COLUMNS = (*FIELDS, *PROPERTIES)  # all columns
#: Columns whose values have parts, and decide which records are chosen: each value is trusted only
#: after a line that has it was parsed.
NESTED = ("args", "target", "env", "resources", "verdict")
#: Columns by which records are chosen.
CHOOSING = (
    *("task", "op", *NESTED, "dropped", "error", "space", "build", "ts", "checked", "phase"),
    *("same_as", "candidate", "median", "hardware", "threads"),
    *("valid", "usable", "wrong", "failed_again"),
)


def can_be_kept(record: Record) -> bool:
    """False for a record that has no id, since it holds numbers that JSON cannot represent."""
    try:
        return bool(record.id and record.candidate)
    except RecordError:
        return False


def agrees(
    columns: Mapping[str, Sequence[Json]], names: Iterable[str], row: int, record: Record
) -> bool:
    pairs = ((columns[name][row], getattr(record, name)) for name in names)
    # By their text, since NaN is not equal to itself, and 1 is to 1.0 and True.
    return all(
        type(value) is type(field) and bool(value == field)
        if isinstance(value, (str, bool, int))
        else text_of(value) == text_of(field)
        for value, field in pairs
    )


#: Parts of lines that exclude a candidate: wrong answers, and failures when it was measured again,
#: which are records of a phase.
_REFUTING = (ErrorKind.WRONG_ANSWER.encode(), b'"phase":')
_LENGTHS = "lengths"  # the part of a block in the file with the length of each line


@dataclass(frozen=True)
class LogBlock:
    """The bytes ``start`` to ``end`` of a log, whole lines, with their values in the index."""

    start: int
    end: int
    digest: str  # SHA-256 of the bytes
    lengths: Sequence[int]  # bytes of each line, with its newline
    #: Ascending numbers of the lines that are no records, or that the index cannot keep.
    others: Sequence[int]
    #: Encoded values, one for each record, by the name of the field or property.
    columns: Mapping[str, bytes | memoryview]
    known: SharedValues = field(repr=False)  # values that the blocks of the log share

    @classmethod
    def of(cls, path: Path, start: int, data: bytes, known: SharedValues) -> LogBlock:
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
        columns = {name: encode(name, [getattr(r, name) for r in log.records]) for name in COLUMNS}
        return cls(start, start + len(data), digest, lengths, others, columns, known)

    @property
    def count(self) -> int:
        return len(self.lengths) - len(self.others)

    @functools.cached_property
    def values(self) -> Mapping[str, list[Json]]:
        """The values of each column; a malformed one raises a RecordError when it is first read."""
        # Not of `self`: the block would hold itself, and with it the file of the index.
        columns, count, known = self.columns, self.count, self.known
        return LazyColumns(lambda name: decode(name, memoryview(columns[name]), count, known))

    @functools.cached_property
    def begins(self) -> list[int]:
        """Offset of each line in the log."""
        return list(accumulate(self.lengths[:-1], initial=self.start))

    @functools.cached_property
    def positions(self) -> list[int]:
        """Line number of each record within the block."""
        others = set(self.others)
        return [position for position in range(len(self.lengths)) if position not in others]

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
    def from_parts(cls, head: bytes, body: memoryview, known: SharedValues) -> LogBlock:
        """Read the result of `to_parts`; raises a RecordError where it is malformed."""
        try:
            data = json.loads(head)
            start, end, digest, others = (data[n] for n in ("start", "end", "digest", "others"))
            parts = _cut(data["parts"], body)
            lengths = array("Q")
            lengths.frombytes(parts.pop(_LENGTHS))
            consistent = {type(start), type(end), *map(type, others)} == {int} and start >= 0
            consistent = consistent and min(lengths) > 0 and sum(lengths) == end - start
            inside = set(others) <= set(range(len(lengths))) and others == sorted(set(others))
        except (ValueError, TypeError, KeyError, RecursionError) as exc:
            raise RecordError("a block of the index is malformed") from exc
        if not consistent or not inside or set(parts) != set(COLUMNS):
            raise RecordError("a block of the index is malformed")
        return cls(start, end, digest, lengths, others, parts, known)

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
            for row in rows:
                record = parse(self._line(data, self.positions[row]))
                if record is None or not agrees(self.values, CHOOSING, row, record):
                    return False
        except RecordError:
            return False
        confirmed.update(fresh)
        return True

    def _line(self, data: bytes, position: int) -> bytes:
        at = self.begins[position] - self.start
        return data[at : at + self.lengths[position]]

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


class LazyColumns(dict[str, list[Json]]):
    """Values of columns, each put in on first access."""

    def __init__(self, column: Callable[[str], list[Json]]) -> None:
        self._column = column

    def __missing__(self, name: str) -> list[Json]:
        values = self[name] = self._column(name)
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
    log = Log(Path())
    take_line(log, 1, line)
    return log.records[0] if log.records else None


class LogFile:
    """A log that stays open for reading as long as a record of it is in use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, start: int, length: int) -> bytes:
        """Bytes from ``start``; fewer only at the end of the file."""
        parts, left = [], length
        while left and (part := os.pread(self._fd, left, start + length - left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


class StoredBlock:
    """A block with its log; ``values`` holds one value for each record, by field or property."""

    def __init__(self, file: LogFile, block: LogBlock) -> None:
        self.file, self.block = file, block
        self.values = LazyColumns(self.column)

    def column(self, name: str) -> list[Json]:
        """The values of one field or property; raises a RecordError for a malformed index."""
        try:
            return self.block.values[name]
        except RecordError as exc:
            raise RecordError(f"{exc}; {self._remedy()}") from exc

    def parsed(self, row: int) -> Record:
        """The record in a row, parsed from its line; RecordError where the log cannot be read any
        more, or the line differs from the index.
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
                f"just now, or another program made the index; {self._remedy()}"
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


class StoredRecord(Record):
    """A record of a log with an index. Its trace, and fields of other versions, are parsed from the
    line on first access, and all other fields are then compared with those of the index.
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

"""What the index keeps of records: a column of values for each field, but for the longest ones.

Values that repeat are kept once, with the place of each record's value among them. The columns by
which records are chosen are kept apart from the others, which are parsed when they are asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain

from loopwright.errors import RecordError
from loopwright.records.json_value import Json
from loopwright.records.record import Checked, Record

#: Fields that are parsed from the line when they are asked for: most of its length.
LONG = ("trace", "extra")
#: Fields of the index, and properties of records that it keeps so that they need not be computed.
FIELDS = tuple(item.name for item in fields(Record) if item.name not in LONG)
PROPERTIES = ("id", "candidate", "median", "hardware", "threads", "valid", "usable", "wrong")
#: Columns whose values have parts: they are believed after a line of each value was parsed.
NESTED = ("args", "target", "env", "verdict")
#: By these records are chosen; they are parsed at once.
CHOOSING = (
    *(
        "task",
        "op",
        *NESTED,
        "dropped",
        "error",
        "space",
        "build",
        "ts",
        "checked",
        "phase",
        "same_as",
    ),
    *("candidate", "median", "hardware", "threads", "valid", "usable", "wrong"),
)
#: The others.
DESCRIBING = tuple(name for name in (*FIELDS, *PROPERTIES) if name not in CHOOSING)

#: Types of values; what is not named is text.
_TYPES: dict[str, frozenset[type]] = {
    **dict.fromkeys(("round", "trial", "v", "threads"), frozenset({int})),
    **dict.fromkeys(("build_s", "run_s", "ts"), frozenset({int, float})),
    **dict.fromkeys(("median", "max_error"), frozenset({int, float, type(None)})),
    **dict.fromkeys(("dropped", "valid", "usable", "wrong"), frozenset({bool})),
    **dict.fromkeys(("target", "env"), frozenset({dict})),
    **dict.fromkeys(("error", "verdict"), frozenset({dict, type(None)})),
    **dict.fromkeys(("args", "times"), frozenset({list})),
    "seed": frozenset({int, type(None)}),
}
_TEXT: frozenset[type] = frozenset({str})
#: Columns in which hardly a value occurs twice.
_UNIQUE = ("id", "candidate", "median", "ts", "times", "config", "build_s", "run_s")


@dataclass(frozen=True)
class Column:
    """The values of one field.

    Attributes:
        values: the different ones, or those of all records.
        places: of each record's value among them; None where they are those of all records.
    """

    values: list[Json]
    places: list[int] | None

    def __getitem__(self, row: int) -> Json:
        return self.values[row if self.places is None else self.places[row]]

    def expanded(self) -> list[Json]:
        """The value of each record."""
        if self.places is None:
            return self.values
        return list(map(self.values.__getitem__, self.places))

    def rows_of_values(self) -> Iterable[int]:
        """A row for each of the different values."""
        if self.places is None:
            return range(len(self.values))
        return dict(zip(self.places, range(len(self.places)), strict=True)).values()

    def to_json(self) -> Json:
        """The form in the file."""
        return self.values if self.places is None else [self.places, self.values]


Columns = Mapping[str, Column]


def can_be_kept(record: Record) -> bool:
    """False for a record that has no id, since it holds numbers that JSON cannot say."""
    try:
        return bool(record.id and record.candidate)
    except RecordError:
        return False


def columns_of(records: Sequence[Record]) -> Columns:
    """The columns of some records."""
    return {name: _column(name, records) for name in (*FIELDS, *PROPERTIES)}


def _column(name: str, records: Sequence[Record]) -> Column:
    if name == "config":
        return Column([_text(record.config) for record in records], None)
    values = [getattr(record, name) for record in records]
    if name in _UNIQUE:
        return Column(values, None)
    names = values
    if name in _TYPES:
        # Equal objects are often one object, since lines share what they have in common.
        texts = {key: _text(value) for key, value in {id(v): v for v in values}.items()}
        names = [texts[id(value)] for value in values]
    places = {text: place for place, text in enumerate(dict.fromkeys(names))}
    first = dict(zip(reversed(names), reversed(values), strict=True))
    return Column([first[text] for text in places], [places[text] for text in names])


def _text(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"))


def write_columns(columns: Columns, names: Iterable[str]) -> dict[str, Json]:
    """The form of columns in the file."""
    return {name: columns[name].to_json() for name in names}


def read_columns(data: Json, names: Sequence[str], count: int) -> Columns:
    """Columns from the form in the file.

    Raises:
        RecordError: they are not those of ``count`` records.
    """
    if not isinstance(data, dict) or set(data) != set(names):
        raise RecordError("the columns of the index are others")
    return {name: _read(name, data[name], count) for name in names}


def _read(name: str, data: Json, count: int) -> Column:
    places = None
    if isinstance(data, list) and name not in _UNIQUE and len(data) == 2:
        places, data = data
    if not isinstance(data, list) or not set(map(type, data)) <= _TYPES.get(name, _TEXT):
        raise RecordError(f"column {name!r} of the index is malformed")
    if name == "times":
        data = list(map(tuple, data))
        if not set(map(type, chain.from_iterable(data))) <= {float}:
            raise RecordError("column 'times' of the index is malformed")
    if name == "error":
        parts = chain.from_iterable(e.values() for e in data if e is not None)
        if not set(map(type, parts)) <= _TEXT:
            raise RecordError("column 'error' of the index is malformed")
    if name == "checked":
        data = [_checked(text) for text in data]
    if not _rows(places, len(data), count):
        raise RecordError(f"column {name!r} of the index is malformed")
    return Column(data, places)


def _checked(text: str) -> Checked:
    try:
        return Checked(text)
    except ValueError as exc:
        raise RecordError("column 'checked' of the index is malformed") from exc


def _rows(places: Json, values: int, count: int) -> bool:
    """Whether there is a value for each of ``count`` records."""
    if places is None:
        return values == count
    return (
        isinstance(places, list)
        and len(places) == count
        and set(map(type, places)) <= {int}
        and (not places or (min(places) >= 0 and max(places) < values))
    )


def agrees(columns: Columns, row: int, record: Record) -> bool:
    """Whether a row says what a record says."""
    return all(_same(name, column[row], record) for name, column in columns.items())


def _same(name: str, value: Json, record: Record) -> bool:
    own = getattr(record, name)
    if name == "config":
        return bool(value == _text(own))
    # By their text, since NaN is not equal to itself, and 1 is to 1.0 and True.
    return (type(value) is type(own) and value == own) or _text(value) == _text(own)

"""Columns of the index: one of values for each field of records, except the longest fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

from loopwright.errors import RecordError
from loopwright.records.index.encoding import encode, text_of
from loopwright.records.json_value import Json
from loopwright.records.record import Record

#: Fields that are parsed from the line on first access: most of its length.
LONG = ("trace", "extra")
#: Fields of the index, and properties of records that it keeps so that they need not be computed.
FIELDS = tuple(item.name for item in fields(Record) if item.name not in LONG)
PROPERTIES = (
    *("id", "candidate", "median", "hardware", "threads"),
    *("valid", "usable", "wrong", "failed_again"),
)
#: All columns.
COLUMNS = (*FIELDS, *PROPERTIES)
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


def columns_of(records: Sequence[Record]) -> dict[str, bytes]:
    return {name: encode(name, [getattr(r, name) for r in records]) for name in COLUMNS}


def agrees(
    columns: Mapping[str, Sequence[Json]], names: Iterable[str], row: int, record: Record
) -> bool:
    """Whether a row of some columns equals a record."""
    return all(_same(columns[name][row], getattr(record, name)) for name in names)


def _same(value: Json, own: Json) -> bool:
    if isinstance(value, (str, bool, int)):
        return type(value) is type(own) and bool(value == own)
    # By their text, since NaN is not equal to itself, and 1 is to 1.0 and True.
    return text_of(value) == text_of(own)

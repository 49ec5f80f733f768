"""Columns of the index: one of values for each field of records, except the longest fields.

Numbers are encoded in the form of the machine, the rest as JSON. The first byte of a column names
its form. Reading one never executes anything; whatever its bytes are, it gives values of the types
that the field has, or a `RecordError`.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from itertools import chain, islice, repeat

from loopwright.errors import RecordError
from loopwright.records.line import Json
from loopwright.records.record import Checked, Record

#: Types of values; other fields are text.
_TYPES: dict[str, frozenset[type]] = {
    **dict.fromkeys(("round", "trial", "v", "threads"), frozenset({int})),
    **dict.fromkeys(("build_s", "run_s", "prepare_s", "ts"), frozenset({int, float})),
    **dict.fromkeys(("median", "max_error"), frozenset({int, float, type(None)})),
    **dict.fromkeys(("dropped", "valid", "usable", "wrong", "failed_again"), frozenset({bool})),
    **dict.fromkeys(("target", "env"), frozenset({dict})),
    **dict.fromkeys(("error", "resources", "verdict"), frozenset({dict, type(None)})),
    "args": frozenset({list}),
    "seed": frozenset({int, type(None)}),
}
_TEXT: frozenset[type] = frozenset({str})
#: Columns of texts in which hardly a value occurs twice.
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
        return _CONFIGS + _encode_configs(values)
    if name in _FLOATS and all(v is None or (type(v) is float and v == v) for v in values):
        return _DOUBLES + array("d", (math.nan if v is None else v for v in values)).tobytes()
    if name in _UNIQUE or name in _FLOATS:
        return _JSON + text_of(values).encode("ascii")
    places, table = _table(values)
    form = _FEW if len(places) <= 256 else _MANY
    return form + array(form.decode(), table).tobytes() + _joined(places)


def decode(name: str, data: memoryview, count: int, known: SharedValues) -> list[Json]:
    """Decode a column; raises a RecordError unless it has ``count`` values of its field's types."""
    try:
        values = _READERS[bytes(data[:1])](name, data[1:], count, known)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, RuntimeError) as exc:
        raise RecordError(f"column {name!r} of the index is malformed") from exc
    if len(values) != count:
        raise RecordError(f"column {name!r} of the index is malformed")
    return values


def first_rows(name: str, data: memoryview, count: int) -> dict[bytes, int]:
    """One row for each distinct value, by its text; RecordError where the column is no table."""
    form = bytes(data[:1])
    if form not in (_FEW, _MANY):
        raise RecordError(f"column {name!r} of the index is malformed")
    places, texts = _places_and_texts(form.decode(), data[1:], count)
    return {texts[place]: places.index(place) for place in set(places) if place < len(texts)}


def _table(values: Sequence[Json]) -> tuple[dict[str, int], list[int]]:
    """The index of each distinct text, in the order of the texts, and that of each value's text."""
    # Equal objects are often one object, since lines share what they have in common.
    texts = {key: text_of(value) for key, value in {id(v): v for v in values}.items()}
    places = {text: place for place, text in enumerate(sorted(set(texts.values())))}
    return places, [places[texts[id(value)]] for value in values]


def _joined(texts: Mapping[str, int]) -> bytes:
    return "\n".join(texts).encode("ascii")


def _places_and_texts(form: str, data: memoryview, count: int) -> tuple[array[int], list[bytes]]:
    places = array(form)
    end = count * places.itemsize
    places.frombytes(data[:end])
    return places, bytes(data[end:]).split(b"\n") if count else []


def _checked_types(name: str, values: Sequence[Json]) -> Sequence[Json]:
    """The values as records have them; raises TypeError or ValueError for another type."""
    if not set(map(type, values)) <= _TYPES.get(name, _TEXT):
        raise TypeError(name)
    if name == "error":
        parts = chain.from_iterable(error.values() for error in values if error is not None)
        if not set(map(type, parts)) <= _TEXT:
            raise TypeError(name)
    return list(map(Checked, values)) if name == "checked" else values


def _read_table(
    form: str, name: str, data: memoryview, count: int, known: SharedValues
) -> list[Json]:
    places, texts = _places_and_texts(form, data, count)
    values = _checked_types(name, [known[text] for text in texts])
    return list(map(values.__getitem__, places))


def _read_json(name: str, data: memoryview, count: int, known: SharedValues) -> list[Json]:
    values = json.loads(bytes(data))
    if type(values) is not list:
        raise TypeError(name)
    return list(_checked_types(name, values))


def _read_doubles(name: str, data: memoryview, count: int, known: SharedValues) -> list[Json]:
    numbers = array("d")
    numbers.frombytes(data)
    values: list[Json] = numbers.tolist()
    if any(map(math.isnan, numbers)):
        values = [None if math.isnan(value) else value for value in values]
    _checked_types(name, values)
    return values


def _read_times(name: str, data: memoryview, count: int, known: SharedValues) -> list[Json]:
    counts, times = array("I"), array("d")
    end = count * counts.itemsize
    counts.frombytes(data[:end])
    times.frombytes(data[end:])
    if sum(counts) != len(times) or name != "times":
        raise ValueError(name)
    parts = map(islice, repeat(iter(times)), counts)
    return [tuple(part) for part in parts]


def _encode_configs(configs: Sequence[Mapping[str, Json]]) -> bytes:
    """The few distinct lists of names; the list of each record; the values one after another."""
    values = list(chain.from_iterable(config.values() for config in configs))
    names, lists = _table([list(config) for config in configs])
    texts, places = _table(values)
    parts = [_joined(names), array("I", lists).tobytes(), array("I", places).tobytes()]
    sizes = array("I", map(len, parts))
    return b"".join([sizes.tobytes(), *parts, _joined(texts)])


def _read_configs(name: str, data: memoryview, count: int, known: SharedValues) -> list[Json]:
    sizes = array("I")
    at = 3 * sizes.itemsize
    sizes.frombytes(data[:at])
    parts = []
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    names = [known[text] for text in bytes(parts[0]).split(b"\n")] if count else []
    if not all(type(n) is list and set(map(type, n)) <= _TEXT for n in names):
        raise TypeError(name)
    lists, places = array("I"), array("I")
    lists.frombytes(parts[1])
    places.frombytes(parts[2])
    table = [known[text] for text in bytes(data[at:]).split(b"\n")] if places else []
    values = iter([table[place] for place in places])
    if name != "config" or sum(len(names[place]) for place in lists) != len(places):
        raise ValueError(name)
    if len(names) == 1 and names[0]:
        equal = zip(*[values] * len(names[0]), strict=True)
        return [dict(zip(names[0], row, strict=True)) for row in equal]
    lengths = map(len, map(names.__getitem__, lists))
    rows = map(tuple, map(islice, repeat(values), lengths))
    return [
        dict(zip(names[place], row, strict=True)) for place, row in zip(lists, rows, strict=True)
    ]


_READERS: dict[bytes, Callable[[str, memoryview, int, SharedValues], list[Json]]] = {
    _JSON: _read_json,
    _DOUBLES: _read_doubles,
    _FEW: partial(_read_table, "B"),
    _MANY: partial(_read_table, "I"),
    _TIMES: _read_times,
    _CONFIGS: _read_configs,
}


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

"""Checks of the fields of a record: one table, for lines of any origin."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping

from loopwright.errors import RecordError
from loopwright.records.json_value import Json
from loopwright.records.verdict import Verdict

_Check = Callable[[Json], bool]

#: The last second of the year 9999: what a calendar can show.
_LAST_SECOND = 253402300799
_LARGEST_COUNT = 2**63


def _is_text(value: Json) -> bool:
    return type(value) is str


def _is_flag(value: Json) -> bool:
    return type(value) is bool


def _is_array(value: Json) -> bool:
    return type(value) is list


def _is_object(value: Json) -> bool:
    return type(value) is dict


def _is_integer(value: Json) -> bool:
    return type(value) is int


def _is_count(value: Json) -> bool:
    return type(value) is int and 0 <= value < _LARGEST_COUNT


def _is_amount(value: Json) -> bool:
    """A finite number of at least 0, such as seconds."""
    return type(value) in (int, float) and 0 <= value < math.inf


def _is_clock(value: Json) -> bool:
    return _is_amount(value) and value <= _LAST_SECOND


def _is_trace(value: Json) -> bool:
    return type(value) is list and all(type(step) is list for step in value)


def _is_text_or_texts(value: Json) -> bool:
    return type(value) is str or (type(value) is list and all(map(_is_text, value)))


def _is_error(value: Json) -> bool:
    if type(value) is not dict or type(value.get("text", "")) is not str:
        return False
    return type(value.get("kind")) is str


def _is_resources(value: Json) -> bool:
    return type(value) is dict and all(_is_count(n) for n in value.values())


def _is_verdict(value: Json) -> bool:
    if type(value) is not dict:
        return False
    try:
        Verdict.from_json(value)
    except RecordError:
        return False
    return True


def _or_null(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


def _has(parts: Mapping[str, _Check]) -> _Check:
    """A check of an object: the entries of these names, where present, must pass theirs."""

    def check(value: Json) -> bool:
        if type(value) is not dict:
            return False
        return all(name not in value or fits(value[name]) for name, fits in parts.items())

    return check


_TARGET: dict[str, _Check] = {
    "kind": _is_text,
    "mcpu": _or_null(_is_text),
    "mattr": _or_null(_is_text_or_texts),
    "num_threads": _or_null(_is_count),
}
_DEVICE: dict[str, _Check] = {
    **dict.fromkeys(("kind", "name", "uuid", "driver", "arch"), _is_text),
    "processors": _is_count,
}
_ENV: dict[str, _Check] = {
    "device": _or_null(_has(_DEVICE)),
    "cpu": _or_null(_is_text),
    "isa": _or_null(_is_text_or_texts),
    "cores": _or_null(_is_count),
}

#: The fields that every record has.
REQUIRED: dict[str, _Check] = {
    "task": _is_text,
    "op": _is_text,
    "args": _is_array,
    "target": _has(_TARGET),
    "config": _is_object,
    "times": _is_array,
}
_FIELDS: dict[str, _Check] = {
    **REQUIRED,
    "v": _is_count,
    "dag": _is_text,
    "trace": _is_trace,
    "dropped": _is_flag,
    "error": _or_null(_is_error),
    "build_s": _is_amount,
    "run_s": _is_amount,
    "space": _is_text,
    "build": _is_text,
    "run": _is_text,
    "round": _is_count,
    "trial": _is_count,
    "seed": _or_null(_is_integer),
    "ts": _is_clock,
    "env": _has(_ENV),
    "max_error": _or_null(_is_amount),
    "checked": lambda value: value in ("yes", "no", "off"),
    "check_reason": _is_text,
    "phase": _is_text,
    "program": _is_text,
    "code": _is_text,
    "same_as": _is_text,
    "times_of": _is_text,
    "resources": _or_null(_is_resources),
    "prepare_s": _is_amount,
    "verdict": _or_null(_is_verdict),
}


def checked_fields(data: Mapping[str, Json]) -> tuple[dict[str, Json], dict[str, Json]]:
    """Split the fields of a line into those of a record and those unknown to this version."""
    values: dict[str, Json] = {}
    extra: dict[str, Json] = {}
    for name, value in data.items():
        fits = _FIELDS.get(name)
        if fits is None:
            extra[name] = value
        elif fits(value):
            values[name] = value
        else:
            raise RecordError(f"field {name!r} is malformed: {json.dumps(value)[:60]}")
    for name in REQUIRED:
        if name not in values:
            raise RecordError(f"field {name!r} is missing")
    return values, extra

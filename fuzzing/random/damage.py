"""Slight damage of JSON, protocol buffers and bytes: one to three changes, the rest as it was."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, TypeAlias

from fuzzing.random.expr import Draw

Json: TypeAlias = Any

#: Numbers at the ends of ranges, and sizes that no memory holds.
_INTEGERS = (0, 1, -1, 2, 7, 255, -(1 << 31), (1 << 31) - 1, 1 << 40, (1 << 63) - 1, -(1 << 63))
_FLOATS = (0.0, -1.0, 0.5, 1e308, -1e308, 5e-324, float("inf"), float("nan"))
_TEXTS = ("", "x", "0", "main", "float32", "float33", "int64", "llvm", "é", "\0", "\n", "a" * 5000)
_DEEP: Json = [[[[[[[[[[[[]]]]]]]]]]]]
for _ in range(400):
    _DEEP = [_DEEP]
_VALUES: tuple[Json, ...] = (
    *(None, True, False, [], {}, [[]], [None], {"x": 1}, [1, 2], 10**30, _DEEP),
    *_INTEGERS,
    *_FLOATS,
    *_TEXTS,
)


def damaged_json(d: Draw, data: Json) -> Json:
    """A copy of a document of which up to three places are changed."""
    out = copy.deepcopy(data)
    for _ in range(d.pick((1, 1, 2, 3))):
        there = list(places(out))
        if there:
            _change(d, *d.pick(there), others=there)
    return out


def places(data: Json) -> Iterator[tuple[Any, Any]]:
    """Each container with each of its keys, over all levels."""
    waiting = [data]
    while waiting:
        at = waiting.pop()
        keys = list(at) if isinstance(at, dict) else range(len(at))
        for key in keys:
            yield at, key
            if isinstance(at[key], (dict, list)):
                waiting.append(at[key])


def _change(d: Draw, at: Any, key: Any, others: list[tuple[Any, Any]]) -> None:
    kind = d.integer(0, 9)
    if kind == 0:
        del at[key]
    elif kind == 1 and isinstance(at, list):
        at.insert(key, copy.deepcopy(at[key]))
    elif kind == 2:
        there, other = d.pick(others)
        # The other place may have gone with an earlier change.
        if other in there if isinstance(there, dict) else other < len(there):
            at[key] = copy.deepcopy(there[other])
    elif kind <= 5 and type(at[key]) in (int, float):
        at[key] = _near(d, at[key])
    elif kind == 6 and isinstance(at[key], str) and at[key]:
        at[key] = damaged_bytes(d, at[key].encode()).decode(errors="replace")
    else:
        at[key] = copy.deepcopy(d.pick(_VALUES))


def _near(d: Draw, number: Json) -> Json:
    if isinstance(number, float):
        return d.pick((-number, number + 1, number * 1e30, *_FLOATS))
    return d.pick((-number, number + 1, number - 1, number * 2, number << 20, *_INTEGERS))


def damaged_bytes(d: Draw, data: bytes) -> bytes:
    """Bytes of which one was changed, or some were taken away, doubled, or added."""
    begin = d.integer(0, max(len(data) - 1, 0))
    end = min(len(data), begin + d.integer(1, 16))
    part = data[begin:end]
    new = d.pick((bytes([part[0] ^ (1 << d.integer(0, 7))]) if part else b"", b"", part + part))
    rest = data[begin + 1 :] if len(new) == 1 else data[end:]
    return data[:begin] + new + rest if d.chance(90) else data[:begin]


def damage_message(d: Draw, message: Any) -> None:
    """Change up to three fields of a protocol buffer or of the messages inside, in place."""
    for _ in range(d.pick((1, 1, 2, 3))):
        messages = list(_messages(message))
        at = d.pick(messages)
        fields = [f for f, _ in at.ListFields()] if d.chance(85) else at.DESCRIPTOR.fields
        if fields:
            _change_field(d, at, d.pick(list(fields)), messages)


def _messages(message: Any) -> Iterator[Any]:
    waiting = [message]
    while waiting:
        at = waiting.pop()
        yield at
        for field, value in at.ListFields():
            if field.message_type is not None:
                waiting += value if _is_repeated(field) else [value]


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _change_field(d: Draw, at: Any, field: Any, messages: list[Any]) -> None:
    if _is_repeated(field):
        _change_repeated(d, getattr(at, field.name), field, messages)
    elif d.chance(25):
        at.ClearField(field.name)
    elif field.message_type is not None:
        part = getattr(at, field.name)
        alike = [m for m in messages if m.DESCRIPTOR == part.DESCRIPTOR and m is not part]
        if alike:
            other = copy.deepcopy(d.pick(alike))
            part.CopyFrom(other)
    else:
        setattr(at, field.name, _scalar(d, field, messages))


def _change_repeated(d: Draw, values: Any, field: Any, messages: list[Any]) -> None:
    n = d.integer(0, max(len(values) - 1, 0))
    kind = d.integer(0, 3)
    if kind == 0 and values:
        del values[n]
    elif field.message_type is not None:
        alike = [m for m in messages if field.message_type == m.DESCRIPTOR]
        if alike:
            values.append(copy.deepcopy(d.pick(alike)))
    elif kind == 1 or not values:
        values.append(_scalar(d, field, messages))
    else:
        values[n] = _scalar(d, field, messages)


def _scalar(d: Draw, field: Any, messages: list[Any]) -> Any:
    """A value of a field that is no message: a new one, or one that stands elsewhere."""
    if field.enum_type is not None:
        return d.pick(field.enum_type.values).number
    kind = field.cpp_type
    if kind == field.CPPTYPE_BOOL:
        return d.chance(50)
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return d.pick(_FLOATS)
    if kind == field.CPPTYPE_STRING:
        if field.type == field.TYPE_BYTES:
            return d.pick((b"", b"\0", b"\xff" * 7, b"SAME_UPPER", b"linear"))
        texts = [v for m in messages for f, v in m.ListFields() if f.name == field.name]
        texts += [v for m in messages for f, v in m.ListFields() if f.name in ("name", "op_type")]
        plain = [v for v in texts if isinstance(v, str)]
        return d.pick(plain) if plain and d.chance(60) else d.pick(_TEXTS)
    bits = 32 if kind in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
    least = 0 if kind in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64) else -(1 << bits - 1)
    return d.pick([n for n in _INTEGERS if least <= n < 1 << bits - 1])

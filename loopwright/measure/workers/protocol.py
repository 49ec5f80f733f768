"""The protocol between the parent and its worker processes: typed messages in frames over pipes.

A message is a frozen dataclass. Its frame is a magic word, two lengths, a JSON header that names
the class and holds the fields, and raw bytes, the ``payload``. Every field is checked when a frame
is read. Nothing is unpickled, and nothing that was received is executed, except the machine code
that a runner is asked to run. The messages themselves are in ``messages.py``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import struct
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

from loopwright.errors import InternalError

_MAGIC = b"LWF2"
_HEAD = struct.Struct("<4sIQ")
_MAX_HEADER = 1 << 28

_CLASSES: dict[str, type[Message]] = {}


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message; subclasses declare its fields.

    A field is a bool, number, string, enum, None or JSON value, or a tuple or union of these.

    Attributes:
        payload: raw bytes that go with it.
    """

    payload: bytes = b""

    def __init_subclass__(cls) -> None:
        _CLASSES[cls.__name__] = cls


@dataclass(frozen=True, kw_only=True)
class Reply(Message):
    """What a worker answers.

    Attributes:
        rss: resident memory of the worker in bytes, once it has answered.
    """

    rss: int = 0


def encode(message: Message) -> bytes:
    """The frame of a message."""
    fields = {name: getattr(message, name) for name in _field_types(type(message).__name__)}
    header = {"message": type(message).__name__, **fields}
    text = json.dumps(header, separators=(",", ":")).encode()
    return b"".join((_HEAD.pack(_MAGIC, len(text), len(message.payload)), text, message.payload))


def _decode(text: bytes, payload: bytes) -> Message:
    """The message of a header and a payload.

    Raises:
        InternalError: the class is not known, or a field is missing, unknown or of another type.
    """
    header = json.loads(text)
    cls = _CLASSES.get(header.pop("message", ""))
    if cls is None:
        raise InternalError(f"a message of an unknown kind came: {text[:60]!r}")
    expected = _field_types(cls.__name__)
    if header.keys() != expected.keys():
        raise InternalError(f"a {cls.__name__} came with the fields {', '.join(header)}")
    try:
        fields = {name: _read(header[name], kind) for name, kind in expected.items()}
    except (TypeError, ValueError) as error:
        raise InternalError(f"a malformed {cls.__name__} came: {error}") from error
    return cls(payload=payload, **fields)


@lru_cache(maxsize=64)
def _field_types(name: str) -> dict[str, Any]:
    """Types of the fields in the header of a message, by the name of its class."""
    cls = _CLASSES[name]
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.name != "payload"}


def _read(value: Any, kind: Any) -> Any:
    """A value of JSON as the declared type of its field.

    Raises:
        TypeError: it is of another type.
        ValueError: it is no member of the enum.
    """
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        return _read_union(value, parts)
    if origin is tuple and isinstance(value, list):
        return _read_tuple(value, parts)
    if origin is Mapping and isinstance(value, dict):
        return value
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"{repr(value)[:60]} is no {getattr(kind, '__name__', kind)}")
    return value


def _read_union(value: Any, kinds: tuple[Any, ...]) -> Any:
    if value is None and type(None) in kinds:
        return None
    (kind,) = (k for k in kinds if k is not type(None))
    return _read(value, kind)


def _read_tuple(value: list[Any], kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    if kinds[-1] is ...:
        return tuple(_read(part, kinds[0]) for part in value)
    if len(value) != len(kinds):
        raise TypeError(f"{len(value)} values for {len(kinds)}")
    return tuple(_read(part, kind) for part, kind in zip(value, kinds, strict=True))


class Decoder:
    """Puts messages together from bytes that arrive in pieces (parent side)."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Add bytes as they came."""
        self._data += data

    def pop(self) -> Message | None:
        """The next complete message, or None.

        Raises:
            InternalError: what came is no frame, or no message that is known.
        """
        if len(self._data) < _HEAD.size:
            return None
        head, body = _lengths(bytes(self._data[: _HEAD.size]), "a worker")
        end = _HEAD.size + head + body
        if len(self._data) < end:
            return None
        with memoryview(self._data) as view:
            text = bytes(view[_HEAD.size : _HEAD.size + head])
            payload = bytes(view[_HEAD.size + head : end])
        del self._data[:end]
        return _decode(text, payload)


def _lengths(start: bytes, sender: str) -> tuple[int, int]:
    """Bytes of the header and of the payload, from the beginning of a frame."""
    magic, head, body = _HEAD.unpack(start)
    if magic != _MAGIC or head > _MAX_HEADER:
        raise InternalError(f"{sender} sent {start!r}, which is no frame")
    return head, body


def _read_exactly(fd: int, n: int) -> bytes | None:
    out = bytearray()
    while len(out) < n:
        piece = os.read(fd, min(n - len(out), 1 << 20))
        if not piece:
            return None
        out += piece
    return bytes(out)


def read_message(fd: int) -> Message | None:
    """Wait for one message on a blocking descriptor (worker side).

    Returns:
        The message, or None at the end of the stream.

    Raises:
        InternalError: what came is no frame, or no message that is known.
    """
    start = _read_exactly(fd, _HEAD.size)
    if start is None:
        return None
    head, body = _lengths(start, "the parent")
    text = _read_exactly(fd, head)
    payload = _read_exactly(fd, body)
    return None if text is None or payload is None else _decode(text, payload)


def write_message(fd: int, message: Message) -> None:
    """Write one message on a blocking descriptor (worker side)."""
    view = memoryview(encode(message))
    while view:
        view = view[os.write(fd, view) :]

"""The protocol between the parent and its workers: frames over pipes.

A frame is a magic word, the lengths of both parts, a JSON header (an object) and raw bytes. Nothing
is pickled, nothing received is executed except the machine code that a runner is asked to run.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any, NamedTuple

from loopwright.errors import InternalError

_MAGIC = b"LWF1"
_HEAD = struct.Struct("<4sIQ")
_MAX_HEADER = 1 << 28


class Frame(NamedTuple):
    """One message."""

    header: dict[str, Any]
    payload: bytes


def encode(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """The bytes of one frame."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return b"".join((_HEAD.pack(_MAGIC, len(text), len(payload)), text, payload))


class Decoder:
    """Puts frames together from bytes that arrive in pieces."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Add bytes as they came."""
        self._data += data

    def pop(self) -> Frame | None:
        """The next complete frame, or None.

        Raises:
            InternalError: what came is not a frame.
        """
        if len(self._data) < _HEAD.size:
            return None
        magic, head, body = _HEAD.unpack_from(self._data)
        if magic != _MAGIC or head > _MAX_HEADER:
            raise InternalError(f"a worker sent {bytes(self._data[:16])!r}, which is no frame")
        end = _HEAD.size + head + body
        if len(self._data) < end:
            return None
        with memoryview(self._data) as view:
            text = bytes(view[_HEAD.size : _HEAD.size + head])
            payload = bytes(view[_HEAD.size + head : end])
        del self._data[:end]
        return Frame(json.loads(text), payload)


def _read_exactly(fd: int, n: int) -> bytes | None:
    out = bytearray()
    while len(out) < n:
        piece = os.read(fd, min(n - len(out), 1 << 20))
        if not piece:
            return None
        out += piece
    return bytes(out)


def read_frame(fd: int) -> Frame | None:
    """Wait for one frame on a blocking descriptor; None at the end of the stream (worker side)."""
    start = _read_exactly(fd, _HEAD.size)
    if start is None:
        return None
    magic, head, body = _HEAD.unpack(start)
    if magic != _MAGIC or head > _MAX_HEADER:
        raise InternalError(f"the parent sent {start!r}, which is no frame")
    text = _read_exactly(fd, head)
    payload = _read_exactly(fd, body)
    if text is None or payload is None:
        return None
    return Frame(json.loads(text), payload)


def write_frame(fd: int, header: dict[str, Any], payload: bytes = b"") -> None:
    """Write one frame on a blocking descriptor (worker side)."""
    view = memoryview(encode(header, payload))
    while view:
        view = view[os.write(fd, view) :]

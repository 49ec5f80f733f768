"""Descriptions of files that are no logs, for errors."""

from __future__ import annotations

import csv
import json
import os
import re
import stat
import zlib
from collections.abc import Iterable

from loopwright.files import open_flags
from loopwright.presenting import counted
from loopwright.records.foreign import GZIP, Document, unpacked
from loopwright.records.line import BEGINNING, BOM, Json, begins_log

_MAGIC = (
    (b"SQLite format 3\0", "an SQLite database"),
    (GZIP, "a gzip'd file"),
    (b"PK\x03\x04", "a zip archive"),
    (b"BZh", "compressed by bzip2"),
    (b"\xfd7zXZ\0", "compressed by xz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"PAR1", "a Parquet file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x7fELF", "an object file or a library"),
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"\xff\xfe", "text in UTF-16"),
    (b"\xfe\xff", "text in UTF-16"),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05]|\([dl]p0\n")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_KEYS, _SHOWN = 6, 40  # names, and characters of a text, that are shown


def described(path: str | os.PathLike[str]) -> str:
    """Describe a file by its beginning, such as ``a CSV of 2 columns (a, b)``; empty where it is
    part of a log, or cannot be read.
    """
    try:
        with open(path, "rb", opener=open_at_once) as packed:
            if not stat.S_ISREG(os.fstat(packed.fileno()).st_mode):
                return ""
            file = unpacked(packed)
            data = file.read1(BEGINNING)
    except (OSError, EOFError, zlib.error):
        return ""
    if begins_log(data):
        return ""
    return f"{_kind(data)}, gzip'd" if file is not packed else _kind(data)


def open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for a writer, as a pipe would."""
    return os.open(path, flags | open_flags("NONBLOCK"))


def _kind(data: bytes) -> str:
    for magic, name in _MAGIC:
        if data.startswith(magic):
            return name
    if _PICKLE.match(data):
        return "a pickle of Python"
    if len(_CONTROL.findall(data)) > len(data) // 8 or b"\0" in data:
        return "binary data"
    text = data.removeprefix(BOM).decode("utf-8", "replace").strip()
    lines = text.splitlines()
    if text[:1] in ("{", "["):
        return _json_kind(text, lines)
    if text.startswith("<"):
        return "XML or HTML"
    return _csv_kind(lines) or f"text that begins with {text[:_SHOWN]!a}"


def _json_kind(text: str, lines: list[str]) -> str:
    try:
        first = json.loads(lines[0])
    except (ValueError, RecursionError):
        first = None
    if first is not None and len(lines) > 1:
        return f"lines of JSON {_contents(first)}"
    if text.startswith("["):
        return "a JSON array"
    document = Document(text)
    return f"a JSON object {_keys([*document.fields, *filter(None, [document.holder])])}"


def _contents(value: Json) -> str:
    if isinstance(value, dict):
        return f"objects {_keys(value)}"
    return "arrays, as TVM's MetaSchedule writes them" if isinstance(value, list) else "values"


def _keys(names: Iterable[str]) -> str:
    names = list(names)
    return f"with the keys {_few(names)}" if names else "without keys"


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _KEYS} more" if len(names) > _KEYS else ""
    return ", ".join(ascii(name[:_SHOWN])[1:-1] for name in names[:_KEYS]) + more


def _csv_kind(lines: list[str]) -> str:
    """A table of separated columns; empty for other text."""
    for separator in ",;\t":
        rows = list(csv.reader(lines[:2], delimiter=separator))
        if len(rows) == 2 and len(rows[0]) == len(rows[1]) > 1:
            name = "tab-separated text" if separator == "\t" else "a CSV"
            return f"{name} of {counted(len(rows[0]), 'column')} ({_few(rows[0])})"
    return ""

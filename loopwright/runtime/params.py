"""Parameters as safetensors files: named arrays, and nothing that runs when they are read.

The format (github.com/huggingface/safetensors): 8 bytes, the length of the header in little-endian
order; the header, JSON of ``name -> {dtype, shape, data_offsets}``; then the bytes of all arrays.
It is read here without the package of that name: a deployed runtime has NumPy alone, and every
offset is checked before the file is mapped.
"""

from __future__ import annotations

import io
import json
import os
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from loopwright import dtypes
from loopwright.errors import ArgumentError, RunError, UsageError, shown
from loopwright.files import FileKind, Output, marked, write
from loopwright.runtime.arrays.host import NDArray, elements_of
from loopwright.runtime.packed import packed, view_of

_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
}  # fmt: skip
_CODES = {name: code for code, name in _DTYPES.items()}
#: Longest header that is read, as of the package.
_HEADER_LIMIT = 100_000_000
#: Extents and offsets stay below this, whatever a file says.
_MOST = 1 << 47
_METADATA = "__metadata__"
_MADE_BY = {"made_by": "loopwright"}
PARAMETERS = FileKind("a file of parameters", marked(b'{"__metadata__":{"made_by":"loopwright"}'))


class _Entry(NamedTuple):
    """One array of a file: its element type, extents, and byte range."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def save_params(
    path: str | os.PathLike[str], params: Mapping[str, object], *, force: bool = False
) -> Path:
    """Write named arrays to a safetensors file, which is replaced in one step; returns its path.

    The arrays (NDArray on any device, NumPy, or with ``__dlpack__``) are row-major without gaps.
    ``force`` replaces any other file, too.

    Raises:
        ArgumentError: a name is no text or is reserved, or a value is no such array.
        RunError: the file cannot be written.
        UsageError: another file is there, not written by this function.

    Example:
        >>> weights = {"w": np.ones((2, 3), "float32"), "b": np.zeros(3, "float32")}
        >>> path = lw.runtime.save_params("model.safetensors", weights)
        >>> print({name: a.shape for name, a in lw.runtime.load_params(path).items()})
        {'b': (3,), 'w': (2, 3)}
    """
    target = Path(path)
    write(Output(target, encoded(params, _MADE_BY), PARAMETERS), force=force)
    return target


def encoded(params: Mapping[str, object], metadata: Mapping[str, str] | None = None) -> bytes:
    """Bytes of a safetensors file of named arrays, with `metadata` texts; see `save_params`."""
    if not isinstance(params, Mapping):
        raise ArgumentError(f"save_params: expected a dict of arrays, got {shown(params)}")
    arrays = {name: _data(name, value) for name, value in params.items()}
    # Widest elements first, as the package does it: then every array is aligned to its elements.
    order = sorted(arrays, key=lambda n: (-arrays[n].dtype.itemsize, n))
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name in order:
        a = arrays[name]
        header[name] = {
            "dtype": _CODES[dtypes.check(a.dtype)],
            "shape": list(a.shape),
            "data_offsets": [at, at + a.nbytes],
        }
        at += a.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    parts = [struct.pack("<Q", len(text)), text, *(arrays[name].tobytes() for name in order)]
    return b"".join(parts)


def load_params(path: str | os.PathLike[str], mmap: bool = False) -> dict[str, NDArray]:
    """Read named arrays from a safetensors file; the result is sorted by name.

    The header is checked before any array is read: types, extents, and that the arrays fill the
    file one after the other, without a gap or an overlap. ``mmap`` maps the file instead of reading
    it: arrays then are read-only, and pages come from the disk when they are first read. The file
    must not change meanwhile.

    Raises:
        UsageError: there is no such file, or it is damaged, or of another format; the message says
            how.
        RunError: it cannot be read.
    """
    source = Path(path)
    try:
        size = source.stat().st_size
        with source.open("rb") as file:
            begin, entries = _entries(file.read(8), file.read, size, source)
    except FileNotFoundError:
        raise UsageError(f"load_params: there is no file {source}") from None
    except OSError as error:
        raise RunError(f"cannot read {source}: {error.strerror or error}") from error
    if size == begin:
        raw: np.ndarray[Any, np.dtype[np.uint8]] = np.empty(0, np.uint8)
    elif mmap:
        raw = np.memmap(source, np.uint8, "r", begin, (size - begin,))
    else:
        raw = np.fromfile(source, np.uint8, size - begin, offset=begin)
    if raw.size != size - begin:
        raise UsageError(f"load_params: {source} was changed while it was read; read it again")
    return {name: view_of(_array(raw, entries[name], source)) for name in sorted(entries)}


def decoded(data: bytes, source: Path) -> dict[str, NDArray]:
    """Arrays by name as read-only views of `encoded`'s bytes; UsageError where damaged."""
    file = io.BytesIO(data)
    begin, entries = _entries(file.read(8), file.read, len(data), source)
    raw = np.frombuffer(data, np.uint8)[begin:]
    return {name: view_of(_array(raw, entries[name], source)) for name in sorted(entries)}


def _array(
    raw: np.ndarray[Any, np.dtype[np.uint8]], e: _Entry, source: Path
) -> np.ndarray[Any, Any]:
    part = np.asarray(raw[e.begin : e.end])
    if e.dtype == "bool" and part.size and part.max() > 1:
        raise UsageError(f"load_params: {source} has a bool that is neither 0 nor 1")
    if part.ctypes.data % dtypes.nbytes(e.dtype):
        part = part.copy()  # files of others need not align their arrays
    return part.view(e.dtype).reshape(e.shape)


def _data(name: str, value: object) -> np.ndarray[Any, Any]:
    if not isinstance(name, str) or name == _METADATA:
        raise ArgumentError(f"save_params: {shown(name)} cannot be the name of an array")
    array = packed(value, f"save_params: {name!r}")
    if not isinstance(array, NDArray):
        raise ArgumentError(
            f"save_params: {name!r} is {shown(value)} (a {type(value).__name__}), no array"
        )
    data = elements_of(array)
    if dtypes.check(data.dtype) not in _CODES:
        raise ArgumentError(f"save_params: {name!r} is of {data.dtype.name}, which has no code")
    return data


def _entries(head: bytes, read: Any, size: int, source: Path) -> tuple[int, dict[str, _Entry]]:
    """Offset of the arrays' bytes, and the arrays by name; UsageError for an impossible header."""

    def refuse(why: str) -> UsageError:
        return UsageError(f"load_params: {source} is no safetensors file: {why}")

    if len(head) < 8:
        raise refuse(f"it has {size} bytes")
    (length,) = struct.unpack("<Q", head)
    if length > min(size - 8, _HEADER_LIMIT):
        raise refuse(f"its header would have {length} bytes, the file has {size}")
    try:
        header = json.loads(read(length), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise refuse(f"its header is no JSON ({shown(str(error))})") from None
    if not isinstance(header, dict):
        raise refuse("its header is no JSON object")
    header.pop(_METADATA, None)
    entries = {}
    for name, data in header.items():
        entry = _entry(data)
        if entry is None:
            raise refuse(f"its array {shown(name)} is {shown(data)}")
        entries[name] = entry
    end = 0
    for name, e in sorted(entries.items(), key=lambda x: (x[1].begin, x[1].end)):
        if e.begin != end:
            raise refuse(f"the array {shown(name)} begins at byte {e.begin}, expected {end}")
        end = e.end
    if end != size - 8 - length:
        raise refuse(f"its arrays take {end} bytes, the file has {size - 8 - length}")
    return 8 + length, entries


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a name occurs twice")
    return out


def _entry(data: object) -> _Entry | None:
    """One array as the header describes it; None where the description is impossible."""
    match data:
        case {"dtype": str(code), "shape": [*shape], "data_offsets": [begin, end]}:
            pass
        case _:
            return None
    numbers = [*shape, begin, end]
    if code not in _DTYPES or not all(type(n) is int and 0 <= n < _MOST for n in numbers):
        return None
    if len(shape) > 32 or end - begin != prod(shape) * dtypes.nbytes(_DTYPES[code]):
        return None
    return _Entry(dtypes.check(_DTYPES[code]), tuple(shape), begin, end)

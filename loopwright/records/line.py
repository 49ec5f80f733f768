"""One line of a log: strict JSON of limited size and depth, with a checksum as its last field.

A log may be damaged or malicious. Whatever a line holds, reading it gives an object of finite
numbers and bounded depth, or a `RecordError`.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping
from itertools import dropwhile
from typing import Any, NoReturn, TypeAlias

from loopwright.errors import RecordError

#: None, bool, int, float or str, a list or tuple of such, or a dictionary of them by name. mypy
#: cannot follow such a type through a program that looks into its values, so it is not spelled out.
Json: TypeAlias = Any

#: Bytes of the longest line that is read; arrays and objects that may stand inside each other.
MAX_LINE, MAX_DEPTH = 16 << 20, 300
MAX_DIGITS = 40  # digits of the longest integer: longer ones fit into no field, and into no float

#: The end of a line with a checksum: this, eight hexadecimal digits, and the two last bytes.
_MARK = b',"sum":"'
_OWN = b'{"v":1,'  # beginning of a line of this version
BOM = b"\xef\xbb\xbf"  # the mark that some editors put at the beginning of a file
BEGINNING = 1 << 16  # bytes from which a file is recognized as a log
#: Beginnings of lines of any version and of TVM; fields that lines of each kind have.
_OPENINGS = (b'{"v":', b'{"input": [', b'{"input":[', b'{"i": [', b'{"i":[')
_KINDS_OF_TVM = ({"input", "config", "result"}, {"i", "r", "v"})
_KINDS = ({"v", "header"}, {"v", "expression"}, {"v", "task"}, *_KINDS_OF_TVM)
_TAIL = len(_MARK) + 8 + len(b'"}')
_DIGITS = bytes(ord("0") if chr(c) in "0123456789" else c for c in range(256))
_LONG = b"0" * (MAX_DIGITS + 1)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NO_BRACKET = bytes(c for c in range(256) if c not in b"[]{}")


class NotJsonError(RecordError):
    """A line is not JSON: it may have been cut off."""


class TornLineError(RecordError):
    """A line is only the beginning of one: writing it was cut off."""


class UnknownVersionError(RecordError):
    """A line is of a version, of loopwright or of TVM, that this version cannot read."""


class DamagedLineError(RecordError):
    """A line does not match its checksum, or has lost it."""


def _plain(value: object) -> object:
    """Convert NumPy scalars, which ``json`` does not know, to those of Python."""
    item = getattr(value, "item", None)
    if callable(item):
        return item()
    raise TypeError(f"a {type(value).__name__} cannot be stored in a record")


_CANONICAL = json.JSONEncoder(
    separators=(",", ":"), sort_keys=True, allow_nan=False, default=_plain
)


def canonical_json(value: object) -> str:
    """JSON without spaces and with sorted keys: equal values give equal text; RecordError for
    anything that JSON has no form for, a NaN or infinity included.

    Example:
        >>> print(lw.records.canonical_json({"b": 1, "a": [1, 2]}))
        {"a":[1,2],"b":1}
    """
    try:
        return _CANONICAL.encode(value)
    except (TypeError, ValueError, RecursionError) as exc:
        raise RecordError(f"not representable as JSON: {exc}") from exc


def body_of(data: Mapping[str, Json], what: str) -> str:
    """The text of a line without its checksum; ``what`` names the line in errors."""
    try:
        return json.dumps(data, separators=(",", ":"), allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as exc:
        raise RecordError(f"{what} cannot be written: {exc}") from exc


def sealed(body: str) -> str:
    """The body of a line with its checksum as the last field, without the newline."""
    data = body.encode("ascii")
    check_limits(data)
    return f'{body[:-1]},"sum":"{zlib.crc32(data[:-1]):08x}"}}'


def body_of_sealed(line: bytes) -> bytes:
    """The body of a line that has a checksum."""
    return line[:-_TAIL] + b"}"


def parse_line(line: str | bytes) -> dict[str, Json]:
    """Parse a line into its JSON object, without the checksum."""
    if isinstance(line, str):
        line = line.encode("utf-8", "surrogatepass")
    line = line.strip()
    has_sum = _has_sum(line)
    if has_sum and not _fits_sum(line):
        raise DamagedLineError("damaged line")
    check_limits(line)
    try:
        data = _DECODER.decode(line.decode())
    except (ValueError, RecursionError) as exc:
        raise NotJsonError("not JSON") from exc
    if not isinstance(data, dict):
        raise RecordError("not a record (not a JSON object)")
    if not has_sum and ("sum" in data or "checked" in data):
        # Every writer of ``checked`` writes the sum: its name, or the end of the line, is damaged.
        raise DamagedLineError("damaged line")
    data.pop("sum", None)
    return data


def begins_log(data: bytes) -> bool:
    """Whether the first `BEGINNING` bytes of a file that is not empty are those of a log, so that
    lines may be appended to it.

    The first line that is neither blank nor a comment is a header, an expression or a record, of
    loopwright or of TVM, or the rest of one: a crash may have cut it off or damaged it, and a loss
    of power leaves zeros.
    """
    lines = (line.strip(b" \t\r\n\0") for line in data.removeprefix(BOM).split(b"\n"))
    contents = [line for line in lines if line and not line.startswith(b"#")]
    if not contents:
        return len(data) < BEGINNING and not data.strip(b" \t\r\n\0")
    rest = dropwhile(lambda line: any(opening.startswith(line) for opening in _OPENINGS), contents)
    first = next(rest, None)  # behind lines that were cut off after some bytes
    if first is None:
        return True
    try:
        fields = _DECODER.decode(first.decode())
    except (ValueError, RecursionError, RecordError):
        return first.startswith(_OPENINGS)
    if not isinstance(fields, dict):
        return False
    version = fields.get("v")
    newer = type(version) is int and version > 1  # whatever fields that has
    return newer or any(names <= fields.keys() for names in _KINDS)


def is_own_line(line: bytes) -> bool:
    """Whether a line, given without newline, begins and ends as this version writes one, fits its
    checksum, and is ASCII without DEL. It need not be JSON.
    """
    return (
        line.startswith(_OWN)
        and line.isascii()
        and b"\x7f" not in line
        and _has_sum(line)
        and _fits_sum(line)
    )


def _has_sum(line: bytes) -> bool:
    return line[-_TAIL : -_TAIL + len(_MARK)] == _MARK


def _fits_sum(line: bytes) -> bool:
    return line[-10:] == b'%08x"}' % zlib.crc32(memoryview(line)[:-_TAIL])


def check_limits(line: bytes) -> None:
    """Refuse lines that would exhaust a reader: too long, too deep, or with too long integers."""
    if len(line) > MAX_LINE:
        raise RecordError(f"longer than {MAX_LINE >> 20} MiB")
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and _depth(line) > MAX_DEPTH:
        raise RecordError(f"nested deeper than {MAX_DEPTH} levels")
    if _LONG in line.translate(_DIGITS):  # which may be in a string
        try:
            _CAREFUL.decode(line.decode())
        except (ValueError, RecursionError) as exc:
            raise NotJsonError("not JSON") from exc


def _depth(line: bytes) -> int:
    """Nesting depth of brackets outside of strings."""
    depth = deepest = 0
    for byte in _STRING.sub(b"", line).translate(None, _NO_BRACKET):
        depth += 1 if byte in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise RecordError("a number is infinite")
    return value


def _short(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise RecordError(f"a number has more than {MAX_DIGITS} digits")
    return int(text)


def _no_number(text: str) -> NoReturn:
    raise RecordError(f"{text} is no number")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number)
_CAREFUL = json.JSONDecoder(parse_float=_finite, parse_int=_short, parse_constant=_no_number)

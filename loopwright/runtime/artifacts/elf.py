"""Reading 64-bit little-endian ELF files: a section by its name, and the symbols.

It inspects an object before the system, which trusts it, maps it. ValueError and struct.error
mean that a file is cut short or damaged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_SYMBOL_TABLES = (2, 11)  # SHT_SYMTAB, SHT_DYNSYM
_FUNCTION = 2  # STT_FUNC


class Section(NamedTuple):
    """A header of a section."""

    name: int
    type: int
    begin: int
    length: int
    link: int


class Symbol(NamedTuple):
    """A symbol: whether the file defines it, whether it is a function, and its bytes."""

    defined: bool
    function: bool
    size: int


def is_elf(data: bytes) -> bool:
    """Whether bytes begin like a 64-bit little-endian ELF file."""
    return data[:6] == b"\x7fELF\x02\x01" and len(data) >= 64


def elf_section(data: bytes, name: bytes) -> bytes | None:
    """A section; None where there is none of that name."""
    headers, names = _sections(data)
    for s in headers:
        at = headers[names].begin + s.name
        if data[at : at + len(name) + 1] == name + b"\0":
            return _content(data, s)
    return None


def elf_symbols(data: bytes) -> dict[str, Symbol]:
    """The global symbols of an object file or a shared object."""
    headers, _ = _sections(data)
    out: dict[str, Symbol] = {}
    for s in headers:
        if s.type in _SYMBOL_TABLES:
            out |= dict(_symbols(_content(data, s), _content(data, headers[s.link])))
    return out


def _symbols(table: bytes, names: bytes) -> Iterator[tuple[str, Symbol]]:
    for name, info, _, section, _, size in struct.iter_unpack("<IBBHQQ", table):
        if name and info >> 4:  # local symbols have a binding of 0
            text = names[name : names.index(b"\0", name)].decode("ascii", "replace")
            yield text, Symbol(section != 0, info & 15 == _FUNCTION, size)


def _sections(data: bytes) -> tuple[list[Section], int]:
    """All headers, and the index of the one that has the names."""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = []
    for k in range(count):
        name, kind, _, _, begin, length, link = struct.unpack_from(
            "<IIQQQQI", data, table + k * size
        )
        headers.append(Section(name, kind, begin, length, link))
    if names >= len(headers) or any(h.link >= len(headers) for h in headers):
        raise ValueError("no sections")
    return headers, names


def _content(data: bytes, s: Section) -> bytes:
    content = data[s.begin : s.begin + s.length]
    if len(content) != s.length:
        raise ValueError("cut short")
    return content

"""Object files of the targets ``llvm`` and ``c``: read, checked against this CPU, and linked.

ELF files are read before the system, which trusts them, maps them: ValueError and struct.error mean
that one is cut short or damaged. Whether the CPU can run the code is decided by the features that a
manifest says it needs; only where it lacks them is the CPU's name compared (manifests of older
versions, and architectures on which a CPU's name does not give its features).

A function with checks has a record of int64 numbers: whether it is taken, then the values of the
check that failed. Of threads that fail at once one takes it. The function returns `FIRST_CODE` and
the number of the check.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from string import Formatter
from typing import NamedTuple

from loopwright.errors import RunError, TargetError, UsageError
from loopwright.runtime import linker, pool
from loopwright.runtime import packed_calls as packed_calls
from loopwright.runtime.artifacts.kinds import ArtifactKind
from loopwright.runtime.artifacts.manifest import Manifest
from loopwright.runtime.linker import Linked

#: Features of the CPU names that stand for a level and not for a CPU, for manifests without needs.
LEVELS = {
    "": "",
    "generic": "",
    "x86-64": "",
    "x86-64-v2": "sse4.2 popcnt",
    "x86-64-v3": "sse4.2 popcnt avx2 fma bmi bmi2 f16c lzcnt movbe",
    "x86-64-v4": "sse4.2 popcnt avx2 fma bmi bmi2 f16c lzcnt movbe "
    "avx512f avx512bw avx512cd avx512dq avx512vl",
}

_SYMBOL_TABLES = (2, 11)  # SHT_SYMTAB, SHT_DYNSYM
_FUNCTION = 2  # STT_FUNC
#: Result of a function whose first check fails, one more for each further check.
FIRST_CODE = 16


def check_host(manifest: Manifest) -> None:
    """Raise TargetError for a program that this machine's CPU may not be able to run.

    The architecture differs, a feature is missing, or a CPU of another name does not say what it
    needs; the message names both sides.
    """
    reason = _unfit(manifest.triple, manifest.cpu, manifest.features, manifest.needs)
    if reason:
        raise TargetError(reason)


@lru_cache(maxsize=64)
def _unfit(triple: str, cpu: str, features: str, needs: tuple[str, ...]) -> str:
    host = linker.host_cpu()
    arch, host_arch = triple.partition("-")[0], linker.host_triple().partition("-")[0]
    again = "build it on this machine, or for a CPU that both are"
    if arch != host_arch:
        return f"the program was built for {arch} ({cpu}), this machine is {host_arch} ({host})"
    if not needs and cpu != host and cpu not in LEVELS:
        return f"the program was built for the CPU {cpu}, this machine is a {host}; {again}"
    have = enabled(linker.host_features())
    needed = set(needs) or set(LEVELS.get(cpu, "").split()) | enabled(features)
    missing = sorted(needed - have)
    if missing:
        return (
            f"the program was built for {cpu or 'generic'} with {', '.join(missing)}, "
            f"which this machine's {host} lacks; {again}"
        )
    return ""


def enabled(features: str) -> set[str]:
    """The features that a string such as ``+avx2,-avx512f`` turns on."""
    return {name[1:] for name in features.split(",") if name.startswith("+")}


class Section(NamedTuple):
    """A header of a section."""

    name: int
    type: int
    begin: int
    length: int
    link: int


class ElfSymbol(NamedTuple):
    """A symbol: whether the file defines it, whether it is a function, and its bytes."""

    defined: bool
    function: bool
    size: int


def elf_section(data: bytes, name: bytes) -> bytes | None:
    """A section; None where there is none of that name."""
    headers, names = _sections(data)
    for s in headers:
        at = headers[names].begin + s.name
        if data[at : at + len(name) + 1] == name + b"\0":
            return _content(data, s)
    return None


def _symbols(table: bytes, names: bytes) -> Iterator[tuple[str, ElfSymbol]]:
    for name, info, _, section, _, size in struct.iter_unpack("<IBBHQQ", table):
        if name and info >> 4:  # local symbols have a binding of 0
            text = names[name : names.index(b"\0", name)].decode("ascii", "replace")
            yield text, ElfSymbol(section != 0, info & 15 == _FUNCTION, size)


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


def record_name(function: str) -> str:
    return f"lw_checks_{function}"


def values_in(text: str) -> int:
    """Number of values that a message needs: one more than its largest field."""
    fields = [int(field) for _, field, _, _ in Formatter().parse(text) if field]
    return max(fields, default=-1) + 1


def failed_check(
    addresses: Mapping[str, int], checks: Mapping[str, Sequence[str]], code: int
) -> RunError | None:
    """The error of a check that failed, or None where `code` is another failure; frees the record.

    `addresses` are those of the records, by symbol; `checks` the messages of each function.
    """
    for name, texts in checks.items():
        record = ctypes.cast(addresses[record_name(name)], ctypes.POINTER(ctypes.c_int64))
        if FIRST_CODE <= record[0] < FIRST_CODE + len(texts):
            text = texts[record[0] - FIRST_CODE]
            error = RunError(f"{name}: {text.format(*record[1 : values_in(text) + 1])}")
            record[0] = 0
            return error
        if FIRST_CODE <= code < FIRST_CODE + len(texts):
            return RunError(f"{name}: a check failed in several calls at once (code {code})")
    return None


def link_object(manifest: Manifest, objects: bytes) -> Linked:
    """Link an object file, with the thread pool where it has parallel loops.

    TargetError where this CPU may not be able to run it, RunError where it is no object file or
    lacks a function, UsageError where the manifest contradicts it.
    """
    check_host(manifest)
    _check_object(manifest, objects)
    imports = {}
    if any(f.uses_pool for f in manifest.functions):
        imports[pool.LAUNCH] = pool.launch_address(manifest.num_threads)
    if calls_packed(manifest):
        imports[packed_calls.CALL] = packed_calls.call_address()
    checks = {f.name: f.checks for f in manifest.functions if f.checks}
    exports = [*(f.name for f in manifest.functions), *map(record_name, checks)]
    linked = linker.link(objects, exports, imports)
    if checks:
        linked = replace(linked, complaint=partial(failed_check, linked.addresses, checks))
    return with_callbacks(manifest, linked)


def calls_packed(manifest: Manifest) -> bool:
    """Whether a function of it calls packed functions."""
    return any(f.packed for f in manifest.functions)


def with_callbacks(manifest: Manifest, linked: Linked) -> Linked:
    """Code that raises exceptions of the packed functions that it calls again."""
    if not calls_packed(manifest):
        return linked
    other = linked.complaint

    def complaint(code: int) -> Exception | None:
        error = packed_calls.failure(code)
        if error is None:
            return other(code) if other is not None else None
        if isinstance(error, Exception):
            return error
        raise error  # Ctrl-C

    return replace(linked, complaint=complaint)


def defined_symbols(manifest: Manifest, code: bytes) -> dict[str, ElfSymbol]:
    """The global symbols of a 64-bit little-endian ELF file; none for other formats.

    UsageError where a function of the manifest is missing, or the file is damaged.
    """
    symbols: dict[str, ElfSymbol] = {}
    if code[:6] != b"\x7fELF\x02\x01" or len(code) < 64:
        return symbols
    try:
        headers, _ = _sections(code)
        for s in (s for s in headers if s.type in _SYMBOL_TABLES):
            symbols |= dict(_symbols(_content(code, s), _content(code, headers[s.link])))
    except (struct.error, ValueError):
        raise UsageError("the code is damaged or cut short; build it again") from None
    for f in manifest.functions:
        symbol = symbols.get(f.name)
        if symbol is None or not (symbol.defined and symbol.function):
            raise UsageError(f"the code has no function {f.name!r}; build it again")
    return symbols


def _check_object(manifest: Manifest, objects: bytes) -> None:
    """Raise UsageError where a manifest contradicts its object file; only ELF files are read.

    A function is missing, the record of its checks is missing or too small, or the object needs the
    thread pool and the manifest does not say so.
    """
    symbols = defined_symbols(manifest, objects)
    for f in manifest.functions if symbols else ():
        words = 1 + max(map(values_in, f.checks), default=0)
        record = symbols.get(record_name(f.name))
        if f.checks and (record is None or record.size < 8 * words):
            raise UsageError(f"the checks of {f.name!r} have no record; build it again")
    if symbols.get(pool.LAUNCH) is not None and not any(f.uses_pool for f in manifest.functions):
        raise UsageError("the code has parallel loops, its manifest has none; build it again")
    if packed_calls.CALL in symbols and not calls_packed(manifest):
        raise UsageError("the code calls packed functions, its manifest none; build it again")


LLVM_OBJECT = ArtifactKind("llvm-object", "llvm", "o", "object", link=link_object, check=check_host)
C_OBJECT = ArtifactKind("c-object", "c", "o", "object", link=link_object, check=check_host)

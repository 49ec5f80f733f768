"""Object files of the targets ``llvm`` and ``c``, and their linking into this process."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import partial

from loopwright.errors import UsageError
from loopwright.runtime import linker, pool
from loopwright.runtime.artifacts.check_records import failed_check, record_name, values_in
from loopwright.runtime.artifacts.cpu_fit import check_host
from loopwright.runtime.artifacts.elf import Symbol, elf_symbols, is_elf
from loopwright.runtime.artifacts.kinds import ArtifactKind
from loopwright.runtime.artifacts.manifest import Manifest
from loopwright.runtime.linker import Linked
from loopwright.runtime.packed import calls as packed_calls


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
        failed = partial(failed_check, linked.addresses, checks)
        linked = replace(linked, complaint=failed)
    return with_callbacks(manifest, linked)


def calls_packed(manifest: Manifest) -> bool:
    """Whether a function of it calls packed functions."""
    return any(f.packed for f in manifest.functions)


def with_callbacks(manifest: Manifest, linked: Linked) -> Linked:
    """Code that raises exceptions of the packed functions that it calls again."""
    if not calls_packed(manifest):
        return linked
    own = linked.complaint

    def complaint(code: int) -> Exception | None:
        error = packed_calls.failure(code)
        if error is None:
            return own(code) if own is not None else None
        if isinstance(error, Exception):
            return error
        raise error  # Ctrl-C

    return replace(linked, complaint=complaint)


def defined_symbols(manifest: Manifest, code: bytes) -> dict[str, Symbol]:
    """The symbols of an ELF file; none for other formats.

    UsageError where a function of the manifest is missing, or the file is damaged.
    """
    if not is_elf(code):
        return {}
    try:
        symbols = elf_symbols(code)
    except (struct.error, ValueError):
        raise UsageError("the code is damaged or cut short; build it again") from None
    for f in manifest.functions:
        found = symbols.get(f.name)
        if found is None or not (found.defined and found.function):
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
    launch = symbols.get(pool.LAUNCH)
    if launch is not None and not any(f.uses_pool for f in manifest.functions):
        raise UsageError("the code has parallel loops, its manifest has none; build it again")
    if packed_calls.CALL in symbols and not calls_packed(manifest):
        raise UsageError("the code calls packed functions, its manifest none; build it again")


LLVM_OBJECT = ArtifactKind("llvm-object", "llvm", "o", "object", link=link_object, check=check_host)
C_OBJECT = ArtifactKind("c-object", "c", "o", "object", link=link_object, check=check_host)

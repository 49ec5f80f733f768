"""Shared objects with a manifest, as `Module.export_library` writes them: read and loaded without
LLVM.

The manifest is JSON in a section of the ELF file (``.loopwright``), and the exported symbol
``lw_manifest``. It names the CPU features that the code needs, so that nothing is run on a CPU that
lacks one, and the checksum of the file, taken with the checksum's own digits as zeros.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import os
import struct
import tempfile
from pathlib import Path

from loopwright import env
from loopwright.errors import RunError, TargetError, UsageError
from loopwright.runtime import linker, pool
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.runtime.artifacts.cpu_fit import check_host
from loopwright.runtime.artifacts.elf import elf_section
from loopwright.runtime.artifacts.kinds import ArtifactKind
from loopwright.runtime.artifacts.manifest import Manifest
from loopwright.runtime.artifacts.objects import calls_packed, defined_symbols, with_callbacks
from loopwright.runtime.calling import fastcall
from loopwright.runtime.linker import Linked
from loopwright.runtime.packed import calls as packed_calls

SECTION = b".loopwright"
ZEROS = "0" * 64
_loads = itertools.count()
_CONFIGURE = "lw_pool_configure"
#: Names of features that differ from those of /proc/cpuinfo by more than dots and underscores.
_FLAGS = {"sse3": "pni", "lzcnt": "abm", "bmi": "bmi1"}


def is_shared_object(data: bytes) -> bool:
    """Whether bytes begin like an ELF shared object."""
    return data[:4] == b"\x7fELF" and len(data) > 18 and data[16:18] == b"\x03\x00"


def read_library(path: Path, data: bytes) -> Artifact:
    """The artifact in an exported library.

    UsageError where it is none, damaged, or of a newer format; TargetError, which names both CPUs,
    where it is for another one.
    """
    try:
        text = elf_section(data, SECTION)
        manifest = None if text is None else json.loads(text.rstrip(b"\0"))
    except (struct.error, ValueError, RecursionError):
        raise UsageError(f"{path} is damaged or cut short; export it again") from None
    if not isinstance(manifest, dict) or "sha256" not in manifest:
        raise UsageError(f"{path} is a shared object, but not one that export_library wrote")
    digest = str(manifest.pop("sha256"))
    if digest != checksum(data, digest):
        raise UsageError(f"{path} is damaged: its checksum differs; export it again")
    library = Artifact(manifest, data)
    check_cpu(library.contents)
    defined_symbols(library.contents, data)
    return library


def checksum(data: bytes, digest: str) -> str:
    """The checksum of a library whose manifest holds these 64 digits at present."""
    return hashlib.sha256(data.replace(digest.encode(), ZEROS.encode(), 1)).hexdigest()


def check_cpu(manifest: Manifest) -> None:
    """Raise TargetError for a library that this machine's CPU cannot run; both CPUs are named.

    It asks the system, not LLVM.
    """
    arch = manifest.triple.partition("-")[0]
    if arch == linker.architecture() != "x86_64":
        check_host(manifest)  # the system's names of features are those of x86 only
        return
    model, there = env.cpu_info()[0], linker.architecture()
    built = f"the library was built for {manifest.cpu or 'any'} {arch}"
    if arch != there:
        raise TargetError(f"{built}, this machine is {there} ({model}); export it for {there}")
    have = {_plain(flag) for flag in env.cpu_flags()}
    missing = [n for n in manifest.needs if _plain(_FLAGS.get(n, n)) not in have]
    if missing:
        raise TargetError(
            f"{built} with {', '.join(missing)}, which this machine's {model} lacks; export it for "
            "a CPU that both are, such as mcpu=x86-64-v3"
        )


def _plain(name: str) -> str:
    return name.replace("_", "").replace(".", "")


def link_library(manifest: Manifest, data: bytes) -> Linked:
    """Load a library from memory: the file may be replaced or removed while its code is used."""
    check_cpu(manifest)  # before anything of it is mapped
    return link_loaded(manifest, _open(manifest.entry, data))


def link_loaded(manifest: Manifest, library: ctypes.CDLL) -> Linked:
    """The functions of a library that is in this process already; errors as `link_library`."""
    check_cpu(manifest)
    names = [f.name for f in manifest.functions]
    names += [name for name in fastcall.SYMBOLS if hasattr(library, name)]
    linked = Linked({name: _address(library, name) for name in names}, library)
    if any(f.uses_pool for f in manifest.functions):
        configure = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_int32)(
            _address(library, _CONFIGURE)
        )
        pool.follow(configure, manifest.num_threads)
    if calls_packed(manifest):
        bind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_address(library, packed_calls.CONFIGURE))
        bind(packed_calls.call_address())
    return with_callbacks(manifest, linked)


def _open(entry: str, data: bytes) -> ctypes.CDLL:
    descriptor, name = -1, ""
    try:
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create(entry)
            name = _name_of(descriptor)
        else:
            descriptor, name = tempfile.mkstemp(prefix="loopwright-", suffix=".so")
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        return ctypes.CDLL(name)
    except OSError as error:
        raise RunError(f"{entry}: the library cannot be loaded: {error}") from error
    finally:
        if descriptor >= 0:
            os.close(descriptor)
        if name and not name.startswith("/proc/"):
            Path(name).unlink(missing_ok=True)


def _name_of(descriptor: int) -> str:
    """A path of an open file that no library was loaded from before.

    ``dlopen`` returns the library that it loaded under a name, whatever is there now, and numbers
    of descriptors come again. So the path has empty steps, which spell a number in binary.
    """
    steps = f"{next(_loads):b}".replace("0", "/").replace("1", "/.")
    return f"/proc/self/fd{steps}/{descriptor}"


def _address(library: ctypes.CDLL, name: str) -> int:
    try:
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        raise UsageError(f"the library has no function {name!r}; export it again") from None
    assert address is not None
    return address


LIBRARY = ArtifactKind("shared-library", None, "so", "library", link=link_library, check=check_host)

"""Static libraries: an archive of the kernel's object, the runtime's own, and the manifest.

A C program links it like any other. `Module.load` reads it as well: the archive holds the object
file of the kernel, and its manifest in an object of its own (section ``.loopwright``, symbol
``lw_manifest``), with the checksum of the archive.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

from loopwright.errors import UsageError
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.runtime.artifacts.cpu_fit import check_host
from loopwright.runtime.artifacts.elf import elf_section
from loopwright.runtime.artifacts.objects import defined_symbols
from loopwright.runtime.libraries.library import SECTION, checksum

MAGIC = b"!<arch>\n"
#: Members of an archive.
KERNEL, MANIFEST, POOL, PACKED = "kernel.o", "manifest.o", "pool.o", "packed.o"
_HEADER = 60


def is_archive(data: bytes) -> bool:
    """Whether bytes begin like an archive of object files."""
    return data[: len(MAGIC)] == MAGIC


def members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files in an archive of short names; ValueError where damaged."""
    at = len(MAGIC)
    while at < len(data):
        header = data[at : at + _HEADER]
        if len(header) != _HEADER or header[58:] != b"`\n":
            raise ValueError("a member has no header")
        size = int(header[48:58])
        content = data[at + _HEADER : at + _HEADER + size]
        if size < 0 or len(content) != size:
            raise ValueError("a member is cut short")
        yield header[:16].decode("ascii", "replace").rstrip(" ").rstrip("/"), content
        at += _HEADER + size + size % 2


def read_static_library(path: Path, data: bytes) -> Artifact:
    """The artifact in a static library; UsageError if it is none, TargetError for another CPU."""
    try:
        files = dict(members(data))
        text = elf_section(files[MANIFEST], SECTION) if MANIFEST in files else None
        manifest = None if text is None else json.loads(text.rstrip(b"\0"))
    except (struct.error, ValueError, RecursionError):
        raise UsageError(f"{path} is damaged or cut short; export it again") from None
    if not isinstance(manifest, dict) or "sha256" not in manifest or KERNEL not in files:
        raise UsageError(f"{path} is an archive, but not one that export_library wrote")
    digest = str(manifest.pop("sha256"))
    if digest != checksum(data, digest):
        raise UsageError(f"{path} is damaged: its checksum differs; export it again")
    artifact = Artifact(manifest, files[KERNEL])
    check_host(artifact.contents)
    defined_symbols(artifact.contents, artifact.objects)
    return artifact

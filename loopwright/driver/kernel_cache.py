"""Built kernels kept on disk, so that a program that was compiled before is not compiled again.

An entry is one file, found by a hash of everything that decides the code: the program, its steps
and arguments, the target, the settings of the passes, the compiler's source with the version of
llvmlite, and the C compiler's version where it is used. A change of any of them makes another key,
so that a stale entry is never used. The file begins with a checksum of the rest: a damaged one
counts as missing. It is written beside its place and renamed, so that several processes may share
a folder.

Machine code is run as it is: the folder must belong to this user, and nobody else may write to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import platform
import stat
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from loopwright.env import cache_folder
from loopwright.errors import LoopwrightError, UsageError
from loopwright.ir.sizes import SizeVar
from loopwright.lowering.context import PassContext
from loopwright.records import build_hash
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.schedule.surface.schedule import Schedule
from loopwright.target import Target
from loopwright.te.dag import ArgId

#: Version of the entries' form, a part of the key.
_FORMAT = 1
#: Bytes of all entries; the ones that were used least lately are removed beyond it.
LIMIT = 512 << 20
#: Kinds of target whose compiler is the one that `build_hash` knows, and whose code is bytes.
_KINDS = ("llvm", "c")
#: Seconds after which a file that a killed process left half-written is removed.
_ABANDONED_S = 3600.0
_SUFFIX = ".kernel"
#: Entries that a process writes before it looks again how large the folder is.
_TRIM_EVERY = 32

log = logging.getLogger("loopwright")


class KernelCache:
    """Artifacts in a folder.

    Args:
        folder: where entries are kept; made, for this user alone, when the first one is written.
        limit: bytes of all entries.

    Attributes:
        hits, misses: how often an artifact was read, and how often there was none.
    """

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder = folder
        self.limit = limit
        self.hits = self.misses = 0
        self._written = 0

    def get(self, key: str) -> Artifact | None:
        """The artifact of a key; None where there is none that is whole."""
        artifact = _parse(self._read(key))
        self.hits += artifact is not None
        self.misses += artifact is None
        return artifact

    def put(self, key: str, artifact: Artifact) -> None:
        """Keep an artifact. Where it cannot be written, that is said once, and nothing is kept."""
        body = json.dumps(artifact.manifest).encode() + b"\n" + artifact.objects
        data = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_private():
                return
            descriptor, name = tempfile.mkstemp(dir=self.folder, prefix=".new-")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                os.replace(name, self._path(key))
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name)
                raise
            if self._written % _TRIM_EVERY == 0:
                self._trim()
            self._written += 1
        except OSError as error:
            _say_once(f"kernels cannot be kept in {self.folder}: {error.strerror or error}")

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _read(self, key: str) -> bytes:
        """The bytes of an entry, which is marked as used; empty where there is none of ours."""
        if not self._is_private():
            return b""
        try:
            descriptor = os.open(self._path(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # there is none, or none that can be read: it is built
            return b""
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                return b""
            with contextlib.suppress(OSError):  # a read-only folder serves as it is
                os.utime(descriptor)
            return file.read()

    def _is_private(self) -> bool:
        """Whether the folder exists, is this user's, and nobody else can write to it."""
        try:
            found = os.lstat(self.folder)
        except OSError:
            return False
        if not stat.S_ISDIR(found.st_mode):
            problem = "it is no folder"
        elif found.st_uid != os.geteuid():
            problem = "it belongs to another user"
        elif found.st_mode & 0o022:
            problem = f"others may write to it; chmod 700 {self.folder}"
        else:
            return True
        _say_once(f"the kernels kept in {self.folder} are not used: {problem}")
        return False

    def _trim(self) -> None:
        """Remove what was used least lately until nine tenths of the limit are left."""
        entries = []
        for item in os.scandir(self.folder):
            with contextlib.suppress(FileNotFoundError):  # another process trims as well
                found = item.stat(follow_symlinks=False)
                entries.append((found.st_mtime, found.st_size, item.path))
        total = sum(size for _, size, path in entries if path.endswith(_SUFFIX))
        left = total if total <= self.limit else 0.9 * self.limit
        for used, size, path in sorted(entries):
            kept = path.endswith(_SUFFIX)
            abandoned = not kept and ".new-" in path and used < time.time() - _ABANDONED_S
            if abandoned or (kept and total > left):
                total -= size if kept else 0
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)


def _parse(data: bytes) -> Artifact | None:
    """The artifact of an entry; None where it is damaged."""
    digest, _, body = data.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        return None
    manifest, _, objects = body.partition(b"\n")
    try:
        return Artifact(json.loads(manifest), objects)
    except (ValueError, LoopwrightError):
        return None


def program_key(
    dag: Mapping[str, Any],
    trace: Sequence[Any],
    arg_ids: Sequence[ArgId],
    target: Target,
    passes: Mapping[str, Any],
    name: str,
    order: Sequence[Any] | None = None,
) -> str | None:
    """The key of a program's code; None where the compiler is not one that a hash describes.

    Args:
        dag, trace: the program and its steps, as JSON.
        arg_ids: inputs and outputs in calling order.
        target: what it is compiled for.
        passes: settings of the `PassContext`, as its ``to_json`` gives them.
        name: name of the function.
        order: arguments of a call as JSON, where sizes are passed among the arrays.
    """
    if target.kind not in _KINDS:
        return None
    facts = [
        *(_FORMAT, platform.machine(), platform.system(), build_hash(target.canonical, passes)),
        *(dag, trace, list(arg_ids), order, target.canonical, passes, name),
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def schedule_key(
    s: Schedule,
    arg_ids: Sequence[ArgId],
    target: Target,
    name: str,
    order: Sequence[int | SizeVar] | None,
) -> str | None:
    """The key of a schedule in the current `PassContext`; None where it cannot be kept."""
    try:
        passes = PassContext.current().to_json()
    except UsageError:  # passes and instruments of this process have no hash, and may act
        return None
    numbers = {v: f"s{i}" for i, v in enumerate(s.dag.sizes)}
    passed = None if order is None else [n if isinstance(n, int) else numbers[n] for n in order]
    return program_key(s.dag.to_json(), s.trace_json(), arg_ids, target, passes, name, passed)


@lru_cache(maxsize=1)
def kernel_cache() -> KernelCache | None:
    """The cache of this user, as ``LOOPWRIGHT_CACHE`` says; None where it is switched off."""
    folder = cache_folder()
    return None if folder is None else KernelCache(folder)


@lru_cache(maxsize=64)
def _say_once(text: str) -> None:
    log.warning("%s", text)

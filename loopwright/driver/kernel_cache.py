"""Built kernels kept on disk, each in a file found by a hash of everything that decides the code:
the program, its steps and arguments, the target, the settings of the passes, the compiler's source,
and the versions of llvmlite and of a C compiler that is used. So a stale entry is never used.
`loopwright.runtime.caches` keeps the files."""

from __future__ import annotations

import hashlib
import json
import platform
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
from loopwright.runtime.caches import FileStore, count_cache
from loopwright.schedule.surface.schedule import Schedule
from loopwright.target import Target
from loopwright.te.dag import ArgId

#: Version of the entries' form, a part of the key.
_FORMAT = 1
#: Bytes of all entries; the ones that were used least lately are removed beyond it.
LIMIT = 512 << 20
#: Kinds of target whose compiler is the one that `build_hash` knows, and whose code is bytes.
_KINDS = ("llvm", "c")


class KernelCache:
    """Artifacts in a folder, made for this user alone at the first write; ``limit`` bytes in
    all."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self._store = FileStore(folder, limit, ".kernel", "kernels")
        self._counts = count_cache(self)

    @property
    def folder(self) -> Path:
        return self._store.folder

    @property
    def hits(self) -> int:
        """Number of artifacts read."""
        return self._counts.hits

    @property
    def misses(self) -> int:
        """Number of look-ups that found no whole artifact."""
        return self._counts.misses

    def get(self, key: str) -> Artifact | None:
        """The artifact of a key; None where there is none that is whole."""
        body = self._store.get(key)
        artifact = None if body is None else _parse(body)
        self._counts.hits += artifact is not None
        self._counts.misses += artifact is None
        return artifact

    def put(self, key: str, artifact: Artifact) -> None:
        """Keep an artifact; a failure to write is reported once, and nothing is kept."""
        self._store.put(key, json.dumps(artifact.manifest).encode() + b"\n" + artifact.objects)


def _parse(body: bytes) -> Artifact | None:
    """The artifact of an entry; None where it is not one of this version."""
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

    ``dag``, ``trace`` and ``order`` are JSON; ``order`` has the arguments of a call, where sizes
    are passed among the arrays.
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

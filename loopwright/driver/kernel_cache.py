"""Built kernels kept on disk, so that a program that was compiled before is not compiled again.

An entry is one file, found by a hash of everything that decides the code: the program, its steps
and arguments, the target, the settings of the passes, the compiler's source with the version of
llvmlite, and the C compiler's version where it is used. A change of any of them makes another key,
so that a stale entry is never used. `loopwright.runtime.caches.file_store` keeps the files.
"""

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
from loopwright.runtime.caches.file_store import FileStore
from loopwright.runtime.usage import count_cache
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
    """Artifacts in a folder.

    Args:
        folder: where entries are kept; made, for this user alone, when the first one is written.
        limit: bytes of all entries.
    """

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self._store = FileStore(folder, limit, ".kernel", "kernels")
        self._counts = count_cache(self)

    @property
    def folder(self) -> Path:
        """Where entries are kept."""
        return self._store.folder

    @property
    def hits(self) -> int:
        """How often an artifact was read."""
        return self._counts.hits

    @property
    def misses(self) -> int:
        """How often there was none that is whole."""
        return self._counts.misses

    def get(self, key: str) -> Artifact | None:
        """The artifact of a key; None where there is none that is whole."""
        body = self._store.get(key)
        artifact = None if body is None else _parse(body)
        self._counts.hits += artifact is not None
        self._counts.misses += artifact is None
        return artifact

    def put(self, key: str, artifact: Artifact) -> None:
        """Keep an artifact. Where it cannot be written, that is said once, and nothing is kept."""
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

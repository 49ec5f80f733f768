"""Compiled programs kept on disk between runs of the tests, by a hash of the sources that affect
them.

A test that changes the compiler while it runs (it patches a function, or adds a pass) must not use
the cache: the key does not show such a change.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from loopwright.codegen.kernel_cache import KernelCache, cache_key
from loopwright.driver import compile as compile_trace
from loopwright.lowering.context import PassContext
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.target import Target
from loopwright.te.dag import ArgId, Dag

#: Parts of the package that have no influence on compiled code.
_NOT_COMPILER = {"autotvm", "cli", "cost", "measure", "records", "testing", "tuner"}
#: Days after which the entries of other versions of the compiler are removed.
_KEPT_DAYS = 3


class ArtifactCache:
    """Artifacts in a folder; ``kernels`` are the entries of this version of the compiler."""

    def __init__(self, folder: Path) -> None:
        self.kernels = KernelCache(folder / compiler_hash())
        _remove_old_entries(folder, keep=self.kernels.folder.name)

    @property
    def hits(self) -> int:
        return self.kernels.hits

    @property
    def misses(self) -> int:
        return self.kernels.misses

    def compile(
        self,
        dag: dict[str, Any],
        trace: list[list[Any]],
        arg_ids: Sequence[ArgId],
        target: Target,
        context: PassContext,
        name: str = "main",
    ) -> Artifact:
        """The artifact of a program and its schedule, both as JSON, from the folder if it
        is there.
        """
        key = cache_key(dag, trace, arg_ids, target, context.to_json(), name)
        artifact = None if key is None else self.kernels.get(key)
        if artifact is not None:
            return artifact
        with context:
            artifact = compile_trace(Dag.from_json(dag), trace, arg_ids, target, name)
        if key is not None:
            self.kernels.put(key, artifact)
        return artifact


@cache
def compiler_hash() -> str:
    """A hash of the compiler's source files and of the version of llvmlite."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256(version("llvmlite").encode())
    files = (p for p in root.rglob("*") if p.suffix in (".py", ".ll"))
    for path in sorted(p for p in files if p.relative_to(root).parts[0] not in _NOT_COMPILER):
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _remove_old_entries(folder: Path, keep: str) -> None:
    """Remove entries of other versions of the compiler that were not used for some days."""
    oldest = time.time() - _KEPT_DAYS * 86400
    for other in folder.glob("*"):
        if other.name != keep and other.stat().st_mtime < oldest:
            shutil.rmtree(other, ignore_errors=True)

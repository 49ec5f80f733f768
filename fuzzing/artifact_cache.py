"""Compiled programs kept on disk between runs of the tests, by a hash of the compiler's sources.

A test that changes the compiler while it runs (it patches a function, or adds a pass) must not use
the cache: the key does not show such a change.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from loopwright.codegen.kernel_cache import KernelCache, cache_key
from loopwright.driver import compile as compile_trace
from loopwright.lowering.context import PassContext
from loopwright.records import build_hash
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.target import Target
from loopwright.te.dag import ArgId, Dag

#: Days after which the entries of other versions of the compiler are removed.
_KEPT_DAYS = 3


class ArtifactCache:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def kernels(self) -> KernelCache:
        """Entries of this version of the compiler; made at first use, when variables are set."""
        kernels = KernelCache(self._folder / build_hash())
        _remove_old_entries(self._folder, keep=kernels.folder.name)
        return kernels

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
        key = cache_key(dag, trace, arg_ids, target, context.to_json(), name)
        artifact = None if key is None else self.kernels.get(key)
        if artifact is not None:
            return artifact
        with context:
            artifact = compile_trace(Dag.from_json(dag), trace, arg_ids, target, name)
        if key is not None:
            self.kernels.put(key, artifact)
        return artifact


def _remove_old_entries(folder: Path, keep: str) -> None:
    oldest = time.time() - _KEPT_DAYS * 86400
    for other in folder.glob("*"):
        if other.name != keep and other.stat().st_mtime < oldest:
            shutil.rmtree(other, ignore_errors=True)

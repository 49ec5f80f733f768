"""Compiled programs kept on disk between runs of the tests.

An entry is found by everything that decides the compiled code: the program and its trace, the
arguments, the target with the features of this CPU, the settings of the passes, the source files of
the compiler, and the versions of llvmlite and of the C compiler. A change of any of them makes
another key, so that a stale entry is never used. Entries are written to a temporary file which is
then renamed: several test processes may share a folder.

A test that changes the compiler while it runs (it patches a function, or adds a pass) must not use
the cache: the key does not show such a change.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

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
    """Artifacts in a folder.

    Args:
        folder: where entries are kept; it is created when the first one is written.

    Attributes:
        hits, misses: how often an artifact was read, and how often it was compiled.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / compiler_hash()
        self.hits = self.misses = 0
        _remove_old_entries(folder, keep=self.folder.name)

    def compile(
        self,
        dag: dict[str, Any],
        trace: list[list[Any]],
        arg_ids: Sequence[ArgId],
        target: Target,
        context: PassContext,
        name: str = "main",
    ) -> Artifact:
        """The artifact of a program, from the folder if it is there.

        Args:
            dag, trace: the program and its schedule, as JSON.
            arg_ids: inputs and outputs in calling order.
            target: what it is compiled for.
            context: the settings of the passes.
            name: name of the function.
        """
        facts = [
            dag,
            trace,
            arg_ids,
            target.canonical,
            _c_compiler(target),
            context.to_json(),
            name,
        ]
        key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        path = self.folder / key
        if path.exists():
            self.hits += 1
            manifest, _, objects = path.read_bytes().partition(b"\n")
            return Artifact(json.loads(manifest), objects)
        self.misses += 1
        with context:
            artifact = compile_trace(Dag.from_json(dag), trace, arg_ids, target, name)
        _write(path, json.dumps(artifact.manifest).encode() + b"\n" + artifact.objects)
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


def _c_compiler(target: Target) -> str:
    return _version_of(target.options["cc"]) if target.kind == "c" else ""


@cache
def _version_of(compiler: str) -> str:
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0]


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    os.replace(name, path)


def _remove_old_entries(folder: Path, keep: str) -> None:
    """Remove what other versions of the compiler left, if it was not used for some days."""
    oldest = time.time() - _KEPT_DAYS * 86400
    for other in folder.glob("*"):
        if other.name != keep and other.stat().st_mtime < oldest:
            shutil.rmtree(other, ignore_errors=True)

"""Compiled programs are found again, and only where all that decides their code is the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fuzzing import fuzz
from fuzzing.differential import ArtifactCache
from loopwright.lowering.context import PassContext
from loopwright.records import build_hash
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.target import Target

CASE = fuzz.example(0)[0]


def compiled(cache: ArtifactCache, target: str = "llvm", level: int = 2) -> Artifact:
    ids = CASE.arg_ids
    return cache.compile(CASE.dag, CASE.trace, ids, Target(target), PassContext(level))


def test_a_second_process_finds_what_the_first_has_compiled(tmp_path: Path) -> None:
    first, second = ArtifactCache(tmp_path), ArtifactCache(tmp_path)
    artifact = compiled(first)
    assert compiled(second) == artifact
    assert (first.hits, first.misses) == (0, 1)
    assert (second.hits, second.misses) == (1, 0)


@pytest.mark.parametrize(
    "other", [{"level": 0}, {"target": "llvm -mcpu=x86-64"}, {"target": "llvm -num-threads=1"}]
)
def test_other_settings_are_compiled_anew(tmp_path: Path, other: dict) -> None:
    cache = ArtifactCache(tmp_path)
    compiled(cache)
    compiled(cache, **other)
    assert (cache.hits, cache.misses) == (0, 2)


def test_what_an_older_compiler_left_goes_after_some_days(tmp_path: Path) -> None:
    for name, days in (("old", 10), ("recent", 1), (build_hash(), 10)):
        folder = tmp_path / name
        folder.mkdir()
        then = folder.stat().st_mtime - days * 86400
        os.utime(folder, (then, then))
    _ = ArtifactCache(tmp_path).kernels
    assert {p.name for p in tmp_path.iterdir()} == {"recent", build_hash()}

"""Each way to run a program; what a test registers is gone after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from loopwright.runtime import list_global_func_names, remove_global_func
from tests.unit.codegen.packed.programs import PATHS, Path_


@pytest.fixture(params=PATHS)
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path_:
    monkeypatch.chdir(tmp_path)
    return PATHS[request.param]


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    before = set(list_global_func_names())
    yield
    for name in set(list_global_func_names()) - before:
        remove_global_func(name)

"""Modules: names, sources, saving, loading in another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loopwright.errors import UsageError
from loopwright.runtime import Module, PackedFunc, load_module
from tests.unit.runtime import kernels

ROOT = Path(__file__).parents[3]


def test_functions_are_found_by_name() -> None:
    module = kernels.add_one()
    assert module.entry_name == "add_one"
    assert module.functions == ("add_one",)
    assert module.get_function_list() == ["add_one"]
    assert module["add_one"] is module.get_function("add_one", query_imports=True)
    assert isinstance(module["add_one"], PackedFunc)
    assert module.type_key == "llvm"
    assert "add_one" in repr(module)
    assert repr(module["add_one"]) == "<Function add_one(A: float32[2, 3], B: float32[2, 3])>"


def test_an_unknown_function_names_the_known_ones() -> None:
    with pytest.raises(AttributeError, match=r"no function 'add_on' \(did you mean 'add_one'"):
        kernels.add_one()["add_on"]


def test_sources_are_made_when_asked_for_and_once() -> None:
    asked = []

    def asm() -> str:
        asked.append(1)
        return "ret"

    module = Module(kernels.add_one().artifact, {"ll": "define", "asm": asm})
    assert module.get_source() == "define"
    assert module.get_source("asm") == module.get_source("asm") == "ret"
    assert asked == [1]
    with pytest.raises(UsageError, match="no source of kind 'cuda'; available: ll, asm"):
        module.get_source("cuda")


@pytest.mark.usefixtures("processes_share_the_cpu")
def test_a_saved_module_runs_in_another_process(tmp_path: Path) -> None:
    path = kernels.add_one().save(tmp_path / "kernel.o")
    code = """
import sys, numpy as np
from loopwright.runtime import load_module
a, b = np.ones((2, 3), "float32"), np.zeros((2, 3), "float32")
load_module(sys.argv[1])(a, b)
unwanted = [m for m in sys.modules if m.startswith("loopwright.") and "runtime" not in m]
print(b.sum(), sorted(unwanted))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = [f"loopwright.{m}" for m in ("dtypes", "env", "errors", "files", "lazy", "version")]
    assert done.stdout == f"12.0 {expected}\n"


def test_a_loaded_module_has_no_sources(tmp_path: Path) -> None:
    path = kernels.add_one().save(tmp_path / "kernel.o")
    with pytest.raises(UsageError, match="loaded without its sources"):
        load_module(path).get_source()


def test_a_loaded_module_computes_the_same(tmp_path: Path) -> None:
    module = kernels.cover(100)
    loaded = load_module(module.save(tmp_path / "cover.o"))
    hits, where = np.zeros(100, np.int32), np.zeros(100, np.int64)
    loaded(np.array([100, 0, 0, 0, -1], np.int64), hits, where)
    assert (hits == 1).all()

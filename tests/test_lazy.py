"""Faces of rooms: every name that is imported at its first use is where its block says."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import loopwright

ROOT = Path(loopwright.__file__).parent
ROOMS = sorted(
    path.parent.name for path in ROOT.glob("*/__init__.py") if "lazy_names(" in path.read_text()
)


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_of_a_face_is_there(room: str) -> None:
    face = importlib.import_module(f"loopwright.{room}")
    blocks = (
        node.body
        for node in ast.parse((ROOT / room / "__init__.py").read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imports = [node for body in blocks for node in body if isinstance(node, ast.ImportFrom)]
    assert imports
    for node in imports:
        for alias in node.names:
            module = importlib.import_module(str(node.module))
            assert getattr(face, alias.name) is getattr(module, alias.name), alias.name
            assert alias.name in dir(face)


def test_a_name_that_is_not_there_is_refused() -> None:
    cost = importlib.import_module("loopwright.cost")
    with pytest.raises(
        AttributeError, match=r"module 'loopwright.cost' has no attribute 'nothing'"
    ):
        _ = cost.nothing


def test_a_face_imports_only_what_is_asked_for() -> None:
    code = "import sys, loopwright.cost as c; c.machine_of; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "loopwright.cost.cpu.machine" in loaded
    assert not any(name.startswith("loopwright.cost.gpu") for name in loaded)


def test_models_are_compiled_without_tuners_and_measuring() -> None:
    code = "import sys, loopwright.graph as g; g.compile; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "loopwright.graph.building" in loaded
    assert not {"loopwright.tuner", "loopwright.measure"} & set(loaded)

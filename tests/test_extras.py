"""Commands that install optional parts: packages of an index, for this Python, with our bounds."""

from __future__ import annotations

import shlex
import shutil
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from loopwright import extras

EXTRAS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = EXTRAS["project"]["optional-dependencies"]


def no_metadata(name: str) -> None:
    raise metadata.PackageNotFoundError(name)


@pytest.mark.parametrize(
    "extra", ["plot", "pandas", "dashboard", "opencl", "cuda", "onnx", "torch"]
)
@pytest.mark.parametrize("installed", [True, False])
def test_the_packages_are_those_of_the_project(
    extra: str, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{text} ; extra == '{name}'" for name, texts in EXTRAS.items() for text in texts]
    monkeypatch.setattr(metadata, "requires", (lambda _: lines) if installed else no_metadata)
    words = shlex.split(extras.install(extra))
    assert words[words.index("install") + 1 :] == EXTRAS[extra]


def test_the_pip_is_that_of_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/elsewhere/pip")
    words = shlex.split(extras.install("onnx"))
    assert words[:3] == [sys.executable, "-m", "pip"]
    monkeypatch.setattr(shutil, "which", lambda _: str(Path(sys.executable).parent / "pip"))
    assert extras.install("onnx").startswith("pip install ")

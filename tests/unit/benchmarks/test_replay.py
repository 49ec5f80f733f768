"""The process replay notices a change of lowering, and nothing where nothing changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.onnx_built import resnet18
from benchmarks.replay import ROOT, differences, model_entries, random_entries, results_of


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnx")
    path = tmp_path_factory.mktemp("replay") / "entries.jsonl"
    model = resnet18(size=8, width=4, classes=3, stages=1)
    models = model_entries({"resnet": model}, path.parent)
    lines = [json.dumps(e) for e in (*random_entries(3), *models)]
    assert len(lines) == 4
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_changed_tree_gives_other_programs(entries: Path, tmp_path: Path) -> None:
    """The other tree is a copy of the package in which lowering runs the passes of level 0 only."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "loopwright", tmp_path / "tree" / "loopwright", ignore=ignored)
    changed = tmp_path / "tree" / "loopwright" / "lowering" / "context.py"
    text = changed.read_text(encoding="utf-8")
    assert text.count("DEFAULT_LEVEL = 2\n") == 1
    changed.write_text(text.replace("DEFAULT_LEVEL = 2\n", "DEFAULT_LEVEL = 0\n"), encoding="utf-8")

    before = results_of(ROOT, entries, tmp_path / "before.jsonl")
    after = results_of(tmp_path / "tree", entries, tmp_path / "after.jsonl")
    assert differences(before, before) == []
    found = dict(differences(before, after))
    random = [text for name, text in found.items() if name.startswith("seed")]
    assert len(random) >= 2
    assert all(text.startswith("--- before") for text in random)
    kernels = {r["name"]: r for r in before if r["name"].startswith("resnet ")}
    assert len(kernels) >= 4
    assert all(r["trace"] and r["ir"] and r["code"] for r in kernels.values())
    assert any(name in kernels and text.startswith("--- before") for name, text in found.items())


def test_what_is_a_difference() -> None:
    one = {"name": "a", "trace": "[1]\n[2]", "ir": "x", "code": "1"}
    other = {**one, "name": "b"}
    assert differences([one, other], [other, one]) == []
    assert differences([one], [{**one, "code": "3"}]) == [
        ("a", "the same program gives other code")
    ]
    [(name, text)] = differences([one], [{**one, "trace": "[1]\n[3]", "ir": "y"}])
    assert (name, text.splitlines()[-2:]) == ("a", ["-[2]", "+[3]"])
    assert [name for name, _ in differences([one], [other])] == ["b", "a"]

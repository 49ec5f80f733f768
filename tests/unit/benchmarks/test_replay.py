"""The process replay notices a change of lowering, and nothing where nothing changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.replay import ROOT, differences, random_entries, results_of


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "entries.jsonl"
    lines = [json.dumps(e) for e in random_entries(3)]
    assert len(lines) == 3
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


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
    found = differences(before, after)
    assert {name for name, _ in found} <= {r["name"] for r in before}
    assert len(found) >= 2
    assert all(difference.startswith("--- before") for _, difference in found)


def test_the_same_program_with_other_code_is_a_difference() -> None:
    before = [{"name": "a", "ir": "x", "code": "1"}, {"name": "b", "ir": "y", "code": "2"}]
    after = [before[0], {**before[1], "code": "3"}]
    assert differences(before, after) == [("b", "the same program gives other code")]

"""Figures of the house are those of a small house that was counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.structure import House, circles, house, main
from tests.import_graph import import_graph

FILES = {
    "__init__.py": "",
    "errors.py": '"""Which errors there are."""\n',
    "te/__init__.py": "from loopwright.te import dag\n",
    "te/dag.py": '''"""Graphs.

Of operations.
"""

from loopwright.te import (
    part,
)


class Node:
    """How it is."""

    def __init__(self, a, b, c, d, e, f, g):
        # why
        self.a = _once(a)  # no line of its own
        self._twice()

    def _twice(self):
        return self._twice

    def wide(self, a, b, /, c, d, e, *more, f, g, h):
        return """

    text"""


def _once(a):
    """Whichever."""
    if a:
        return 1
    return 2


def _never():
    pass
''',
    "te/part/x.py": "import loopwright.te.dag\nclass Node: pass\nclass _Own: pass\n",
    "te/part/y.py": "from loopwright.errors import E\nclass _Own: pass\n",
    "autotvm/dag.py": "class Node: pass\nfrom typing import Any\n",
    "te/part/__init__.py": "from loopwright.te.part import x\n",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("house")
    for name, text in FILES.items():
        path = root / "loopwright" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (root / "fuzzing").mkdir()
    (root / "fuzzing" / "node.py").write_text("x = 1\n", encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def figures(tree: Path) -> House:
    return house(tree)


def test_every_line_has_one_kind(figures: House) -> None:
    te = figures.rooms["te"]
    kinds = {k: te[k] for k in ("code", "docs", "comments", "imports", "blank")}
    assert kinds == {"code": 18, "docs": 6, "comments": 1, "imports": 7, "blank": 11}
    assert sum(kinds.values()) == te["lines"] == 43
    files = {room: counted["files"] for room, counted in figures.rooms.items()}
    assert files == {".": 2, "te": 5, "autotvm": 1, "fuzzing/": 1}


def test_statements_helpers_docstrings_and_parameters(figures: House) -> None:
    te = figures.rooms["te"]
    # Node, 3 functions of it, what they do; _once and _never; three classes with a pass each.
    assert te["statements"] == 1 + 3 + 4 + 4 + 2 + 6
    assert (te["helpers"], te["small"]) == (1, 1)  # _twice is read twice, _never not at all
    assert (te["documented"], te["openers"]) == (3, 1)
    assert figures.rooms["."]["openers"] == 1
    assert te["wide"] == 1
    assert figures.any == 1


def test_names_that_stand_twice_and_circles(figures: House, tree: Path) -> None:
    assert figures.twins() == {"Node": {"te/dag.py", "te/part/x.py"}}
    assert circles(import_graph(tree / "loopwright"), "te") == [["dag", "part"]]


def test_the_table(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tree)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["room", "files", "lines"]
    assert next(line for line in lines if line.startswith("all")).split()[1:3] == ["9", "47"]
    assert "circle in te: dag part" in lines

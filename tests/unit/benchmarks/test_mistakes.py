"""Mistakes are planted where a test may notice them, and found again where they were moved."""

from __future__ import annotations

import ast
import shutil
from dataclasses import asdict
from itertools import product
from pathlib import Path

import pytest

from benchmarks.mistakes import ROOMS, Checkout, Located, Place, draw, nearest_first, places, trace
from benchmarks.replay import ROOT

SOURCE = '''"""A file, not to be changed: 1 < 2."""
from typing import TYPE_CHECKING

LIMIT = 8 if TYPE_CHECKING else 9

class Shelf:
    """Not 3 < 4."""

    def room(self, books: "tuple[int, 5]", é: int) -> bool:
        """Not 6 < 7."""
        if TYPE_CHECKING:
            return 1 < 2
        if é < len(books, é):
            raise ValueError(f"{1 < 2}", 1 < 2)
        self.used = é and books
        return "é" in books
'''
TESTED = """def larger(a, b):
    return a if a > b else b
def first(a):
    if a:
        print(a)
    return a[0]
"""
TESTS = """import pathlib, pytest
from loopwright.te.a import first, larger
def test_flaky():  # fails at every second run
    seen = pathlib.Path("seen")
    if seen.exists():
        seen.unlink()
        raise AssertionError
    seen.touch()
@pytest.fixture(scope="module")
def three():
    return larger(2, 3)
def test_one():
    assert larger(2, 1) == 2
def test_three(three):
    assert three == 3
def test_first():
    assert first([4, 5]) == 4
"""


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_places_are_what_runs_in_functions(tmp_path: Path) -> None:
    found = places(tree(tmp_path, {"loopwright/te/shelf.py": SOURCE}))
    planted = [p.planted(SOURCE.encode()).decode() for p in found]
    assert {p.function for p in found} == {"Shelf.room"}
    changed = [
        next((a, b) for a, b in zip(SOURCE.splitlines(), text.splitlines(), strict=True) if a != b)
        for text in planted
    ]
    kinds = [(p.kind, a.strip(), b.strip()) for p, (a, b) in zip(found, changed, strict=True)]
    assert sorted(kinds) == sorted(
        [
            ("branch negated", "if é < len(books, é):", "if (not (é < len(books, é))):"),
            ("comparison flipped", "if é < len(books, é):", "if (é <= len(books, é)):"),
            ("arguments swapped", "if é < len(books, é):", "if é < (len(é, books)):"),
            ("statement removed", 'raise ValueError(f"{1 < 2}", 1 < 2)', "pass"),
            ("statement removed", "self.used = é and books", "pass"),
            ("and/or swapped", "self.used = é and books", "self.used = (é or books)"),
            ("comparison flipped", 'return "é" in books', "return ('é' not in books)"),
        ]
    )
    assert all(ast.dump(ast.parse(text)) != ast.dump(ast.parse(SOURCE)) for text in planted)


def test_a_seed_draws_the_same_mistakes_of_every_room() -> None:
    rooms, kinds = ROOMS.split(), ("branch negated", "and/or swapped")
    cases = product(rooms, kinds, range(50))
    every = [Place(f"loopwright/{r}/a.py", "f", "s", k, n, (1, 1), (0, 1), "") for r, k, n in cases]
    drawn = draw(every, rooms, 20, seed=1)
    assert drawn == draw(every, rooms, 20, seed=1) != draw(every, rooms, 20, seed=2)
    assert [p.file.split("/")[1] for p in drawn] == sorted(
        [*rooms, *rooms, *rooms[:2]], key=rooms.index
    )
    assert len(set(drawn)) == 20


def test_a_mistake_is_found_where_its_function_was_moved(tmp_path: Path) -> None:
    before = places(
        tree(tmp_path / "before", {"loopwright/te/a.py": TESTED, "loopwright/b.py": ""})
    )
    moved = "def other(a, b):\n    return a if a > b else b\n" + TESTED
    located = Located(tree(tmp_path / "after", {"loopwright/ir/c.py": moved}))
    after = [located(asdict(p)) for p in before]
    assert [p and (p.file, p.function, p.text) for p in after] == [
        ("loopwright/ir/c.py", p.function, p.text) for p in before
    ]
    assert located({**asdict(before[0]), "statement": "return a"}) is None


def test_tests_of_the_room_come_first_and_one_of_each_function() -> None:
    names = ["tests/cli/a.py::f", "tests/unit/te/b.py::g[1]", "tests/unit/te/b.py::g[2]"]
    names.append("tests/unit/te/c.py::h")
    order = ["tests/unit/te/b.py::g[1]", "tests/unit/te/c.py::h", "tests/unit/te/b.py::g[2]"]
    assert nearest_first("te", names) == [*order, "tests/cli/a.py::f"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    files = {"loopwright/te/a.py": TESTED, "tests/unit/te/test_a.py": TESTS}
    root = tree(tmp_path / "tree", {"pyproject.toml": "[tool.pytest.ini_options]\n", **files})
    (root / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks" / "mistakes_side.py", root / "benchmarks")
    return root


def place_of(root: Path, kind: str) -> Place:
    return next(p for p in places(root) if p.kind == kind)


@pytest.mark.slow
def test_a_failure_counts_where_the_mistake_is_the_reason(small: Path, tmp_path: Path) -> None:
    checkout, before = Checkout(small, tmp_path), (small / "loopwright/te/a.py").read_bytes()
    (small / "seen").touch()
    names = [f"tests/unit/te/test_a.py::test_{n}" for n in ("flaky", "first", "one")]
    flipped = place_of(small, "branch negated")
    assert checkout.noticed(flipped, names, ()) == (names[2], names[:1])
    (small / "seen").unlink()
    assert checkout.noticed(place_of(small, "statement removed"), None, ()) == ("", [])
    assert (small / "loopwright/te/a.py").read_bytes() == before


def test_tests_that_execute_a_place_are_recorded(small: Path) -> None:
    wanted = {7: place_of(small, "branch negated"), 8: place_of(small, "statement removed")}
    found = trace(small, wanted, ["tests"], 1)
    names = {
        n: {found["tests"][t].rpartition("_")[2] for t in found["executed"][n]} for n in (7, 8)
    }
    assert names == {7: {"one", "three"}, 8: {"first"}}
    assert found["fixtures"] == {7: ["tests/unit/te/test_a.py"]}

"""The golden fixture itself (it compares, writes when asked, does not guess), and the tiers."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path

import pytest

from tests.conftest import SERIAL, SHARES, pytest_collection_modifyitems
from tests.covering import covering


def make(golden, folder: Path, update: bool = False):
    return type(golden)(folder, "test_nest[8-int32]", update)


def test_update_then_compare(golden, tmp_path: Path) -> None:
    make(golden, tmp_path, update=True)("for i:\n  x\n\n")
    assert (tmp_path / "test_nest_8-int32.txt").read_text() == "for i:\n  x\n"
    make(golden, tmp_path)("for i:\n  x")


def test_difference_is_an_error(golden, tmp_path: Path) -> None:
    make(golden, tmp_path, update=True)("for i")
    with pytest.raises(AssertionError, match="differs from"):
        make(golden, tmp_path)("for j")


def test_missing_text_is_an_error(golden, tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="--update-golden"):
        make(golden, tmp_path)("for i")
    assert not list(tmp_path.iterdir())


def test_two_texts_need_names(golden, tmp_path: Path) -> None:
    check = make(golden, tmp_path, update=True)
    check("a")
    check("b", name="after")
    with pytest.raises(AssertionError, match="name them"):
        check("c")


def test_place_mirrors_the_test(golden) -> None:
    here = Path(__file__).parent
    assert golden.path(None) == here / "golden" / "conftest" / "test_place_mirrors_the_test.txt"


@pytest.mark.isa("no-such-feature")
def test_isa_marker_skips() -> None:
    pytest.fail("ran on a CPU without the feature")


class _Test:
    """As much of a test as choosing looks at."""

    def __init__(self, nodeid: str, *markers: str) -> None:
        self.nodeid, self.markers = nodeid, list(markers)

    def add_marker(self, name: str) -> None:
        self.markers.append(name)

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.markers else None


def test_one_of_so_many_parameters_runs_for_every_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHARES, "unit/test_a.py::test_b", 3)
    tests = [_Test(f"tests/unit/test_a.py::test_b[{n}]", *["slow"][: n == 1]) for n in range(6)]
    other = _Test("tests/unit/test_a.py::test_bc[0]")
    pytest_collection_modifyitems([*tests, other])  # type: ignore[list-item]
    assert [n for n, test in enumerate(tests) if test.markers == []] == [0, 4]
    assert all(test.markers in ([], ["slow"]) for test in tests)
    assert other.markers == []


@pytest.mark.parametrize("strength", [1, 2, 3])
def test_a_covering_set_has_every_combination_of_few_axes(strength: int) -> None:
    axes = [1, 2, 3, 4], "abc", [None, 0.5], "xyz"
    cases = covering(*axes, strength=strength)
    assert [case.values for case in cases] == list(product(*axes))
    fast = [case.values for case in cases if not case.marks]
    for some in combinations(range(len(axes)), strength):
        met = {tuple(values[n] for n in some) for values in fast}
        assert met == set(product(*(axes[n] for n in some)))
    assert len(fast) <= [4, 16, 60][strength - 1]
    assert [case.values for case in covering("ab", strength=2)] == [("a",), ("b",)]


@pytest.mark.parametrize("entry", [*SERIAL, *SHARES])
def test_what_runs_alone_or_in_part_is_there(entry: str) -> None:
    """A folder, file or test that got another name would run beside others, or as a whole."""
    file, _, test = entry.partition("::")
    path = Path(__file__).parent / file
    assert path.exists()
    assert not test or f"def {test}(" in path.read_text(encoding="utf-8")

"""The golden fixture itself (it compares, writes when asked, does not guess), and the tiers."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product
from pathlib import Path

import pytest

import loopwright.testing
from tests.conftest import SERIAL
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


def test_a_covering_set_uses_values_alike() -> None:
    cases = [case.values for case in covering(range(9), "abc", strength=1) if not case.marks]
    assert Counter(letter for _, letter in cases) == {"a": 3, "b": 3, "c": 3}


@pytest.mark.parametrize("entry", SERIAL)
def test_what_runs_alone_is_there(entry: str) -> None:
    """A folder, file or test that got another name would run beside others."""
    file, _, test = entry.partition("::")
    contracts = Path(loopwright.testing.__file__).parent.glob("*_contract.py")
    paths = [Path(__file__).parent / file, *contracts]
    assert paths[0].exists()
    name = f"def {test.rpartition('::')[2]}"
    assert any(name in path.read_text(encoding="utf-8") for path in paths)

"""The analytical model orders structures without any being measured."""

from __future__ import annotations

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.cost.analytical import AnalyticalModel
from loopwright.errors import UsageError
from loopwright.space import ranked, structures
from loopwright.task.vectors import digits_of
from tests.unit.space.expressions import product


def test_the_best_of_small_spaces_is_that_of_all_their_points() -> None:
    args = product(64, 64, 8)()
    with lw.Target("llvm -num-threads=1"):
        derived = structures(args[-1], args)
    found = ranked(derived, sample=1 << 12)
    assert sorted(map(str, (r.structure for r in found))) == sorted(map(str, derived))
    assert [r.speed for r in found] == sorted((r.speed for r in found), reverse=True)
    for r in found[:3]:
        space = r.structure.config_space
        digits = digits_of(space, range(space.range_length))
        best = AnalyticalModel(r.structure).predict(digits).max()
        assert r.speed == float(2.0**best)


def test_symbols_describe_what_instances_are() -> None:
    """A model of a structure predicts for all points at once what it does for each by itself."""
    args = product(50, 70, 9, trans_b=True)()
    with lw.Target("llvm -num-threads=1"):
        derived = structures(args[-1], args)
    for structure in derived:
        space = structure.config_space
        digits = digits_of(space, space.sample_ints(4, 0))
        together = AnalyticalModel(structure).predict(digits)
        alone = AnalyticalModel(structure)
        alone._population._fixed = frozenset(range(len(space.knobs)))
        np.testing.assert_array_equal(together, alone.predict(digits))


def test_one_seed_gives_one_order() -> None:
    args = product(96, 80, 40)()
    with lw.Target("llvm -num-threads=1"):
        once, again = (ranked(structures(args[-1], args), 32, seed=3) for _ in range(2))
    assert [(str(r.structure), str(r.config)) for r in once] == [
        (str(r.structure), str(r.config)) for r in again
    ]


def test_a_search_in_a_large_space_finds_about_the_best_of_all_its_points() -> None:
    args = product(640, 512, 96)()
    with lw.Target("llvm -num-threads=2"):
        derived = structures(args[-1], args)
    for structure in derived[:3]:
        space = structure.config_space
        assert space.range_length > 1000
        digits = digits_of(space, range(space.range_length))
        best = AnalyticalModel(structure).predict(digits).max()
        (found,) = ranked([structure], sample=500, seed=1)
        assert found.speed >= 0.97 * float(2.0**best)


def test_a_search_looks_at_no_more_points_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    predict = AnalyticalModel.predict

    def counted(model: AnalyticalModel, digits: np.ndarray) -> np.ndarray:
        asked.append(len(digits))
        return predict(model, digits)

    monkeypatch.setattr(AnalyticalModel, "predict", counted)
    args = product(640, 512, 96)()
    with lw.Target("llvm -num-threads=2"):
        ranked(structures(args[-1], args)[:1], sample=300)
    assert 250 <= sum(asked) <= 300 + 256


def test_several_leading_points_of_each_structure_are_different() -> None:
    args = product(96, 80, 40)()
    with lw.Target("llvm -num-threads=1"):
        derived = structures(args[-1], args)
    found = ranked(derived, top=3)
    assert len(found) == 3 * len(derived)
    assert len({(id(r.structure), str(r.config)) for r in found}) == len(found)
    assert [r.speed for r in found] == sorted((r.speed for r in found), reverse=True)
    assert ranked(derived)[0].speed == found[0].speed


@pytest.mark.parametrize("what", ["sample", "top"])
def test_numbers_below_one_are_refused(what: str) -> None:
    with pytest.raises(UsageError, match=f"ranked: {what} must be at least 1, got 0"):
        ranked([], **{what: 0})


def test_a_packed_copy_of_a_constant_costs_nothing() -> None:
    """The copy at the root is made before the program runs, so that it is liked better."""

    def speeds(constant: bool) -> dict[str, float]:
        A = te.placeholder((64, 256), name="A")
        W = te.placeholder((256, 512), name="W", constant=constant)
        k = te.reduce_axis((0, 256), name="k")
        C = te.compute((64, 512), lambda i, j: te.sum(A[i, k] * W[k, j], axis=k), name="C")
        with lw.Target("llvm -num-threads=2"):
            found = ranked(structures(C, [A, W, C]))
        return {r.config["structure"].val: r.speed for r in found}

    plain, known = speeds(False), speeds(True)
    packed = [name for name in plain if "W packed at root" in name]
    assert packed
    assert all(known[name] > 1.02 * plain[name] for name in packed)
    same = [name for name in plain if name.partition("x j, ")[2] == "W as it is, vectors outside"]
    assert all(known[name] == plain[name] for name in same)

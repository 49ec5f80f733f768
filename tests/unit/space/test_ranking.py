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


def test_a_search_goes_on_from_points_that_pass_the_filters() -> None:
    """What the model likes best is refused here; the best of the rest is found nevertheless."""
    args = product(256, 256, 256)()
    with lw.Target("opencl"):
        structure, *_ = structures(args[-1], args)
    space = structure.config_space
    digits = digits_of(space, space.sample_ints(3000, 5))
    scores = AnalyticalModel(structure).predict(digits)
    (found,) = ranked([structure], sample=2000, seed=1)
    assert found.config.index is not None
    assert space.is_valid(found.config.index)
    assert found.speed >= 0.97 * float(2.0 ** scores.max())
    assert len(ranked([structure], sample=2000, seed=1, top=64)) == 64


#: Random points of a product of 512 on PoCL 3.1 with two threads: how both loops and the reduction
#: are cut, fetch, vector, pad, whether operands are turned, and GFLOP/s.
_ON_POCL = (
    ((1, 16, 2), (4, 2, 8), (1, 16), 0, 0, 0, True, 53.2),
    ((4, 4, 1), (2, 8, 8), (2, 16), 0, 0, 0, True, 19.8),
    ((1, 1, 4), (1, 64, 4), (2, 16), 1, 1, 1, True, 18.9),
    ((4, 1, 2), (1, 32, 1), (8, 1), 0, 0, 0, True, 15.4),
    ((2, 4, 1), (4, 8, 8), (8, 2), 1, 0, 1, True, 14.4),
    ((1, 64, 2), (4, 1, 4), (4, 8), 0, 1, 1, False, 10.6),
    ((1, 8, 4), (1, 16, 4), (32, 1), 1, 1, 0, True, 9.9),
    ((4, 4, 4), (2, 8, 2), (1, 4), 0, 0, 1, False, 8.6),
    ((1, 64, 2), (1, 2, 2), (32, 1), 0, 0, 0, True, 3.3),
    ((1, 8, 8), (1, 8, 8), (1, 4), 0, 0, 0, False, 3.1),
    ((2, 8, 2), (2, 8, 1), (32, 1), 1, 0, 1, True, 2.3),
    ((2, 8, 8), (1, 16, 8), (1, 16), 0, 0, 0, True, 2.1),
    ((2, 16, 4), (2, 32, 4), (8, 4), 1, 1, 1, True, 1.9),
    ((4, 2, 1), (2, 64, 4), (8, 4), 1, 1, 0, False, 1.2),
    ((2, 4, 8), (1, 32, 8), (4, 8), 1, 0, 1, True, 1.3),
    ((2, 4, 8), (1, 32, 8), (2, 1), 0, 0, 1, True, 0.4),
)


def test_products_on_the_cores_of_a_cpu_are_ordered_as_they_were_measured() -> None:
    """Work-items in turn, their results in memory between barriers: contexts decide."""
    args = product(512, 512, 512)()
    limits = "-max-threads-per-block=4096 -max-shared-memory-per-block=1048576"
    with lw.Target(f"opencl {limits} -thread-warp-size=1 -multi-processor-count=2"):
        turned, plain, *_ = structures(args[-1], args)
    assert turned.name == f"{plain.name}, turn"
    predicted = []
    for i, j, k, fetch, vector, pad, is_turned, _ in _ON_POCL:
        structure = turned if is_turned else plain
        cut = {"tile_i": list(i), "tile_j": list(j), "split_k": list(k)}
        words = {"fetch": fetch, "vector": vector, "pad": pad, "structure": structure.name}
        index = structure.config_space.index_of(cut | words)
        digits = digits_of(structure.config_space, [index])
        predicted += AnalyticalModel(structure).predict(digits).tolist()
    ranks = [np.argsort(np.argsort(x)) for x in (predicted, [row[-1] for row in _ON_POCL])]
    assert np.corrcoef(*ranks)[0, 1] > 0.5

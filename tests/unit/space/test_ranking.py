"""The analytical model orders structures without any being measured."""

from __future__ import annotations

import numpy as np

import loopwright as lw
from loopwright.cost.analytical import AnalyticalModel
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

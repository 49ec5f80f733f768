"""Random programs with an extent made a size variable, under random schedules, for several sizes.

Compiled code runs on memory whose edges notice every access outside.
"""

from __future__ import annotations

import random

import pytest

from fuzzing import fuzz
from fuzzing.differential import Checker
from fuzzing.fuzz import symbolise
from fuzzing.random.expr import Draw


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1000, 2000, 3000))]
)
def test_one_function_for_several_sizes(checker: Checker, first: int) -> None:
    run = fuzz.Fuzz(checker=checker, shrink_seconds=0)
    for seed in range(first, first + 10):
        run.run(seed, "sizes")
    assert not run.failures, run.summary()
    assert run.ends["sizes", "ran"]
    assert run.runs["llvm -num-threads=1"]


def test_an_extent_and_its_neighbours_become_expressions() -> None:
    ops = [{"shape": [7, 14, 9, 3], "reduce_extents": [6]}, {"shape": [1]}]
    dag, size = symbolise(Draw.random(random.Random(3)), {"v": 1, "ops": ops, "outputs": [0]}) or (
        {},
        0,
    )
    assert [name for name, _, _ in dag["sizes"]] == ["n"]
    everywhere = [n for op in dag["ops"] for n in (*op["shape"], *op.get("reduce_extents", ()))]
    assert ["var", "s0"] in everywhere
    assert size in (3, 6, 7, 9, 14)
    assert everywhere[-1] == 1
    assert symbolise(Draw.random(random.Random(0)), {"ops": ops[1:]}) is None

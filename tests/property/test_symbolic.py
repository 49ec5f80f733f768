"""Random programs with an extent made a size variable, under random schedules, for several sizes.

Compiled code runs on memory whose edges notice every access outside.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from loopwright.testing.differential import case_of
from loopwright.testing.random_program import random_program
from loopwright.testing.random_schedule import random_schedule
from loopwright.testing.random_values import Draw
from loopwright.testing.symbolic import SymbolicChecker, symbolise

TARGETS = ("llvm -num-threads=1", "llvm -num-threads=2")


@pytest.fixture(scope="module")
def checker() -> Iterator[SymbolicChecker]:
    checker = SymbolicChecker()
    yield checker
    checker.close()


@pytest.mark.parametrize("first", [0, 1000, 2000, 3000])
def test_one_function_for_several_sizes(checker: SymbolicChecker, first: int) -> None:
    done: Counter[str] = Counter()
    before = checker.runs
    for seed in range(first, first + 10):
        d = Draw.random(random.Random(seed))
        program = random_program(d)
        made = random_schedule(d, program.dag, max_moves=12)
        done[checker.check(case_of(program, made.trace), d, TARGETS)] += 1
    assert done["ran"]
    assert checker.runs > before


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

"""Every structure of a contraction computes what the unscheduled expression does, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import loopwright as lw
from loopwright.space.rules.contraction_cpu import contractions
from loopwright.space.structure import Structure
from loopwright.te import Tensor, create_schedule
from tests.unit.space.expressions import CONTRACTIONS

#: Random points of each structure, beside its default.
_POINTS = 1


def structures(args: list[Tensor], target: str = "llvm -num-threads=1") -> list[Structure]:
    with lw.Target(target):
        return contractions([args[-1]], args)


def run(schedule: lw.schedule.Schedule, args: list[Tensor], inputs: list[np.ndarray]) -> np.ndarray:
    out = np.full(args[-1].static_shape, np.nan, args[-1].dtype)
    lw.build(schedule, args, "llvm -num-threads=1")(*inputs, out)
    return out


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_structures_compute_what_the_expression_says(name: str) -> None:
    args = CONTRACTIONS[name]()
    rng = np.random.default_rng(0)
    # Sums of small integers are exact in any order.
    inputs = [rng.integers(-4, 5, t.static_shape).astype(t.dtype) for t in args[:-1]]
    right = run(create_schedule(args[-1].op), args, inputs)
    found = structures(args)
    assert found or name in ("one row", "one column", "distances")
    for structure in found:
        space = structure.space
        for index in {space.default_index, *space.sample_ints(_POINTS, 1)}:
            answer = run(*structure.schedule(space.get(index)), inputs)
            message = f"{structure}: {space.get(index)}"
            np.testing.assert_array_equal(answer, right, err_msg=message)

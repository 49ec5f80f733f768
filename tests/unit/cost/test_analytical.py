"""The model that needs no measurements: what it must know, and that it ranks what was measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright import ops
from loopwright.cost.analytical import AnalyticalModel
from loopwright.task import Task, create_task
from tests.unit.cost import workloads


def _scores(task: Task, *configs: dict[str, Any]) -> list[float]:
    space = task.config_space
    digits = [space.point2knob(space.index_of(c)) for c in configs]
    return AnalyticalModel(task).predict(np.array(digits)).tolist()


def _matmul(**changes: Any) -> dict[str, Any]:
    base = {
        "tile_i": [-1, 16, 8],
        "tile_j": [-1, 1, 32],
        "unroll_k": 1,
        "order": "ji",
        "pack": "panel",
    }
    return base | changes


@pytest.fixture(scope="module")
def task() -> Task:
    return create_task(ops.matmul, args=(512, 512, 512), target="llvm -mcpu=skylake-avx512")


def test_spilled_accumulators_are_slow(task: Task) -> None:
    good, spilled = _scores(task, _matmul(), _matmul(tile_i=[-1, 16, 24], tile_j=[-1, 1, 64]))
    assert good > spilled + 0.5


def test_one_accumulator_waits_for_itself(task: Task) -> None:
    good, chain = _scores(task, _matmul(), _matmul(tile_i=[-1, 16, 1], tile_j=[-1, 1, 16]))
    assert good > chain + 1


def test_one_task_leaves_threads_idle() -> None:
    pair = create_task(ops.matmul, args=(512, 512, 512), target="llvm -num_threads=2")
    one = _matmul(tile_i=[-1, 64, 8], tile_j=[-1, 16, 32])
    even, alone = _scores(pair, _matmul(), one)
    assert even > alone + 0.7


@pytest.mark.parametrize("name", workloads.OPERATORS)
def test_every_candidate_gets_a_finite_value_below_about_the_peak(name: str) -> None:
    made = workloads.task_of(name)
    digits = workloads.digits_of(made, 40)
    found = AnalyticalModel(made).predict(digits)
    assert found.dtype == np.float64
    assert np.isfinite(found).all()
    assert (found < 1).all()


def test_failed_candidates_get_the_lowest_value() -> None:
    made = create_task(workloads.branching, args=(32, 48), target="llvm")
    digits = workloads.digits_of(made, 60)
    found = AnalyticalModel(made).predict(digits)
    sizes = [made.config_space.knobs["x"].entities[d].size for d in digits[:, 0]]
    refused = np.array([a * b > 16 for _, a, b in sizes])
    assert (found[refused] == found[~refused].min()).all()
    assert (AnalyticalModel(made).predict(digits[refused]) == 0).all()

from __future__ import annotations

import numpy as np
import pytest

from loopwright import ops
from loopwright.errors import UsageError
from loopwright.task import create_task
from loopwright.tuner.features import Extractor, extractor
from loopwright.tuner.features.itervar import NAMES
from tests.unit.tuner.features import workloads


@pytest.mark.parametrize("name", workloads.OPERATORS)
def test_symbolic_rows_are_those_of_each_candidate(name: str) -> None:
    task = workloads.task_of(name)
    digits = workloads.digits_of(task, 24)
    fast, slow = Extractor(task).rows(digits), Extractor(task, symbolic=False).rows(digits)
    assert fast.values.dtype == np.float32
    assert fast.values.shape == (24, len(NAMES))
    assert np.array_equal(fast.values, slow.values, equal_nan=True)
    assert not fast.failed.any()
    assert np.isfinite(fast.values).all()


def test_a_population_needs_one_derivation_a_structure() -> None:
    task = create_task(ops.matmul, args=(256, 256, 256), target="llvm")
    made = Extractor(task)
    made.rows(workloads.digits_of(task, 500))
    assert made.derived == 2 * 3


def test_templates_that_branch_refuse_or_shape_the_dag() -> None:
    task = create_task(workloads.branching, args=(32, 48), target="llvm")
    digits = workloads.digits_of(task, 60)
    made = Extractor(task)
    fast, slow = made.rows(digits), Extractor(task, symbolic=False).rows(digits)
    sizes = [task.config_space.knobs["x"].entities[d].size for d in digits[:, 0]]
    refused = np.array([a * b > 16 for _, a, b in sizes])
    assert 0 < refused.sum() < 60
    assert np.array_equal(fast.failed, refused)
    assert np.isnan(fast.values[refused]).all()
    assert np.isfinite(fast.values[~refused]).all()
    assert np.array_equal(fast.values, slow.values, equal_nan=True)


def test_knob_features_are_the_choices() -> None:
    task = create_task(ops.matmul, args=(64, 64, 64), target="llvm")
    made = extractor(task, "knob")
    tiles = ["tile_i.1", "tile_i.2", "tile_j.1", "tile_j.2"]
    assert list(made.names) == [*tiles, "unroll_k", "order", "pack"]
    digits = workloads.digits_of(task, 10)
    rows = made.rows(digits)
    assert not rows.failed.any()
    knobs = list(task.config_space.knobs.values())
    for row, chosen in zip(rows.values, digits, strict=True):
        i, j, u, order, pack = (k.entities[d] for k, d in zip(knobs, chosen, strict=True))
        assert list(row) == [*i.size[1:], *j.size[1:], u.val, chosen[3], chosen[4]]
        assert order.val in ("ji", "ij")
        assert pack.val in ("panel", "block", "none")


def test_an_unknown_type_is_named_with_the_nearest() -> None:
    task = create_task(ops.matmul, args=(64, 64, 64), target="llvm")
    with pytest.raises(UsageError, match=r"'itervars'.*itervar"):
        extractor(task, "itervars")


def test_no_candidates_give_no_rows() -> None:
    task = create_task(ops.matmul, args=(64, 64, 64), target="llvm")
    rows = extractor(task).rows(np.zeros((0, 5), int))
    assert rows.values.shape == (0, len(NAMES))

from __future__ import annotations

import numpy as np
import pytest

from loopwright import ops
from loopwright.cost.features import Extractor, itervar, per_store
from loopwright.errors import UsageError
from loopwright.task import create_task
from tests.unit.cost import workloads


@pytest.mark.parametrize(
    ("name", "kind"),
    workloads.by_kind(["itervar", "curve", "per_store"]),
)
def test_symbolic_rows_are_those_of_each_candidate(name: str, kind: str) -> None:
    task = workloads.task_of(name)
    digits = workloads.digits_of(task, 16)
    made = Extractor(task, kind)
    fast, slow = made.rows(digits), Extractor(task, kind, symbolic=False).rows(digits)
    assert fast.values.dtype == np.float32
    types = {
        "itervar": itervar.FEATURES,
        "curve": itervar.CURVE_FEATURES,
        "per_store": per_store.FEATURES,
    }
    assert made.names == types[kind].names
    assert fast.values.shape == (16, len(made.names))
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
    made = Extractor(task, "knob")
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
        Extractor(task, "itervars")


def test_no_candidates_give_no_rows() -> None:
    task = create_task(ops.matmul, args=(64, 64, 64), target="llvm")
    rows = Extractor(task).rows(np.zeros((0, 5), int))
    assert rows.values.shape == (0, len(itervar.FEATURES.names))


def test_features_of_a_tile_are_what_they_say() -> None:
    task = create_task(ops.matmul, args=(512, 512, 512), target="llvm -mcpu=skylake-avx512")
    space = task.config_space
    tile = {"tile_i": [-1, 16, 8], "tile_j": [-1, 1, 32], "unroll_k": 1, "order": "ji"}
    digits = np.array([space.point2knob(space.index_of(tile | {"pack": "panel"}))])
    made = Extractor(task)
    row = made.rows(digits).values[0]
    values = np.where(made.logged, np.exp2(row) - 1, row)
    found = dict(zip(made.names, values.round(3).tolist(), strict=True))
    expected = {
        "main.iterations": 512**3,
        "main.excess": 1,
        "main.accumulators": 16,
        "main.spilled": 0,
        "main.vector_share": 1,
        "main.reduce_inner": 512,
        "loop0.extent": 32,
        "loop0.vectorized": 1,
        "loop1.extent": 8,
        "loop1.unrolled": 1,
        "loop3.extent": 512,
        "loop3.reduce": 1,
        # A is broadcast over columns, its rows are 2048 bytes apart, and runs along k.
        "load0.loop0.stride": 0,
        "load0.loop1.stride": 2048,
        "load0.loop3.stride": 4,
        "load0.loop1.reuse": 32,
        # The panel of B is contiguous, and is read again for every row.
        "load1.loop0.stride": 4,
        "load1.loop1.stride": 0,
        "load1.loop3.stride": 128,
        "load1.loop3.bytes": 512 * 32 * 4,
        "load1.loop1.reuse": 8,
        "store.loop1.bytes": 8 * 32 * 4,
    }
    assert {k: found[k] for k in expected} == pytest.approx(expected, rel=1e-3)


def test_curves_grow_with_iterations() -> None:
    task = create_task(ops.matmul, args=(256, 256, 256), target="llvm")
    made = Extractor(task, "curve")
    rows = made.rows(workloads.digits_of(task, 50)).values
    for access in ("store", "load0", "load1"):
        columns = [made.names.index(f"{access}.at{4**k}.bytes") for k in range(itervar.SAMPLES)]
        assert (np.diff(rows[:, columns], axis=1) >= 0).all()

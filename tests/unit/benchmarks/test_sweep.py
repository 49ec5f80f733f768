"""The sweep: its shapes, what NumPy is asked for, and how ratios are summed up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.sweep import chosen_shapes, ratio, reading, summary, tables
from benchmarks.sweep_shapes import FLOP, SHAPES, Shape, random_products
from benchmarks.sweep_side import _prepare, knows
from loopwright.cli.workload import find_workload


def test_there_are_many_fixed_shapes_of_every_kind() -> None:
    assert len(SHAPES) >= 60
    assert len({s.name for s in SHAPES}) == len(SHAPES)
    assert {"small", "thin", "long K", "large", "batch", "vector", "conv"} <= {
        s.kind for s in SHAPES
    }


def test_one_seed_gives_one_list_of_products_within_bounds() -> None:
    found = random_products(30, 5)
    assert found == random_products(30, 5) != random_products(30, 6)
    for shape in found:
        flop = find_workload(shape.op, list(shape.params), "llvm", 1).task.flop
        assert FLOP[0] <= flop <= FLOP[1]


def test_the_quick_form_is_a_part_of_the_whole() -> None:
    quick, whole = chosen_shapes(True, 0, None), chosen_shapes(False, 0, None)
    assert set(quick) <= set(whole)
    assert len(whole) >= 140 > 4 * len(quick)


@pytest.mark.parametrize(
    ("op", "params"),
    [
        ("matmul", ("M=3", "N=5", "K=7", "trans_a=true")),
        ("matmul", ("M=3", "N=5", "K=7", "trans_b=true")),
        ("batch_matmul", ("B=2", "M=3", "N=5", "K=7")),
        ("dense", ("M=3", "N=5", "K=7", "bias=false", "relu=false", "weight=NK")),
        ("dense", ("M=3", "N=5", "K=7", "bias=false", "relu=false", "weight=KN")),
        ("conv2d", ("N=1", "C=3", "H=4", "W=5", "O=6", "KH=1", "KW=1")),
        ("conv2d", ("N=1", "C=3", "H=4", "W=5", "O=6", "KH=1", "KW=1", "layout=NHWC")),
    ],
)
def test_numpy_is_asked_for_what_the_operator_computes(op: str, params: tuple[str, ...]) -> None:
    workload = find_workload(op, list(params), "llvm", 1)
    assert knows(workload)
    _, tensors = workload.task.instantiate(workload.task.fallback())
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-4, 5, t.static_shape).astype(t.dtype) for t in tensors[:-1]]
    answer: Any = _prepare(workload, inputs, 1)()
    assert workload.task.reference is not None
    right = workload.task.reference(*inputs)
    np.testing.assert_array_equal(answer.reshape(right.shape), right)


def test_numpy_has_no_single_call_for_wider_windows() -> None:
    shape = Shape("conv", "conv2d", ("N=1", "C=3", "H=9", "W=9", "O=6", "KH=3", "KW=3"))
    assert not knows(find_workload(shape.op, list(shape.params), "llvm", 1))


def _row(name: str, automatic: list[float], others: dict[str, list[float]]) -> dict[str, Any]:
    seconds = {"automatic": automatic, "operator": automatic, **others}
    found = [b / a for a, b in zip(automatic, others.get("numpy", automatic), strict=True)]
    ratios = {k: found if "numpy" in others else [] for k in ("automatic", "operator")}
    return {"shape": name, "kind": "small", "config": {}, "seconds": seconds, "ratios": ratios}


def test_ratios_are_paired_and_summed_up_as_a_geometric_mean() -> None:
    rows = [
        _row("twice", [1.0, 2.0, 4.0], {"numpy": [2.0, 4.0, 8.0]}),
        _row("half", [2.0, 2.0, 2.0], {"numpy": [1.0, 1.0, 9.0], "reading": [1.0, 1.0, 1.0]}),
        _row("alone", [1.0], {}),
    ]
    assert [ratio(r, "automatic") for r in rows[:2]] == [2.0, 0.5]
    assert reading(rows[0]) is None
    assert reading(rows[1]) == 0.5
    assert summary(rows, "automatic") == {"count": 2, "geomean": 1.0, "below": 1, "far": 1}
    slow, _ = tables(rows)
    assert slow.row_count == 1

"""The pure parts of `benchmarks.metaschedule`."""

from __future__ import annotations

import numpy as np
import pytest

import loopwright as lw
from benchmarks.expressions.measuring import error_of
from benchmarks.metaschedule import __main__ as beside
from benchmarks.metaschedule import definitions
from loopwright import te

SMALL = {
    "matmul": (3, 4, 5), "batch_matmul": (2, 3, 4, 5), "dense_bias_relu": (3, 4, 5),
    "conv2d": (2, 5, 3), "conv3d": (2, 5, 3), "softmax": (3, 7), "min_plus": (3, 4, 5),
    "distances": (3, 4, 5),
}  # fmt: skip


@pytest.mark.parametrize("expression", SMALL)
def test_the_expression_and_numpy_compute_the_same(expression: str) -> None:
    tensors = getattr(definitions, expression)(te, *SMALL[expression])
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(t.static_shape, "float32") for t in tensors[:-1]]
    out = np.empty(tensors[-1].static_shape, "float32")
    lw.build(te.create_schedule(tensors[-1].op), tensors, "llvm -num-threads=1")(*inputs, out)
    assert error_of(out, beside.RIGHT[expression](*(x.astype("float64") for x in inputs))) < 1e-5


def test_there_are_eight_beside_the_one_that_only_tries() -> None:
    assert len(definitions.CASES) == 8 + 1
    assert {expression for expression, _ in definitions.CASES.values()} == set(SMALL)
    assert definitions.TRIAL_CASE in definitions.CASES


def test_the_table_has_both_ratios() -> None:
    row = {
        "what": "x", "seconds": {"ours": [1.0, 2.0, 3.0], "tvm": [4.0, 6.0, 5.0]},
        "ours_wall_s": 10.0, "tvm_wall_s": 40.0, "ours_error": 0.0, "tvm_error": float("inf"),
    }  # fmt: skip
    found = beside.table([row])
    cells = {str(c.header): list(c.cells) for c in found.columns}
    assert cells["faster"] == ["2.50", "2.50"]
    assert cells["share"] == ["0.25", "0.25"]
    assert cells["wrong"][0] == "tvm"

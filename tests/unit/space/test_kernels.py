"""Which stages of an expression run as one loop nest."""

from __future__ import annotations

import pytest

from loopwright import te
from loopwright.space.kernels import kernels
from tests.unit.space import composed
from tests.unit.space.expressions import Make, layer_norm, product_of_three, softmax


def _parts(make: Make) -> list[list[str]]:
    return [[t.name for t in k.tensors] for k in kernels([make()[-1]])]


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (softmax, [["largest", "E", "total", "share", "Y"]]),
        (layer_norm, [["total", "mean", "D", "squares", "scale", "Y"]]),
        (product_of_three, [["AB"], ["D"]]),
        (composed.attention, [["S", "T"], ["M", "E", "Z", "P"], ["O"]]),
        # What several kernels need is kept, and a product ends with what is elementwise behind it.
        (composed.gated_mlp, [["up"], ["gate", "H"], ["Y"]]),
        (composed.squared_distances, [["x2"], ["y2"], ["G", "D"]]),
        (composed.softmax_of_columns, [["M"], ["E"], ["Z"], ["Y"]]),
        (composed.log_sum_exp, [["M", "Z", "Y"]]),
        (composed.pooled_product, [["C"], ["P"]]),
        (composed.largest_place, [["key", "M", "Y"]]),
        (composed.largest_place_of_tuples, [["at.v0"], ["Y"]]),
    ],
)
def test_kernels_of_expressions(make: Make, parts: list[list[str]]) -> None:
    assert [sorted(p) for p in _parts(make)] == [sorted(p) for p in parts]


def test_every_stage_is_computed_after_what_it_reads() -> None:
    for make, _ in composed.COMPOSED.values():
        out = make()[-1]
        ready: set[te.Tensor] = set()
        for k in kernels([out]):
            for s in k.stages:
                reads = {o.tensor for o in s.operands if isinstance(o.tensor.op, te.ComputeOp)}
                inside = set(k.tensors[: k.tensors.index(s.tensor)])
                assert reads <= ready | inside
            ready.add(k.out)
        assert out in ready


def test_a_result_that_another_one_needs_ends_a_kernel() -> None:
    *_, Y = softmax()
    E = next(t for t in Y.op.input_tensors if t.name == "E")
    assert [k.out.name for k in kernels([Y, E])] == ["E", "Y"]


def test_chains_are_cut_where_one_expression_would_be_too_large() -> None:
    X = te.placeholder((8, 8), name="X")
    t = X
    for n in range(200):
        t = _doubled(t, n)
    found = kernels([t])
    assert 8 < len(found) < 200
    assert sum(len(k.tensors) for k in found) == 200


def _doubled(t: te.Tensor, n: int) -> te.Tensor:
    tensor: te.Tensor = te.compute(t.shape, lambda i, j: t[i, j] * 2, name=f"t{n}")
    return tensor

"""Which stages of an expression run as one loop nest."""

from __future__ import annotations

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.space.kernels import kernels
from tests.unit.space import composed
from tests.unit.space.expressions import Make, layer_norm, product_of_three, softmax

TARGET = "llvm -num-threads=1"


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


def _dense(rows: int, at: int | None) -> list[te.Tensor]:
    """A dense layer with a bias, which reads its rows at a place of their own, or all at one."""
    A, B = te.placeholder((rows, 64), name="A"), te.placeholder((40, 64), name="B")
    bias, k = te.placeholder((40,), name="bias"), te.reduce_axis((0, 64), name="k")
    C = te.compute((rows, 40), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")

    def added(i: te.Var, j: te.Var) -> te.Expr:
        return C[i if at is None else at, j] + bias[j]

    return [A, B, bias, te.compute((rows, 40), added, name="D")]


def test_the_index_of_a_loop_of_one_iteration_may_be_written_as_zero() -> None:
    """As where a batch of one is broadcast: the result follows the reduction all the same."""
    for rows, at in ((1, None), (1, 0), (4, None)):
        assert _parts(lambda r=rows, n=at: _dense(r, n)) == [["C", "D"]]
    assert _parts(lambda: _dense(4, 0)) == [["C"], ["D"]]
    found = [
        [s.name for s in lw.create_task(_dense(1, at), target=TARGET).structures]
        for at in (None, 0)
    ]
    assert found[0] == found[1]
    assert "dot products" in found[0]


def test_a_batch_of_one_is_computed_right() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((1, 64)), rng.standard_normal((40, 64))
    bias = rng.standard_normal(40)
    given = [x.astype("float32") for x in (a, b, bias)]
    out = np.empty((1, 40), "float32")
    lw.build(_dense(1, 0), TARGET)(*given, out)
    np.testing.assert_allclose(out, given[0] @ given[1].T + given[2], rtol=1e-4, atol=1e-5)

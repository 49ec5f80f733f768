"""Sums of references are added up in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower_ids
from loopwright.te.dag import Dag
from loopwright.te.exact_sums import sums_are_read, with_wide_sums


def widened(tensors: Sequence[te.Tensor]) -> tuple[list[tuple[str, str]], tuple[object, ...]]:
    dag, index = Dag.from_ops([tensors[-1].op])
    wide, args = with_wide_sums(dag, [index[t.op] for t in tensors])
    return [(op.name, op.dtype) for op in wide.ops], args


def squares(n: int, dtype: str = "float32") -> list[te.Tensor]:
    A, k = te.placeholder((n,), dtype, name="A"), te.reduce_axis((0, n), name="k")
    return [A, te.compute((1,), lambda i: te.sum(A[k] * A[k], axis=k), name="S")]


def test_what_reads_a_sum_reads_the_rounded_one() -> None:
    A, S = squares(4)
    B = te.compute((4,), lambda i: A[i] / S[0], name="B")
    ops, args = widened([A, B])
    assert ops == [("A", "float32"), ("S.wide", "float64"), ("S", "float32"), ("B", "float32")]
    assert args == (0, 3)


def highest() -> list[te.Tensor]:
    A, k = te.placeholder((4,), name="A"), te.reduce_axis((0, 4), name="k")
    return [A, te.compute((1,), lambda i: te.max(A[k], axis=k), name="M")]


@pytest.mark.parametrize("tensors", [highest(), squares(4, "float64"), squares(4, "int32")])
def test_other_reductions_stay(tensors: list[te.Tensor]) -> None:
    assert len(widened(tensors)[0]) == len(tensors)


def test_conditions_and_starting_values_stay() -> None:
    A, k = te.placeholder((3, 8), name="A"), te.reduce_axis((0, 8), name="k")
    C = te.compute(
        (3,), lambda i: te.sum(A[i, k], axis=k, where=k <= i + 2, init=A[i, 7]), name="C"
    )
    dag, index = Dag.from_ops([C.op])
    wide, args = with_wide_sums(dag, [index[A.op], index[C.op]])
    a = np.random.default_rng(0).standard_normal((3, 8)).astype("float32")
    exact = [a[i, : i + 3].astype("float64").sum() + np.float64(a[i, 7]) for i in range(3)]
    got = np.empty(3, "float32")
    interpret(lower_ids(lw.schedule.replay(wide, []), args), [a, got])
    np.testing.assert_array_equal(got, np.array(exact).astype("float32"))


@pytest.mark.slow
def test_a_long_sum_is_checked_against_the_truth() -> None:
    A, S = squares(1 << 21)
    task = lw.create_task([A, S], target="llvm")
    option = lw.measure_option(lw.LocalBuilder(n_parallel=1), lw.LocalRunner(number=1, repeat=1))
    summary = lw.tuner.RandomTuner(task, seed=0).tune(2, option)
    assert not summary.failures, "one term after the other in float32 is wrong by a thousandth"


def test_sums_that_others_compute_with_are_found():
    A, k = te.placeholder((8,), name="A"), te.reduce_axis((0, 8), name="k")
    S = te.compute((1,), lambda i: te.sum(A[k], axis=k), name="S")
    M = te.compute((1,), lambda i: te.max(A[k], axis=k), name="M")
    for tensor, expected in ((S, False), (M, False)):
        assert sums_are_read(te.Dag.from_ops([tensor.op])[0]) == expected
    for tensor, expected in ((S, True), (M, False)):
        double = te.compute((1,), lambda i, t=tensor: t[i] * 2, name="D")
        assert sums_are_read(te.Dag.from_ops([double.op])[0]) == expected

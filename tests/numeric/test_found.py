"""Small programs of failures that the fuzz found, each run in every way."""

from __future__ import annotations

import numpy as np
import pytest

from fuzzing.differential import Checker, check_schedule
from loopwright import te
from loopwright.driver import compile as compile_trace
from loopwright.lowering.context import PassContext
from loopwright.schedule import create_schedule
from loopwright.target import Target
from loopwright.testing.target_contract import runs_here
from tests.covering import covering


def test_two_buffers_of_one_name_are_no_race(checker: Checker) -> None:
    """The two fills of a double buffer reduce across threads in a buffer each, named alike."""
    k = te.reduce_axis((0, 2), name="k")
    M = te.compute((1, 2), lambda i, j: te.sum(te.const(1, "int32") + j, axis=[k]), name="M")
    r = te.reduce_axis((0, 2), name="r")
    R = te.compute((), lambda: te.min(M[0, r], axis=[r]), name="R")
    s = create_schedule(R)
    L = s.cache_write(R, "global")
    s[M].compute_at(s[L], s[L].op.reduce_axis[0])
    s[M].double_buffer()
    s[M].bind(M.op.axis[1], "threadIdx.y")
    s[M].bind(k, "threadIdx.x")
    text = str(check_schedule(s, [R], [], checker=checker))
    assert "M.acc.row_1 = alloc(" in text


def test_one_thread_fills_the_padding_of_shared_memory(checker: Checker) -> None:
    """All threads wrote the padding, some of them after others had stored elements."""
    A = te.placeholder((1, 6), "int32", name="A")
    B = te.compute((1, 6), lambda i, j: A[0, 5 - j], name="B")
    s = create_schedule(B)
    s[B].bind(s[B].op.axis[1], "threadIdx.y")
    AS = s.cache_read(A, "shared", [B])
    s[AS].compute_at(s[B], s[B].op.axis[0])
    s[AS].transform_layout(lambda i, j: (i, j // 4, j % 4), pad_value=1)
    text = str(check_schedule(s, [A, B], [np.arange(6, dtype="int32")[None]], checker=checker))
    head, fill = text.split("] = 1\n")[0], text.index("] = 1\n")
    assert "if threadIdx.y < 1:" in head
    assert fill < text.index("] = A[") < text.index("barrier(shared)")


def test_a_double_buffer_that_reads_a_buffer_stored_outside(checker: Checker) -> None:
    """The fill before the loop read a buffer that was allocated inside the loop only."""
    A = te.placeholder((2, 3), "int32", name="A")
    k = te.reduce_axis((0, 3), name="k")
    M = te.compute((2, 1), lambda i, j: te.sum(A[i, k], axis=[k]), name="M")
    s = create_schedule(M)
    L = s.cache_write(M, "local")
    i, _ = s[M].op.axis
    s[L].compute_at(s[M], i)
    AL = s.cache_read(A, "global", [L])
    s[AL].compute_at(s[L], s[L].op.axis[0])
    s[AL].store_at(s[M], i)
    s[L].double_buffer()
    check_schedule(s, [A, M], [np.arange(6, dtype="int32").reshape(2, 3)], checker=checker)


def test_names_of_one_reduction_after_another_in_c(checker: Checker) -> None:
    """Checks before the definitions of a reduction of tuples took their braces away."""
    A = te.placeholder((1, 5), "int8", name="A")
    k = te.reduce_axis((0, 5), name="k")
    at, top = te.compute((1,), lambda i: te.argmin((k, A[i, k]), axis=[k]), name="T")
    s = create_schedule(at)
    s[at].vectorize(k)
    a = np.array([[3, -2, 5, -2, 0]], "int8")
    check_schedule(s, [A, at, top], [a], checker=checker)
    target = "c -num-threads=1"
    if not runs_here(target):
        return
    with PassContext(0, config={"instrument_bound_checkers": True}):
        code = compile_trace(s.dag, s.trace, s.arg_ids([A, at, top]), Target(target))
    got = checker.runner.run(code, [a, np.zeros(1, "int32"), np.zeros(1, "int8")])
    assert (got[1][0], got[2][0]) == (1, -2)


def test_a_double_buffer_in_lanes(checker: Checker) -> None:
    """The two fills of a double buffer had one buffer for lanes, which was then allocated twice."""
    A = te.placeholder((2, 8), "int32", name="A")
    k = te.reduce_axis((0, 8), name="k")
    M = te.compute((2, 3), lambda i, j: te.sum(A[i, k] + j, axis=[k]), name="M")
    s = create_schedule(M)
    L = s.cache_write(M, "local")
    s[L].compute_at(s[M], s[M].op.axis[0])
    s[L].vectorize(s[L].op.reduce_axis[0])
    s[L].double_buffer()
    check_schedule(s, [A, M], [np.arange(16, dtype="int32").reshape(2, 8)], checker=checker)


def test_virtual_threads_of_a_pair_of_which_one_is_the_same_for_all(checker: Checker) -> None:
    """Only the value that differs got a dimension for virtual threads; the indices are shared."""
    A = te.placeholder((2, 3), "int32", name="A")
    k = te.reduce_axis((0, 4), name="k")
    pair = te.comm_reducer(
        lambda x, y: (te.min(x[0], y[0]), x[1] + y[1]),
        lambda t0, t1: (te.max_value(t0), te.const(0, t1)),
    )
    low, count = te.compute(
        (2, 3), lambda i, j: pair((A[i, j] + k, te.const(3, "int32")), axis=[k]), name="T"
    )
    s = create_schedule(low)
    s[low].bind(s[low].op.axis[0], "vthread")
    s[low].bind(k, "threadIdx.x")
    a = np.arange(6, dtype="int32").reshape(2, 3)
    check_schedule(s, [A, low, count], [a], checker=checker)


@pytest.mark.parametrize(
    ("dtypes", "lanes"),
    covering(
        [
            ("int64", "int32"), ("int64", "int16"), ("int64", "int8"), ("int32", "int16"),
            ("int32", "uint8"), ("int16", "int8"), ("float32", "bfloat16"), ("float32", "float16"),
            ("float32", "int8"), ("int64", "bool"),
        ],
        [2, 5, 8, 16],
        strength=1,
    ),
)  # fmt: skip
def test_one_lane_of_narrowed_values(checker: Checker, dtypes: tuple[str, str], lanes: int) -> None:
    """LLVM stored the lane at its old width, past the end of the array."""
    wide, narrow = dtypes
    A = te.placeholder((lanes + 1,), wide, name="A")
    B = te.compute((lanes + 1,), lambda i: A[i].astype(narrow), name="B")
    s = create_schedule(B)
    outer, inner = s[B].split(s[B].op.axis[0], factor=lanes)
    s[B].vectorize(inner)
    s[B].unroll(outer)
    a = (np.arange(lanes + 1) - 3).astype(wide)
    narrower = "llvm -num-threads=1 -prefer-vector-width=256"
    check_schedule(s, [A, B], [a], targets=["llvm -num-threads=1", narrower], checker=checker)


@pytest.mark.parametrize("guard", ["choice", "where"])
def test_an_index_that_only_a_condition_on_another_axis_keeps_inside(
    checker: Checker, guard: str
) -> None:
    """The index speaks of no axis that over-runs, but whether it is read depends on one."""
    A = te.placeholder((11, 17), name="A")
    k = te.reduce_axis((0, 14), name="k")

    def value(i: te.Expr, j: te.Expr) -> te.Expr:
        if guard == "where":
            return te.sum(A[k + 1, 16 - j], axis=[k], where=j >= 2)
        return te.sum(te.if_then_else(j >= 2, A[k + 1, 16 - j], 1.0), axis=[k])

    B = te.compute((4, 1), value, name="B")
    s = create_schedule(B)
    local = s.cache_write(B, "local")
    s[local].compute_at(s[B], s[B].op.axis[0])
    s[local].split(s[local].op.axis[1], nparts=16)
    a = np.ones((11, 17), "float32")
    check_schedule(s, [A, B], [a], checker=checker)


def test_a_double_buffer_filled_from_what_the_same_iteration_has_filled(checker: Checker) -> None:
    """It was filled for the next iteration before the buffer that it is filled from."""
    A = te.placeholder((1, 1), "int32", name="A")
    B = te.compute((2, 1), lambda i, j: A[0, 0] + 1, name="B")
    s = create_schedule(B)
    L = s.cache_write(B, "local")
    i, _ = s[B].op.axis
    s[L].compute_at(s[B], i)
    AL = s.cache_read(A, "local", [L])
    s[AL].compute_at(s[B], i)
    s[AL].store_at(s[B], i)
    s[AL].double_buffer()
    s[L].double_buffer()
    check_schedule(s, [A, B], [np.array([[4]], "int32")], checker=checker)


@pytest.mark.parametrize(
    ("dtype", "stride"),
    covering(["int8", "int16", "float16", "float32", "float64"], [2, 3, 4], strength=1),
)
def test_strided_loads_that_a_condition_switches_off(
    checker: Checker, dtype: str, stride: int
) -> None:
    """LLVM made the load, the shuffle and the condition one instruction, which reads anyway."""
    A = te.placeholder((4, 32, stride), dtype, name="A")
    B = te.compute((2, 4, 32), lambda i, j, k: A[j, k, 0], name="B")
    s = create_schedule(B)
    L = s.cache_write(B, "local")
    _, j = s[B].split(s[B].op.axis[1], nparts=1)
    s[L].compute_at(s[B], j)
    s[L].split(s[L].op.axis[1], nparts=3)
    s[L].vectorize(s[L].op.axis[2])
    a = (np.arange(4 * 32 * stride).reshape(4, 32, stride) % 100).astype(dtype)
    check_schedule(s, [A, B], [a], checker=checker)

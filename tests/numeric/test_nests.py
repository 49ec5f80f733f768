"""Guards, padding, partition and parallel loops, on every way to run them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuzzing.differential import Checker, check_schedule
from loopwright import te
from loopwright.driver import build
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Var, const
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import For, Func, Stmt, Store
from loopwright.schedule import Schedule, create_schedule
from tests.numeric.programs import TARGETS, run, small

# ---------------------------------------------------------------- partition and guards


def copy(n: int) -> tuple[Schedule, list[Any], list[Any]]:
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    s = create_schedule(B)
    return s, [A, B], [small(n)]


def test_partition_into_a_hot_part_and_a_tail(checker: Checker) -> None:
    s, (A, B), inputs = copy(21)
    _, ii = s[B].split(B.op.axis[0], factor=8)
    s[B].vectorize(ii)
    f = run(s, [A, B], inputs, checker)
    assert f == "\n".join(
        [
            "def main(A: float32[21], B: out float32[21]):",
            "  for i.0 in range(3):",
            "    if i.0 * 8 + 7 < 21:",
            "      for i.1 in vectorized(8):",
            "        B[i.0 * 8 + i.1] = A[i.0 * 8 + i.1] + 1.0",
            "    else:",
            "      for i.1 in vectorized(8):",
            "        if i.0 * 8 + i.1 < 21:",
            "          B[i.0 * 8 + i.1] = A[i.0 * 8 + i.1] + 1.0",
        ]
    )


def test_no_guard_where_the_split_divides(checker: Checker) -> None:
    s, (A, B), inputs = copy(24)
    s[B].split(B.op.axis[0], factor=8)
    assert "if" not in run(s, [A, B], inputs, checker)


def test_a_tile_is_guarded_once_and_not_per_element(checker: Checker) -> None:
    A = te.placeholder((13, 21), name="A")
    B = te.compute((13, 21), lambda i, j: A[i, j] + 1, name="B")
    s = create_schedule(B)
    s[B].tile(*B.op.axis, 4, 8)
    hot = run(s, [A, B], [small(13, 21)], checker).split("else:")[0]
    assert "if i.0 * 4 + 3 < 13 and j.0 * 8 + 7 < 21:" in hot
    assert hot.count("if") == 1


def test_a_large_unrolled_nest_keeps_its_guards_instead_of_a_second_copy(checker: Checker) -> None:
    A = te.placeholder((33, 33), name="A")
    B = te.compute((33, 33), lambda i, j: A[i, j] + 1, name="B")
    s = create_schedule(B)
    _, _, ii, ji = s[B].tile(*B.op.axis, 32, 32)
    s[B].unroll(ii)
    s[B].unroll(ji)
    # A thousand copies take long to compile: for one target.
    f = check_schedule(s, [A, B], [small(33, 33)], targets=TARGETS[:1], checker=checker)
    assert "else:" not in str(f)


def test_padded_integer_lanes_do_not_trap(checker: Checker) -> None:
    """The packed copy is padded with zeros; dividing by one of those is harmless."""
    A = te.placeholder((13,), "int32", name="A")
    P = te.compute((13,), lambda i: A[i] * 1, name="P")
    Q = te.compute((13,), lambda i: 1000 // P[i] + 1000 % P[i], name="Q")
    R = te.compute((13,), lambda i: Q[i] + 1, name="R")
    s = create_schedule(R)
    io, ii = s[R].split(R.op.axis[0], factor=8)
    for t in (Q, P):
        s[t].compute_at(s[R], io)
        s[t].vectorize(t.op.axis[0])
    s[R].vectorize(ii)
    run(s, [A, R], [np.arange(13, dtype="int32") - 5], checker)


# ---------------------------------------------------------------- convolutions


@pytest.mark.parametrize(
    ("stride", "pad", "dilation"),
    [
        # The other two have each stride and dilation, one with padding and one without.
        pytest.param(1, 1, 1, marks=pytest.mark.slow),
        pytest.param(2, 1, 1, marks=pytest.mark.slow),
        (1, 2, 2),
        (2, 0, 1),
    ],
)
def test_conv2d_with_its_padding_attached_in_tiles(
    checker: Checker, stride: int, pad: int, dilation: int
) -> None:
    ci, co, n, k = 3, 5, 9, 3
    X = te.placeholder((ci, n, n), name="X")
    W = te.placeholder((co, ci, k, k), name="W")
    P = te.compute(
        (ci, n + 2 * pad, n + 2 * pad),
        lambda c, h, w: te.if_then_else(
            te.all(h >= pad, h < n + pad, w >= pad, w < n + pad), X[c, h - pad, w - pad], 0.0
        ),
        name="P",
    )
    m = (n + 2 * pad - dilation * (k - 1) - 1) // stride + 1
    rc, rh, rw = te.reduce_axis(ci, "rc"), te.reduce_axis(k, "rh"), te.reduce_axis(k, "rw")
    Y = te.compute(
        (co, m, m),
        lambda o, h, w: te.sum(
            P[rc, h * stride + rh * dilation, w * stride + rw * dilation] * W[o, rc, rh, rw],
            axis=[rc, rh, rw],
        ),
        name="Y",
    )
    s = create_schedule(Y)
    YL = s.cache_write(Y, "local")
    o, h, w = Y.op.axis
    oo, oi = s[Y].split(o, factor=4)
    ho, wo, hi, wi = s[Y].tile(h, w, 2, 4)
    s[Y].reorder(oo, ho, wo, hi, wi, oi)
    s[Y].vectorize(oi)
    s[YL].compute_at(s[Y], wo)
    lo, lh, lw = s[YL].op.axis
    s[YL].reorder(rc, rh, rw, lh, lw, lo)
    s[YL].vectorize(lo)
    s[YL].unroll(lw)
    WP = s.cache_read(W, "local", [YL])
    s[WP].compute_at(s[Y], oo)
    s[WP].transform_layout(lambda o, c, y, x: (o // 4, c, y, x, o % 4))
    s[P].compute_at(s[Y], wo)
    s[P].vectorize(P.op.axis[2])
    s[Y].parallel(oo)
    text = run(s, [X, W, Y], [small(ci, n, n), small(co, ci, k, k, seed=1)], checker)
    tile = [1 * stride + (k - 1) * dilation + 1, 3 * stride + (k - 1) * dilation + 1]
    assert f"P = alloc(float32[3, {tile[0]}, {tile[1]}], global)" in text


def test_conv1d_with_its_padding_inlined(checker: Checker) -> None:
    X, W = te.placeholder((17,), name="X"), te.placeholder((5,), name="W")
    P = te.compute(
        (21,), lambda i: te.if_then_else(te.all(i >= 2, i < 19), X[i - 2], 0.0), name="P"
    )
    r = te.reduce_axis(5, "r")
    Y = te.compute((17,), lambda i: te.sum(P[i + r] * W[r], axis=r), name="Y")
    s = create_schedule(Y)
    s[P].compute_inline()
    _, i = s[Y].split(Y.op.axis[0], factor=8)
    s[Y].reorder(r, i)
    s[Y].vectorize(i)
    run(s, [X, W, Y], [small(17), small(5, seed=1)], checker)


# ---------------------------------------------------------------- parallel loops


def matmul(m: int, n: int, k: int) -> tuple[Schedule, Any, Any, Any, Any]:
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, "k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return create_schedule(C), A, B, C, r


def test_workers_have_workspaces_of_their_own(checker: Checker) -> None:
    """A buffer of more than 4 KB does not fit the stack: each worker gets its own."""
    s, A, B, C, _ = matmul(24, 40, 50)
    CL = s.cache_write(C, "local")
    io, _ = s[C].split(C.op.axis[0], factor=4)
    BL = s.cache_read(B, "local", [CL])
    s[CL].compute_at(s[C], io)
    s[BL].compute_at(s[C], io)
    s[C].parallel(io)
    run(s, [A, B, C], [small(24, 50), small(50, 40, seed=1)], checker)
    facts = build(s, [A, B, C], target="llvm -num-threads=2").artifact.manifest["functions"][0]
    assert facts["uses_pool"]
    assert facts["parallel_workspace_bytes"] >= 50 * 40 * 4
    alone = build(s, [A, B, C], target="llvm -num-threads=1").artifact.manifest["functions"][0]
    assert not alone["uses_pool"]
    assert alone["workspace_bytes"] >= 50 * 40 * 4


def test_two_parallel_stages(checker: Checker) -> None:
    A = te.placeholder((40, 30), name="A")
    B = te.compute((40, 30), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((40, 30), lambda i, j: B[39 - i, j] + B[i, 29 - j], name="C")
    s = create_schedule(C)
    s[B].parallel(B.op.axis[0])
    s[C].parallel(s[C].fuse(*C.op.axis))
    assert run(s, [A, C], [small(40, 30)], checker).count("in parallel(") == 2


def test_a_parallel_loop_in_an_attached_stage(checker: Checker) -> None:
    A = te.placeholder((12, 33), name="A")
    k = te.reduce_axis(33, "k")
    B = te.compute((12, 33), lambda i, j: A[i, j] * 3, name="B")
    C = te.compute((12,), lambda i: te.sum(B[i, k], axis=k), name="C")
    for outer in (False, True):
        s = create_schedule(C)
        s[B].compute_at(s[C], C.op.axis[0])
        s[B].parallel(B.op.axis[1])
        if outer:
            s[C].parallel(C.op.axis[0])
        run(s, [A, C], [small(12, 33)], checker)


def test_parallel_inside_serial_loops_sees_outer_values(checker: Checker) -> None:
    s, A, B, C, _k = matmul(9, 26, 7)
    i, j = C.op.axis
    f = s[C].fuse(i, j)
    _fo, fi = s[C].split(f, factor=60)
    fio, _fii = s[C].split(fi, factor=7)
    s[C].parallel(fio)
    run(s, [A, B, C], [small(9, 7), small(7, 26, seed=1)], checker)


def test_parallel_loop_of_one_iteration(checker: Checker) -> None:
    s, (A, B), inputs = copy(1)
    s[B].parallel(B.op.axis[0])
    run(s, [A, B], inputs, checker)


def test_an_intermediate_stage_as_an_argument(checker: Checker) -> None:
    A = te.placeholder((9,), name="A")
    B = te.compute((9,), lambda i: A[i] * 2, name="B")
    C = te.compute((9,), lambda i: B[8 - i] + 1, name="C")
    s = create_schedule(C)
    s[C].vectorize(C.op.axis[0])
    run(s, [A, B, C], [small(9)], checker)


def test_outputs_that_read_each_other(checker: Checker) -> None:
    A = te.placeholder((9, 4), name="A")
    B = te.compute((9, 4), lambda i, j: A[i, j] * 2, name="B")
    k = te.reduce_axis(9, "k")
    C = te.compute((), lambda: te.sum(B[k, 3], axis=k), name="C")
    s = create_schedule([B, C])
    CL = s.cache_write(C, "local")
    s[CL].split(k, factor=4)
    run(s, [A, B, C], [small(9, 4)], checker)


def test_nests_deeper_than_python_allows_in_one_function() -> None:
    b = Buffer("b", (2,) * 8, "int32")
    loops = [Var(f"i{d}") for d in range(60)]
    last = Load(b, (*loops[52:59], loops[59]), "int32")
    body: Stmt = Store(b, tuple(loops[52:60]), Binary("+", last, const(3, "int32"), "int32"))
    for d, v in reversed(list(enumerate(loops))):
        body = For(v, 2 if d >= 52 else 1, "serial", body)
    a = np.arange(256, dtype="int32").reshape((2,) * 8)
    interpret(Func("f", (b,), (True,), body), [a])
    assert (a == np.arange(256).reshape(a.shape) + 3).all()


def test_the_start_of_a_reduction_may_be_a_stage_computed_around_it(checker: Checker) -> None:
    A = te.placeholder((10, 8), name="A")
    k = te.reduce_axis(8, "k")
    B = te.compute((10,), lambda i: A[i, 0] * 100, name="B")
    C = te.compute((10,), lambda i: te.sum(A[i, k], axis=k, init=B[i]), name="C")
    s = create_schedule(C)
    io, _ = s[C].split(C.op.axis[0], factor=4)
    s[B].compute_at(s[C], io)
    run(s, [A, C], [small(10, 8)], checker)


@pytest.mark.parametrize("lanes", [2, 3, 4, 16, 24])
def test_lanes_that_stand_apart_in_memory(checker: Checker, lanes: int) -> None:
    """The last lane reads the last element: nothing beyond it may be touched."""
    inputs, outputs, arrays = [], [], []
    for stride in (2, 3, 4, 5, -1):
        size = (lanes - 1) * abs(stride) + 1
        A = te.placeholder((3, size), name="A")
        at = lambda i, n=stride, size=size: i * n if n > 0 else size - 1 - i  # noqa: E731
        B = te.compute((3, lanes), lambda r, i, A=A, at=at: A[r, at(i)] + 1, name=f"by{stride}")
        inputs.append(A)
        outputs.append(B)
        arrays.append(small(3, size))
    s = create_schedule(outputs)
    for B in outputs:
        s[B].vectorize(B.op.axis[1])
    run(s, [*inputs, *outputs], arrays, checker)


@pytest.mark.parametrize("stride", [2, 3, 4])
def test_lanes_that_stand_apart_under_a_mask(checker: Checker, stride: int) -> None:
    A = te.placeholder((21 * stride,), name="A")
    B = te.compute(
        (37,), lambda i: te.if_then_else(te.all(i >= 3, i < 23), A[(i - 3) * stride], 7), name="B"
    )
    s = create_schedule(B)
    s[B].vectorize(s[B].split(B.op.axis[0], factor=16)[1])
    run(s, [A, B], [small(21 * stride)], checker)

"""Every primitive on the interpreter, on compiled code and against NumPy.

Values are small integers, so that all ways to compute them agree to the bit. `check_schedule` runs
a schedule everywhere, on memory that notices accesses outside it, and takes its trace through JSON
and Python source.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from fuzzing.differential import Checker, check_schedule
from loopwright import te
from loopwright.schedule import create_schedule
from tests.numeric.programs import Matmul, chain, run, small

#: Sizes whose loops have guards, or none, as others have.
night = partial(pytest.param, marks=pytest.mark.slow)


def test_unscheduled_stages_run_one_after_the_other(checker: Checker) -> None:
    s, (A, *_, D), inputs = chain()
    f = check_schedule(s, [A, D], inputs, checker=checker)
    assert [b.name for b in f.params] == ["A", "D"]
    assert "D[i_2, j_2] = C[i_2, j_2] - A[i_2, j_2]" in str(f)


# ---------------------------------------------------------------- split, fuse, tile, reorder


@pytest.mark.parametrize("factor", [1, night(2), 3, night(8), night(11), 12, 64])
def test_split_by_factor(checker: Checker, factor: int) -> None:
    mm = Matmul(11, 7, 13)
    i, _ = mm.C.op.axis
    mm.s[mm.C].split(i, factor=factor)
    mm.s[mm.C].split(mm.k, factor=factor)
    text = mm.check(checker)
    divides_both = factor in (1, 64)
    assert ("if " not in text) == divides_both


@pytest.mark.parametrize("nparts", [1, night(2), 5, night(11), 12, night(40)])
def test_split_by_nparts(checker: Checker, nparts: int) -> None:
    mm = Matmul(11, 7, 13)
    _, j = mm.C.op.axis
    mm.s[mm.C].split(j, nparts=nparts)
    mm.s[mm.C].split(mm.k, nparts=nparts)
    mm.check(checker)


def test_nested_splits_that_do_not_divide(checker: Checker) -> None:
    """A guard on the inner split keeps an element of a reduction from being added twice."""
    mm = Matmul(13, 15, 10)
    i, j = mm.C.op.axis
    stage = mm.s[mm.C]
    for x in (i, j, mm.k):
        _, inner = stage.split(x, factor=7)
        middle, _ = stage.split(inner, factor=3)
        stage.split(middle, nparts=2)
    mm.check(checker)


def test_nested_splits_of_an_attached_reduction(checker: Checker) -> None:
    mm = Matmul(13, 15, 10)
    CL = mm.s.cache_write(mm.C, "local")
    i, j = mm.C.op.axis
    _io, jo, _, _ = mm.s[mm.C].tile(i, j, 10, 12)
    mm.s[CL].compute_at(mm.s[mm.C], jo)
    ci, cj = mm.s[CL].op.axis
    _, ki = mm.s[CL].split(mm.k, factor=7)
    mm.s[CL].split(ki, factor=3)
    _, cii = mm.s[CL].split(ci, factor=4)
    mm.s[CL].split(cii, factor=3)
    _, cji = mm.s[CL].split(cj, factor=5)
    mm.s[CL].vectorize(cji)
    text = mm.check(checker)
    assert "C.local = alloc(float32[12, 15], local)" in text  # 10 x 12 in whole outer splits


def test_fuse_needs_no_division_where_parts_are_known(checker: Checker) -> None:
    s, (A, _, _, D), inputs = chain(12, 8)
    i, j = D.op.axis
    f = s[D].fuse(i, j)
    s[D].split(f, factor=8)
    text = run(s, [A, D], inputs, checker)
    assert "//" not in text.split("C = alloc")[1].split("for i.j")[1]


@pytest.mark.parametrize(("m", "n", "factor"), [(12, 8, 8), (5, 7, 4), (3, 11, 16), (1, 13, 2)])
def test_fuse_split_vectorize(checker: Checker, m: int, n: int, factor: int) -> None:
    s, (A, _, _, D), inputs = chain(m, n)
    i, j = D.op.axis
    f = s[D].fuse(i, j)
    fo, fi = s[D].split(f, factor=factor)
    s[D].vectorize(fi)
    s[D].parallel(fo)
    run(s, [A, D], inputs, checker)


def test_fused_split_loads_contiguous_vectors() -> None:
    """The low part of a fused loop stays affine, so its loads are vectors, not gathers."""
    from loopwright.driver import build

    A = te.placeholder((6, 32), name="A")
    B = te.compute((6, 32), lambda i, j: A[i, j] + 1, name="B")
    s = create_schedule(B)
    f = s[B].fuse(*B.op.axis)
    _, fi = s[B].split(f, factor=8)
    s[B].vectorize(fi)
    text = build(s, [A, B], target="llvm -num-threads=1").get_source("ll")
    assert "load <8 x float>" in text
    assert "store <8 x float>" in text
    assert "insertelement" not in text.split("define")[-1].replace("splat", "")


def test_fuse_of_three_loops_and_split_again(checker: Checker) -> None:
    A = te.placeholder((3, 5, 7), name="A")
    B = te.compute((3, 5, 7), lambda i, j, k: A[i, j, k] * 3 + i * 100 + j * 10 + k, name="B")
    s = create_schedule(B)
    f = s[B].fuse(*B.op.axis)
    fo, fi = s[B].split(f, factor=12)
    foo, foi = s[B].split(fo, nparts=2)
    s[B].reorder(fi, foo, foi)
    run(s, [A, B], [small(3, 5, 7)], checker)


def test_fuse_of_reduction_axes(checker: Checker) -> None:
    A = te.placeholder((5, 6, 7), name="A")
    j, k = te.reduce_axis(6, "j"), te.reduce_axis(7, "k")
    B = te.compute((5,), lambda i: te.sum(A[i, j, k] * (j + 1), axis=[j, k]), name="B")
    s = create_schedule(B)
    f = s[B].fuse(j, k)
    fo, fi = s[B].split(f, factor=8)
    s[B].reorder(fi, fo)
    run(s, [A, B], [small(5, 6, 7)], checker)


def test_tile_and_every_order_of_its_loops(checker: Checker) -> None:
    for order in ((0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (2, 0, 4, 1, 3), (0, 1, 4, 2, 3)):
        mm = Matmul(7, 9, 5)
        loops = [*mm.s[mm.C].tile(*mm.C.op.axis, 4, 4), mm.k]
        mm.s[mm.C].reorder(*[loops[o] for o in order])
        mm.check(checker)


# ---------------------------------------------------------------- vectorize, unroll, pragma


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 17, 33, *map(night, (4, 15, 16, 31, 100))])
def test_vectorize_any_length(checker: Checker, n: int) -> None:
    s, (A, _, C, D), inputs = chain(3, n)
    for t in (C, D):
        s[t].vectorize(t.op.axis[1])
    run(s, [A, D], inputs, checker)


def test_vectorize_with_strides_and_gathers(checker: Checker) -> None:
    A = te.placeholder((64,), name="A")
    At = te.placeholder((16,), "int64", name="At")
    B = te.compute((16, 16), lambda i, j: A[i * 2 + 15 - j] + A[At[j] % 64] + A[j * 3], name="B")
    s = create_schedule(B)
    for axis in B.op.axis:
        s = create_schedule(B)
        s[B].vectorize(axis)
        run(s, [A, At, B], [small(64), np.arange(16) * 7919 - 40000], checker)


def test_vectorize_the_outer_loop_of_a_reduction(checker: Checker) -> None:
    mm = Matmul(11, 5, 7)
    i, j = mm.C.op.axis
    mm.s[mm.C].reorder(j, i, mm.k)
    mm.s[mm.C].vectorize(i)
    mm.check(checker)


def test_vectorize_with_control_flow_inside(checker: Checker) -> None:
    """A guard that differs between lanes becomes a mask; a stage in the loop makes it scalar."""
    A = te.placeholder((13, 10), name="A")
    k = te.reduce_axis(10, "k")
    B = te.compute((13, 10), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute(
        (13,), lambda i: te.sum(B[i, k], axis=k, where=te.any(k < i, A[i, k] > 1.0)), name="C"
    )
    for attach in (False, True):
        s = create_schedule(C)
        (i,) = C.op.axis
        _io, ii = s[C].split(i, factor=8)
        s[C].split(k, factor=4)
        s[C].vectorize(ii)
        if attach:
            s[B].compute_at(s[C], ii)
        run(s, [A, C], [small(13, 10)], checker)


def test_unroll_of_imperfect_loops(checker: Checker) -> None:
    mm = Matmul(10, 7, 9)
    i, j = mm.C.op.axis
    io, ii = mm.s[mm.C].split(i, factor=4)
    ko, ki = mm.s[mm.C].split(mm.k, factor=4)
    mm.s[mm.C].reorder(io, ko, ii, ki, j)
    mm.s[mm.C].unroll(ki)
    mm.s[mm.C].unroll(ii)
    mm.s[mm.C].vectorize(j)
    mm.check(checker)


def test_unroll_pragma_unrolls_what_fits(checker: Checker) -> None:
    mm = Matmul(6, 5, 4)
    i, _j = mm.C.op.axis
    mm.s[mm.C].pragma(i, "auto_unroll_max_step", 25)
    text = mm.check(checker)
    assert "for k in unrolled(4)" in text
    assert "for j in unrolled(5)" in text
    assert "for i in range(6)" in text


# ---------------------------------------------------------------- placement


def test_compute_at_every_loop(checker: Checker) -> None:
    for loop in range(5):
        mm = Matmul(9, 10, 7)
        CL = mm.s.cache_write(mm.C, "local")
        loops = mm.s[mm.C].tile(*mm.C.op.axis, 4, 3)
        AL = mm.s.cache_read(mm.A, "local", [CL])
        mm.s[CL].compute_at(mm.s[mm.C], loops[min(loop, 3)])
        ko, ki = mm.s[CL].split(mm.k, factor=3)
        mm.s[AL].compute_at(mm.s[CL], ki if loop > 2 else ko)
        mm.check(checker)


def test_a_chain_of_stages_in_one_loop(checker: Checker) -> None:
    s, (A, B, C, D), inputs = chain()
    i, _j = D.op.axis
    io, _ii = s[D].split(i, factor=8)
    s[C].compute_at(s[D], io)
    s[B].compute_at(s[C], C.op.axis[0])
    text = run(s, [A, D], inputs, checker)
    assert "B = alloc(float32[1, 11], global)" in text
    assert "C = alloc(float32[8, 11], global)" in text


def test_two_stages_that_share_a_producer(checker: Checker) -> None:
    A = te.placeholder((20,), name="A")
    B = te.compute((20,), lambda i: A[i] * 3, name="B")
    C = te.compute((18,), lambda i: B[i] + B[i + 2], name="C")
    D = te.compute((18,), lambda i: C[i] - B[i + 1], name="D")
    s = create_schedule(D)
    io, _ = s[D].split(D.op.axis[0], factor=5)
    s[C].compute_at(s[D], io)
    s[B].compute_at(s[D], io)
    text = run(s, [A, D], [small(20)], checker)
    assert "B = alloc(float32[7], global)" in text  # 5 elements and a halo of 2


@pytest.mark.parametrize("inlined", [("B",), ("C",), ("B", "C")])
def test_inlining_chains(checker: Checker, inlined: tuple[str, ...]) -> None:
    s, (A, B, C, D), inputs = chain()
    for t in (B, C):
        if t.name in inlined:
            s[t].compute_inline()
    text = run(s, [A, D], inputs, checker)
    assert all(f"{n} = alloc" not in text for n in inlined)


def test_inline_into_a_reduction_and_an_index(checker: Checker) -> None:
    A = te.placeholder((12,), name="A")
    At = te.compute((6,), lambda i: i * 2 + 1, name="At")
    B = te.compute((6,), lambda i: A[te.max(te.min(At[i], 11), 0)] + 1, name="B")
    k = te.reduce_axis(6, "k")
    C = te.compute((3,), lambda i: te.sum(B[k] * (i + 1), axis=k, where=At[k] > 3), name="C")
    s = create_schedule(C)
    s[At].compute_inline()
    s[B].compute_inline()
    text = run(s, [A, C], [small(12)], checker)
    assert "alloc" not in text


def test_inlining_a_stage_that_is_read_at_an_index_of_another_dtype(checker: Checker) -> None:
    A = te.placeholder((9,), "int32", name="A")
    At = te.placeholder((5,), "int64", name="At")
    U = te.placeholder((5,), "uint8", name="U")
    B = te.compute((9,), lambda j: A[j] * 2 + j, name="B")
    C = te.compute((5,), lambda i: B[At[i] % 9] - B[U[i] % 9], name="C")
    s = create_schedule(C)
    s[B].compute_inline()
    inputs = [small(9, dtype="int32"), np.arange(5) * 123456789123 - 7]
    run(s, [A, At, U, C], [*inputs, np.array([0, 255, 128, 7, 9], "uint8")], checker)


def test_compute_root_undoes_placement(checker: Checker) -> None:
    s, (A, B, C, D), inputs = chain()
    before = run(s, [A, D], inputs, checker)
    s[B].compute_inline()
    s[C].compute_at(s[D], D.op.axis[0])
    assert run(s, [A, D], inputs, checker) != before
    s[B].compute_root()
    s[C].compute_root()
    assert run(s, [A, D], inputs, checker) == before

"""cache_read, cache_write and transform_layout on every way to run them; see `programs`."""

from __future__ import annotations

from typing import Any

import pytest

from fuzzing.differential import Checker
from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.lowering import lower
from loopwright.schedule import create_schedule
from tests.covering import covering
from tests.numeric.programs import Matmul, chain, run, small


def test_cache_read_for_several_readers(checker: Checker) -> None:
    A = te.placeholder((20, 6), name="A")
    B = te.compute((20, 6), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((20, 6), lambda i, j: A[i, 5 - j] * 2 + B[i, j], name="C")
    s = create_schedule(C)
    AL = s.cache_read(A, "local", [B, C])
    io, _ii = s[C].split(C.op.axis[0], factor=6)
    s[B].compute_at(s[C], io)
    s[AL].compute_at(s[C], io)
    text = run(s, [A, C], [small(20, 6)], checker)
    assert "A.local = alloc(float32[6, 6], local)" in text
    assert "A[" not in text.split("B[i")[1]


def two_readers() -> tuple[Any, ...]:
    """D = B[i + 1, j] - C[i, 5 - j], where B = A + 1 and C[i, j] = A[i + 2, 5 - j] * 2."""
    A = te.placeholder((24, 6), name="A")
    B = te.compute((24, 6), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((20, 6), lambda i, j: A[i + 2, 5 - j] * 2, name="C")
    D = te.compute((20, 6), lambda i, j: B[i + 1, j] - C[i, 5 - j], name="D")
    return create_schedule(D), A, B, C, D


@pytest.mark.parametrize("mark", ["vectorize", "unroll", None])
def test_cache_read_for_readers_at_different_loops(checker: Checker, mark: str | None) -> None:
    """The copy covers what both readers need where it is computed: rows 1 to 7 of a tile of 5."""
    s, A, B, C, D = two_readers()
    AL = s.cache_read(A, "local", [B, C])
    io, ii = s[D].split(D.op.axis[0], factor=5)
    s[B].compute_at(s[D], ii)
    s[C].compute_at(s[D], D.op.axis[1])
    s[AL].compute_at(s[D], io)
    s[AL].transform_layout(lambda i, j: (j, i))
    if mark:
        getattr(s[AL], mark)(s[AL].op.axis[1])
    text = run(s, [A, D], [small(24, 6)], checker)
    assert "A.local = alloc(float32[6, 6], local)" in text
    assert "A[" in text.split("B[")[0]
    assert "A[" not in text.split("B[", 1)[1]


def test_cache_read_for_one_reader_inside_another(checker: Checker) -> None:
    """C runs in D and B in C's host: the copy may stand in any loop around both."""
    s, A, B, C, D = two_readers()
    AL = s.cache_read(A, "shared", [C, B])
    s[C].compute_at(s[D], D.op.axis[0])
    s[B].compute_at(s[D], D.op.axis[0])
    s[AL].compute_at(s[D], D.op.axis[0])
    s[D].parallel(D.op.axis[0])
    run(s, [A, D], [small(24, 6)], checker)


def test_cache_read_where_a_reader_does_not_run_is_refused() -> None:
    s, A, B, C, D = two_readers()
    AL = s.cache_read(A, "local", [B, C])
    s[C].compute_at(s[D], D.op.axis[0])
    s[AL].compute_at(s[D], D.op.axis[0])
    with pytest.raises(ScheduleError, match=r"'B' reads it too and does not run inside that loop"):
        lower(s, [A, D])


def test_cache_read_of_a_computed_stage_for_one_of_its_readers(checker: Checker) -> None:
    s, (A, B, C, D), inputs = chain()
    BL = s.cache_read(B, "shared", [C])
    s[BL].compute_at(s[C], C.op.axis[1])
    run(s, [A, D], inputs, checker)


def test_cache_write_of_a_stage_that_is_no_reduction(checker: Checker) -> None:
    s, (A, _B, C, D), inputs = chain()
    DL = s.cache_write(D, "local")
    i, j = D.op.axis
    _io, jo, _ii, _ji = s[D].tile(i, j, 8, 4)
    s[DL].compute_at(s[D], jo)
    s[C].compute_at(s[DL], s[DL].op.axis[0])
    s[DL].vectorize(s[DL].op.axis[1])
    run(s, [A, D], inputs, checker)


def test_cache_write_twice(checker: Checker) -> None:
    mm = Matmul(9, 8, 7)
    CL = mm.s.cache_write(mm.C, "local")
    CLL = mm.s.cache_write(CL, "local")
    _io, jo, _, _ = mm.s[mm.C].tile(*mm.C.op.axis, 4, 4)
    mm.s[CL].compute_at(mm.s[mm.C], jo)
    mm.s[CLL].compute_at(mm.s[CL], mm.s[CL].op.axis[0])
    mm.check(checker)


@pytest.mark.parametrize(
    ("index_map", "attach"),
    covering(
        [
            lambda k, j: (j, k),
            lambda k, j: (j // 8, k, j % 8),
            lambda k, j: (k // 4, j // 16, k % 4, j % 16),
            lambda k, j: (j // 32, (j // 4) % 8, k, j % 4),
        ],
        [False, True],
        strength=1,
    ),
)
def test_transform_layout_of_a_packed_operand(
    checker: Checker, index_map: Any, attach: bool
) -> None:
    """Primes everywhere: the last block of every dimension is padded."""
    mm = Matmul(7, 37, 13)
    BP = mm.s.cache_read(mm.B, "global", [mm.C])
    mm.s[BP].transform_layout(index_map)
    i, j = mm.C.op.axis
    jo, ji = mm.s[mm.C].split(j, factor=16)
    mm.s[mm.C].reorder(jo, i, mm.k, ji)
    mm.s[mm.C].vectorize(ji)
    if attach:
        mm.s[BP].compute_at(mm.s[mm.C], jo)
    mm.check(checker)


def test_micro_kernel_with_packing_at_prime_sizes(checker: Checker) -> None:
    """The nest that reaches the peak: packed panels, a register tile, masked write-back."""
    mm = Matmul(23, 41, 19)
    s, C = mm.s, mm.C
    CL = s.cache_write(C, "local")
    i, j = C.op.axis
    io, jo, ii, ji = s[C].tile(i, j, 4, 16)
    s[C].reorder(jo, io, ii, ji)
    s[C].vectorize(ji)
    s[C].unroll(ii)
    s[CL].compute_at(s[C], io)
    ci, cj = s[CL].op.axis
    ko, ki = s[CL].split(mm.k, factor=4)
    s[CL].reorder(ko, ki, ci, cj)
    s[CL].unroll(ki)
    s[CL].unroll(ci)
    s[CL].vectorize(cj)
    BP = s.cache_read(mm.B, "local", [CL])
    s[BP].compute_at(s[C], jo)
    s[BP].transform_layout(lambda k, j: (j // 16, k, j % 16))
    s[BP].vectorize(s[BP].op.axis[1])
    AP = s.cache_read(mm.A, "local", [CL])
    s[AP].compute_at(s[CL], ko)
    s[AP].transform_layout(lambda i, k: (k, i))
    s[C].parallel(jo)
    mm.check(checker)


@pytest.mark.parametrize(
    ("index_map", "pad"),
    covering(
        [
            lambda k, j: k * 20 + j,
            lambda k, j: ((k * 20 + j) // 16, (k * 20 + j) % 16),
            lambda k, j: (j // 8, k * 8 + j % 8),
            lambda k, j: ((k * 24 + j) // 32, (k * 24 + j) % 32 // 8, j % 8),
            lambda k, j: (19 - j, k + 5),
            lambda k, j: (k + j, j),
        ],
        [None, 7],
        strength=1,
    ),
)
def test_general_layouts_of_a_packed_operand(checker: Checker, index_map: Any, pad: Any) -> None:
    mm = Matmul(9, 20, 11)
    s, C = mm.s, mm.C
    CL = s.cache_write(C, "local")
    BP = s.cache_read(mm.B, "global", [CL])
    io, jo, _ii, ji = s[C].tile(*C.op.axis, 3, 4)
    s[C].vectorize(ji)
    s[CL].compute_at(s[C], jo)
    s[CL].reorder(s[CL].op.reduce_axis[0], *s[CL].op.axis)
    s[CL].vectorize(s[CL].op.axis[1])
    s[BP].transform_layout(index_map, pad_value=pad)
    _, packed = s[BP].split(s[BP].op.axis[1], factor=4)
    s[BP].vectorize(packed)
    s[C].parallel(io)
    mm.check(checker)

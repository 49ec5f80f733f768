"""Where buffers lie, on every way to run them; see `programs`."""

from __future__ import annotations

import pytest

from fuzzing.differential import Checker
from tests.numeric.programs import Matmul, chain, run


@pytest.mark.parametrize("at", ["root", "row", "tile"])
def test_rows_apart(checker: Checker, at: str) -> None:
    """A panel of B and a tile of C with gaps between their rows, vectorised."""
    mm = Matmul(13, 20, 9)
    s, C = mm.s, mm.C
    CL = s.cache_write(C, "local")
    BP = s.cache_read(mm.B, "global", [CL])
    io, jo, _ii, ji = s[C].tile(*C.op.axis, 4, 8)
    s[C].vectorize(ji)
    s[CL].compute_at(s[C], jo)
    s[CL].storage_align(0, 8, 3)
    s[CL].vectorize(s[CL].op.axis[1])
    if at != "root":
        s[BP].compute_at(s[C], io if at == "row" else jo)
    s[BP].storage_align(s[BP].op.axis[0], 16, 5)
    s[BP].vectorize(s[BP].op.axis[1])
    mm.check(checker)


def test_elements_apart(checker: Checker) -> None:
    s, (A, B, C, D), inputs = chain()
    s[B].storage_align(1, 2, 0)
    s[C].transform_layout(lambda i, j: (j, i))
    s[C].storage_align(1, 3, 2)
    s[C].set_scope("local")
    s[D].vectorize(D.op.axis[1])
    text = run(s, [A, D], inputs, checker)
    assert text.count("strides=") == 2


@pytest.mark.parametrize("where", ["row", "root"])
def test_storage_outside_of_the_loop_that_computes(checker: Checker, where: str) -> None:
    mm = Matmul(13, 20, 9)
    s, C = mm.s, mm.C
    CL = s.cache_write(C, "local")
    io, jo, _ii, ji = s[C].tile(*C.op.axis, 4, 8)
    s[C].vectorize(ji)
    s[CL].compute_at(s[C], jo)
    s[CL].vectorize(s[CL].op.axis[1])
    s[CL].unroll(s[CL].op.axis[0])
    if where == "row":
        s[C].parallel(io)
        s[CL].store_at(s[C], io)
    else:
        s[CL].store_root()
    mm.check(checker)


@pytest.mark.parametrize("threads", [False, True])
def test_a_panel_filled_while_one_is_read(checker: Checker, threads: bool) -> None:
    """B's panel for the next part of the reduction, and both operands of a tile."""
    mm = Matmul(13, 20, 11)
    s, C = mm.s, mm.C
    CL = s.cache_write(C, "local")
    io, jo, _ii, ji = s[C].tile(*C.op.axis, 4, 8)
    s[C].vectorize(ji)
    s[CL].compute_at(s[C], jo)
    ko, ki = s[CL].split(s[CL].op.reduce_axis[0], factor=3)
    s[CL].reorder(ko, ki, *s[CL].op.axis)
    s[CL].vectorize(s[CL].op.axis[1])
    for t in (mm.A, mm.B):
        cached = s.cache_read(t, "local", [CL])
        s[cached].compute_at(s[CL], ko)
        s[cached].vectorize(s[cached].op.axis[1])
        s[cached].double_buffer()
    if threads:
        s[C].parallel(io)
    mm.check(checker)

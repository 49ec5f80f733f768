"""What is refused, and where: reads outside, starts read too early, too many copies, too deep."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fuzzing.differential import Checker
from loopwright import te
from loopwright.driver import build
from loopwright.errors import LowerError, ScheduleError, TensorError
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.schedule import create_schedule
from tests.numeric.programs import run, small


def test_an_index_that_only_seems_to_leave_its_dimension(checker: Checker) -> None:
    """Bounds that are not attained refuse nothing: i - i // 4 * 4 lies in [0, 4)."""
    A = te.placeholder((4,), name="A")
    B = te.compute((11,), lambda i: A[i - i // 4 * 4] + A[te.min(i, 3)], name="B")
    s = create_schedule(B)
    _, ii = s[B].split(B.op.axis[0], factor=8)
    s[B].vectorize(ii)
    run(s, [A, B], [small(4)], checker)


@pytest.mark.parametrize(
    "body",
    [
        lambda A, i: A[i + 1],
        lambda A, i: te.select(i < 7, A[i + 1], 0.0),
        lambda A, i: te.if_then_else(A[i + 1] > 0, 1.0, 0.0),
        lambda A, i: te.if_then_else(i < 7, A[i + 1], A[i]) + A[i - 1],
    ],
)
def test_a_read_outside_is_refused_unless_it_is_guarded(body: Any) -> None:
    A = te.placeholder((8,), name="A")
    with pytest.raises(TensorError, match=r"index 0 of A runs from .* has 8 elements; guard it"):
        te.compute((8,), lambda i: body(A, i), name="B")


def test_a_select_reads_both_of_its_sides(checker: Checker) -> None:
    """So the interpreter tells of a side that lies outside, taken or not."""
    A = te.placeholder((8,), name="A")
    J = te.placeholder((8,), "int32", name="J")
    B = te.compute((8,), lambda i: te.select(J[i] < 8, A[J[i]], 0.0), name="B")
    f = lower(create_schedule(B), [A, J, B])
    with pytest.raises(Exception, match=r"access outside A: index \[9\], shape \[8\]"):
        interpret(f, [np.zeros(8, "f4"), np.full(8, 9, "i4"), np.zeros(8, "f4")])
    C = te.compute((8,), lambda i: te.if_then_else(J[i] < 8, A[J[i]], 0.0), name="C")
    s = create_schedule(C)
    s[C].vectorize(C.op.axis[0])
    run(s, [A, J, C], [small(8), np.array([0, 9, 7, 8, 3, 100, 2, 1], "i4")], checker)


def test_the_start_of_a_reduction_does_not_see_its_axes() -> None:
    A = te.placeholder((8,), name="A")
    k = te.reduce_axis(8, "k")
    with pytest.raises(TensorError, match=r"axis 'k' does not belong to it.*init="):
        te.compute((8,), lambda i: te.sum(A[k], axis=k, init=A[k]), name="B")


def test_a_stage_that_a_reduction_starts_from_is_not_computed_inside_it() -> None:
    A = te.placeholder((10, 8), name="A")
    k = te.reduce_axis(8, "k")
    B = te.compute((10,), lambda i: A[i, 0] * 100, name="B")
    C = te.compute((10,), lambda i: te.sum(A[i, k], axis=k, init=B[i]), name="C")
    s = create_schedule(C)
    ko, _ = s[C].split(k, factor=4)
    s[B].compute_at(s[C], ko)
    text = (
        "compute_at (step 1): 'B' is read by init= of 'C' before its reduction loops, so it cannot "
        "be computed at loop 'C.k.0'; use a loop outside of 'C.k.0'"
    )
    with pytest.raises(ScheduleError, match=re.escape(text)):
        lower(s, [A, C])


def test_copies_of_an_attached_stage_count_those_of_its_host() -> None:
    A = te.placeholder((80, 80), name="A")
    B = te.compute((80, 80), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((80, 80), lambda i, j: B[i, j] * 2, name="C")
    s = create_schedule(C)
    i, _j = C.op.axis
    s[B].compute_at(s[C], i)
    s[C].unroll(i)
    lower(s, [A, C])
    s[B].unroll(B.op.axis[1])
    with pytest.raises(ScheduleError, match=r"unrolling loop 'B\.j' would make 6400 copies"):
        lower(s, [A, C])


def test_a_program_that_nests_too_deeply_says_so() -> None:
    t = A = te.placeholder((4,), name="A")
    for _ in range(400):
        t = te.compute((4,), lambda i, t=t: t[i] + 1, name="B")
    s = create_schedule(t)
    with pytest.raises(LowerError, match="401 stages nest too deeply"):
        build(s, [A, t])


def test_an_attached_stage_in_an_unrolled_loop_has_a_buffer_each_time(checker: Checker) -> None:
    """Addresses of one iteration's buffer must not serve the next one's."""
    A = te.placeholder((8, 17), name="A")
    B = te.compute((8, 17), lambda i, j: A[i, j] * 2 + A[7 - i, j], name="B")
    s = create_schedule(B)
    AL = s.cache_read(A, "local", [B])
    i, j = B.op.axis
    s[B].reorder(i, j)
    s[B].unroll(j)
    s[AL].compute_at(s[B], j)
    run(s, [A, B], [small(8, 17)], checker)

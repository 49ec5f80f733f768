"""Rules that need extents: long vectors, too many copies, vectors in vectors."""

from __future__ import annotations

import pytest

from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.lowering import lower
from loopwright.schedule import create_schedule
from loopwright.schedule.primitives.annotate import MAX_UNROLL, MAX_VECTOR
from tests.unit.schedule.programs import chain


def test_a_vector_that_is_too_long() -> None:
    p = chain(2, MAX_VECTOR + 1)
    p.s[p.d].vectorize(p.d.op.axis[1])
    text = (
        r"vectorize \(step 0\): loop 'D\.j' has 1025 iterations, the longest vector is 1024; split "
        "it and vectorize the inner part"
    )
    with pytest.raises(ScheduleError, match=text):
        p.s.validate()
    with pytest.raises(ScheduleError, match=text):
        lower(p.s, [p.a, p.d])


def test_the_longest_vector_is_allowed() -> None:
    p = chain(2, MAX_VECTOR)
    p.s[p.d].vectorize(p.d.op.axis[1])
    p.s.validate()


def test_a_vector_inside_a_vector() -> None:
    p = chain()
    i, j = p.d.op.axis
    p.s[p.d].vectorize(j)
    p.s[p.d].vectorize(i)
    with pytest.raises(
        ScheduleError,
        match=r"vectorize \(step 0\): loop 'D\.j' lies inside loop 'D\.i', which is vectorized "
        "already; fuse the two or vectorize one",
    ):
        p.s.validate()


def test_copies_multiply() -> None:
    p = chain(128, 64)
    i, j = p.d.op.axis
    p.s[p.d].unroll(i)
    p.s[p.d].unroll(j)
    with pytest.raises(
        ScheduleError,
        match=rf"unroll \(step 1\): unrolling loop 'D\.j' would make 8192 copies of the body "
        rf"\(limit {MAX_UNROLL}\); split it and unroll a smaller part",
    ):
        p.s.validate()


def test_extents_are_those_of_the_tile() -> None:
    """B has 4096 x 64 elements; at D's inner loop it covers one of them."""
    n = 2 * MAX_UNROLL
    a = te.placeholder((n, 64), name="A")
    b = te.compute((n, 64), lambda i, j: a[i, j] * 2.0, name="B")
    d = te.compute((n, 64), lambda i, j: b[i, j] + 1.0, name="D")
    s = create_schedule(d)
    s[b].unroll(b.op.axis[0])
    with pytest.raises(ScheduleError, match=r"unroll \(step 0\): unrolling loop 'B\.i' would make"):
        s.validate()
    s[b].compute_at(s[d], d.op.axis[0])
    bounds = s.validate()
    assert [x.extent for x in bounds.stages[1].loops] == [1, 64]


def test_validate_gives_the_bounds() -> None:
    p = chain()
    assert p.s.validate() is p.s.bounds()

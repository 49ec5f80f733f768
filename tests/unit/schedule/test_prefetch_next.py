"""The rules of prefetch_next, its JSON and its Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.schedule import create_schedule, replay
from tests.unit.schedule.programs import Chain, chain


def test_recorded_replayed_and_printed() -> None:
    p = chain()
    i, j = p.d.op.axis
    p.s[p.d].prefetch_next(p.c, j, p.d, i)
    p.s[p.d].prefetch_next(p.c, j, p.d, i, 2)
    assert p.s.trace_json() == [
        ["prefetch_next", 3, "a1", 2, 3, "a0"],
        ["prefetch_next", 3, "a1", 2, 3, "a0", 2],
    ]
    assert replay(p.s.dag, p.s.trace_json()).trace == p.s.trace
    text = p.s.as_python()
    assert "s[D].prefetch_next(C, j, s[D], i)\n" in text
    assert "s[D].prefetch_next(C, j, s[D], i, 2)\n" in text


def test_the_last_wish_for_a_tensor_counts() -> None:
    p = chain()
    i, j = p.d.op.axis
    for offset in (1, 3):
        p.s[p.d].prefetch_next(p.c, j, p.d, i, offset)
    (note,) = p.s.state.stages[3].notes
    assert (note.loop, note.ahead.loop, note.ahead.offset) == ("a1", "a0", 3)  # type: ignore[attr-defined]


def test_one_of_several_outputs() -> None:
    a = te.placeholder((4, 32), name="A")
    x, y = te.compute((4, 32), lambda i, j: (a[i, j], a[i, j] + 1.0), name="X")
    z = te.compute((4, 32), lambda i, j: x[i, j] * y[i, j], name="Z")
    s = create_schedule(z)
    i, j = z.op.axis
    s[z].prefetch_next(y, j, z, i)
    assert s.trace_json() == [["prefetch_next", 2, "a1", 1, 2, "a0", 1, 1]]
    assert "s[Z].prefetch_next(X.op.output(1), j, s[Z], i)" in s.as_python()
    bad = [["prefetch_next", 2, "a1", 1, 2, "a0", 1, 2]]
    with pytest.raises(ScheduleError, match=r"'X' has 2 output\(s\), there is no output 2"):
        replay(s.dag, bad)


REFUSED: list[tuple[Callable[[Chain], Any], str]] = [
    (
        lambda p: p.s[p.d].prefetch_next(p.c, p.d.op.axis[1], p.d, p.c.op.axis[0]),
        r"prefetch_next \(step 0\): axis 'i' belongs to stage 'C', not to 'D'",
    ),
    (
        lambda p: p.s[p.d].prefetch_next(p.c, p.d.op.axis[1], p.d, p.d.op.axis[0], -1),
        r"prefetch_next \(step 0\): offset is how many iterations ahead, 0 or more; got -1",
    ),
    (
        lambda p: p.s[p.d].prefetch_next(p.c, p.d.op.axis[1], p.d, p.d.op.axis[0], True),
        r"0 or more; got True",
    ),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_refused(call: Callable[[Chain], Any], text: str) -> None:
    p = chain()
    with pytest.raises(ScheduleError, match=text):
        call(p)
    assert p.s.trace == ()


def test_the_loop_of_the_shares_stays_whole() -> None:
    p = chain()
    i, j = p.d.op.axis
    p.s[p.d].prefetch_next(p.c, j, p.d, i)
    with pytest.raises(ScheduleError, match=r"loop 'D\.j' prefetches a tensor \(step 0\); split"):
        p.s[p.d].split(j, 2)


def test_the_loop_ahead_stays_whole() -> None:
    p = chain()
    i, j = p.d.op.axis
    p.s[p.c].compute_at(p.s[p.d], j)
    p.s[p.c].prefetch_next(p.b, p.c.op.axis[1], p.d, i)
    with pytest.raises(
        ScheduleError, match=r"loop 'D\.i' is prefetched for by 'C' \(step 1\); spl"
    ):
        p.s[p.d].split(i, 2)
    with pytest.raises(
        ScheduleError, match=r"loop 'D\.i' is prefetched for by 'C' \(step 1\); fus"
    ):
        p.s[p.d].fuse(i, j)


def _not_around(p: Chain) -> None:
    p.s[p.d].prefetch_next(p.c, p.d.op.axis[0], p.d, p.d.op.axis[1])


def _elsewhere(p: Chain) -> None:
    p.s[p.d].prefetch_next(p.c, p.d.op.axis[1], p.c, p.c.op.axis[0])


def _unread(p: Chain) -> None:
    p.s[p.d].prefetch_next(p.a, p.d.op.axis[1], p.d, p.d.op.axis[0])


def _vectorized(p: Chain) -> None:
    p.s[p.d].prefetch_next(p.c, p.d.op.axis[1], p.d, p.d.op.axis[0])
    p.s[p.d].vectorize(p.d.op.axis[1])


def _inlined(p: Chain) -> None:
    p.s[p.c].prefetch_next(p.b, p.c.op.axis[1], p.c, p.c.op.axis[0])
    p.s[p.b].compute_inline()


def _kernel(p: Chain) -> None:
    p.s[p.d].prefetch_next(p.c, p.d.op.axis[1], p.d, p.d.op.axis[0])
    p.s[p.d].bind(p.d.op.axis[0], "blockIdx.x")


INVALID: list[tuple[Callable[[Chain], None], str]] = [
    (
        _not_around,
        r"prefetch_next \(step 0\): loop 'D\.j' is not around loop 'D\.i'; there is none around",
    ),
    (_elsewhere, r"loop 'C\.i' is not around loop 'D\.j'; name one of 'D\.i'"),
    (_unread, r"prefetch_next \(step 0\): nothing inside loop 'D\.i' reads 'A'; it is read by B"),
    (
        _vectorized,
        r"prefetch_next \(step 0\): loop 'D\.j' is vectorized \(step 1\), its iterations run at "
        "once; fetch shares at a loop outside of it",
    ),
    (_inlined, r"'B' is inlined and is not in memory; prefetch what it reads"),
    (_kernel, r"loop 'D\.i' belongs to the kernel of 'D', whose threads hide latency"),
]


@pytest.mark.parametrize(("make", "text"), INVALID)
def test_refused_when_extents_are_known(make: Callable[[Chain], None], text: str) -> None:
    p = chain()
    make(p)
    with pytest.raises(ScheduleError, match=text):
        p.s.validate()


def test_a_stage_around_that_is_inlined_has_no_loops() -> None:
    p = chain()
    p.s[p.d].prefetch_next(p.b, p.d.op.axis[1], p.c, p.c.op.axis[0])
    p.s[p.c].compute_inline()
    with pytest.raises(ScheduleError, match=r"prefetch_next \(step 0\): 'C' is inlined and has no"):
        p.s.validate()


def test_shares_of_what_depends_on_sizes_are_not_known() -> None:
    n = te.var("n")
    a = te.placeholder((8, n), name="A")
    b = te.compute((8, n), lambda i, j: a[i, j] + 1.0, name="B")
    s = create_schedule(b)
    s[b].prefetch_next(a, b.op.axis[1], b, b.op.axis[0])
    with pytest.raises(ScheduleError, match=r"the shape of 'A' depends on sizes, so that shares"):
        s.validate()


def test_shares_of_a_loop_without_a_constant_extent_are_not_known() -> None:
    n = te.var("n")
    a, c = te.placeholder((8, 64), name="A"), te.placeholder((n,), name="C")
    k = te.reduce_axis(64, name="k")
    b = te.compute((8, n), lambda i, j: te.sum(a[i, k] * c[j], axis=k), name="B")
    s = create_schedule(b)
    i, _ = b.op.axis
    s[b].prefetch_next(a, s[b].op.reduce_axis[0], b, i)
    with pytest.raises(ScheduleError, match=r"loop 'j' has no constant extent, so that shares are"):
        s.validate()

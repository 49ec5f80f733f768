"""The rules of prefetch, its JSON and its Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.schedule import create_schedule, replay
from tests.unit.schedule.programs import Chain, chain
from tests.unit.schedule.test_tensorize import dot, program


def test_recorded_replayed_and_printed() -> None:
    p = chain()
    i, j = p.d.op.axis
    p.s[p.d].prefetch(p.c, i, 2)
    p.s[p.d].prefetch(p.c, j, 1)
    p.s[p.d].prefetch(p.c, i, 3)
    assert p.s.trace_json() == [
        ["prefetch", 3, "a0", 2, 2],
        ["prefetch", 3, "a1", 2, 1],
        ["prefetch", 3, "a0", 2, 3],
    ]
    kept = p.s.state.stages[3].prefetches
    assert [(x.loop, x.offset) for x in kept] == [("a1", 1), ("a0", 3)]
    assert replay(p.s.dag, p.s.trace_json()).trace == p.s.trace
    assert "s[D].prefetch(C, i, 3)" in p.s.as_python()


def test_one_of_several_outputs() -> None:
    a = te.placeholder((4, 32), name="A")
    x, y = te.compute((4, 32), lambda i, j: (a[i, j], a[i, j] + 1.0), name="X")
    z = te.compute((4, 32), lambda i, j: x[i, j] * y[i, j], name="Z")
    s = create_schedule(z)
    s[z].prefetch(y, z.op.axis[0], 1)
    assert s.trace_json() == [["prefetch", 2, "a0", 1, 1, 1]]
    assert "s[Z].prefetch(X.op.output(1), i, 1)" in s.as_python()
    with pytest.raises(ScheduleError, match=r"'X' has 2 outputs; name one: output\(k\)"):
        s[z].prefetch(x.op, z.op.axis[0], 1)
    bad = [["prefetch", 2, "a0", 1, 1, 2]]
    with pytest.raises(ScheduleError, match=r"'X' has 2 output\(s\), there is no output 2"):
        replay(s.dag, bad)


REFUSED: list[tuple[Callable[[Chain], Any], str]] = [
    (
        lambda p: p.s[p.a].prefetch(p.a, p.d.op.axis[0], 1),
        r"prefetch \(step 0\): axis 'i' belongs to stage 'D', not to 'A'",
    ),
    (
        lambda p: p.s[p.d].prefetch(p.c, p.d.op.axis[0], 0),
        r"prefetch \(step 0\): offset is how many iterations ahead, a positive integer; got 0",
    ),
    (
        lambda p: p.s[p.d].prefetch(p.c, p.d.op.axis[0], 1.5),
        r"a positive integer; got 1\.5",
    ),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_refused(call: Callable[[Chain], Any], text: str) -> None:
    p = chain()
    with pytest.raises(ScheduleError, match=text):
        call(p)
    assert p.s.trace == ()


LATER: list[tuple[Callable[[Chain], Any], str]] = [
    (lambda p: p.s[p.d].split(p.d.op.axis[0], 2), r"loop 'D\.i' prefetches a tensor; split it b"),
    (lambda p: p.s[p.d].fuse(*p.d.op.axis), r"loop 'D\.i' prefetches a tensor; fuse it before"),
    (lambda p: p.s.cache_write(p.d, "local"), r"the loops of 'D' are already transformed"),
]


@pytest.mark.parametrize(("call", "text"), LATER)
def test_the_loop_stays_whole(call: Callable[[Chain], Any], text: str) -> None:
    p = chain()
    p.s[p.d].prefetch(p.c, p.d.op.axis[0], 1)
    with pytest.raises(ScheduleError, match=text):
        call(p)


def test_a_reduction_loop_stays_where_it_is() -> None:
    a = te.placeholder((4, 8), name="A")
    k = te.reduce_axis((0, 8), name="k")
    b = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = create_schedule(b)
    s[b].prefetch(a, k, 1)
    with pytest.raises(ScheduleError, match=r"loop 'B\.k' prefetches a tensor; call rfactor bef"):
        s.rfactor(b, k)


def _unread(p: Chain) -> None:
    p.s[p.d].prefetch(p.a, p.d.op.axis[0], 1)


def _vectorized(p: Chain) -> None:
    p.s[p.d].prefetch(p.c, p.d.op.axis[1], 1)
    p.s[p.d].vectorize(p.d.op.axis[1])


def _inlined(p: Chain) -> None:
    p.s[p.d].prefetch(p.c, p.d.op.axis[0], 1)
    p.s[p.c].compute_inline()


def _inside(p: Chain) -> None:
    p.s[p.d].prefetch(p.c, p.d.op.axis[0], 1)
    p.s[p.c].compute_at(p.s[p.d], p.d.op.axis[1])


def _kernel(p: Chain) -> None:
    p.s[p.d].prefetch(p.c, p.d.op.axis[0], 1)
    p.s[p.d].bind(p.d.op.axis[1], "threadIdx.x")


INVALID: list[tuple[Callable[[Chain], None], str]] = [
    (
        _unread,
        r"prefetch \(step 0\): nothing inside loop 'D\.i' reads 'A'; it is read by B",
    ),
    (
        _vectorized,
        r"prefetch \(step 0\): loop 'D\.j' is vectorized \(step 1\), its iterations run at once; "
        "prefetch at a loop outside of it",
    ),
    (_inlined, r"'C' is inlined and is not in memory; prefetch what it reads"),
    (
        _inside,
        r"'C' is computed inside loop 'D\.i', one iteration at a time; prefetch what it reads, or "
        "compute it outside of the loop",
    ),
    (
        _kernel,
        r"loop 'D\.i' belongs to the kernel of 'D', whose threads hide latency; copy 'C' with "
        "cache_read and double_buffer the copy",
    ),
]


@pytest.mark.parametrize(("make", "text"), INVALID)
def test_refused_when_extents_are_known(make: Callable[[Chain], None], text: str) -> None:
    p = chain()
    make(p)
    with pytest.raises(ScheduleError, match=text):
        p.s.validate()


def test_an_index_from_memory_is_not_foreseen() -> None:
    at = te.placeholder((8,), "int32", name="at")
    a = te.placeholder((100,), name="A")
    b = te.compute((8,), lambda i: a[at[i]], name="B")
    s = create_schedule(b)
    s[b].prefetch(at, b.op.axis[0], 4)
    s.validate()
    s[b].prefetch(a, b.op.axis[0], 4)
    with pytest.raises(ScheduleError, match=r"'A' is read inside loop 'B\.i' at an index that is "):
        s.validate()


def test_inside_an_intrinsic_nothing_is_prefetched() -> None:
    s, y, i = program()
    source = s[y].op.input_tensors[0]
    s[y].prefetch(source, s[y].op.reduce_axis[0], 1)
    s[y].tensorize(i, dot())
    with pytest.raises(
        ScheduleError,
        match=r"prefetch \(step 0\): loop 'Y\.k' belongs to intrinsic 'dot' \(step 1\); prefetch "
        "at a loop outside of it",
    ):
        s.validate()

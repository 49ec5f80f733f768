"""Bound inference: extents, regions, bases and guards of stages."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright import te
from loopwright.schedule import Schedule, create_schedule
from loopwright.schedule.bounds.results import StageBounds
from tests.unit.schedule.programs import chain, matmul


def bounds(s: Schedule, t: te.Tensor) -> StageBounds:
    return s.validate().stages[s[t].id]


def extents(s: Schedule, t: te.Tensor) -> list[int]:
    return [x.extent for x in bounds(s, t).loops]


def shape(s: Schedule, t: te.Tensor) -> list[int]:
    return bounds(s, t).shape


def conv(h: int = 10, k: int = 3) -> tuple[Schedule, te.Tensor, te.Tensor, te.Tensor]:
    """``C`` of ``h - k + 1`` elements over ``P``, a copy of ``A``."""
    a = te.placeholder((h,), name="A")
    p = te.compute((h,), lambda x: a[x] * 2.0, name="P")
    r = te.reduce_axis(k, "r")
    c = te.compute((h - k + 1,), lambda x: te.sum(p[x + r], axis=r), name="C")
    return create_schedule(c), a, p, c


# ------------------------------------------------------------------ root stages


def test_root_stages_cover_their_tensors() -> None:
    p = matmul(8, 12, 10)
    assert extents(p.s, p.c) == [8, 12, 10]
    assert shape(p.s, p.c) == [8, 12]


@pytest.mark.parametrize(
    ("how", "want"),
    [
        ({"factor": 4}, [3, 4]),
        ({"factor": 5}, [2, 5]),
        ({"factor": 100}, [1, 10]),
        ({"nparts": 3}, [3, 4]),
        ({"nparts": 10}, [10, 1]),
        ({"nparts": 20}, [10, 1]),
    ],
)
def test_split_extents(how: dict[str, int], want: list[int]) -> None:
    p = matmul(10, 12, 10)
    loops = p.s[p.c].split(p.c.op.axis[0], **how)
    assert [loop.extent for loop in loops] == want
    assert extents(p.s, p.c) == [*want, 12, 10]


@pytest.mark.parametrize("how", ["bound", "bound in halves", "fused and bound"])
def test_as_many_threads_run_as_were_asked_for(how: str) -> None:
    p = matmul(10, 12, 10)
    stage = p.s[p.c]
    outer, _ = stage.split(p.c.op.axis[0], nparts=32)
    if how == "bound in halves":
        _, outer = stage.split(outer, factor=32)
    if how == "fused and bound":
        one, outer = stage.split(outer, factor=32)
        outer = stage.fuse(one, outer)
    stage.bind(outer, te.thread_axis("threadIdx.x"))
    assert 32 in extents(p.s, p.c)


@pytest.mark.parametrize(
    ("n", "factor", "guarded"), [(12, 4, False), (12, 5, True), (12, 12, False), (12, 50, False)]
)
def test_only_splits_that_do_not_divide_are_guarded(n: int, factor: int, guarded: bool) -> None:
    p = matmul(n, 4, 4)
    p.s[p.c].split(p.c.op.axis[0], factor=factor)
    assert bool(bounds(p.s, p.c).guards) == guarded


def test_a_split_of_a_split_keeps_one_guard() -> None:
    """16 of 30 over-runs; 16 into 4 divides: one guard, over the whole index."""
    p = matmul(30, 4, 4)
    _, inner = p.s[p.c].split(p.c.op.axis[0], factor=16)
    p.s[p.c].split(inner, factor=4)
    (guard,) = bounds(p.s, p.c).guards
    assert (guard.kind, guard.below) == ("spatial", 30)
    assert sorted(guard.value.terms.values()) == [1, 4, 16]


def test_a_guard_of_a_reduction_stays_in_an_attached_stage() -> None:
    p = matmul(8, 12, 10)
    cl = p.s.cache_write(p.c, "local")
    p.s[cl].compute_at(p.s[p.c], p.c.op.axis[0])
    p.s[cl].split(p.c.op.reduce_axis[0], factor=4)
    assert [g.kind for g in bounds(p.s, cl).guards] == ["reduce"]


# ------------------------------------------------------------------ attached stages


def test_a_stage_covers_what_one_iteration_reads() -> None:
    p = matmul(8, 12, 10)
    al = p.s.cache_read(p.a, "local", [p.c])
    bl = p.s.cache_read(p.b, "local", [p.c])
    i, j = p.c.op.axis
    p.s[al].compute_at(p.s[p.c], i)
    p.s[bl].compute_at(p.s[p.c], j)
    assert shape(p.s, al) == [1, 10]
    assert shape(p.s, bl) == [10, 1]
    p.s[bl].compute_at(p.s[p.c], p.c.op.reduce_axis[0])
    assert shape(p.s, bl) == [1, 1]


def test_the_base_is_the_first_element() -> None:
    p = matmul(8, 12, 10)
    al = p.s.cache_read(p.a, "local", [p.c])
    io, _ = p.s[p.c].split(p.c.op.axis[0], factor=4)
    p.s[al].compute_at(p.s[p.c], io)
    sb = bounds(p.s, al)
    outer = bounds(p.s, p.c).loops[0].var
    assert sb.shape == [4, 10]
    assert (sb.base[0].terms, sb.base[0].const) == ({outer: 4}, 0)
    assert (sb.base[1].terms, sb.base[1].const) == ({}, 0)


@pytest.mark.parametrize(("factor", "want"), [(1, 3), (4, 6), (8, 10)])
def test_a_window_reads_its_halo(factor: int, want: int) -> None:
    s, _, p, c = conv(10, 3)
    xo, _ = s[c].split(c.op.axis[0], factor=factor)
    s[p].compute_at(s[c], xo)
    assert shape(s, p) == [want]


def test_an_attached_stage_runs_full_tiles() -> None:
    """Tiles of 4 over 10 rows: the cache covers the over-run, so its loops need no guard."""
    p = matmul(10, 12, 8)
    cl = p.s.cache_write(p.c, "local")
    io, _ = p.s[p.c].split(p.c.op.axis[0], factor=4)
    p.s[cl].compute_at(p.s[p.c], io)
    sb = bounds(p.s, cl)
    assert sb.shape == [4, 12]
    assert sb.guards == []
    assert bounds(p.s, p.c).guards


def test_readers_are_joined() -> None:
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((14,), lambda i: b[i] + b[i + 2], name="C")
    s = create_schedule(c)
    s[b].compute_at(s[c], c.op.axis[0])
    assert shape(s, b) == [3]


@pytest.mark.parametrize(
    "index",
    [
        lambda i, n: (i * 5) // 3 % 16,
        lambda i, n: te.min(te.max(n[i], 0), 15),
        lambda i, n: te.select(i < 4, i, 15 - i),
    ],
)
def test_what_is_not_affine_needs_the_whole_dimension(index: Any) -> None:
    a = te.placeholder((16,), name="A")
    n = te.placeholder((16,), "int32", name="N")
    b = te.compute((16,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((16,), lambda i: b[index(i, n)] * 2.0, name="C")
    s = create_schedule(c)
    s[b].compute_at(s[c], c.op.axis[0])
    assert shape(s, b) == [16]


def test_parts_of_a_fused_loop_stay_affine() -> None:
    """B[i, j] at the fused loop of C needs one element, although i and j are quotient and rest."""
    p = chain(6, 10)
    f = p.s[p.d].fuse(*p.d.op.axis)
    outer, _ = p.s[p.d].split(f, factor=5)
    p.s[p.c].compute_at(p.s[p.d], p.s[p.d].leaf_iter_vars[1])
    assert shape(p.s, p.c) == [1, 1]
    p.s[p.c].compute_at(p.s[p.d], outer)
    assert shape(p.s, p.c) == [1, 5]


def test_chains_of_attached_stages() -> None:
    s, _, p, c = conv(18, 3)
    pl = s.cache_read(p, "local", [c])
    xo, xi = s[c].split(c.op.axis[0], factor=8)
    s[pl].compute_at(s[c], xi)
    s[p].compute_at(s[c], xo)
    assert shape(s, pl) == [3]
    assert shape(s, p) == [10]
    assert extents(s, c) == [2, 8, 3]


def test_inlined_stages_have_no_bounds() -> None:
    p = chain()
    p.s[p.b].compute_inline()
    p.s[p.c].compute_inline()
    assert set(p.s.validate().stages) == {3}
    op = bounds(p.s, p.d).op
    assert {r.source for r in op.reads()} == {0}


def test_a_guarded_window_is_cut_to_what_exists() -> None:
    """The padding reads from -1 to 8, but only under its condition: the copy holds 8 elements."""
    a = te.placeholder((3, 8), name="A")
    pad = te.compute(
        (3, 10),
        lambda i, j: te.if_then_else(te.all(j >= 1, j < 9), a[i, j - 1], 0.0),
        name="pad",
    )
    s = create_schedule(pad)
    al = s.cache_read(a, "local", [pad])
    s[al].compute_at(s[pad], pad.op.axis[0])
    assert shape(s, al) == [1, 8]
    s[al].compute_at(s[pad], pad.op.axis[1])
    assert shape(s, al) == [1, 1]

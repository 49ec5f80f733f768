"""cache_read, cache_write, transform_layout: effects and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as hst

from fuzzing.differential import check_schedule
from fuzzing.random.expr import Info
from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.ir.sizes import Sizes
from loopwright.ir.stmt import SplitFunc
from loopwright.schedule import create_schedule
from loopwright.schedule.primitives.layout import layout_shape, layout_text
from tests.unit.schedule.programs import chain, matmul


def reads(p: Any, sid: Any) -> set[Any]:
    return {r.source for r in p.s.state.stages[sid].op.reads()}


# ------------------------------------------------------------------ effects


def test_cache_read_serves_the_readers_it_is_told() -> None:
    p = chain()
    copy = p.s.cache_read(p.b, "shared", [p.c])
    assert p.s.state.order == (0, 1, "s0", 2, 3)
    assert (reads(p, "s0"), reads(p, 2), reads(p, 3)) == ({1}, {"s0"}, {1, 2})
    assert p.s.state.stages["s0"].scope == "shared"
    assert (copy.name, copy.shape, copy.dtype) == ("B.shared", (8, 6), "float32")
    assert [x.name for x in p.s[copy].op.axis] == ["i", "j"]


def test_cache_read_of_an_input_names_its_axes() -> None:
    p = matmul()
    copy = p.s.cache_read(p.a, "local", p.c)
    assert [(x.name, x.extent) for x in p.s[copy].op.axis] == [("ax0", 8), ("ax1", 10)]


def test_cache_read_of_several_readers() -> None:
    p = chain()
    p.s.cache_read(p.b, "local", [p.c, p.d.op])
    assert (reads(p, 2), reads(p, 3)) == ({"s0"}, {"s0", 2})


def test_caches_of_caches() -> None:
    p = matmul()
    shared = p.s.cache_read(p.a, "shared", [p.c])
    local = p.s.cache_read(shared, "local", [p.c])
    assert local.name == "A.shared.local"
    assert (reads(p, "s0"), reads(p, "s1"), reads(p, 2)) == ({0}, {"s0"}, {"s1", 1})


def test_two_caches_of_one_tensor() -> None:
    p = chain()
    one = p.s.cache_read(p.b, "local", [p.c])
    two = p.s.cache_read(p.b, "local", [p.d])
    assert (reads(p, 2), reads(p, 3)) == ({"s0"}, {"s1", 2})
    assert {p.s.state.label(p.s[t].id) for t in (one, two)} == {"B.local", "B.local_1"}


def test_cache_write_computes_beside_and_copies() -> None:
    p = matmul()
    p.s.cache_write(p.c, "local")
    assert p.s.state.order == (0, 1, "s0", 2)
    assert (reads(p, "s0"), reads(p, 2)) == ({0, 1}, {"s0"})
    assert p.s.state.stages["s0"].op.reduction is not None
    assert p.s.state.stages[2].op.reduction is None
    assert p.s.state.outputs == (2,)


def test_cache_write_twice() -> None:
    p = matmul()
    one = p.s.cache_write(p.c, "local")
    two = p.s.cache_write(p.c, "global")
    assert p.s.state.order == (0, 1, "s0", "s1", 2)
    assert (reads(p, "s1"), reads(p, 2)) == ({"s0"}, {"s1"})
    assert p.s[one].op.reduce_axis == list(p.c.op.reduce_axis)
    assert two.name == "C.global"


def test_cache_write_keeps_the_place_of_the_stage() -> None:
    p = chain()
    p.s[p.c].compute_at(p.s[p.d], p.d.op.axis[0])
    p.s.cache_write(p.c, "local")
    assert p.s.state.stages[2].attach.kind == "at"
    assert p.s.state.stages["s1"].attach.kind == "root"


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda p: p.s.cache_read(p.a, "local", [p.c]),
            r"cache_read \(step 0\): stage 'C' does not read 'A'; its readers: B",
        ),
        (
            lambda p: p.s.cache_read(p.d, "local", [p.c]),
            r"cache_read \(step 0\): stage 'C' does not read 'D'; its readers: none",
        ),
        (
            lambda p: p.s.cache_read(p.b, "local", []),
            r"cache_read \(step 0\): name at least one stage that reads 'B'",
        ),
        (
            lambda p: p.s.cache_read(p.b, "lokal", [p.c]),
            r"cache_read \(step 0\): unknown scope 'lokal' \(did you mean 'local'\?\); use global, "
            "local, shared",
        ),
        (
            lambda p: p.s.cache_write(p.b, 3),
            r"cache_write \(step 0\): unknown scope 3; use global, local, shared",
        ),
        (
            lambda p: p.s.cache_write(p.a, "local"),
            r"cache_write \(step 0\): 'A' is an input and has no loops; use cache_read",
        ),
        (
            lambda p: p.s[p.a].transform_layout(lambda i, j: (j, i)),
            r"transform_layout \(step 0\): 'A' is an input; use cache_read to make a stage of it",
        ),
        (
            lambda p: p.s[p.d].transform_layout(lambda i, j: (j, i)),
            r"transform_layout \(step 0\): 'D' is an output and is computed at root; use cache",
        ),
    ],
)
def test_refusals(call: Any, text: str) -> None:
    p = chain()
    state = p.s.state
    with pytest.raises(ScheduleError, match=text):
        call(p)
    assert p.s.state is state
    assert p.s.trace == ()


@pytest.mark.parametrize(
    "touch",
    [
        lambda s, c: s[c].split(c.op.axis[0], factor=2),
        lambda s, c: s[c].fuse(*c.op.axis),
        lambda s, c: s[c].reorder(c.op.axis[1], c.op.axis[0]),
        lambda s, c: s[c].vectorize(c.op.axis[1]),
        lambda s, c: s[c].pragma(c.op.axis[1], "auto_unroll_max_step", 2),
    ],
)
def test_cache_write_comes_first(touch: Any) -> None:
    p = matmul()
    touch(p.s, p.c)
    with pytest.raises(
        ScheduleError,
        match=r"cache_write \(step 1\): the loops of 'C' are already transformed \(now C\..*\); "
        "call cache_write before split, reorder and annotations",
    ):
        p.s.cache_write(p.c, "local")


def test_cache_write_comes_before_compute_at() -> None:
    p = chain()
    p.s[p.b].compute_at(p.s[p.c], p.c.op.axis[0])
    with pytest.raises(
        ScheduleError, match=r"cache_write \(step 1\): a stage is already computed inside 'C'"
    ):
        p.s.cache_write(p.c, "local")


def test_cache_write_comes_before_transform_layout() -> None:
    p = chain()
    p.s[p.c].transform_layout(lambda i, j: (j, i))
    with pytest.raises(ScheduleError, match=r"cache_write \(step 1\): .*already transformed"):
        p.s.cache_write(p.c, "local")


def test_an_inlined_stage_has_no_buffer() -> None:
    p = chain()
    p.s[p.c].compute_inline()
    with pytest.raises(
        ScheduleError,
        match=r"transform_layout \(step 1\): 'C' is inlined and has no buffer; use compute_root",
    ):
        p.s[p.c].transform_layout(lambda i, j: (j, i))


@pytest.mark.parametrize(
    "index_map",
    [
        lambda i, j: (i,),
        lambda i, j: (i, j, j),
        lambda i, j: (i, i, j),
        lambda i, j: (i // 2, j),
        lambda i, j: (i % 2, j),
        lambda i, j: (i // 4, i // 2, i % 2, j),
        lambda i, j: (i // 4, i // 2 % 4, i % 2, j),
        lambda i, j: (i, i % 4, j),
        lambda i, j: (),
    ],
)
def test_layouts_that_are_no_bijection(index_map: Any) -> None:
    p = chain()
    with pytest.raises(
        ScheduleError,
        match=r"transform_layout \(step 0\): the map \(.*\) is no bijection on the \[8, 6\] "
        r"elements that 'C' has: (\[\d, \d\] and \[\d, \d\] both go to \[[\d, ]*\]; keep every "
        r"index, whole or as i // f and i % f|no index goes to \[[\d, ]*\], an index is used "
        "twice; use each digit once)",
    ):
        p.s[p.c].transform_layout(index_map)


# ------------------------------------------------------------------ layouts against brute force


@hst.composite
def layouts(draw: Any) -> tuple[tuple[int, ...], Any]:
    """A shape and a layout of it that is a bijection by construction."""
    shape = tuple(draw(hst.lists(hst.integers(1, 7), min_size=1, max_size=3)))
    dims: list[tuple[int, int, int | None]] = []
    for d in range(len(shape)):
        weight = 1
        for mod in draw(hst.lists(hst.integers(2, 4), max_size=2)):
            dims.append((d, weight, mod))
            weight *= mod
        dims.append((d, weight, None))
    return shape, tuple(draw(hst.permutations(dims)))


@given(layouts())
def test_layouts_place_every_element_apart_and_inside(case: Any) -> None:
    shape, dims = case
    a = te.placeholder(shape)
    b = te.compute(shape, lambda *i: a[i] + 1.0, name="B")
    c = te.compute(shape, lambda *i: b[i] + 1.0, name="C")
    s = te.create_schedule(c)
    names = ", ".join(f"i{d}" for d in range(len(shape)))
    s[b].transform_layout(eval(f"lambda {names}: ({layout_text(dims)})"))
    assert s.state.stages[1].layout == dims

    new = tuple(int(n) for n in layout_shape(shape, dims, Sizes()))
    points: list[tuple[int, ...]] = [()]
    for n in shape:
        points = [(*p, x) for p in points for x in range(n)]
    placed = {
        tuple((p[d] // div) if mod is None else (p[d] // div) % mod for d, div, mod in dims)
        for p in points
    }
    assert len(placed) == len(points)
    assert all(0 <= x < n for p in placed for x, n in zip(p, new, strict=True))


def test_the_layout_of_a_constant_input_is_that_of_a_copy_which_all_readers_read() -> None:
    a = te.placeholder((4,), name="A")
    w = te.placeholder((4, 6), name="W", constant=True)
    b = te.compute((4, 6), lambda i, j: a[i] * w[i, j], name="B")
    c = te.compute((4, 6), lambda i, j: b[i, j] + w[3 - i, j], name="C")
    s = create_schedule(c.op)
    packed = s[w].transform_layout(lambda i, j: (j // 4, i, j % 4), pad_value=0)
    assert packed is not None
    assert [step.primitive for step in s.trace] == ["cache_read", "transform_layout"]
    assert s.state.consumers(0) == [2]
    assert s.state.consumers(1) == ["s0"]
    assert s.state.consumers("s0") == [2, 3]
    s[packed].vectorize(s[packed].op.axis[1])
    rng = np.random.default_rng(0)
    inputs = [rng.random((4,), "float32"), rng.random((4, 6), "float32")]
    f = check_schedule(s, [a, w, c], inputs, [Info(False, 8.0, 1.0, 1e-6)])
    assert isinstance(f, SplitFunc)
    assert f.kept[0].shape == (2, 4, 4)


def test_a_map_of_a_constant_input_that_is_refused_leaves_no_copy() -> None:
    w = te.placeholder((4, 6), name="W", constant=True)
    b = te.compute((4, 6), lambda i, j: w[i, j] + 1, name="B")
    s = create_schedule(b.op)
    with pytest.raises(ScheduleError, match="no bijection"):
        s[w].transform_layout(lambda i, j: (i + j,))
    assert s.trace == ()

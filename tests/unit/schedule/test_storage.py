"""set_scope and storage_align: effects, strides and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.lowering import lower
from loopwright.schedule.primitives.storage import aligned_strides
from tests.unit.schedule.programs import chain, matmul


def test_set_scope_moves_the_buffer() -> None:
    p = chain()
    p.s[p.b].set_scope("local")
    assert p.s[p.b].scope == "local"
    assert p.s.trace_json() == [["set_scope", 1, "local"]]
    assert "B = alloc(float32[8, 6], local)" in str(lower(p.s, [p.a, p.d]))


def test_storage_align_takes_axes_and_numbers() -> None:
    p = chain()
    p.s[p.b].storage_align(p.b.op.axis[0], 16, 1)
    p.s[p.c].storage_align(1, factor=2, offset=0)
    assert p.s.trace_json() == [["storage_align", 1, 0, 16, 1], ["storage_align", 2, 1, 2, 0]]
    text = str(lower(p.s, [p.a, p.d]))
    assert "B = alloc(float32[8, 6], global, strides=[17, 1])" in text
    assert "C = alloc(float32[8, 6], global, strides=[12, 2])" in text


def test_a_later_alignment_of_a_dimension_replaces_the_earlier() -> None:
    p = chain()
    p.s[p.b].storage_align(0, 16, 1)
    p.s[p.b].storage_align(0, 4, 0)
    assert p.s.state.stages[1].align == ((0, 4, 0),)


def test_the_stride_is_that_of_the_tile() -> None:
    p = chain(8, 6)
    p.s[p.c].compute_at(p.s[p.d], p.d.op.axis[0])
    p.s[p.c].storage_align(0, 4, 3)
    text = str(lower(p.s, [p.a, p.d]))
    assert "C = alloc(float32[1, 6], global, strides=[7, 1])" in text


def test_dimensions_of_a_layout_are_numbered() -> None:
    p = matmul(8, 16, 10)
    cl = p.s.cache_write(p.c, "local")
    p.s[cl].transform_layout(lambda i, j: (j // 8, i, j % 8))
    with pytest.raises(
        ScheduleError,
        match=r"storage_align \(step 2\): transform_layout gave the buffer of 'C\.local' "
        "dimensions of its own; give the number of one",
    ):
        p.s[cl].storage_align(p.s[cl].op.axis[0], 8, 1)
    p.s[cl].storage_align(1, 16, 1)
    text = str(lower(p.s, [p.a, p.b, p.c]))
    assert "C.local = alloc(float32[2, 8, 8], local, strides=[136, 17, 1])" in text


@pytest.mark.parametrize(
    ("shape", "align", "want"),
    [
        ((8, 16), ((0, 16, 1),), (17, 1)),
        ((8, 17), ((0, 16, 1),), None),
        ((8, 16), ((0, 1, 0),), None),
        ((8, 16), ((0, 3, 5),), (17, 1)),
        ((4, 8, 16), ((1, 32, 8),), (320, 40, 1)),
        ((4, 8, 16), ((1, 32, 8), (0, 64, 0)), (320, 40, 1)),
        ((4, 8, 16), ((2, 2, 0), (0, 256, 3)), (259, 32, 2)),
        ((5,), ((0, 4, 0),), (4,)),
        ((), (), None),
    ],
)
def test_strides_are_the_smallest_of_the_form(shape: Any, align: Any, want: Any) -> None:
    got = aligned_strides(shape, align)
    assert got == want
    for dim, factor, offset in align if got else ():
        assert got[dim] % factor == offset % factor


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda p: p.s[p.b].set_scope("lokal"),
            r"set_scope \(step 0\): unknown scope 'lokal' \(did you mean 'local'\?\); use global, "
            "local, shared",
        ),
        (
            lambda p: p.s[p.d].set_scope("local"),
            r"set_scope \(step 0\): 'D' is an output and is computed at root; use cache_write",
        ),
        (
            lambda p: p.s[p.a].storage_align(0, 4, 0),
            r"storage_align \(step 0\): 'A' is an input; use cache_read to make a stage of it",
        ),
        (
            lambda p: p.s[p.b].storage_align(2, 4, 0),
            r"storage_align \(step 0\): the buffer of 'B' has 2 dimensions, there is no dimension "
            "2",
        ),
        (
            lambda p: p.s[p.b].storage_align(0, 0, 0),
            r"storage_align \(step 0\): factor must be positive and offset 0 or more \(a stride is "
            r"k \* factor \+ offset\), got 0 and 0",
        ),
        (lambda p: p.s[p.b].storage_align(0, 4, -1), r"offset 0 or more .*, got 4 and -1"),
        (lambda p: p.s[p.b].storage_align(0, 2.5, 0), r"factor must be positive .*, got 2\.5 and"),
        (
            lambda p: p.s[p.b].storage_align("i", 4, 0),
            r"storage_align \(step 0\): expected an axis or the number of a dimension, got 'i'",
        ),
        (
            lambda p: p.s[p.b].storage_align(te.reduce_axis(4, "jj"), 4, 0),
            r"storage_align \(step 0\): axis 'jj' is not known in this schedule",
        ),
    ],
)
def test_refusals(call: Any, text: str) -> None:
    p = chain()
    with pytest.raises(ScheduleError, match=text):
        call(p)
    assert p.s.trace == ()


def test_a_loop_is_no_axis() -> None:
    p = chain()
    io, _ = p.s[p.b].split(p.b.op.axis[0], factor=2)
    with pytest.raises(
        ScheduleError,
        match=r"storage_align \(step 1\): 'i\.0' is a loop, not an axis of 'B'; give one of "
        r"s\[B\]\.op\.axis",
    ):
        p.s[p.b].storage_align(io, 4, 0)


def test_order_of_the_steps() -> None:
    p = chain()
    p.s[p.b].storage_align(0, 4, 0)
    with pytest.raises(
        ScheduleError,
        match=r"transform_layout \(step 1\): the strides of 'B' are aligned already; call "
        "transform_layout before storage_align",
    ):
        p.s[p.b].transform_layout(lambda i, j: (j, i))
    with pytest.raises(ScheduleError, match=r"cache_write \(step 1\): .*already transformed"):
        p.s.cache_write(p.b, "local")
    p.s[p.c].compute_inline()
    with pytest.raises(
        ScheduleError,
        match=r"set_scope \(step 2\): 'C' is inlined and has no buffer; use compute_root",
    ):
        p.s[p.c].set_scope("local")


def test_strides_of_a_symbolic_buffer_cannot_be_aligned() -> None:
    n = te.var("n")
    a = te.placeholder((n, n), name="A")
    b = te.compute((n, n), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((n, n), lambda i, j: b[i, j] * 2.0, name="C")
    s = te.create_schedule(c)
    s[b].storage_align(s[b].op.axis[0], 8, 4)
    s[c].unroll(s[c].split(s[c].op.axis[1], 4)[1])
    with pytest.raises(ScheduleError) as e:
        s.validate()
    assert str(e.value) == (
        "storage_align (step 0): the shape of 'B' is known only when the program runs; compute it "
        "at a loop where its tile is constant"
    )

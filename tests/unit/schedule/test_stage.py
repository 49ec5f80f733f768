"""Primitives as methods: documented with before and after, and what they give back."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.schedule import Schedule, Stage
from loopwright.schedule.stage import Group
from loopwright.schedule.steps import Step
from tests.unit.schedule.programs import chain, matmul

PRIMITIVES = [
    *(
        (Stage, name)
        for name in (
            "split", "tile", "fuse", "reorder", "vectorize", "unroll", "parallel", "bind", "pragma",
            "compute_at", "compute_inline", "compute_root", "transform_layout", "set_scope",
            "storage_align", "store_at", "store_root", "double_buffer", "env_threads",
            "set_store_predicate", "tensorize", "prefetch", "prefetch_next", "follow_split",
            "follow_fused_split", "sample_categorical", "sample_perfect_tile",
            "sample_compute_location",
        )
    ),
    (Schedule, "cache_read"),
    (Schedule, "cache_write"),
    (Schedule, "rfactor"),
    (Schedule, "blocked_scan"),
    (Schedule, "create_group"),
    (Group, "compute_at"),
    (Group, "compute_root"),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "name"), [(c, n) for c, n in PRIMITIVES if c is not Group])
def test_docstring_shows_before_and_after(cls: type, name: str) -> None:
    """Those of groups are primitives of stages too; `Schedule.create_group` shows one."""
    doc = inspect.getdoc(getattr(cls, name)) or ""
    before, call, after = doc.partition("Example:\n")[2].partition(f".{name}(")
    assert call, "the call is shown"
    assert ">>> print(" in before, "the nest before is shown"
    assert ">>> print(" in after, "the nest after is shown"


@pytest.mark.parametrize(
    ("cls", "name"), [(c, n) for c, n in PRIMITIVES if n not in ("compute_root",)]
)
def test_docstring_says_what_is_refused(cls: type, name: str) -> None:
    assert "Raises:\n    ScheduleError: " in (inspect.getdoc(getattr(cls, name)) or "")


def test_every_public_method_is_a_known_primitive() -> None:
    public = {n for n, f in vars(Stage).items() if callable(f) and not n.startswith("_")}
    assert public == {n for c, n in PRIMITIVES if c is Stage} | {"loop_id"}


def test_every_step_can_be_made_by_a_method() -> None:
    made = {n for _, n in PRIMITIVES} - {"tile", "vectorize", "unroll", "parallel"} | {"annotate"}
    assert made == set(Step.registry)


# ------------------------------------------------------------------ what they give back


def test_split_gives_outer_and_inner() -> None:
    p = matmul(10, 12, 7)
    i, j = p.c.op.axis
    io, ii = p.s[p.c].split(i, factor=4)
    assert [(x.name, x.extent, x.kind) for x in (io, ii)] == [
        ("i.0", 3, "spatial"),
        ("i.1", 4, "spatial"),
    ]
    jo, ji = p.s[p.c].split(j, nparts=5)
    assert (jo.extent, ji.extent) == (5, 3)
    ko, ki = p.s[p.c].split(p.c.op.reduce_axis[0], 3)
    assert [(x.extent, x.kind) for x in (ko, ki)] == [(3, "reduce"), (3, "reduce")]


def test_tile_is_two_splits_and_a_reorder() -> None:
    p = matmul()
    i, j = p.c.op.axis
    io, jo, ii, ji = p.s[p.c].tile(i, j, x_factor=2, y_factor=4)
    assert [x.name for x in (io, jo, ii, ji)] == ["i.0", "j.0", "i.1", "j.1"]
    assert [t.primitive for t in p.s.trace] == ["split", "split", "reorder"]
    assert p.s[p.c].leaf_iter_vars[:4] == [io, jo, ii, ji]


def test_fuse_takes_any_number_and_lists() -> None:
    p = matmul()
    i, j = p.c.op.axis
    assert p.s[p.c].fuse(i) is i
    assert p.s.trace == ()
    f = p.s[p.c].fuse([i, j])
    assert (f.name, f.extent) == ("i.j", 96)

    a = te.placeholder((2, 3, 4))
    c = te.compute((2, 3, 4), lambda *x: a[x] + 1.0)
    s = te.create_schedule(c)
    f = s[c].fuse(*c.op.axis)
    assert (f.extent, len(s.trace)) == (24, 2)


def test_reorder_takes_axes_or_a_list() -> None:
    for wrap in (False, True):
        p = matmul()
        i, j = p.c.op.axis
        (k,) = p.c.op.reduce_axis
        p.s[p.c].reorder(*([[k, j]] if wrap else [k, j]))
        assert p.s[p.c].leaf_iter_vars == [i, k, j]


def test_numpy_integers_become_python_integers_in_the_trace() -> None:
    p = matmul()
    i, j = p.c.op.axis
    p.s[p.c].split(i, factor=np.int64(4))
    p.s[p.c].split(j, nparts=np.int32(3))
    p.s[p.c].pragma(p.s[p.c].leaf_iter_vars[0], "auto_unroll_max_step", np.int64(16))
    assert p.s.trace_json() == [
        ["split", 2, "a0", 4, None],
        ["split", 2, "a1", None, 3],
        ["pragma", 2, "0.0", "auto_unroll_max_step", 16],
    ]
    assert all(type(x) is not np.int64 for step in p.s.trace_json() for x in step)


def test_compute_at_takes_stages_tensors_and_operations() -> None:
    for parent in (lambda p: p.s[p.d], lambda p: p.d, lambda p: p.d.op):
        p = chain()
        p.s[p.c].compute_at(parent(p), p.d.op.axis[0])
        assert p.s.trace_json() == [["compute_at", 2, 3, "a0"]]


def test_bind_takes_axes_and_names() -> None:
    p = chain()
    i, j = p.d.op.axis
    p.s[p.d].bind(i, te.thread_axis("blockIdx.x"))
    p.s[p.d].bind(j, "threadIdx.x")
    assert p.s.trace_json() == [["bind", 3, "a0", "blockIdx.x"], ["bind", 3, "a1", "threadIdx.x"]]


def test_transform_layout_reads_an_index_map() -> None:
    p = chain()
    p.s[p.b].transform_layout(lambda i, j: [j // 4, i, j % 4])
    assert p.s.trace_json() == [["transform_layout", 1, [[1, 4, None], [0, 1, None], [1, 1, 4]]]]
    p.s[p.b].transform_layout(lambda i, j: (j // 8, j // 4 % 2, i, j % 4))
    assert p.s.trace_json()[1][2] == [[1, 8, None], [1, 4, 2], [0, 1, None], [1, 1, 4]]


# ------------------------------------------------------------------ what they refuse themselves


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda p: p.s[p.d].split("i", factor=2),
            r"split \(step 0\): expected an axis of the stage, got 'i'",
        ),
        (
            lambda p: p.s[p.d].split(te.reduce_axis(4, "jj"), factor=2),
            r"split \(step 0\): axis 'jj' is not known in this schedule \(did you mean 'j'\?\); "
            r"the loops of 'D' are D\.i, D\.j",
        ),
        (
            lambda p: p.s[p.d].vectorize(p.c.op.axis[0]),
            r"vectorize \(step 0\): axis 'i' belongs to stage 'C', not to 'D'",
        ),
        (lambda p: p.s[p.d].fuse(), r"fuse \(step 0\): expected at least one loop"),
        (lambda p: p.s[p.d].fuse(3), r"fuse \(step 0\): expected an axis of the stage, got 3"),
        (lambda p: p.s[p.d].reorder(None), r"reorder \(step 0\): expected an axis of the stage"),
        (
            lambda p: p.s[p.d].bind(p.d.op.axis[0], 3),
            r"bind \(step 0\): expected te\.thread_axis\(\.\.\.\), got 3",
        ),
        (
            lambda p: p.s[p.b].compute_at("C", p.c.op.axis[0]),
            r"compute_at \(step 0\): expected a tensor, an operation or a stage, got 'C'; "
            r"stages: A, B, C, D",
        ),
        (
            lambda p: p.s[p.b].compute_at(p.s[p.c], p.d.op.axis[0]),
            r"compute_at \(step 0\): axis 'i' belongs to stage 'D', not to 'C'",
        ),
        (
            lambda p: p.s[p.b].transform_layout(lambda i: i),
            r"transform_layout \(step 0\): the map must take 2 indices, such as lambda i0, i1: "
            r"\(i1, i0,\): .*positional argument",
        ),
        (
            lambda p: p.s[p.b].transform_layout([1, 0]),
            r"transform_layout \(step 0\): expected a function of 2 indices, such as lambda "
            r"i0, i1: \(i1, i0,\), got \[1, 0\]",
        ),
        (
            lambda p: p.s[p.b].transform_layout(lambda i, j: (i * j, j)),
            r"transform_layout \(step 0\): each new index must be made of the old ones with \+, -, "
            r"and \*, // and % by constants \(those of // and % positive\), got",
        ),
        (
            lambda p: p.s[p.b].transform_layout(lambda i, j: (i, 3)),
            r"transform_layout \(step 0\): the map \(i0, 3\) is no bijection on the \[8, 6\] "
            r"elements that 'B' has: \[0, 0\] and \[0, 1\] both go to \[0, 3\]",
        ),
        (
            lambda p: p.s[p.b].transform_layout(lambda i, j: (i // -2, j)),
            "each new index must be made of the old ones",
        ),
        (
            lambda p: p.s[p.b].transform_layout(lambda i, j: (j, i), pad_value="x"),
            r"transform_layout \(step 0\): pad_value must be a finite number, got 'x'",
        ),
        (
            lambda p: p.s.cache_read(p.b, "local", ["C"]),
            r"cache_read \(step 0\): expected a tensor, an operation or a stage, got 'C'",
        ),
        (
            lambda p: p.s.cache_write(te.placeholder((1,), name="Z"), "local"),
            r"cache_write \(step 0\): Tensor\(Z: .*\) is not part of this schedule",
        ),
    ],
)
def test_refusals(call: Any, text: str) -> None:
    p = chain()
    with pytest.raises(ScheduleError, match=text):
        call(p)
    assert p.s.trace == ()


def test_another_schedule_is_no_part_of_this_one() -> None:
    p, q = chain(), chain()
    with pytest.raises(ScheduleError, match=r"compute_at \(step 0\): Stage\(C\) belongs to anoth"):
        p.s[p.b].compute_at(q.s[q.c], p.c.op.axis[0])

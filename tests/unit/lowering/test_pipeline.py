"""`lower`: its arguments, what it refuses, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.driver import build
from loopwright.errors import LowerError, ScheduleError
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower, lower_ids
from loopwright.schedule import create_schedule
from tests.unit.schedule.programs import chain, matmul


def test_a_function_has_the_arguments_in_calling_order() -> None:
    p = matmul(4, 5, 6)
    f = lower(p.s, [p.c, p.b, p.a], name="mm")
    assert f.name == "mm"
    assert [(b.name, b.shape, b.dtype) for b in f.params] == [
        ("C", (4, 5), "float32"),
        ("B", (6, 5), "float32"),
        ("A", (4, 6), "float32"),
    ]
    assert f.outputs == (True, False, False)
    assert str(f).startswith(
        "def mm(C: out float32[4, 5], B: float32[6, 5], A: float32[4, 6]):\n  for i in range(4):\n"
    )
    assert lower(p.s, [p.a, p.b, p.c]).name == "main"


def test_arguments_by_index() -> None:
    p = matmul()
    assert str(lower_ids(p.s, [0, 1, 2], "f")) == str(lower(p.s, [p.a, p.b, p.c], "f"))


def test_an_intermediate_result_may_be_an_argument() -> None:
    p = chain(2, 3)
    f = lower(p.s, [p.a, p.b, p.d])
    assert f.outputs == (False, True, True)
    a = np.arange(6, dtype="float32").reshape(2, 3)
    b, d = np.zeros((2, 3), "float32"), np.zeros((2, 3), "float32")
    interpret(f, [a, b, d])
    np.testing.assert_array_equal(b, a * 2)
    np.testing.assert_array_equal(d, (b + 1) * b)


def test_buffers_live_where_they_are_used() -> None:
    p = chain()
    f = str(lower(p.s, [p.a, p.d]))
    assert "  B = alloc(float32[8, 6], global)\n" in f
    p.s[p.b].compute_at(p.s[p.d], p.d.op.axis[0])
    p.s[p.c].compute_at(p.s[p.d], p.d.op.axis[1])
    f = str(lower(p.s, [p.a, p.d]))
    assert "  for i in range(8):\n    B = alloc(float32[1, 6], global)\n" in f
    assert "      C = alloc(float32[1, 1], global)\n" in f


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (lambda p: [p.a], "lower: the output 'D' is not in the arguments"),
        (lambda p: [p.d], "lower: 'A' is read but is not among the arguments"),
        (lambda p: [p.a, p.d, p.a], "lower: a tensor is given twice in the arguments"),
    ],
)
def test_missing_and_repeated_arguments(args: Any, text: str) -> None:
    p = chain()
    with pytest.raises(LowerError, match=text):
        lower(p.s, args(p))


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (
            lambda p: p.s[p.c].compute_at(p.s[p.d], p.d.op.axis[0]),
            r"lower: 'C' is an argument, so it must be computed at root \(it is computed at\)",
        ),
        (
            lambda p: p.s[p.c].compute_inline(),
            r"lower: 'C' is an argument, so it must be computed at root \(it is computed inline\)",
        ),
    ],
)
def test_a_result_that_no_array_holds_is_shown_and_not_built(place: Any, text: str) -> None:
    p = chain()
    place(p)
    assert [b.name for b in lower(p.s, [p.a, p.c, p.d]).params] == ["A", "D"]
    with pytest.raises(LowerError, match=text):
        build(p.s, [p.a, p.c, p.d])


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (
            lambda p: p.s[p.c].transform_layout(lambda i, j: (j, i)),
            "lower: the layout of the argument 'C' is fixed",
        ),
    ],
)
def test_arguments_stand_at_root(place: Any, text: str) -> None:
    p = chain()
    place(p)
    with pytest.raises(LowerError, match=text):
        lower(p.s, [p.a, p.c, p.d])


def test_tensors_of_another_program_are_refused() -> None:
    p = chain()
    with pytest.raises(LowerError, match="lower: expected a schedule and its arguments, got 3"):
        lower(3, [p.a, p.d])  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match=r"arguments: .* is not part of this schedule"):
        lower(p.s, [p.a, te.compute((4,), lambda i: i, name="Z")])
    cl = p.s.cache_write(p.d, "local")
    with pytest.raises(
        ScheduleError, match=r"arguments: 'D\.local' was made by a schedule primitive"
    ):
        lower(p.s, [p.a, cl])


def test_lowering_twice_gives_the_same_text() -> None:
    p = matmul(7, 5, 6)
    p.s[p.c].tile(*p.c.op.axis, 4, 4)
    assert str(lower(p.s, [p.a, p.b, p.c])) == str(lower(p.s, [p.a, p.b, p.c]))


def test_simple_mode_leaves_pragmas_alone() -> None:
    p = chain(4, 2)
    p.s[p.d].pragma(p.d.op.axis[0], "auto_unroll_max_step", 16)
    assert "unrolled" not in str(lower(p.s, [p.a, p.d], simple_mode=True))
    assert "unrolled" in str(lower(p.s, [p.a, p.d]))


def test_rules_that_need_extents_are_checked() -> None:
    p = chain(4, 2000)
    p.s[p.d].vectorize(p.d.op.axis[1])
    with pytest.raises(
        ScheduleError, match=r"vectorize \(step 0\): loop 'D\.j' has 2000 iterations"
    ):
        lower(p.s, [p.a, p.d])


def test_bound_loops_keep_their_thread() -> None:
    p = chain()
    i, j = p.d.op.axis
    p.s[p.d].bind(i, te.thread_axis("blockIdx.x"))
    p.s[p.d].bind(j, te.thread_axis("threadIdx.x"))
    text = str(lower(p.s, [p.a, p.d]))
    assert "  # bound = D.i\n  for blockIdx.x in thread(8):\n    # bound = D.j\n" in text
    assert "    for threadIdx.x in thread(6):\n      D[blockIdx.x, threadIdx.x] = " in text


def test_names_with_dots_and_of_the_same_spelling_are_kept_apart() -> None:
    a = te.placeholder((2,), name="x")
    b = te.compute((2,), lambda i: a[i] + 1.0, name="x")
    c = te.compute((2,), lambda i: b[i] + 1.0, name="x")
    text = str(lower(create_schedule(c), [a, c]))
    assert text == (
        "def main(x: float32[2], x_2: out float32[2]):\n"
        "  x_1 = alloc(float32[2], global)\n"
        "  for i in range(2):\n"
        "    x_1[i] = x[i] + 1.0\n"
        "  for i_1 in range(2):\n"
        "    x_2[i_1] = x_1[i_1] + 1.0"
    )

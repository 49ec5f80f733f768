"""blocked_scan: running sums and other scans by blocks, beside NumPy; what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loopwright as lw
from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.schedule import Schedule, create_schedule, replay
from tests.covering import examples

Compared = Callable[[Any, Any], Any]
Array = npt.NDArray[Any]

#: How an element is left out, and how one is compared with a place, ``offset`` away.
FORMS = ("select", "if_then_else", "where")
COMPARED: dict[str, tuple[Callable[[int], Compared], Callable[[int, int, int], bool]]] = {
    "<=": (lambda c: lambda k, j: k <= j + c, lambda k, j, c: k <= j + c),
    "<": (lambda c: lambda k, j: k < j + c, lambda k, j, c: k < j + c),
    ">=": (lambda c: lambda k, j: k >= j + c, lambda k, j, c: k >= j + c),
    "j >": (lambda c: lambda k, j: j + c > k, lambda k, j, c: j + c > k),
    "j <=": (lambda c: lambda k, j: j + c <= k, lambda k, j, c: j + c <= k),
}
REDUCERS: dict[str, tuple[Any, Any, Any]] = {
    "sum": (te.sum, 0, np.add),
    "max": (te.max, te.min_value("int32"), np.maximum),
    "prod": (te.prod, 1, np.multiply),
}


def scan(
    shape: tuple[int, int, int], compared: Compared, form: str = "select", reducer: str = "sum"
) -> tuple[te.Tensor, te.Tensor]:
    """``B[i, j, l]`` combines ``A[i, k, l]`` for all k that are compared with j."""
    rows, count, places = shape
    A = te.placeholder((rows, count, 2), name="A", dtype="int32")
    k = te.reduce_axis((0, count), name="k")
    combined, identity, _ = REDUCERS[reducer]

    def element(i: Any, j: Any, n: Any) -> Any:
        if form == "where":
            return combined(A[i, k, n], axis=k, where=compared(k, j))
        none = te.const(identity, "int32")
        return combined(getattr(te, form)(compared(k, j), A[i, k, n], none), axis=k)

    return A, te.compute((rows, places, 2), element, name="B")


def expected(x: Array, places: int, holds: Callable[[int, int], bool], reducer: str) -> Array:
    _, identity, ufunc = REDUCERS[reducer]
    start = int(np.iinfo("int32").min) if reducer == "max" else identity
    out = np.full((x.shape[0], places, x.shape[2]), start, "int32")
    for j in range(places):
        for k in range(x.shape[1]):
            if holds(k, j):
                out[:, j] = ufunc(out[:, j], x[:, k])
    return out


def check(s: Schedule, A: te.Tensor, B: te.Tensor, x: Array, want: Array) -> None:
    """The interpreter gives what is expected, also where the trace went through JSON."""
    again = replay(s.dag, json.loads(json.dumps(s.trace_json())))
    for schedule, args in ((s, [A, B]), (again, again.tensors)):
        got = np.empty(want.shape, "int32")
        interpret(lower(schedule, args), [x, got])
        np.testing.assert_array_equal(got, want)


@settings(max_examples=examples(30), deadline=None)
@given(
    st.integers(5, 19), st.integers(1, 21), st.integers(-4, 4), st.integers(2, 6),
    st.sampled_from(sorted(COMPARED)), st.sampled_from(FORMS), st.sampled_from(sorted(REDUCERS)),
    st.booleans(),
)  # fmt: skip
def test_agrees_with_numpy(
    count: int, places: int, offset: int, factor: int, sign: str, form: str, reducer: str,
    again: bool,
) -> None:  # fmt: skip
    """Any comparison, offset, size and block, once or for the blocks in turn."""
    compared, holds = COMPARED[sign]
    A, B = scan((2, count, places), compared(offset), form, reducer)
    s = create_schedule(B.op)
    needed = sum(any(holds(k, j, offset) for j in range(places)) for k in range(count))
    if factor >= needed:
        assert f"is no part of the {needed} elements" in refused(s, B, factor)
        return
    blocks, _ = s.blocked_scan(B, s[B].op.reduce_axis[0], factor)
    if again and blocks.static_shape[1] > 2:
        s.blocked_scan(blocks, s[blocks].op.reduce_axis[0], 2)
    x = np.random.default_rng(0).integers(-2, 3, (2, count, 2)).astype("int32")
    check(s, A, B, x, expected(x, places, lambda k, j: holds(k, j, offset), reducer))


def test_work_is_no_longer_quadratic() -> None:
    """Elements that are combined, counted by the loops of the nest."""
    _, B = scan((1, 64, 64), lambda k, j: k <= j)
    s = create_schedule(B.op)
    blocks, _ = s.blocked_scan(B, s[B].op.reduce_axis[0], 8)
    s.blocked_scan(blocks, s[blocks].op.reduce_axis[0], 2)
    loops = [[x.nominal for x in st.loops.values()] for st in s.state.stages.values()]
    assert sorted((int(np.prod(n)) for n in loops[1:]), reverse=True) == [
        64 * 2 * 8,
        8 * 2 * 8,
        8 * 2 * 2,
        4 * 2 * 4,
        4 * 2 * 2,
    ]


def test_reads_no_further_than_a_guard_allows() -> None:
    """The element of an if_then_else may lie outside of what is not combined."""
    A = te.placeholder((10,), name="A", dtype="int32")
    k = te.reduce_axis((0, 16), name="k")
    zero = te.const(0, "int32")
    B = te.compute((10,), lambda j: te.sum(te.if_then_else(k <= j, A[k], zero), axis=k), name="B")
    s = create_schedule(B.op)
    s.blocked_scan(B, k, 4)
    x, got = np.arange(10, dtype="int32"), np.empty(10, "int32")
    interpret(lower(s, [A, B]), [x, got])
    np.testing.assert_array_equal(got, np.cumsum(x))


def test_other_conditions_are_asked_inside_alone() -> None:
    """A flag for each element: the last block reaches beyond the flags, which must not be read."""
    A, F = te.placeholder((21,), "int32", name="A"), te.placeholder((21,), "bool", name="F")
    k = te.reduce_axis((0, 21), name="k")
    zero = te.const(0, "int32")
    B = te.compute(
        (21,), lambda j: te.sum(te.select(k <= j, A[k], zero), axis=k, where=F[k]), name="B"
    )
    s = create_schedule(B.op)
    s.blocked_scan(B, k, 4)
    x, got = np.arange(21, dtype="int32"), np.empty(21, "int32")
    flags = x % 3 == 0
    interpret(lower(s, [A, F, B]), [x, flags, got])
    np.testing.assert_array_equal(got, np.cumsum(np.where(flags, x, 0)))


def test_other_axes_of_the_reduction_stay() -> None:
    A = te.placeholder((18, 3), "int32", name="A")
    k, r = te.reduce_axis((0, 18), name="k"), te.reduce_axis((0, 3), name="r")
    B = te.compute((18,), lambda j: te.sum(A[k, r], axis=[k, r], where=k <= j), name="B")
    s = create_schedule(B.op)
    blocks, _ = s.blocked_scan(B, k, 4)
    s.blocked_scan(blocks, s[blocks].op.reduce_axis[0], 2)
    x, got = np.arange(54, dtype="int32").reshape(18, 3), np.empty(18, "int32")
    interpret(lower(s, [A, B]), [x, got])
    np.testing.assert_array_equal(got, np.cumsum(x.sum(1)))


def test_compiled_in_vectors() -> None:
    A, B = scan((2, 50, 50), lambda k, j: k <= j)
    s = create_schedule(B.op)
    s.blocked_scan(B, s[B].op.reduce_axis[0], 8)
    _, j, n = s[B].op.axis
    jo, ji = s[B].split(j, factor=8)
    (k,) = s[B].op.reduce_axis
    s[B].reorder(jo, k, ji, n)
    s[B].unroll(k)
    s[B].vectorize(ji)
    x = np.random.default_rng(1).integers(-9, 9, (2, 50, 2)).astype("int32")
    got = np.empty_like(x)
    lw.build(s, [A, B], "llvm")(x, got)
    np.testing.assert_array_equal(got, np.cumsum(x, axis=1))


def test_python_of_the_trace() -> None:
    _, B = scan((1, 16, 16), lambda k, j: k <= j)
    s = create_schedule(B.op)
    blocks, _ = s.blocked_scan(B, s[B].op.reduce_axis[0], 4)
    s[blocks].parallel(s[blocks].op.axis[0])
    s[B].unroll(s[B].op.reduce_axis[0])
    text = s.as_python()
    assert "B_blocks, B_totals = s.blocked_scan(B, k, 4)" in text
    scope: dict[str, Any] = {}
    exec(text, scope)
    fresh = replay(s.dag, [])
    scope["schedule"](fresh, *fresh.tensors)
    assert fresh.trace == s.trace


def refused(s: Schedule, B: te.Tensor, factor: int = 4) -> str:
    with pytest.raises(ScheduleError) as caught:
        s.blocked_scan(B, s[B].op.reduce_axis[0], factor)
    return str(caught.value)


def test_refuses_what_is_no_scan() -> None:
    A = te.placeholder((8, 8), name="A")
    k = te.reduce_axis((0, 8), name="k")
    bodies = [
        lambda i, j: te.sum(A[i, k], axis=k),
        lambda i, j: te.sum(te.select(k <= j, A[i, k] * A[j, k], 0.0), axis=k),
        lambda i, j: te.sum(te.select(k <= j, A[i, k], 1.0), axis=k),
        lambda i, j: te.sum(te.select(k <= 2 * j, A[i, k], 0.0), axis=k),
        lambda i, j: te.sum(te.select(k <= i + j, A[i, k], 0.0), axis=k),
        lambda i, j: te.max(te.select(k <= j, A[i, k], 0.0), axis=k),
        lambda i, j: te.sum(te.select(k <= j, A[i, k], 0.0), axis=k, init=A[i, j]),
    ]
    for body in bodies:
        B = te.compute((8, 8), body, name="B")
        assert "blocked_scan (step 0): 'B' is no scan along 'B.k'" in refused(
            create_schedule(B.op), B
        )


def test_refuses_late_calls_and_wrong_blocks() -> None:
    _, B = scan((1, 16, 16), lambda k, j: k <= j)
    s = create_schedule(B.op)
    assert "a block of 16 is no part of the 16 elements that 'B' combines" in refused(s, B, 16)
    assert "a block of 1 is no part" in refused(s, B, 1)
    with pytest.raises(ScheduleError, match=r"factor must be an integer, got 2\.5"):
        s.blocked_scan(B, s[B].op.reduce_axis[0], 2.5)  # type: ignore[arg-type]
    s[B].split(B.op.axis[0], factor=1)
    assert "call blocked_scan before split, reorder and annotations" in refused(s, B)


def test_axes_of_before_say_where_they_went() -> None:
    _, B = scan((1, 16, 16), lambda k, j: k <= j)
    s = create_schedule(B.op)
    (k,) = B.op.reduce_axis
    s.blocked_scan(B, k, 4)
    with pytest.raises(ScheduleError, match=r"went into the partial results of blocked_scan"):
        s[B].unroll(k)

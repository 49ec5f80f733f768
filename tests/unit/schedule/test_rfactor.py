"""rfactor: the stages that it leaves, where axes go, refusals; results are against NumPy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from loopwright import te
from loopwright.driver import build
from loopwright.errors import ScheduleError
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.printer import print_expr
from loopwright.lowering import lower
from loopwright.schedule import Schedule, create_schedule, replay


class Rows(NamedTuple):
    """A schedule of ``B[i] = sum over k1, k2 of A[i, k1, k2]`` and its handles."""

    s: Schedule
    a: te.Tensor
    b: te.Tensor
    k1: Any
    k2: Any


def rows(n: int = 3, m: int = 10, o: int = 4, **more: Any) -> Rows:
    a = te.placeholder((n, m, o), name="A")
    k1, k2 = te.reduce_axis(m, "k1"), te.reduce_axis(o, "k2")
    b = te.compute((n,), lambda i: te.sum(a[i, k1, k2], axis=[k1, k2], **more), name="B")
    return Rows(create_schedule(b), a, b, k1, k2)


def right(p: Rows, start: float = 0) -> str:
    """Check interpreter, compiled code and a replayed trace; returns the nest."""
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, p.a.shape).astype("float32")
    f = lower(p.s, [p.a, p.b])
    out = np.full(p.b.shape, np.nan, "float32")
    interpret(f, [x, out])
    np.testing.assert_array_equal(out, x.sum(axis=(1, 2)) + start)
    out[...] = np.nan
    build(p.s, [p.a, p.b])(x, out)
    np.testing.assert_array_equal(out, x.sum(axis=(1, 2)) + start)
    again = replay(p.s.dag, json.loads(json.dumps(p.s.trace_json())))
    assert str(lower(again, again.tensors)) == str(f)
    scope: dict[str, Any] = {}
    exec(p.s.as_python(), scope)
    fresh = replay(p.s.dag, [])
    scope["schedule"](fresh, *fresh.tensors)
    assert fresh.trace == p.s.trace
    return str(f)


def names(axes: Any) -> list[tuple[str, int]]:
    return [(x.name, x.extent) for x in axes]


def body(p: Rows, t: te.Tensor) -> str:
    return print_expr(p.s[t].op.body)


# ------------------------------------------------------------------ effects


def test_a_whole_reduction_axis() -> None:
    p = rows()
    bf = p.s.rfactor(p.b, p.k1)
    assert (bf.name, bf.shape, bf.dtype) == ("B.rf", (10, 3), "float32")
    assert p.s.state.order == (0, "s0", 1)
    assert names(p.s[bf].op.axis) == [("k1", 10), ("i", 3)]
    assert p.s[bf].op.reduce_axis == [p.k2]
    assert names(p.s[p.b].op.reduce_axis) == [("k1", 10)]
    assert body(p, p.b) == "sum(s0[k1, i], over k1)"
    right(p)


def test_a_split_axis_with_a_tail() -> None:
    """Roots that were not touched come first, then what is left of the split (as in TE)."""
    p = rows()
    ko, ki = p.s[p.b].split(p.k1, factor=4)
    bf = p.s.rfactor(p.b, ki, 1)
    assert bf.shape == (3, 4)
    assert p.s[bf].op.reduce_axis == [p.k2, ko]
    assert names(p.s[bf].leaf_iter_vars) == [("i", 3), ("k1.1", 4), ("k1.0", 3), ("k2", 4)]
    assert p.s[bf].op.body.where is not None
    assert "k1.0 * 4 + k1.1 < 10" in right(p)


def test_a_split_that_divides_needs_no_condition() -> None:
    p = rows(m=12)
    _, ki = p.s[p.b].split(p.k1, factor=4)
    bf = p.s.rfactor(p.b, ki)
    assert p.s[bf].op.body.where is None
    assert " < " not in right(p)


def test_the_only_loop_leaves_no_reduction() -> None:
    a = te.placeholder((7,), name="A")
    k = te.reduce_axis(7, "k")
    b = te.compute((1,), lambda i: te.max(a[k], axis=k), name="B")
    s = create_schedule(b)
    ko, ki = s[b].split(k, factor=4)
    bf = s.rfactor(b, s[b].fuse(ko, ki))
    assert bf.shape == (8, 1)
    assert s[bf].op.reduce_axis == []
    x = np.array([3, -1, 5, 2, 4, 0, 1], "float32")
    out = np.zeros(1, "float32")
    interpret(lower(s, [a, b]), [x, out])
    assert out[0] == 5


def test_points_beyond_the_axis_are_the_identity() -> None:
    """Splits of splits over-run twice; a point left out multiplies by one."""
    a = te.placeholder((7,), name="A")
    k = te.reduce_axis(7, "k")
    b = te.compute((1,), lambda i: te.prod(a[k], axis=k), name="B")
    s = create_schedule(b)
    f = s[b].split(k, factor=8)[1]
    f = s[b].split(f, nparts=4)[0]
    s.rfactor(b, f)
    out = np.zeros(1, "float32")
    interpret(lower(s, [a, b]), [np.full(7, 2, "float32"), out])
    assert out[0] == 128


def test_more_parts_than_iterations_stay_for_threads_to_run() -> None:
    p = rows(m=7)
    ko, _ = p.s[p.b].split(p.k1, nparts=16)
    bf = p.s.rfactor(p.b, ko)
    assert bf.shape == (16, 3)
    right(p)
    p.s[p.b].bind(p.s[p.b].op.reduce_axis[0], te.thread_axis((0, 16), "threadIdx.x"))
    p.s[bf].compute_at(p.s[p.b], p.s[p.b].op.reduce_axis[0])
    assert "for threadIdx.x in thread(16)" in str(lower(p.s, [p.a, p.b]))


@pytest.mark.parametrize("factor_axis", [0, 1, -1, -2])
def test_factor_axis(factor_axis: int) -> None:
    p = rows()
    bf = p.s.rfactor(p.b, p.k2, factor_axis)
    assert bf.shape == ((4, 3) if factor_axis in (0, -2) else (3, 4))
    assert p.s.trace_json() == [["rfactor", 1, "r1", factor_axis % 2]]
    right(p)


def test_relations_of_other_axes_move_as_they_are() -> None:
    p = rows()
    k2o, k2i = p.s[p.b].split(p.k2, factor=3)
    bf = p.s.rfactor(p.b, p.k1)
    p.s[bf].unroll(k2i)
    p.s[bf].reorder(k2o, p.s[bf].op.axis[0])
    p.s[bf].vectorize(k2o)
    assert p.s[bf].op.reduce_axis == [p.k2]
    right(p)


def test_a_fused_loop() -> None:
    p = rows()
    f = p.s[p.b].fuse(p.k1, p.k2)
    fo, fi = p.s[p.b].split(f, factor=16)
    bf = p.s.rfactor(p.b, fi)
    assert p.s[bf].op.reduce_axis == [fo]
    right(p)


def test_splits_of_spatial_loops_stay() -> None:
    p = rows()
    io, ii = p.s[p.b].split(p.b.op.axis[0], factor=2)
    bf = p.s.rfactor(p.b, p.k1)
    assert p.s[p.b].leaf_iter_vars[:2] == [io, ii]
    p.s[bf].compute_at(p.s[p.b], ii)
    p.s[p.b].vectorize(p.s[p.b].op.reduce_axis[0])
    right(p)


def test_init_enters_once() -> None:
    p = rows(init=100.0)
    p.s.rfactor(p.b, p.k2)
    right(p, 100)


def test_a_condition_of_the_reduction_that_reads() -> None:
    """The over-run is left out before the condition reads: the interpreter checks the access."""
    a, m = te.placeholder((6,), name="A"), te.placeholder((6,), name="M")
    k = te.reduce_axis(6, "k")
    b = te.compute((1,), lambda i: te.sum(a[k], axis=k, where=m[k] > 0.0), name="B")
    s = create_schedule(b)
    _, ki = s[b].split(k, factor=4)
    s.rfactor(b, ki)
    out = np.zeros(1, "float32")
    mask = np.array([1, 0, 1, 0, 1, 1], "float32")
    interpret(lower(s, [a, m, b]), [np.arange(6, dtype="float32"), mask, out])
    assert out[0] == 11


@pytest.mark.parametrize(
    "use",
    [
        lambda p, bf: p.s[bf].parallel(p.s[bf].op.axis[0]),
        lambda p, bf: p.s[bf].vectorize(p.s[bf].op.axis[0]),
        lambda p, bf: p.s[bf].compute_at(p.s[p.b], p.b.op.axis[0]),
        lambda p, bf: p.s[bf].compute_at(p.s[p.b], p.s[p.b].op.reduce_axis[0]),
        lambda p, bf: p.s[p.b].vectorize(p.s[p.b].op.reduce_axis[0]),
        lambda p, bf: p.s.cache_write(bf, "local"),
        lambda p, bf: p.s.cache_read(bf, "local", [p.b]),
        lambda p, bf: p.s.rfactor(bf, p.k2),
        lambda p, bf: p.s.rfactor(p.b, p.s[p.b].op.reduce_axis[0]),
    ],
)
def test_what_may_follow(use: Callable[[Rows, te.Tensor], Any]) -> None:
    p = rows()
    _, ki = p.s[p.b].split(p.k1, factor=4)
    bf = p.s.rfactor(p.b, ki)
    use(p, bf)
    right(p)


def test_the_factored_handle_is_the_new_axis() -> None:
    p = rows()
    bf = p.s.rfactor(p.b, p.k1)
    p.s[bf].parallel(p.k1)
    assert p.s.state.stages["s0"].marks["a0"].kind == "parallel"


def test_both_stages_in_the_nest(golden: Any) -> None:
    p = rows(4, 20, 1)
    _, ki = p.s[p.b].split(p.k1, factor=8)
    bf = p.s.rfactor(p.b, ki, 1)
    p.s[bf].compute_at(p.s[p.b], p.b.op.axis[0])
    p.s[bf].reorder(*p.s[bf].op.reduce_axis, p.s[bf].op.axis[1])
    p.s[bf].vectorize(p.s[bf].op.axis[1])
    golden(right(p) + "\n" + p.s.as_python())


@pytest.mark.parametrize("whole", [False, True])
def test_a_reduction_of_tuples(whole: bool) -> None:
    """Partial argmaxes and their values; the lanes of both stages are vectors."""
    a = te.placeholder((5, 22), name="A")
    k = te.reduce_axis(22, "k")
    at, top = te.compute((5,), lambda i: te.argmax((k, a[i, k]), axis=k), name="T")
    s = create_schedule([at.op])
    loop = k if whole else s[at].split(k, factor=8)[1]
    parts = s.rfactor(top, loop, 1)
    assert [(t.dtype, t.shape) for t in parts] == [
        ("int32", (5, 22 if whole else 8)),
        ("float32", (5, 22 if whole else 8)),
    ]
    s[parts[0]].vectorize(s[parts[1]].op.axis[1])
    s[at].vectorize(s[at].op.reduce_axis[0])
    s[parts[0]].compute_at(s[at], at.op.axis[0])
    x = np.random.default_rng(0).integers(-4, 5, (5, 22)).astype("float32")
    got, best = np.zeros(5, "int32"), np.zeros(5, "float32")
    for run in (lambda *v: interpret(lower(s, [a, at, top]), list(v)), build(s, [a, at, top])):
        got[...], best[...] = -1, np.nan
        run(x, got, best)
        np.testing.assert_array_equal(got, x.argmax(axis=1))
        np.testing.assert_array_equal(best, x.max(axis=1))
    scope: dict[str, Any] = {}
    exec(s.as_python(), scope)
    fresh = replay(s.dag, [])
    scope["schedule"](fresh, *fresh.tensors)
    assert fresh.trace == s.trace


# ------------------------------------------------------------------ refusals


def _marked(p: Rows) -> Any:
    p.s[p.b].unroll(p.k2)
    return p.k1


def _pragma(p: Rows) -> Any:
    p.s[p.b].pragma(p.k2, "auto_unroll_max_step", 4)
    return p.k1


def _gone(p: Rows) -> Any:
    p.s[p.b].split(p.k1, factor=2)
    return p.k1


@pytest.mark.parametrize(
    ("axis", "factor_axis", "text"),
    [
        (
            lambda p: p.b.op.axis[0],
            0,
            "rfactor (step 0): loop 'B.i' is no reduction loop; factor one of those of 'B'",
        ),
        (
            lambda p: p.k1,
            2,
            "rfactor (step 0): factor_axis 2 is no place for the new axis; the partial results of "
            "'B' have 2 dimension(s), so it is one of -2 to 1",
        ),
        (
            lambda p: p.k1,
            -3,
            "rfactor (step 0): factor_axis -3 is no place for the new axis; the partial results "
            "of 'B' have 2 dimension(s), so it is one of -2 to 1",
        ),
        (lambda p: p.k1, 0.5, "rfactor (step 0): factor_axis must be an integer, got 0.5"),
        (
            _marked,
            0,
            "rfactor (step 1): loop 'B.k2' is already unrolled (step 0); call rfactor before that "
            "and mark the loops of the stages that it leaves",
        ),
        (
            _pragma,
            0,
            "rfactor (step 1): loop 'B.k2' carries a pragma; call rfactor before that",
        ),
        (
            _gone,
            0,
            "rfactor (step 1): loop 'B.k1' no longer exists (step 0 split it into B.k1.0, B.k1.1);"
            " the loops are now B.i, B.k1.0, B.k1.1, B.k2",
        ),
    ],
)
def test_refusals(axis: Callable[[Rows], Any], factor_axis: Any, text: str) -> None:
    p = rows()
    x = axis(p)
    before = p.s.state, p.s.trace
    with pytest.raises(ScheduleError, match=re.escape(text)):
        p.s.rfactor(p.b, x, factor_axis)
    assert (p.s.state, p.s.trace) == before


def test_only_reductions() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
    s = create_schedule(b)
    text = "rfactor (step 0): 'B' is no reduction; rfactor a stage that has reduction loops"
    with pytest.raises(ScheduleError, match=re.escape(text)):
        s.rfactor(b, b.op.axis[0])
    with pytest.raises(ScheduleError, match=r"rfactor \(step 0\): 'A' is an input and has no"):
        s.rfactor(a, b.op.axis[0])


def test_a_stage_inside_a_reduction_loop() -> None:
    a = te.placeholder((4, 6), name="A")
    d = te.compute((4, 6), lambda i, j: a[i, j] + 1.0, name="D")
    k = te.reduce_axis(6, "k")
    b = te.compute((4,), lambda i: te.sum(d[i, k], axis=k), name="B")
    s = create_schedule(b)
    s[d].compute_at(s[b], k)
    text = (
        "rfactor (step 1): stage 'D' is computed at loop 'B.k', but its values go into the partial "
        "results; call rfactor first and compute_at afterwards"
    )
    with pytest.raises(ScheduleError, match=re.escape(text)):
        s.rfactor(b, k)


def test_an_axis_that_went_into_the_partial_results() -> None:
    p = rows()
    _, ki = p.s[p.b].split(p.k1, factor=4)
    bf = p.s.rfactor(p.b, ki)
    text = (
        "split (step 2): axis 'k1' went into the partial results of rfactor (step 1); the loops of "
        "'B' are B.i, B.k1.1"
    )
    with pytest.raises(ScheduleError, match=re.escape(text)):
        p.s[p.b].split(p.k1, factor=2)
    with pytest.raises(ScheduleError, match=r"axis 'k1' went into the partial results"):
        p.s[bf].split(p.k1, factor=2)

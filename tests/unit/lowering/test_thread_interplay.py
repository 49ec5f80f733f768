"""Threads together with the other primitives: sizes, rfactor, storage, caches, several outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.schedule import Schedule, create_schedule
from tests.unit.lowering.gpu_programs import tiled_matmul
from tests.unit.lowering.programs import Array

RNG = np.random.default_rng(3)


def floats(*shape: int) -> Array:
    return RNG.integers(-8, 8, shape).astype("float32")


def check(
    s: Schedule,
    args: list[te.Tensor],
    ins: list[Array],
    *want: Array,
    orders: tuple[int | None, ...] = (None, 1, 2),
) -> str:
    """Three orders of threads, with every race looked for; sums of small integers are exact."""
    f = lower(s, args)
    for order in orders:
        outs = [np.full_like(w, 77) for w in want]
        interpret(f, [*ins, *outs], thread_order=order, races=True)
        for w, o in zip(want, outs, strict=True):
            np.testing.assert_array_equal(o, w)
    return str(f)


# ------------------------------------------------------------------ sizes


def sized() -> tuple[te.Tensor, te.Tensor, Schedule]:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    c = te.compute((n,), lambda i: a[n - 1 - i] * 2.0, name="C")
    return a, c, create_schedule(c)


def test_blocks_over_a_symbolic_extent() -> None:
    a, c, s = sized()
    bx, tx = s[c].split(c.op.axis[0], factor=8)
    s[c].bind(bx, "blockIdx.x")
    s[c].bind(tx, "threadIdx.x")
    for size in (1, 7, 8, 9, 64, 65):
        x = floats(size)
        text = check(s, [a, c], [x], x[::-1] * 2)
    assert "for blockIdx.x in thread(n.8):" in text
    assert "if blockIdx.x * 8 + threadIdx.x < n:" in text


def test_shared_tiles_of_a_symbolic_program() -> None:
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    c = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="C")
    s = create_schedule(c)
    tile = s.cache_read(a, "shared", [c])
    bx, tx = s[c].split(c.op.axis[0], factor=4)
    ko, _ = s[c].split(k, factor=8)
    s[c].bind(bx, "blockIdx.x")
    s[c].bind(tx, "threadIdx.x")
    s[tile].compute_at(s[c], ko)
    s[tile].bind(s[tile].op.axis[0], "threadIdx.x")
    for size in ((1, 1), (5, 9), (8, 16), (13, 7)):
        x = floats(*size)
        text = check(s, [a, c], [x], x.sum(axis=1))
    assert "A.shared = alloc(float32[4, 8], shared)" in text


@pytest.mark.parametrize("tag", ["threadIdx.x", "vthread"])
def test_threads_over_a_symbolic_extent(tag: str) -> None:
    _, c, s = sized()
    s[c].bind(c.op.axis[0], tag)
    with pytest.raises(ScheduleError) as e:
        s.validate()
    assert str(e.value) == (
        f"bind (step 0): loop 'C.i' has an extent that depends on sizes, {tag} needs a number; "
        "split it by a number and bind the inner part"
    )


def test_env_threads_do_not_fit_a_symbolic_extent() -> None:
    _, c, s = sized()
    s[c].env_threads([("blockIdx.x", 4)])
    s[c].bind(c.op.axis[0], "blockIdx.x")
    with pytest.raises(ScheduleError, match=r"bind \(step 1\): loop 'C\.i' has an extent that dep"):
        s.validate()


def test_a_second_stage_on_symbolic_blocks() -> None:
    """A stage of its own has a launch of its own, of another extent."""
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((n + 1,), lambda i: te.if_then_else(i < n, b[i], 1.0), name="C")
    s = create_schedule(c)
    s[b].bind(b.op.axis[0], "blockIdx.x")
    s[c].bind(c.op.axis[0], "blockIdx.x")
    x = floats(5)
    check(s, [a, c], [x], np.append(x * 2, 1).astype("float32"))


# ------------------------------------------------------------------ reductions


def rows() -> tuple[te.Tensor, te.Tensor, te.IterVar, Schedule]:
    a = te.placeholder((6, 40), name="A")
    k = te.reduce_axis((0, 40), "k")
    c = te.compute((6,), lambda i: te.sum(a[i, k], axis=k), name="C")
    return a, c, k, create_schedule(c)


def test_partial_results_are_computed_at_a_loop_of_threads() -> None:
    """The AutoTVM recipe of a reduction: rfactor, the partial sums at the bound loop."""
    a, c, k, s = rows()
    _, ki = s[c].split(k, factor=8)
    part = s.rfactor(c, ki)
    bx, ty = s[c].split(c.op.axis[0], factor=3)
    s[c].bind(bx, "blockIdx.x")
    s[c].bind(ty, "threadIdx.y")
    tx = s[c].op.reduce_axis[0]
    s[c].bind(tx, "threadIdx.x")
    s[part].compute_at(s[c], tx)
    s[c].set_store_predicate(te.thread_axis("threadIdx.x").var.equal(0))
    x = floats(6, 40)
    text = check(s, [a, c], [x], x.sum(axis=1))
    assert "C.rf = alloc(float32[1, 1], local)" in text
    assert "C.acc.row = alloc(float32[3, 8], shared)" in text


def test_partial_results_in_shared_memory() -> None:
    a, c, k, s = rows()
    _, ki = s[c].split(k, factor=8)
    part = s.rfactor(c, ki)
    i = c.op.axis[0]
    s[c].bind(i, "blockIdx.x")
    s[part].compute_at(s[c], i)
    s[part].bind(s[part].op.axis[0], "threadIdx.x")
    x = floats(6, 40)
    text = check(s, [a, c], [x], x.sum(axis=1))
    assert "C.rf = alloc(float32[8, 1], shared)" in text
    assert text.count("barrier") == 1


def test_a_bound_reduction_loop_is_not_factored() -> None:
    _, c, k, s = rows()
    _, ki = s[c].split(k, factor=8)
    s[c].bind(ki, "threadIdx.x")
    with pytest.raises(ScheduleError, match=r"rfactor \(step 2\): "):
        s.rfactor(c, ki)


# ------------------------------------------------------------------ storage


def staged(scope: str = "shared") -> tuple[te.Tensor, te.Tensor, Any, Any, Schedule]:
    """Rows in blocks; steps of 8 columns are copied by 4 threads and then read by all."""
    a = te.placeholder((5, 32), name="A")
    c = te.compute((5, 32), lambda i, j: a[i, j // 8 * 8 + 7 - j % 8] + 1.0, name="C")
    s = create_schedule(c)
    copy = s.cache_read(a, scope, [c])
    i, j = c.op.axis
    jo, ji = s[c].split(j, factor=8)
    _, tx = s[c].split(ji, factor=4)
    s[c].bind(i, "blockIdx.x")
    s[c].bind(tx, "threadIdx.x")
    s[copy].compute_at(s[c], jo)
    _, t = s[copy].split(s[copy].op.axis[1], factor=4)
    s[copy].bind(t, "threadIdx.x")
    return a, c, copy, i, s


def mirrored(x: Array) -> Array:
    return x.reshape(5, 4, 8)[:, :, ::-1].reshape(5, 32) + 1


def test_two_halves_in_shared_memory() -> None:
    a, c, copy, _, s = staged()
    s[copy].double_buffer()
    x = floats(5, 32)
    text = check(s, [a, c], [x], mirrored(x))
    assert "A.shared = alloc(float32[2, 1, 8], shared)" in text
    assert text.count("barrier") == 1, "one an iteration: filling and reading are of two halves"


def test_three_places_in_shared_memory() -> None:
    a, c, copy, _, s = staged()
    s[copy].double_buffer(stages=3)
    x = floats(5, 32)
    text = check(s, [a, c], [x], mirrored(x))
    assert "A.shared = alloc(float32[3, 1, 8], shared)" in text
    assert text.count("barrier") == 1, "one an iteration: no two places are the same"


@pytest.mark.parametrize("stages", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_virtual_threads_meet_once(stages: int) -> None:
    """A thread waits and meets the others once an iteration, not once for each virtual thread. For
    the last of four iterations a place is filled again, also where there are three."""
    case = tiled_matmul(k=32, stages=stages)
    x, y = floats(32, 32), floats(32, 48)
    text = check(case.s, case.args, [x, y], case.reference(x, y))
    lines = [line.lstrip() for line in text.splitlines()]
    (wait,) = (n for n, line in enumerate(lines) if line.startswith("wait("))
    assert lines[wait - 1].startswith("for k.0 in range(")
    assert text.count("barrier") == 1


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_dynamic_shared_memory_is_shared_memory(stages: int) -> None:
    """Barriers, places and allocations are the same for both kinds; one order of threads is enough,
    since the test above tries others with the plain kind. Four iterations fill a place again."""
    plain, dynamic = (
        tiled_matmul(k=32, scope=scope, stages=stages)  # type: ignore[arg-type]
        for scope in ("shared", "shared.dyn")
    )
    x, y = floats(32, 32), floats(32, 48)
    text = check(dynamic.s, dynamic.args, [x, y], dynamic.reference(x, y), orders=(1,))
    assert "float32[16, 8], shared.dyn)" in text or stages > 1
    assert str(lower(plain.s, plain.args)) == text.replace("shared.dyn", "shared")


def test_a_shared_buffer_that_is_stored_outside() -> None:
    a, c, copy, i, s = staged()
    s[copy].store_at(s[c], i)
    x = floats(5, 32)
    text = check(s, [a, c], [x], mirrored(x))
    assert "A.shared = alloc(float32[1, 32], shared)" in text


def test_gaps_between_shared_rows() -> None:
    a, c, copy, _, s = staged()
    s[copy].storage_align(0, 16, 3)
    x = floats(5, 32)
    text = check(s, [a, c], [x], mirrored(x))
    assert "A.shared = alloc(float32[1, 8], shared, strides=[19, 1])" in text


def test_a_shared_buffer_in_another_order() -> None:
    a, c, copy, _, s = staged()
    s[copy].transform_layout(lambda i, j: [j % 4, i, j // 4])
    x = floats(5, 32)
    text = check(s, [a, c], [x], mirrored(x))
    assert "A.shared = alloc(float32[4, 1, 2], shared)" in text


def test_a_shared_copy_of_several_readers() -> None:
    a = te.placeholder((4, 16), name="A")
    b = te.compute((4, 16), lambda i, j: a[i, 15 - j] * 2.0, name="B")
    c = te.compute((4, 16), lambda i, j: b[i, j] + a[i, j], name="C")
    s = create_schedule(c)
    copy = s.cache_read(a, "shared", [b, c])
    i, j = c.op.axis
    s[c].bind(i, "blockIdx.x")
    s[c].bind(j, "threadIdx.x")
    s[b].compute_at(s[c], j)
    s[copy].compute_at(s[c], i)
    s[copy].bind(s[copy].op.axis[1], "threadIdx.x")
    x = floats(4, 16)
    text = check(s, [a, c], [x], x[:, ::-1] * 2 + x)
    assert "A.shared = alloc(float32[1, 16], shared)" in text
    assert "B = alloc(float32[1, 1], local)" in text
    assert text.count("barrier") == 1


# ------------------------------------------------------------------ several outputs


def test_several_outputs_in_shared_memory() -> None:
    a = te.placeholder((4, 8), name="A")
    up, down = te.compute((4, 8), lambda i, j: (a[i, j] + 1.0, a[i, j] - 1.0), name="P")
    c = te.compute((4, 8), lambda i, j: up[i, 7 - j] * down[i, j], name="C")
    s = create_schedule(c)
    i, j = c.op.axis
    s[c].bind(i, "blockIdx.x")
    s[c].bind(j, "threadIdx.x")
    s[up].compute_at(s[c], i)
    s[up].bind(s[up].op.axis[1], "threadIdx.x")
    x = floats(4, 8)
    text = check(s, [a, c], [x], (x[:, ::-1] + 1) * (x - 1))
    for k in (0, 1):
        assert f"P.v{k} = alloc(float32[1, 8], shared)" in text


def test_a_kernel_with_several_outputs() -> None:
    a = te.placeholder((4, 8), name="A")
    outs = te.compute((4, 8), lambda i, j: (a[i, j] + 1.0, a[i, 7 - j]), name="P")
    s = create_schedule(outs[0].op)
    i, j = s[outs[0]].op.axis
    s[outs[0]].bind(i, "blockIdx.y")
    s[outs[0]].bind(j, "threadIdx.z")
    x = floats(4, 8)
    check(s, [a, *outs], [x], x + 1, x[:, ::-1])


def test_argmax_across_threads_kept_by_all_of_them() -> None:
    """In local memory each thread has the place of the maximum, and takes its share of the rest."""
    a = te.placeholder((3, 24), name="A")
    k = te.reduce_axis((0, 24), "k")
    place, top = te.compute((3,), lambda i: te.argmax((k.var, a[i, k]), axis=k), name="T")
    c = te.compute((3, 8), lambda i, j: a[i, j] - top[i] + place[i], name="C")
    s = create_schedule(c)
    i, j = c.op.axis
    s[c].bind(i, "blockIdx.x")
    s[c].bind(j, "threadIdx.x")
    s[place].compute_at(s[c], i)
    s[place].set_scope("local")
    _, ki = s[place].split(k, factor=8)
    s[place].bind(ki, "threadIdx.x")
    x = floats(3, 24)
    want = x[:, :8] - x.max(axis=1, keepdims=True) + x.argmax(axis=1)[:, None].astype("float32")
    text = check(s, [a, c], [x], want.astype("float32"))
    assert "T.v0 = alloc(int32[1], local)" in text


@pytest.mark.parametrize("own", [1, 2, 3, 5, 8])
def test_a_reduction_inside_a_shorter_loop_over_the_same_threads(own: int) -> None:
    """Eight threads; the loop around takes three of them, the reduction its own number."""
    a = te.placeholder((own,), name="A")
    p = te.compute((own,), lambda i: a[i] + 1, name="P")
    r = te.reduce_axis((0, own), "r")
    total = te.compute((), lambda: te.sum(p[r], axis=[r]), name="R")
    k = te.reduce_axis((0, 3), "k")
    c = te.compute((1,), lambda i: te.sum(total[()] * (k + 1), axis=[k]), name="C")
    s = create_schedule(c)
    s[c].bind(k, "threadIdx.x")
    s[c].env_threads([("threadIdx.x", 8)])
    s[total].compute_at(s[c], k)
    s[total].bind(r, "threadIdx.x")
    s[p].compute_at(s[total], r)
    x = floats(own)
    check(s, [a, c], [x], np.array([(x + 1).sum() * 6], "float32"))


def test_lanes_of_a_reduction_with_a_loop_over_threads_inside() -> None:
    """The accumulators are a thread's own, also where only some threads take part."""
    a = te.placeholder((4, 6), name="A")
    r = te.reduce_axis((0, 6), "r")
    rows = te.compute((4,), lambda i: te.sum(a[i, r], axis=[r]), name="R")
    k = te.reduce_axis((0, 4), "k")
    c = te.compute((1,), lambda i: te.sum(rows[k], axis=[k]), name="C")
    s = create_schedule(c)
    s[c].bind(k, "threadIdx.y")
    s[rows].compute_at(s[c], c.op.axis[0])
    s[rows].set_scope("shared")
    outer, inner = s[rows].split(rows.op.axis[0], factor=3)
    s[rows].reorder(r, outer, inner)
    s[rows].vectorize(r)
    s[rows].bind(inner, "threadIdx.y")
    x = floats(4, 6)
    text = check(s, [a, c], [x], np.array([x.sum()], "float32"))
    assert "R.lanes = alloc(float32[2, 6], local)" in text

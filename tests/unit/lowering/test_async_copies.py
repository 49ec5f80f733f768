"""Asynchronous copies: they arrive as late as may be, so that what is read too early shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.errors import LowerError, RunError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Var, as_expr, binary
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import (
    Allocate,
    AsyncGroup,
    AsyncWait,
    Barrier,
    For,
    Func,
    If,
    Seq,
    Stmt,
    Store,
    map_statements,
    seq,
)
from loopwright.ir.verify import verify
from loopwright.lowering import lower
from loopwright.lowering.passes.thread_sync import thread_sync
from loopwright.schedule import Schedule, create_schedule
from tests.unit.lowering.programs import Array, Case
from tests.unit.lowering.tensor_core_programs import tensor_core_matmul

X = Var("threadIdx.x")
A, OUT = Buffer("A", (2, 4), "float32"), Buffer("O", (2, 4), "float32")
S = Buffer("S", (2, 4), "float32", "shared")


def kernel(*body: Stmt) -> Func:
    inner = For(X, 4, "thread", seq(*body), (), "threadIdx.x")
    return Func("f", (A, OUT), (False, True), Allocate(S, inner))


def copy(row: int) -> Stmt:
    at = (as_expr(row), X)
    return AsyncGroup(Store(S, at, Load(A, at, "float32")))


def read(row: int) -> Stmt:
    return Store(OUT, (as_expr(row), X), Load(S, (as_expr(row), X), "float32"))


def run(f: Func) -> tuple[Array, Array]:
    verify(f)
    a = np.arange(8, dtype="float32").reshape(2, 4)
    out = np.zeros((2, 4), "float32")
    interpret(f, [a, out], races=True)
    return a, out


def test_a_wait_leaves_the_last_groups_on_their_way() -> None:
    f = kernel(copy(0), copy(1), AsyncWait(1), read(0), read(1), AsyncWait(0))
    a, out = run(f)
    np.testing.assert_array_equal(out[0], a[0])
    assert np.isnan(out[1]).all(), "the second group has not arrived"


def test_a_wait_for_all() -> None:
    a, out = run(kernel(copy(0), copy(1), AsyncWait(0), read(0), read(1)))
    np.testing.assert_array_equal(out, a)


def test_copies_that_nobody_waits_for() -> None:
    with pytest.raises(RunError, match="ends before its asynchronous stores to S are there"):
        run(kernel(copy(0), AsyncWait(1)))


def test_what_another_thread_waited_for_needs_a_barrier() -> None:
    neighbour = (as_expr(0), binary("%", binary("+", X, 1), 4))
    take = Store(OUT, (as_expr(0), X), Load(S, neighbour, "float32"))
    with pytest.raises(RunError, match="race on S"):
        run(kernel(copy(0), Barrier("shared"), AsyncWait(0), take))
    a, out = run(kernel(copy(0), AsyncWait(0), Barrier("shared"), take))
    np.testing.assert_array_equal(out[0], np.roll(a[0], -1))


def test_outside_of_kernels() -> None:
    for s, what in ((AsyncWait(0), "the wait for"), (AsyncGroup(Seq(())), "an asynchronous copy")):
        with pytest.raises(LowerError, match=f"{what}.*stands outside of every kernel"):
            verify(Func("f", (), (), s))


# ------------------------------------------------------------------ pipelines


def pipeline(stages: int = 3) -> tuple[Func, Array, Array]:
    """Steps of 8 columns are copied by 4 threads, and read by others than those that copied."""
    a = te.placeholder((2, 48), name="A")
    c = te.compute((2, 48), lambda i, j: a[i, j // 8 * 8 + 7 - j % 8] + 1.0, name="C")
    s = create_schedule(c)
    tile = s.cache_read(a, "shared", [c])
    i, j = c.op.axis
    jo, ji = s[c].split(j, factor=8)
    s[c].bind(i, te.thread_axis("blockIdx.x"))
    s[c].bind(s[c].split(ji, factor=4)[1], te.thread_axis("threadIdx.x"))
    s[tile].compute_at(s[c], jo)
    s[tile].bind(s[tile].split(s[tile].op.axis[1], factor=4)[1], te.thread_axis("threadIdx.x"))
    s[tile].double_buffer(stages)
    x = np.arange(96, dtype="float32").reshape(2, 48)
    return lower(s, [a, c]), x, x.reshape(2, 6, 8)[:, :, ::-1].reshape(2, 48) + 1


def interpreted(f: Func, x: Array) -> Array:
    out = np.full(x.shape, np.nan, "float32")
    interpret(f, [x, out], thread_order=1, races=True)
    return out


def changed(f: Func, change: Callable[[Stmt], Stmt]) -> Func:
    def go(s: Stmt) -> Stmt:
        return change(map_statements(s, go))

    return f.with_body(go(f.body))


def test_a_pipeline(golden: Any) -> None:
    f, x, want = pipeline()
    np.testing.assert_array_equal(interpreted(f, x), want)
    golden(str(f))


@pytest.mark.parametrize("stages", [2, 3, 4, 6])
def test_numbers_of_places(stages: int) -> None:
    f, x, want = pipeline(stages)
    np.testing.assert_array_equal(interpreted(f, x), want)
    assert f"wait(pending={stages - 2})" in str(f)
    assert str(f).count("barrier") == 1


def test_a_wait_that_is_too_short_is_noticed() -> None:
    """Every iteration then reads what is not there, until all is waited for behind the loop."""
    f, x, want = pipeline()

    def later(s: Stmt) -> Stmt:
        match s:
            case AsyncWait(pending=n):
                return AsyncWait(n + 1)
            case For(kind="serial", body=Seq()):
                return seq(s, AsyncWait(0))
        return s

    out = np.full(x.shape, 0, "float32")
    interpret(changed(f, later), [x, out])
    assert np.isnan(out[:, :8]).any()
    assert (out != want).any()
    with pytest.raises(RunError, match=r"race on A\.shared"):
        interpreted(changed(f, later), x)


def test_a_barrier_that_is_missing_is_noticed() -> None:
    f, x, _ = pipeline()
    without = changed(f, lambda s: Seq(()) if isinstance(s, Barrier) else s)
    with pytest.raises(RunError, match=r"race on A\.shared"):
        interpreted(without, x)


def test_a_barrier_that_only_some_threads_reach_is_refused() -> None:
    body = If(binary("<", X, 2), seq(copy(0), AsyncWait(0), Barrier("shared"), read(0)))
    f = kernel(body)
    with pytest.raises(LowerError, match="the threads of a block must meet while they use S"):
        thread_sync(f)


def test_what_is_computed_from_shared_memory_is_done_at_once() -> None:
    """A copy of a copy is made for the same iteration, so that the first must be there."""
    a = te.placeholder((2, 32), name="A")
    c = te.compute((2, 32), lambda i, j: a[i, j] + 1.0, name="C")
    s = create_schedule(c)
    one = s.cache_read(a, "shared", [c])
    two = s.cache_read(one, "shared", [c])
    jo, ji = s[c].split(c.op.axis[1], factor=8)
    s[c].bind(ji, te.thread_axis("threadIdx.x"))
    for t in (one, two):
        s[t].compute_at(s[c], jo)
        s[t].bind(s[t].op.axis[1], te.thread_axis("threadIdx.x"))
        s[t].double_buffer()
    f = lower(s, [a, c])
    assert "async" not in str(f)
    x = np.arange(64, dtype="float32").reshape(2, 32)
    np.testing.assert_array_equal(interpreted(f, x), x + 1)


def test_what_is_computed_on_the_way_is_done_at_once() -> None:
    case = scaled()
    f = lower(case.s, case.args)
    assert "async" not in str(f)


def scaled() -> Case:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((64,), lambda i: b[63 - i] + 1.0, name="C")
    s: Schedule = create_schedule(c)
    io, ii = s[c].split(c.op.axis[0], factor=8)
    s[c].bind(ii, te.thread_axis("threadIdx.x"))
    s[b].compute_at(s[c], io)
    s[b].set_scope("shared")
    s[b].bind(s[b].op.axis[0], te.thread_axis("threadIdx.x"))
    s[b].double_buffer()
    return Case(s, [a, c], lambda x: 2 * x[::-1] + 1)


def test_a_product_on_tensor_cores() -> None:
    case = tensor_core_matmul(k=48, stages=3)
    text = str(lower(case.s, case.args))
    assert text.count("async:") == 3
    assert text.count("barrier(shared)") == 1

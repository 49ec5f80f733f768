"""Packed functions called from programs: one meaning on every path that runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import dtypes, te, tir
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Var, as_expr, cast
from loopwright.ir.kinds import LoopKind
from loopwright.ir.stmt import Allocate, CallPacked, For, Func, Stmt, seq
from loopwright.ir.verify import verify
from loopwright.runtime import NDArray, register_func
from tests.unit.codegen.packed.programs import PATHS, Path_, buffers, calling, in_loop


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int64", "uint8", "bool"]
)
def test_arrays_arrive_with_shape_and_type(run: Path_, dtype: str) -> None:
    seen: list[object] = []

    @register_func("tests.f")
    def f(x: NDArray, y: NDArray) -> None:
        seen.append((x.shape, x.dtype, y.dtype))
        y[:] = x.numpy()[::-1]

    x = (np.arange(6).reshape(3, 2) % 2 if dtype == "bool" else np.arange(6)).reshape(3, 2)
    dtypes.check(dtype)  # makes NumPy know bfloat16
    x, y = x.astype(np.dtype(dtype)), np.zeros((3, 2), dtype)
    run(calling(shape=(3, 2), dtype=dtype), [x, y])
    assert seen == [((3, 2), dtype, dtype)]
    np.testing.assert_array_equal(y, x[::-1])


def test_scalars_and_texts_arrive(run: Path_) -> None:
    seen: list[tuple[object, ...]] = []
    register_func("tests.f", lambda x, y, *rest: seen.append(rest))
    extra = (
        -3,
        2**40,
        0.1,
        True,
        'quote " \\ é \n %d',
        "",
        as_expr(200, "uint8"),
        as_expr(0.5, "float16"),
        as_expr(-1, "int8"),
    )
    run(calling(*extra), [np.zeros(4, "float32"), np.zeros(4, "float32")])
    assert seen == [(-3, 2**40, 0.1, True, 'quote " \\ é \n %d', "", 200, 0.5, -1)]
    assert [type(x) for x in seen[0][:4]] == [int, int, float, bool]


def test_no_arguments_at_all(run: Path_) -> None:
    called: list[int] = []
    register_func("tests.f", lambda: called.append(1))
    (y,) = buffers("y")
    f = tir.prim_func(lambda ins, outs: tir.call_packed("tests.f"), [], [y])
    run(f, [np.zeros(4, "float32")])
    assert called == [1]


@pytest.mark.parametrize("kind", ["serial", "parallel", "vectorized", "unrolled"])
def test_once_for_each_iteration(run: Path_, kind: LoopKind) -> None:
    seen: list[tuple[int, float]] = []

    @register_func("tests.f")
    def f(t: NDArray, i: int, x: float) -> None:
        assert t[0] == 2 * x
        t[0] = t[0] + i  # the program goes on with what the function wrote
        seen.append((i, x))

    x, y = np.arange(8, dtype="float32") * 3, np.zeros(8, "float32")
    verify(in_loop(kind))
    run(in_loop(kind), [x, y])
    assert sorted(seen) == [(k, 3.0 * k) for k in range(8)]
    np.testing.assert_array_equal(y, 2 * x + np.arange(8))


@pytest.mark.parametrize("kind", ["parallel", "vectorized"])
def test_a_loop_that_only_calls(run: Path_, kind: LoopKind) -> None:
    """Its body touches memory through the function alone."""
    y, i = Buffer("y", (8,), "float32"), Var("i")
    f = Func("f", (y,), (True,), For(i, 8, kind, CallPacked("tests.f", (y, i * 2 + 1))))
    register_func("tests.f", lambda y, n: y.__setitem__(n // 2, n))
    out = np.zeros(8, "float32")
    run(f, [out])
    np.testing.assert_array_equal(out, 2 * np.arange(8) + 1)


def test_inputs_are_read_only(run: Path_) -> None:
    @register_func("tests.f")
    def f(x: NDArray, y: NDArray) -> None:
        x[0] = 5

    x = np.zeros(4, "float32")
    x.flags.writeable = False  # memory that may not be written is accepted as an input
    with pytest.raises(ValueError, match="read-only"):
        run(calling(), [x, np.zeros(4, "float32")])
    assert x[0] == 0


def test_the_name_is_looked_up_at_each_call() -> None:
    f = lw.build(calling(), target="llvm")
    x, y = np.ones(4, "float32"), np.zeros(4, "float32")
    for factor in (2, 3):
        register_func("tests.f", lambda a, b, n=factor: b.copyfrom(a.numpy() * n), override=True)
        f(x, y)
        np.testing.assert_array_equal(y, x * factor)


def test_a_kernel_calls_a_kernel_and_itself() -> None:
    """A compiled function is registered as it is; a callback may run the kernel that calls it."""
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] * 2, name="B")
    double = lw.build(te.create_schedule(B.op), [A, B], "llvm", name="double")["double"]
    register_func("tests.f", double)
    outer = lw.build(calling(), target="llvm")
    x, y = np.arange(4, dtype="float32"), np.zeros(4, "float32")
    outer(x, y)
    np.testing.assert_array_equal(y, 2 * x)

    def recurse(a: NDArray, b: NDArray) -> None:
        if a[0] < 3:
            outer(a.numpy() + 1, b)
        else:
            b.copyfrom(a)

    register_func("tests.f", recurse, override=True)
    outer(x, y)
    np.testing.assert_array_equal(y, x + 3)


def test_after_a_scheduled_nest_of_symbolic_size() -> None:
    n = te.size_var("n")
    A = te.placeholder((n, 3), name="A")
    B = te.compute((n, 3), lambda i, j: A[i, j] + 1, name="B")
    f = lw.lower(te.create_schedule(B.op), [A, B])
    f = f.with_body(seq(f.body, tir.call_packed("tests.f", f.params[1], f.sizes[0])))
    seen: list[object] = []

    @register_func("tests.f")
    def double(b: NDArray, size: int) -> None:
        seen.append((b.shape, size))
        b[:] = b.numpy() * 2

    for target in ("llvm", "c"):
        kernel = lw.build(f, target=target)
        for size in (2, 5):
            a, b = np.ones((size, 3), "float32"), np.zeros((size, 3), "float32")
            kernel(a, b)
            assert (b == 4).all()
    assert seen == [((2, 3), 2), ((5, 3), 5)] * 2


@pytest.mark.parametrize("path", ["interp", "llvm", "c"])
def test_buffers_that_share_memory_can_be_passed(path: str) -> None:
    """Three large buffers, one after the other; the first and the last share bytes."""
    one, two, three = (Buffer(n, (4096,), "float32") for n in ("one", "two", "three"))
    out = Buffer("out", (4096,), "float32")
    calls_ = [CallPacked("tests.f", pair) for pair in ((one,), (one, two), (two, three))]
    body: Stmt = seq(*calls_, CallPacked("tests.f", (three, out)))
    for b in (three, two, one):
        body = Allocate(b, body)
    f = lw.transform.StorageRewrite(Func("f", (out,), (True,), body))
    assert "view(pool" in str(f)

    @register_func("tests.f")
    def step(a: NDArray, b: NDArray | None = None) -> None:
        if b is None:
            a[:] = np.arange(4096)
        else:
            b[:] = a.numpy() + 1

    result = np.zeros(4096, "float32")
    PATHS[path](f, [result])
    np.testing.assert_array_equal(result, np.arange(4096) + 3)


@pytest.mark.parametrize("target", ["llvm -num-threads=2", "c -num-threads=2"])
def test_a_callback_in_a_parallel_loop_runs_a_parallel_kernel(target: str) -> None:
    A = te.placeholder((256,), name="A")
    B = te.compute((256,), lambda i: A[i] + 1, name="B")
    s = te.create_schedule(B.op)
    s[B].parallel(B.op.axis[0])
    inner = lw.build(s, [A, B], target, name="inner")
    results: list[bool] = []

    def f(t: NDArray, i: int, x: float) -> None:
        out = np.zeros(256, "float32")
        inner(np.full(256, i, "float32"), out)
        results.append(bool((out == i + 1).all()))

    register_func("tests.f", f)
    lw.build(in_loop("parallel"), target=target)(np.zeros(8, "float32"), np.zeros(8, "float32"))
    assert results == [True] * 8


def test_unrolled_calls_share_their_memory() -> None:
    text = lw.build(in_loop("unrolled"), target="llvm").get_source("ll-unoptimised")
    assert text.count("call void @lw_call_packed") == 8
    assert text.count("= alloca [6 x i64]") == 1


def test_a_function_by_hand_with_loops_and_branches() -> None:
    def body(ins: Any, outs: Any) -> Stmt:
        ib = tir.ir_builder.create()
        a, b = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 4, "i") as i, ib.if_scope(i < 2):
            b[i] = a[i] * 3.0
        ib.emit(tir.call_packed("tests.f", b, cast(a[3], "int32")))
        return ib.get()

    x, y = buffers("x", "y")
    f = tir.prim_func(body, [x], [y], "hand")
    register_func("tests.f", lambda b, n: b.__setitem__(3, n * 10))
    for run in (PATHS["interp"], PATHS["llvm"], PATHS["c"]):
        out = np.zeros(4, "float32")
        run(f, [np.arange(4, dtype="float32"), out])
        np.testing.assert_array_equal(out, [0, 3, 0, 30])

"""Packed functions called from programs: one meaning on every path that runs them."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import dtypes, te, tir
from loopwright.codegen.c.prelude import Prelude
from loopwright.codegen.c.statements import RESERVED, CFamilyWriter, Identifiers
from loopwright.errors import CodegenError, LowerError, RunError, TensorError, UsageError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Var, as_expr, cast
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.kinds import LoopKind
from loopwright.ir.stmt import Allocate, CallPacked, For, Func, Seq, Stmt, Store, seq
from loopwright.ir.verify import verify
from loopwright.lowering.passes.redirect import redirected
from loopwright.runtime import NDArray, list_global_func_names, register_func, remove_global_func
from loopwright.runtime.packed import calls
from loopwright.runtime.timing import time_call
from loopwright.te.stmt_serial import stmt_from_json, stmt_to_json

Array = np.ndarray[Any, Any]
#: Runs a function of the loop IR on arrays.
Path_ = Callable[[Func, Sequence[Array]], None]


def compiled(target: str) -> Path_:
    return lambda f, arrays: lw.build(f, target=target)(*arrays)


def exported(f: Func, arrays: Sequence[Array]) -> None:
    path = lw.build(f, target="llvm").export_library("packed.so")
    lw.load_module(path)(*arrays)


PATHS: dict[str, Path_] = {
    "interp": lambda f, arrays: interpret(f, arrays),
    "llvm": compiled("llvm"),
    "c": compiled("c"),
    "so": exported,
}


@pytest.fixture(params=PATHS)
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path_:
    monkeypatch.chdir(tmp_path)
    return PATHS[request.param]


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    before = set(list_global_func_names())
    yield
    for name in set(list_global_func_names()) - before:
        remove_global_func(name)


def buffers(*names: str, shape: tuple[int, ...] = (4,), dtype: str = "float32") -> list[Any]:
    return [tir.decl_buffer(shape, dtype, name) for name in names]


def calling(*extra: Any, shape: tuple[int, ...] = (4,), dtype: str = "float32") -> Func:
    """``y = tests.f(x, y, *extra)``."""
    x, y = buffers("x", "y", shape=shape, dtype=dtype)
    body = lambda ins, outs: tir.call_packed("tests.f", ins[0], outs[0], *extra)  # noqa: E731
    return tir.prim_func(body, [x], [y], "f")


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


def in_loop(kind: LoopKind) -> Func:
    """``for i: t = x[i] * 2; tests.f(t, i, x[i]); y[i] = t[0]``."""
    x, y = Buffer("x", (8,), "float32"), Buffer("y", (8,), "float32")
    t, i = Buffer("t", (1,), "float32", "local"), Var("i")
    at = (as_expr(0),)
    element = Load(x, (i,), "float32")
    body = seq(
        Store(t, at, element * 2),
        CallPacked("tests.f", (t, i, element)),
        Store(y, (i,), Load(t, at, "float32")),
    )
    return Func("loop", (x, y), (False, True), For(i, 8, kind, Allocate(t, body)))


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


class Mine(Exception):
    pass


def deep_inside() -> None:
    raise Mine("from the callback")


def raising(*args: object) -> None:
    deep_inside()


def test_an_exception_comes_out_with_its_traceback(run: Path_) -> None:
    register_func("tests.f", raising)
    with pytest.raises(Mine, match="from the callback") as caught:
        run(calling(), [np.zeros(4, "float32"), np.zeros(4, "float32")])
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-2:] == ["raising", "deep_inside"]
    assert "test_an_exception_comes_out_with_its_traceback" in frames


def test_nothing_runs_after_an_exception(run: Path_) -> None:
    x, y = Buffer("x", (4,), "float32"), Buffer("y", (4,), "float32")
    store = Store(y, (as_expr(0),), as_expr(7.0, "float32"))
    f = Func("f", (x, y), (False, True), seq(CallPacked("tests.f", (x,)), store))
    register_func("tests.f", raising)
    out = np.zeros(4, "float32")
    with pytest.raises(Mine):
        run(f, [np.zeros(4, "float32"), out])
    assert out[0] == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_exception_comes_out_too(run: Path_, error: type[BaseException]) -> None:
    def f(*args: object) -> None:
        raise error("now")

    register_func("tests.f", f)
    with pytest.raises(error, match="now"):
        run(calling(), [np.zeros(4, "float32"), np.zeros(4, "float32")])


def test_a_name_that_is_not_there(run: Path_) -> None:
    register_func("tests.g", print)
    with pytest.raises(UsageError, match=r"no global function 'tests.f' \(did you mean 'tests.g'"):
        run(calling(), [np.zeros(4, "float32"), np.zeros(4, "float32")])


def test_the_name_is_looked_up_at_each_call() -> None:
    f = lw.build(calling(), target="llvm")
    x, y = np.ones(4, "float32"), np.zeros(4, "float32")
    for factor in (2, 3):
        register_func("tests.f", lambda a, b, n=factor: b.copyfrom(a.numpy() * n), override=True)
        f(x, y)
        np.testing.assert_array_equal(y, x * factor)


@pytest.mark.parametrize("target", ["llvm -num-threads=2", "c -num-threads=2"])
def test_an_exception_in_a_thread_of_the_pool(target: str) -> None:
    def f(t: NDArray, i: int, x: float) -> None:
        if i == 5:
            raise Mine(f"iteration {i}")

    register_func("tests.f", f)
    kernel = lw.build(in_loop("parallel"), target=target)
    for _ in range(5):
        with pytest.raises(Mine, match="iteration 5"):
            kernel(np.zeros(8, "float32"), np.zeros(8, "float32"))
    register_func("tests.f", lambda *args: None, override=True)
    kernel(np.zeros(8, "float32"), np.zeros(8, "float32"))  # the pool works after it


def test_threads_of_python_have_their_own_exceptions() -> None:
    @register_func("tests.f")
    def f(x: NDArray, y: NDArray) -> None:
        raise Mine(f"{x[0]:.0f}")

    kernel = lw.build(calling(), target="llvm")
    got: list[tuple[int, str]] = []

    def call(k: int) -> None:
        for _ in range(50):
            try:
                kernel(np.full(4, k, "float32"), np.zeros(4, "float32"))
            except Mine as error:
                got.append((k, str(error)))

    threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(got) == 200
    assert all(str(k) == text for k, text in got)


def test_bound_calls_and_timing_raise_it_too() -> None:
    register_func("tests.f", raising)
    call = lw.build(calling(), target="llvm")["f"].bind(
        np.zeros(4, "float32"), np.ones(4, "float32")
    )
    with pytest.raises(Mine):
        call.run()
    with pytest.raises(Mine):
        time_call(call, 3)


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


def test_ctrl_c_while_a_kernel_calls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may arrive in the callback or just before it; it comes out of the kernel in any case."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    x, i = Buffer("x", (1,), "float32"), Var("i")
    f = Func("f", (x,), (True,), For(i, 1 << 20, "serial", CallPacked("tests.f", (i,))))
    count = [0]

    def tick(k: int) -> None:
        count[0] = k

    register_func("tests.f", tick)
    kernel = lw.build(f, target="llvm")
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        kernel(np.zeros(1, "float32"))
    timer.join()
    assert 0 < count[0] < (1 << 20) - 1


def test_a_callback_that_was_interrupted_before_it_began() -> None:
    error = calls.failure(calls.INTERRUPTED)
    assert isinstance(error, KeyboardInterrupt)


def test_exceptions_that_nobody_asks_for_are_not_kept_forever() -> None:
    codes = [calls.keep(Mine(str(k))) for k in range(300)]
    assert str(calls.failure(codes[-1])) == "299"
    assert isinstance(calls.failure(codes[0]), RunError)
    assert isinstance(calls.failure(codes[-1]), RunError), "each is given once"
    assert calls.failure(0) is calls.failure(7) is None
    for code in codes:
        calls.failure(code)


C_USER = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
x, y = (ctypes.c_float * 4)(1, 2, 3, 4), (ctypes.c_float * 4)()
args = (ctypes.c_void_p * 2)(ctypes.addressof(x), ctypes.addressof(y))
print(lib.f(args, None))
words = ctypes.POINTER(ctypes.c_int64)
CALL = ctypes.CFUNCTYPE(None, ctypes.c_char_p, words, ctypes.c_void_p, ctypes.c_int32)
seen = []
def hook(name, values, kinds, count):
    seen.append((name, count))
    values[count] = 0
hook = CALL(hook)
lib.lw_packed_configure(hook)
print(lib.f(args, None), seen)
"""


def test_an_exported_library_that_nobody_configured(tmp_path: Path) -> None:
    """Loaded without loopwright it fails with a code, until it is told how to call functions."""
    import subprocess

    path = lw.build(calling(), target="llvm").export_library(tmp_path / "f.so")
    run = subprocess.run(
        [sys.executable, "-c", C_USER, str(path)], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == [str(calls.UNBOUND), "0 [(b'tests.f', 2)]"]
    error = calls.failure(calls.UNBOUND)
    assert isinstance(error, RunError)
    assert "load_module" in str(error)
    assert "lw_packed_configure" in str(error)


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


@pytest.mark.parametrize("level", [0, 2, 3])
def test_passes_keep_what_a_function_may_have_written(level: int) -> None:
    """Put into a nest by a pass of a user; the passes behind it may not look through the call."""
    A = te.placeholder((2048,), name="A")
    B = te.compute((2048,), lambda i: te.exp(A[0]) + i, name="B")
    C = te.compute((2048,), lambda i: te.exp(B[0]) + B[i], name="C")
    s = te.create_schedule(C.op)

    def insert(f: Func, *_: object) -> Func:
        """Into the body of the last loop: ``tests.f(B)`` before C is stored."""

        def go(stmt: Stmt) -> Stmt:
            match stmt:
                case Allocate(buffer=b, body=body):
                    return Allocate(b, put(body, b))
            return stmt.map_children(lambda c: go(c) if isinstance(c, Stmt) else c)

        def put(body: Stmt, b: Buffer) -> Stmt:
            assert isinstance(body, Seq)
            loop = body.stmts[-1]
            assert isinstance(loop, For)
            call = CallPacked("tests.f", (b, loop.var))
            return seq(*body.stmts[:-1], loop.with_body(seq(call, loop.body)))

        return f.with_body(go(f.body))

    @register_func("tests.f")
    def bump(b: NDArray, i: int) -> None:
        b[0] = float(i % 3)
        b[i] = 2.0 * i

    with lw.PassContext(opt_level=level, config={"tir.add_lower_pass": [(0, insert)]}):
        f = lw.lower(s, [A, C])
    assert "call_packed('tests.f'" in str(f)
    a, out = np.zeros(2048, "float32"), np.zeros(2048, "float32")
    lw.build(f, target="llvm")(a, out)
    expected = np.exp(np.arange(2048) % 3) + 2.0 * np.arange(2048)
    np.testing.assert_allclose(out, expected, rtol=1e-6)


def test_no_op_removal_keeps_the_call_and_its_buffer() -> None:
    t = Buffer("t", (4,), "float32", "local")
    f = Func("f", (), (), Allocate(t, CallPacked("tests.f", (t,))))
    assert lw.transform.RemoveNoOp(f) is f


def test_storage_of_buffers_that_calls_use_is_not_shared() -> None:
    one, two = (Buffer(n, (4096,), "float32") for n in ("one", "two"))
    both = CallPacked("tests.f", (one, two))
    body = seq(CallPacked("tests.g", (one,)), CallPacked("tests.g", (two,)), both)
    f = Func("f", (), (), Allocate(one, Allocate(two, body)))
    assert lw.transform.StorageRewrite(f) is f


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


def test_buffers_with_a_copy_for_each_lane_cannot_be_passed() -> None:
    t, wide = Buffer("t", (1,), "float32", "local"), Buffer("t", (1, 4), "float32", "local")
    with pytest.raises(
        LowerError, match=r"call_packed 'tests.f' is given 't'.*allocate it outside"
    ):
        redirected(CallPacked("tests.f", (t,)), {t: wide}, lambda idx: idx)


def test_malformed_calls_do_not_pass_the_verifier() -> None:
    t = Buffer("t", (4,), "float32", "local")
    with pytest.raises(LowerError, match="'t' is touched where it does not exist"):
        verify(Func("f", (), (), CallPacked("tests.f", (t,))))
    with pytest.raises(LowerError, match="'n' is used where it is not defined"):
        verify(Func("f", (), (), CallPacked("tests.f", (Var("n"),))))
    gaps = Buffer("g", (2, 2), "float32", "local", (4, 1))
    with pytest.raises(LowerError, match="'g' has gaps"):
        verify(Func("f", (), (), Allocate(gaps, CallPacked("tests.f", (gaps,)))))


def test_code_of_devices_refuses_it() -> None:
    writer = CFamilyWriter(Prelude(), Identifiers(RESERVED), "opencl")
    with pytest.raises(
        CodegenError, match=r"opencl: call_packed 'tests.f' stands in code of a device"
    ):
        writer.stmt(CallPacked("tests.f", ()))


def test_no_trace_can_hold_a_call() -> None:
    """Whoever sends a log chooses no function that runs here: there is no form for it."""
    with pytest.raises(TensorError, match="cannot hold a CallPacked: a trace is data"):
        stmt_to_json(CallPacked("tests.f", ()), [])
    for made_up in (["call_packed", "os.system", ["ls"]], ["intrin", "call_packed", []]):
        with pytest.raises(TensorError, match="unknown"):
            stmt_from_json(made_up, [])


def test_a_target_that_keeps_the_schedule_refuses_it() -> None:
    """It would lose the call, which a pass has put in."""
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] + 1, name="B")

    def insert(f: Func, *_: object) -> Func:
        return f.with_body(seq(f.body, CallPacked("tests.f", (f.params[1],))))

    s = te.create_schedule(B.op)
    with (
        lw.PassContext(config={"tir.add_lower_pass": [(3, insert)]}),
        pytest.raises(lw.LoopwrightError, match="interp keeps the schedule, which holds no call_p"),
    ):
        lw.build(s, [A, B], "interp")


def test_intrinsics_cannot_call() -> None:
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] * 2, name="y")
    with pytest.raises(TensorError, match="a trace is data"):
        te.decl_tensor_intrin(y.op, lambda ins, outs: tir.call_packed("tests.f", ins[0]), name="c")


def test_the_manifest_names_what_is_called(tmp_path: Path) -> None:
    module = lw.build(calling(), target="llvm")
    assert module.artifact.contents.functions[0].packed == ("tests.f",)
    loaded = lw.load_module(module.save(tmp_path / "f.o"))
    register_func("tests.f", lambda x, y: y.copyfrom(x))
    y = np.zeros(4, "float32")
    loaded(np.ones(4, "float32"), y)
    assert (y == 1).all()


def test_an_object_whose_manifest_hides_a_call_is_refused() -> None:
    from dataclasses import replace

    from loopwright.runtime import Artifact

    a = lw.build(calling(), target="llvm").artifact
    honest = replace(a.contents, functions=(replace(a.contents.functions[0], packed=()),))
    module = lw.runtime.Module(Artifact(honest.to_json(), a.objects))
    with pytest.raises(UsageError, match="calls packed functions, its manifest none"):
        module(np.zeros(4, "float32"), np.zeros(4, "float32"))


@pytest.mark.parametrize(
    ("arg", "text"),
    [
        ([1], r"argument 1 is \[1\] \(a list\)"),
        ("a\0b", "argument 1 is a text with a zero byte"),
        (tir.decl_buffer((4,)), "argument 1 is the description of a buffer"),
    ],
)
def test_arguments_that_are_none(arg: Any, text: str) -> None:
    with pytest.raises(TensorError, match=f"call_packed 'tests.f': {text}"):
        tir.call_packed("tests.f", 0, arg)
    with pytest.raises(UsageError, match="no name"):
        tir.call_packed("no name", 0)


def test_functions_by_hand_are_checked() -> None:
    x, y = buffers("x", "y")
    write = lambda ins, outs: ins[0].store(0, 1.0)  # noqa: E731
    with pytest.raises(TensorError, match="writes the input 'x'"):
        tir.prim_func(write, [x], [y])
    with pytest.raises(TensorError, match="no statement"):
        tir.prim_func(lambda ins, outs: 3, [x], [y])  # type: ignore[arg-type, return-value]
    for name in ("a b", "lw_x", "memcpy"):
        with pytest.raises(TensorError, match=f"'{name}' cannot be used"):
            tir.prim_func(write, [], [x], name)
    gaps = tir.decl_buffer((2, 2), name="g", strides=[4, 1])
    with pytest.raises(TensorError, match="'g' has gaps"):
        tir.prim_func(write, [gaps], [y])
    stray = Buffer("z", (1,), "float32")
    with pytest.raises(LowerError, match=r"of prim_func.*where it does not exist"):
        tir.prim_func(lambda i, o: CallPacked("a", (stray,)), [x], [y])


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

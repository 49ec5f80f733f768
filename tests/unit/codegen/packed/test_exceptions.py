"""What a packed function raises comes out of the program that calls it."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from loopwright.errors import RunError, UsageError
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Var, as_expr
from loopwright.ir.stmt import CallPacked, For, Func, Store, seq
from loopwright.runtime import NDArray, register_func
from loopwright.runtime import packed_calls as calls
from loopwright.runtime.kernels.timing import time_call
from tests.unit.codegen.packed.programs import Path_, calling, in_loop


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


@pytest.mark.usefixtures("usual_signals")
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
    try:
        with pytest.raises(KeyboardInterrupt):
            kernel(np.zeros(1, "float32"))
    finally:
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

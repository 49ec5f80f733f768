"""Bound calls: checked once, on memory that they hold, with sizes, callbacks and threads."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable

import numpy as np
import pytest

import loopwright as lw
from loopwright import te, tir
from loopwright.errors import ArgumentError, RunError
from loopwright.runtime import Module, array, empty, profiling
from loopwright.runtime.kernels import function
from loopwright.runtime.packed import remove_global_func
from loopwright.testing.target_contract import runs_here
from tests.unit.runtime import kernels
from tests.unit.runtime.test_function import WRONG

F32 = np.float32


def a() -> np.ndarray:
    return np.arange(6, dtype=F32).reshape(2, 3)


@pytest.fixture(scope="module")
def module() -> Module:
    return kernels.add_one()


def warmed(call: Callable[[], None]) -> Callable[[], None]:
    for _ in range(2 * function._WARM):
        call()
    return call


@pytest.mark.parametrize("make", [a, lambda: array(a())])
def test_what_is_in_the_arrays_counts_at_each_call(module: Module, make: Callable) -> None:
    x, out = make(), empty((2, 3))
    call = module.bind(x, out)
    for k in range(2 * function._WARM):
        x[:] = k
        assert call() is None
        np.testing.assert_array_equal(out.numpy(), np.full((2, 3), k + 1))
    x[:] = -1
    call.run()
    assert not out.numpy().any()


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_argument_is_refused_when_it_is_bound(module: Module, kind: str) -> None:
    value, message = WRONG[kind]
    with pytest.raises(ArgumentError, match=re.escape("add_one: argument 0 ('A'): ")) as caught:
        module.bind(value, a())
    assert message in str(caught.value)


def test_outputs_are_checked_when_bound(module: Module) -> None:
    x, frozen = a(), a()
    frozen.flags.writeable = False
    with pytest.raises(ArgumentError, match="not writable"):
        module.bind(x, frozen)
    with pytest.raises(ArgumentError, match="output overlaps"):
        module.bind(x, x)
    with pytest.raises(ArgumentError, match="takes 2 arguments"):
        module.bind(x)


def test_arrays_live_as_long_as_the_call(module: Module) -> None:
    x, out = a(), np.zeros((2, 3), F32)
    seen = weakref.ref(x)
    call = warmed(module.bind(x, out))
    del x
    gc.collect()
    assert seen() is not None
    call()
    np.testing.assert_array_equal(out, a() + 1)
    del call
    assert seen() is None


def test_an_array_of_a_bound_call_cannot_be_resized(module: Module) -> None:
    x, out = np.zeros((2, 3), F32), np.zeros((2, 3), F32)
    call = module.bind(x, out)
    for array_ in (x, out):
        with pytest.raises(ValueError, match="cannot resize"):
            array_.resize((400, 300))
    call()
    assert (out == 1).all()


def test_it_says_what_it_is_bound_to(module: Module) -> None:
    x, out = a(), empty((2, 3))
    call = module.bind(x, out)
    assert repr(call) == (
        f"<BoundCall add_one(A: float32[2, 3] at {x.ctypes.data:#x}, "
        f"B: float32[2, 3] at {out.data:#x})>"
    )


def test_it_takes_no_arguments(module: Module) -> None:
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        module.bind(a(), empty((2, 3)))(a())


def test_failures_arrive() -> None:
    module = Module(kernels.artifact(kernels.FAIL, "fail", [kernels.arg("code", [1], "int32")]))
    code = np.zeros(1, np.int32)
    call = module.bind(code)
    for _ in range(2):
        code[0] = -5
        for work in (call, call.run):
            with pytest.raises(RunError, match="fail failed with code -5"):
                work()
        code[0] = 0
        warmed(call)


def test_exceptions_of_packed_functions_arrive() -> None:
    x, y = (tir.decl_buffer((4,), "float32", name) for name in "xy")
    body = lambda ins, outs: tir.call_packed("tests.bound", ins[0], outs[0])  # noqa: E731
    module = lw.build(tir.prim_func(body, [x], [y], "f"), target="llvm")
    given, out = np.zeros(4, F32), np.zeros(4, F32)

    def copy(source: lw.runtime.NDArray, to: lw.runtime.NDArray) -> None:
        if source[0] < 0:
            raise KeyError("below zero")
        to.copyfrom(source)

    lw.register_func("tests.bound", copy, override=True)
    try:
        call = module.bind(given, out)
        for _ in range(2):
            given[:] = -1
            with pytest.raises(KeyError, match="below zero"):
                call()
            given[:] = 3
            warmed(call)
            assert (out == 3).all()
    finally:
        remove_global_func("tests.bound")


def test_a_call_inside_its_own_call() -> None:
    """A packed function calls the kernel again that calls it."""
    x, y = (tir.decl_buffer((4,), "float32", name) for name in "xy")
    body = lambda ins, outs: tir.call_packed("tests.again", ins[0], outs[0])  # noqa: E731
    module = lw.build(tir.prim_func(body, [x], [y], "f"), target="llvm")
    given, out = np.ones(4, F32), np.zeros(4, F32)
    call = module.bind(given, out)
    depth = [0]

    def again(source: lw.runtime.NDArray, to: lw.runtime.NDArray) -> None:
        depth[0] += 1
        if depth[0] % 3:
            call()
        to.copyfrom(source[:] * depth[0])

    lw.register_func("tests.again", again, override=True)
    try:
        warmed(call)
        assert (out == depth[0]).all()
    finally:
        remove_global_func("tests.again")


def rows(with_size: bool) -> Module:
    n = te.size_var("n")
    x = te.placeholder((n, 4), name="X")
    y = te.compute((n, 4), lambda i, j: x[i, j] * 2, name="Y")
    return lw.build(te.create_schedule(y.op), [x, y, n] if with_size else [x, y], name="twice")


@pytest.mark.parametrize("with_size", [False, True])
def test_sizes_are_found_when_it_is_bound(with_size: bool) -> None:
    module = rows(with_size)
    calls = []
    for n in (1, 5, 7, 5):
        x, y = np.full((n, 4), n, F32), np.zeros((n, 4), F32)
        calls.append((module.bind(x, y, n) if with_size else module.bind(x, y), x, y))
    for call, x, y in calls * 40:
        y[:] = 0
        call()
        np.testing.assert_array_equal(y, 2 * x)
    assert "X: float32[5, 4] at 0x" in repr(calls[1][0])
    with pytest.raises(ArgumentError, match="says that n is"):
        module.bind(np.zeros((3, 4), F32), np.zeros((4, 4), F32), *([3] if with_size else []))


@pytest.mark.parametrize("with_size", [False, True])
def test_calls_of_other_sizes_in_turn(with_size: bool) -> None:
    """What is kept of a call is of its shapes, and of no use for sizes that are passed."""
    module, rng = rows(with_size), np.random.default_rng(0)
    for n in rng.integers(1, 14, 400):
        x, y = np.full((n, 4), n, F32), np.zeros((n, 4), F32)
        module(*([x, y, n] if with_size else [x, y]))
        np.testing.assert_array_equal(y, 2 * x)
        if with_size:
            with pytest.raises(ArgumentError, match="says that n is"):
                module(x, y, n + 1)
    with pytest.raises(ArgumentError, match="expected dtype float32"):
        module(*([x.astype("int8"), y, n] if with_size else [x.astype("int8"), y]))


def test_profiles_see_it(module: Module) -> None:
    call = warmed(module.bind(a(), empty((2, 3))))
    report = profiling.profile(lambda: (call(), call()), number=3)
    (row,) = report.rows()
    assert (row.name, row.count, row.nbytes) == ("add_one", 6, 6 * 48)


@pytest.mark.parametrize("target", ["llvm", "c", "interp"])
def test_every_target_of_the_host(target: str) -> None:
    if not runs_here(target):
        pytest.skip("no C compiler")
    x = te.placeholder((4,), name="X")
    y = te.compute((4,), lambda i: x[i] + 1, name="Y")
    module = lw.build(te.create_schedule(y.op), [x, y], target)
    given, out = np.zeros(4, F32), np.zeros(4, F32)
    call = module.bind(given, out)
    for k in range(2 * function._WARM):
        given[:] = k
        call()
        assert (out == k + 1).all()
        given[:] = k + 5
        module(given, out)
        assert (out == k + 6).all()

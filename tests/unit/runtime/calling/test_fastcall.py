"""Calls that are checked in compiled code: what they accept and leave to Python, what they hold."""

from __future__ import annotations

import gc
import re
import shutil
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.errors import ArgumentError, RunError
from loopwright.runtime import Module, array, empty, set_num_threads
from loopwright.runtime.kernels import fastcall, function
from tests.unit.runtime import kernels

F32 = np.float32
ROOT = Path(__file__).parents[4]
SHAPE = (2, 3)


def a() -> np.ndarray:
    return np.arange(6, dtype=F32).reshape(SHAPE)


@pytest.fixture(scope="module")
def module() -> Module:
    module = kernels.add_one()
    kernels.warm(module, a(), empty(SHAPE))
    return module


@pytest.fixture
def fast(module: Module) -> fastcall.FastCall:
    return module["add_one"]._fast


def test_plain_arrays_run_at_once(fast: fastcall.FastCall) -> None:
    frozen, out, ours = a(), np.zeros(SHAPE, F32), empty(SHAPE)
    frozen.flags.writeable = False
    assert fast(frozen, out) is None
    np.testing.assert_array_equal(out, a() + 1)
    assert fast(array(a() + 4), ours) is None
    np.testing.assert_array_equal(ours.numpy(), a() + 5)


class Special(np.ndarray):
    """A subclass of NumPy's."""


BLOCK = np.zeros(40, F32)
LEFT = {
    "no arguments": (),
    "one": (a(),),
    "three": (a(), a(), a()),
    "none": (None, a()),
    "list": ([1.0], a()),
    "dtype": (a().astype("float64"), a()),
    "byte order": (a().astype(">f4"), a()),
    "rank": (a().reshape(6), a()),
    "another dimension": (a().reshape(2, 3, 1), a()),
    "shape": (a().reshape(3, 2), a()),
    "extent": (np.zeros((2, 4), F32), a()),
    "transposed": (np.zeros((3, 2), F32).T, a()),
    "strided": (np.zeros((2, 6), F32)[:, ::2], a()),
    "misaligned": (np.zeros(25, np.uint8)[1:].view(F32).reshape(SHAPE), a()),
    "read-only output": (a(), np.broadcast_to(F32(1), SHAPE)),
    "subclass": (a().view(Special), a()),
    "no elements": (np.zeros((0, 3), F32), a()),
    "same": (BLOCK[:6].reshape(SHAPE),) * 2,
    "overlap before": (BLOCK[:6].reshape(SHAPE), BLOCK[5:11].reshape(SHAPE)),
    "overlap behind": (BLOCK[5:11].reshape(SHAPE), BLOCK[:6].reshape(SHAPE)),
}


@pytest.mark.parametrize("kind", LEFT)
def test_anything_else_is_left_to_python(fast: fastcall.FastCall, kind: str) -> None:
    before = [np.array(x) for x in LEFT[kind]]
    assert fast(*LEFT[kind]) is False
    for x, y in zip(LEFT[kind], before, strict=True):
        np.testing.assert_array_equal(np.array(x), y)


def test_neighbours_run_at_once(fast: fastcall.FastCall) -> None:
    assert fast(BLOCK[:6].reshape(SHAPE), BLOCK[6:12].reshape(SHAPE)) is None


def test_a_subclass_is_still_an_argument(module: Module) -> None:
    out = np.zeros(SHAPE, F32).view(Special)
    module(a().view(Special), out)
    np.testing.assert_array_equal(out, a() + 1)


def test_no_reference_is_lost_or_kept(fast: fastcall.FastCall) -> None:
    x, y, wrong = a(), empty(SHAPE), np.zeros(3)
    objects = (x, y, y._data, wrong, None, False, np.dtype(F32))
    before = [sys.getrefcount(o) for o in objects]
    for _ in range(1000):
        fast(x, y)
        fast(x, wrong)
    after = [sys.getrefcount(o) for o in objects]
    assert all(abs(p - q) < 50 for p, q in zip(before, after, strict=True))


def test_a_failure_is_the_same_error() -> None:
    module = Module(kernels.artifact(kernels.FAIL, "fail", [kernels.arg("code", [1], "int32")]))
    kernels.warm(module, np.zeros(1, np.int32))
    for code in (-5, 7, -(1 << 31)):
        with pytest.raises(RunError, match=f"fail failed with code {code}$"):
            module(np.array([code], np.int32))
    module(np.zeros(1, np.int32))


def test_code_is_unmapped_when_the_module_is_gone() -> None:
    module = kernels.add_one()
    kernels.warm(module, a(), empty(SHAPE))
    call = module.bind(a(), empty(SHAPE))
    for _ in range(function._WARM + 1):
        call()
    image = weakref.ref(module["add_one"]._image)
    gc.disable()
    try:
        del module
        assert image() is not None, "the bound call needs it"
        del call
        assert image() is None
    finally:
        gc.enable()


def hold(parallel: int = 0, num_threads: int = 0) -> Module:
    args = [kernels.arg("c", [1], "int64", True), kernels.arg("w", [64], "int64", True)]
    options = {"parallel_workspace": parallel, "num_threads": num_threads}
    return Module(kernels.artifact(kernels.HOLD, "hold", args, workspace=256, **options))


@pytest.mark.parametrize("bound", [False, True])
def test_calls_at_once_have_workspaces_of_their_own(bound: bool) -> None:
    module = hold()
    counter, where = np.zeros(1, np.int64), np.zeros(64, np.int64)
    kernels.warm(module, counter, where)
    call = module.bind(counter, where)
    for _ in range(function._WARM + 1 if bound else 0):
        counter[0] = 0
        call()
    counter[0], where[:], where[63] = 0, 0, 6
    work = call if bound else lambda: module(counter, where)
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter[0] == 6
    assert len(set(where[:6])) == 6
    assert all(address % 64 == 0 for address in where[:6])


def test_a_limit_that_threads_may_reach_is_asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "workspace_limit", lambda: 10_000)
    counter, where = np.zeros(1, np.int64), np.zeros(64, np.int64)
    kernels.warm(hold(parallel=1000, num_threads=9), counter, where)
    module = hold(parallel=1000)
    counter[0] = 0
    set_num_threads(2)
    try:
        for _ in range(function._WARM + 1):
            counter[0] = 0
            module(counter, where)
        set_num_threads(11)
        with pytest.raises(RunError, match="needs 10256 bytes of workspace on 11 threads, over"):
            module(counter, where)
    finally:
        set_num_threads(None)


def test_arguments_without_elements_stay_with_python() -> None:
    args = [kernels.arg("A", [1], "int64"), kernels.arg("B", [0], output=True)]
    module = Module(kernels.artifact(kernels.COUNT, "count", args))
    counter = np.zeros(1, np.int64)
    for _ in range(2 * function._WARM):
        module(counter, np.zeros(0, F32))
    assert counter[0] == 0


def test_a_function_without_arguments() -> None:
    text = "define i32 @nothing(ptr %args, ptr %workspace) {\n  ret i32 0\n}\n"
    module = Module(kernels.artifact(text, "nothing", []))
    kernels.warm(module)
    call = module.bind()
    for _ in range(2 * function._WARM):
        module()
        call()
    assert repr(call) == "<BoundCall nothing()>"
    with pytest.raises(ArgumentError, match="takes 0 arguments"):
        module(a())


@pytest.mark.parametrize("place", ["_TYPE", "_DATA", "_NDIM", "_EXTENTS", "_DTYPE", "_FLAGS_AT"])
def test_memory_that_lies_otherwise_is_noticed(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Read anywhere else, arrays are not what NumPy says of them."""
    look = fastcall.available.__wrapped__
    assert look() is not None
    right = getattr(fastcall, place)
    others = [at for at in range(0, 72, 8) if at != right]
    if place == "_EXTENTS":  # what is no address must not be followed
        others = [32 + 8]
    for wrong in others:
        monkeypatch.setattr(fastcall, place, wrong)
        assert look() is None, wrong


@pytest.mark.parametrize(
    ("name", "value"), [("implementation", type(sys)("x")), ("_is_gil_enabled", lambda: False)]
)
def test_other_interpreters_go_the_ordinary_way(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    if name == "implementation":
        value.name = "pypy"  # type: ignore[attr-defined]
    with monkeypatch.context() as changed:
        changed.setattr(sys, name, value, raising=False)
        found = fastcall.available.__wrapped__()
    assert found is None


@pytest.mark.parametrize("missing", ["available", "linked_code"])
def test_without_it_everything_works(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr(fastcall, missing, lambda: None)
    module = kernels.add_one()
    out = np.zeros(SHAPE, F32)
    call = module.bind(a(), out)
    for _ in range(2 * function._WARM):
        out[:] = 0
        module(a(), out)
        np.testing.assert_array_equal(out, a() + 1)
        out[:] = 0
        call()
        np.testing.assert_array_equal(out, a() + 1)
    with pytest.raises(ArgumentError, match=re.escape("expected shape (2, 3)")):
        module(out.T, out)


LOAD = """
import sys, numpy as np
import loopwright as lw
f = lw.load_module(sys.argv[1])
a, b = np.zeros((2, 3), "float32"), np.zeros((2, 3), "float32")
for _ in range(100):
    f(a, b)
    f(b, a)
print(a[0, 0], type(f["add_one"]._fast).__name__, "llvmlite" in sys.modules)
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler here links libraries")
def test_an_exported_library_brings_the_code(tmp_path: Path) -> None:
    x = te.placeholder(SHAPE, name="A")
    y = te.compute(SHAPE, lambda i, j: x[i, j] + 1, name="B")
    module = lw.build(te.create_schedule(y.op), [x, y], name="add_one")
    path = module.export_library(tmp_path / "add_one.so")
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout == "200.0 builtin_function_or_method False\n"

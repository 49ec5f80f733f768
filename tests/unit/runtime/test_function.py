"""Argument checks: each message, and that nothing ran."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest

from loopwright.errors import ArgumentError, RunError
from loopwright.runtime import Module, array, empty
from loopwright.runtime.kernels import function
from tests.unit.runtime import kernels

F32 = np.float32


@pytest.fixture(scope="module", params=["in Python", "in compiled code"])
def module(request: pytest.FixtureRequest) -> Module:
    module = kernels.add_one()
    if request.param == "in compiled code":
        kernels.warm(module, a(), np.zeros((2, 3), F32))
    return module


def a() -> np.ndarray:
    return np.arange(6, dtype=F32).reshape(2, 3)


def test_numpy_arrays_are_written_in_place(module: Module) -> None:
    b = np.zeros((2, 3), F32)
    assert module(a(), b) is None
    np.testing.assert_array_equal(b, a() + 1)


def test_ndarrays_and_dlpack_objects_are_accepted(module: Module) -> None:
    class Foreign:
        def __init__(self, data: np.ndarray) -> None:
            self.data = data

        def __dlpack__(self, **options: object) -> object:
            return self.data.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    out, plain = empty((2, 3)), np.zeros((2, 3), F32)
    module(array(a()), out)
    np.testing.assert_array_equal(out.numpy(), a() + 1)
    module(Foreign(a()), Foreign(plain))
    np.testing.assert_array_equal(plain, a() + 1)


def frozen() -> np.ndarray:
    data = np.zeros((2, 3), F32)
    data.flags.writeable = False
    return data


def misaligned() -> np.ndarray:
    return np.zeros(25, np.uint8)[1:].view(F32).reshape(2, 3)


class Gpu:
    def __dlpack__(self, **options: object) -> object:
        raise AssertionError("never asked")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


WRONG = {
    "dtype": (np.zeros((2, 3)), "expected dtype float32, got float64"),
    "integer": (np.zeros((2, 3), np.int32), "expected dtype float32, got int32"),
    "byte order": (np.zeros((2, 3), ">f4"), "float32 in native byte order, got '>f4'"),
    "shape": (np.zeros((3, 2), F32), "expected shape (2, 3), got (3, 2)"),
    "rank": (np.zeros(6, F32), "expected shape (2, 3), got (6,)"),
    "no elements": (np.zeros((0, 3), F32), "expected shape (2, 3), got (0, 3)"),
    "transposed": (np.zeros((3, 2), F32).T, "row-major contiguous memory, got strides (4, 8)"),
    "step": (np.zeros((2, 6), F32)[:, ::2], "row-major contiguous memory"),
    "alignment": (misaligned(), "aligned to 4 bytes"),
    "none": (None, "expected A: float32[2, 3], got None"),
    "list": ([[1.0, 2.0, 3.0]] * 2, "list is not an array; pass a NumPy array"),
    "scalar": (1.0, "float is not an array"),
    "device": (Gpu(), "Gpu lives on device type 2; copy it to the CPU first"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_argument_is_named_and_nothing_runs(module: Module, kind: str) -> None:
    value, message = WRONG[kind]
    out = np.full((2, 3), 9, F32)
    with pytest.raises(ArgumentError, match=re.escape("add_one: argument 0 ('A'): ")) as caught:
        module(value, out)
    assert message in str(caught.value)
    assert (out == 9).all()


def test_an_output_must_be_writable_an_input_need_not(module: Module) -> None:
    with pytest.raises(ArgumentError, match=r"argument 1 \('B'\): is an output and not writable"):
        module(a(), frozen())
    module(frozen(), np.zeros((2, 3), F32))


def test_an_output_must_be_contiguous(module: Module) -> None:
    with pytest.raises(ArgumentError, match=r"argument 1 \('B'\): expected row-major"):
        module(a(), np.zeros((3, 2), F32).T)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_the_number_of_arguments_is_checked(module: Module, n: int) -> None:
    text = rf"add_one takes 2 arguments \(A: float32\[2, 3\], B: float32\[2, 3\]\), got {n}"
    with pytest.raises(ArgumentError, match=text):
        module(*[a()] * n)


@pytest.mark.parametrize("start", [0, 1, 5])
def test_an_output_that_overlaps_is_refused(module: Module, start: int) -> None:
    block = np.zeros(20, F32)
    out, other = block[5:11].reshape(2, 3), block[start : start + 6].reshape(2, 3)
    if start == 0:
        other = block[10:16].reshape(2, 3)
    with pytest.raises(ArgumentError, match=r"output overlaps the memory of argument 0 \('A'\)"):
        module(other, out)


def test_neighbours_do_not_overlap(module: Module) -> None:
    block = np.zeros(12, F32)
    module(block[:6].reshape(2, 3), block[6:].reshape(2, 3))
    assert (block[6:] == 1).all()


def test_an_array_without_dimensions_is_an_argument() -> None:
    module = Module(kernels.artifact(kernels.COUNT, "count", [kernels.arg("c", [], "int64", True)]))
    counter = np.zeros((), np.int64)
    module(counter)
    assert counter == 1


def test_two_inputs_may_be_the_same() -> None:
    args = [kernels.arg("A", [2, 3]), kernels.arg("B", [2, 3], output=True)]
    args.append(kernels.arg("C", [2, 3]))
    module = Module(kernels.artifact(kernels.ADD_ONE, "add_one", args))
    out, same = np.zeros((2, 3), F32), a()
    module(same, out, same)
    np.testing.assert_array_equal(out, a() + 1)


def test_two_outputs_may_not_overlap() -> None:
    args = [kernels.arg(name, [1], "int64", True) for name in "AB"]
    module = Module(kernels.artifact(kernels.COUNT, "count", args))
    same = np.zeros(1, np.int64)
    with pytest.raises(ArgumentError, match=r"argument 0 \('A'\): output overlaps .*1 \('B'\)"):
        module(same, same)


def test_an_argument_without_elements_is_refused_where_something_is_to_compute() -> None:
    args = [kernels.arg("A", [1], "int64", True), kernels.arg("B", [0])]
    module = Module(kernels.artifact(kernels.COUNT, "count", args))
    with pytest.raises(ArgumentError, match="has no elements"):
        module(np.zeros(1, np.int64), np.zeros(0, F32))


def test_nothing_runs_where_no_output_has_elements() -> None:
    args = [kernels.arg("A", [1], "int64"), kernels.arg("B", [0], output=True)]
    module = Module(kernels.artifact(kernels.COUNT, "count", args))
    counter = np.zeros(1, np.int64)
    module(counter, np.zeros(0, F32))
    assert counter[0] == 0
    with pytest.raises(ArgumentError, match=r"argument 1 \('B'\): expected dtype float32"):
        module(counter, np.zeros(0))
    with pytest.raises(ArgumentError, match="no output has elements; there is nothing to run"):
        module["count"].bind(counter, np.zeros(0, F32))


def test_a_failure_code_is_an_error() -> None:
    module = Module(kernels.artifact(kernels.FAIL, "fail", [kernels.arg("code", [1], "int32")]))
    module(np.zeros(1, np.int32))
    with pytest.raises(RunError, match="fail failed with code -5"):
        module(np.array([-5], np.int32))


def where(nbytes: int, parallel: int = 0, num_threads: int = 0) -> Module:
    args = [kernels.arg("where", [1], "int64", True)]
    return Module(
        kernels.artifact(
            kernels.WHERE,
            "where",
            args,
            workspace=nbytes,
            parallel_workspace=parallel,
            num_threads=num_threads,
        )
    )


def test_the_workspace_is_aligned_and_used_again() -> None:
    module, seen = where(256), set()
    for _ in range(5):
        out = np.zeros(1, np.int64)
        module(out)
        seen.add(int(out[0]))
    assert len(seen) == 1
    assert all(address % 64 == 0 for address in seen)


def test_a_bound_call_has_a_workspace_of_its_own() -> None:
    module, out = where(256), np.zeros(1, np.int64)
    addresses = set()
    calls = [module["where"].bind(out) for _ in range(3)]
    for call in calls:
        call.run()
        addresses.add(int(out[0]))
    assert len(addresses) == 3


def test_too_large_a_workspace_is_refused_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "workspace_limit", lambda: 10_000)
    out = np.zeros(1, np.int64)
    where(256, parallel=1000, num_threads=4)(out)
    with pytest.raises(RunError, match="needs 10256 bytes of workspace on 11 threads, over"):
        where(256, parallel=1000, num_threads=11)(out)
    with pytest.raises(RunError, match="over the limit of 10000"):
        where(20_000)["where"].bind(out)


@pytest.mark.parametrize("warm", [False, True])
def test_calls_from_several_threads_do_not_share_the_lock(warm: bool) -> None:
    module = kernels.sleep()
    counter, micros = np.zeros((8, 1), np.int64), np.array([20_000], np.int32)
    if warm:
        kernels.warm(module, np.zeros(1, np.int32), np.zeros(1, np.int64))
    threads = [threading.Thread(target=module, args=(micros, row)) for row in counter]
    import time

    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    assert (counter == 1).all()
    assert took < 8 * 0.020, "sleeping kernels overlap when the interpreter's lock is released"


def test_masked_arrays_are_refused(module: Module) -> None:
    masked = np.ma.masked_array(a(), mask=a() > 2)
    b = np.zeros((2, 3), F32)
    with pytest.raises(ArgumentError, match=r"argument 0 \('.*'\): is a masked array.*filled"):
        module(masked, b)
    with pytest.raises(ArgumentError, match=r"argument 1 .*is a masked array"):
        module(a(), np.ma.masked_array(b))
    assert not b.any()
    module(masked.filled(0), b)
    np.testing.assert_array_equal(b, np.where(a() > 2, 0, a()) + 1)

"""The numeric check against answers known apart."""

from __future__ import annotations

import numpy as np
import pytest

from loopwright import te
from loopwright.measure.comparison import (
    Closeness,
    compare,
    computed_in,
    poison,
    reduction_length,
    reference_problem,
    split,
    tolerance,
)
from loopwright.measure.inputs import make_input
from loopwright.measure.workers.kernel_host import GuardedHostMemory, KernelArrays
from loopwright.runtime import Arg

DTYPES = ["float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"]
DTYPES += ["float16", "bfloat16"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_depend_on_seed_and_position_only(dtype: str) -> None:
    a = make_input([40, 7], dtype, 3, 1)
    assert a.dtype == np.dtype(dtype)
    assert a.shape == (40, 7)
    np.testing.assert_array_equal(a, make_input((40, 7), dtype, 3, 1))
    assert (a != make_input([40, 7], dtype, 3, 0)).any()
    assert (a != make_input([40, 7], dtype, 4, 1)).any()


def test_input_ranges() -> None:
    assert sorted(set(make_input([1000], "int8", 0, 0).tolist())) == [-4, -3, -2, -1, 1, 2, 3, 4]
    assert sorted(set(make_input([1000], "uint8", 0, 0).tolist())) == list(range(1, 9))
    floats = make_input([10_000], "float32", 0, 0)
    assert abs(float(floats.mean())) < 0.05
    assert float(floats.std()) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_is_found(dtype: str) -> None:
    expected = make_input([5], dtype, 0, 0)
    got = expected.copy()
    assert compare("C", got, expected, 1).problem is None
    poison(got[3:4])
    found = compare("C", got, expected, 1)
    assert found.problem is not None
    assert found.problem.startswith("C[3] is ")
    assert "1 of 5 elements are wrong" in found.problem
    assert found.max_error > 0


@pytest.mark.parametrize("length", [1, 100, 4096])
def test_rounding_of_another_order_is_accepted_and_a_missing_term_is_not(length: int) -> None:
    rng = np.random.default_rng(1)
    a = rng.standard_normal((64, length), dtype=np.float32)
    b = rng.standard_normal((length, 64), dtype=np.float32)
    expected = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    one_by_one = np.zeros((64, 64), np.float32)
    for k in range(length):
        one_by_one += a[:, k : k + 1] * b[k : k + 1]
    assert compare("C", one_by_one, expected, length).problem is None
    missing = one_by_one - a[:, :1] * b[:1]
    found = compare("C", missing, expected, length)
    assert found.problem is not None
    assert found.max_error == pytest.approx(np.abs(a[:, :1] * b[:1]).max(), rel=1e-2)


def test_worst_element_is_named() -> None:
    expected = np.zeros((4, 5), np.float32)
    expected[0, 0] = 1
    got = expected.copy()
    got[1, 2], got[3, 4] = 0.25, -0.5
    found = compare("C", got, expected, 1)
    assert found.max_error == 0.5
    assert found.problem is not None
    assert found.problem.startswith("C[3, 4] is -0.5, expected 0.0 (error 0.5, allowed ")
    assert "2 of 20" in found.problem


def test_nan_and_infinity() -> None:
    special = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert compare("C", special.copy(), special, 1) == (0.0, None)
    for wrong in ([0.0, np.inf, -np.inf, 1.0], [np.nan, -np.inf, -np.inf, 1.0]):
        found = compare("C", np.array(wrong, np.float32), special, 1)
        assert found.problem is not None
        assert found.max_error == np.inf
    assert compare("C", np.array([np.nan], "float32"), np.ones(1, "float32"), 1).max_error == np.inf


def test_all_zero_reference_and_scalars() -> None:
    zero = np.zeros((), np.float32)
    assert compare("C", zero.copy(), zero, 1).problem is None
    assert compare("C", np.array(1e-3, np.float32), zero, 1).problem is not None


def test_integers_must_be_equal() -> None:
    expected = np.array([2**62, 5], np.int64)
    found = compare("C", expected + np.array([1, 0]), expected, 10**6)
    assert found.problem is not None
    assert found.max_error >= 1  # beyond what a float64 can tell apart


def test_tolerance_grows_with_the_reduction_and_shrinks_with_the_type() -> None:
    assert tolerance("int32", 10) == 0.0
    assert tolerance("float32", 10_000) > tolerance("float32", 1)
    assert tolerance("float64", 1) < tolerance("float32", 1) < 1e-5


def test_the_tolerance_of_short_floats_follows_what_is_computed_in() -> None:
    stored = tolerance("bfloat16", 256, "float32")
    assert 2**-8 < stored < 2**-6 < tolerance("bfloat16", 256)
    A = te.placeholder((4, 4), "bfloat16", name="A")
    wide = te.compute((4, 4), lambda i, j: (A[i, j].astype("float32") * 3.0).astype("bfloat16"))
    short = te.compute((4, 4), lambda i, j: A[i, j] + A[j, i])
    found = [computed_in(te.create_schedule(t.op).dag) for t in (wide, short)]
    assert found == ["float32", "bfloat16"]


def test_exact_comparison_takes_no_rounding() -> None:
    expected = np.array([1.0, -0.0, np.nan], np.float32)
    exact = Closeness(1, exact=True)
    assert compare("C", np.array([1.0, 0.0, np.nan], "float32"), expected, exact) == (0.0, None)
    near = np.nextafter(expected, np.float32(2))
    assert compare("C", near[:1], expected[:1], 1).problem is None
    assert compare("C", near[:1], expected[:1], exact).problem is not None


def test_reduction_length_adds_up_stages() -> None:
    A = te.placeholder((3, 4, 5), name="A")
    i, j, k = (te.reduce_axis((0, n)) for n in (3, 4, 5))
    B = te.compute((5,), lambda x: te.sum(A[i, j, x], axis=[i, j]), name="B")
    C = te.compute((1,), lambda x: te.sum(B[k], axis=k), name="C")
    assert reduction_length(te.create_schedule(C).dag) == 17
    assert reduction_length(te.create_schedule(te.compute((2,), lambda x: x)).dag) == 1


def test_reference_problem() -> None:
    outputs = [Arg("C", (2, 3), np.dtype("float32"), True)]
    assert reference_problem(outputs, [np.zeros((2, 3))]) is None
    assert "2 arrays for 1 outputs" in str(reference_problem(outputs, [np.zeros(1)] * 2))
    assert "C has shape [2, 3]" in str(reference_problem(outputs, [np.zeros((3, 2))]))


ARGS = [
    Arg("A", (3,), np.dtype("int32"), False),
    Arg("B", (2, 2), np.dtype("float32"), True),
    Arg("C", (5,), np.dtype("bool"), True),
]


def test_buffers_are_aligned_poisoned_and_restored() -> None:
    memory = GuardedHostMemory(ARGS)
    data = KernelArrays(memory, 0)
    a, b, c = memory.arrays
    assert all(x.ctypes.data % 64 == 0 for x in memory.arrays)
    assert np.isnan(b).all()
    assert (c.view(np.uint8) == 0xA5).all()
    np.testing.assert_array_equal(a, make_input([3], "int32", 0, 0))
    a[:], b[:], c[:] = 7, 1.0, True
    expected = split(b"".join(x.tobytes() for x in memory.results()), ARGS[1:])
    found = memory.judge(data.inputs(0), expected, 1)
    assert "changed its input A" in str(found.problem)
    data.restore()
    np.testing.assert_array_equal(a, make_input([3], "int32", 0, 0))
    assert np.isnan(b).all()
    b[:], c[:] = 1.0, True
    assert memory.judge(data.inputs(0), expected, 1) == (0.0, None)


def test_buffers_with_given_inputs() -> None:
    data = KernelArrays(GuardedHostMemory(ARGS), 0, np.array([1, 2, 3], np.int32).tobytes())
    assert data.memory.read(0).tolist() == [1, 2, 3]


@pytest.mark.parametrize("at", [-1, 4])
def test_writes_outside_are_found(at: int) -> None:
    memory = GuardedHostMemory(ARGS)
    assert memory.written_outside() is None
    b = memory.arrays[1]
    beyond = np.lib.stride_tricks.as_strided(b.reshape(-1), (1,), (4,))
    place = beyond.__array_interface__["data"][0] + 4 * at
    import ctypes

    ctypes.c_float.from_address(place).value = 1.0
    assert memory.written_outside() == "it wrote outside the memory of B"


def test_what_rounding_does_to_a_program_is_allowed_and_no_more():
    right = np.array([1.0, -2.0], np.float32)
    close = Closeness(1, rounding=(0.0, 0.125))
    assert compare("Y", right + np.float32(0.5), right, close, 1).problem is None
    assert compare("Y", right + np.float32(0.5), right, close, 0).problem is not None
    assert "allowed 0.5" in str(compare("Y", right + np.float32(0.75), right, close, 1).problem)
    with_nan = np.array([np.nan, -2.0], np.float32)
    assert compare("Y", with_nan + np.float32(0.5), with_nan, close, 1).problem is None
    assert compare("Y", with_nan, right, close, 1).problem is not None

"""NDArray: storage, views, copies, exchange without a copy."""

from __future__ import annotations

import numpy as np
import pytest

from loopwright.errors import ArgumentError, OutOfMemoryError, TensorError, UsageError
from loopwright.runtime import NDArray, array, cpu, empty, from_dlpack


@pytest.mark.parametrize("shape", [(3, 5), (), (0, 4), (7,)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "float64"])
def test_empty_is_aligned_and_contiguous(shape: tuple[int, ...], dtype: str) -> None:
    made = empty(shape, dtype)
    view = np.from_dlpack(made) if dtype != "bool" else np.asarray(made)
    assert (made.shape, made.dtype, made.ndim) == (shape, dtype, len(shape))
    assert view.ctypes.data % 64 == 0 or not view.size
    assert view.flags.c_contiguous
    assert made.device == cpu(0)


def test_array_copies_and_converts() -> None:
    source = np.arange(6, dtype=np.float64).reshape(2, 3).T
    made = array(source, "float32")
    source[:] = 0
    assert made.dtype == "float32"
    np.testing.assert_array_equal(made.numpy(), np.array([[0, 3], [1, 4], [2, 5]]))
    assert array([[1, 2]]).shape == (1, 2)


def test_a_device_may_stand_second_as_in_tvm() -> None:
    made = array(np.ones(3, "float32"), cpu(0))
    assert (made.dtype, made.device) == ("float32", cpu(0))


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float31", "complex64"])
def test_types_that_have_no_code_are_refused(dtype: str) -> None:
    with pytest.raises(TensorError, match="dtype"):
        empty((2,), dtype)


def test_other_bad_requests_are_refused() -> None:
    with pytest.raises(TensorError, match="complex64"):
        array(np.zeros(2, np.complex64))
    with pytest.raises(ArgumentError, match="negative"):
        empty((2, -1))
    with pytest.raises(UsageError, match="runs kernels on cpu, cuda, opencl, not on metal"):
        empty((2,), device="metal")


def test_copies_between_arrays() -> None:
    a, b = array(np.arange(4.0)), empty((4,))
    assert b.copyfrom(a) is b
    np.testing.assert_array_equal(b.asnumpy(), np.arange(4))
    c = a.copyto(cpu(0))
    c[0] = 9
    assert a[0] == 0
    a.copyto(b)
    assert b.copyfrom([4, 3, 2, 1]).numpy().tolist() == [4, 3, 2, 1]
    with pytest.raises(ArgumentError, match=r"the array is \(4,\), the source \(3,\)"):
        a.copyfrom(np.zeros(3))
    with pytest.raises(ArgumentError, match="float64 does not convert to int32"):
        empty((4,), "int32").copyfrom(a)


def test_numpy_gives_a_copy_dlpack_and_asarray_give_the_memory() -> None:
    a = array(np.zeros(3, np.float32))
    a.numpy()[:] = 1
    assert a.numpy().sum() == 0
    np.from_dlpack(a)[:] = 2
    np.asarray(a)[0] = 5
    assert a.numpy().tolist() == [5, 2, 2]
    assert np.asarray(a, dtype=np.float64).dtype == np.float64
    assert len(a) == 3


def test_from_dlpack_shares_memory_and_keeps_it_alive() -> None:
    source = np.arange(4, dtype=np.int32)
    shared = from_dlpack(source)
    source[0] = 7
    assert shared[0] == 7
    del source
    assert shared.numpy().tolist() == [7, 1, 2, 3]
    with pytest.raises(ArgumentError, match="not row-major"):
        from_dlpack(np.zeros((2, 3), np.float32).T)
    with pytest.raises(ArgumentError, match="list is not an array"):
        from_dlpack([1, 2])


def test_a_view_shares_storage() -> None:
    a = array(np.arange(6, dtype=np.float32))
    view = a.CreateView((2, 2))
    view[1, 1] = 50
    assert a[3] == 50
    raw = a.CreateView((24,), "uint8")
    raw[:] = 0
    assert not a.numpy().any()
    with pytest.raises(ArgumentError, match=r"\(7,\) of float32 needs 28 bytes, .* has 24"):
        a.CreateView((7,))


def test_the_address_is_that_of_the_memory() -> None:
    a = array(np.arange(4, dtype=np.float32))
    assert a.data == np.asarray(a).ctypes.data
    assert a.data % 64 == 0
    assert a.CreateView((2,)).data == a.data


def test_a_capsule_shares_the_memory() -> None:
    a = array(np.arange(4, dtype=np.float32))

    class Holder:
        def __dlpack__(self, **options: object) -> object:
            return a.to_dlpack()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    assert type(a.to_dlpack()).__name__ == "PyCapsule"
    view = np.from_dlpack(Holder())
    a[2] = 9
    np.testing.assert_array_equal(view, [0, 1, 9, 3])


def test_read_only_memory_has_no_capsule() -> None:
    source = np.arange(4.0)
    source.flags.writeable = False
    with pytest.raises(ArgumentError, match=r"to_dlpack: .*copy the array first"):
        NDArray(source, cpu()).to_dlpack()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_arrays_of_16_bit_floats(dtype: str) -> None:
    a = empty((2, 3), dtype)
    assert (a.dtype, a.nbytes) == (dtype, 12)
    b = array([[1.5, -2.0, 0.25]] * 2, dtype)
    assert a.copyfrom(b) is a
    np.testing.assert_array_equal(a.numpy().astype("float32"), [[1.5, -2.0, 0.25]] * 2)
    assert array(b.numpy()).dtype == dtype
    np.testing.assert_array_equal(
        b.CreateView((6,), "int16").numpy(), b.numpy().reshape(-1).view("int16")
    )
    assert a.copyfrom(np.full((2, 3), 0.5, "float32")).numpy()[1, 2] == 0.5


@pytest.mark.parametrize("shape", [(2.5,), "23", None, ("a",), 1.5])
def test_shapes_that_are_none_are_refused(shape: object) -> None:
    with pytest.raises(ArgumentError, match="pass whole numbers"):
        empty(shape)  # type: ignore[arg-type]


def test_numpy_s_numbers_are_a_shape() -> None:
    assert empty(np.int64(3)).shape == (3,)  # type: ignore[arg-type]
    assert empty(np.array([2, 3])).shape == (2, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(1 << 50,), (1 << 62, 4)])
def test_more_than_the_host_has_is_out_of_memory(shape: tuple[int, ...]) -> None:
    with pytest.raises(OutOfMemoryError, match=r"cpu\(0\): no memory for an array of \d+ bytes"):
        empty(shape)


def test_what_is_no_array_is_refused_in_words() -> None:
    for source in ([[1, 2], [3]], "x"):
        with pytest.raises(ArgumentError, match="no array of float32 can be made"):
            array(source, "float32")
    with pytest.raises(ArgumentError, match="no array of int8 can be made"):
        array([300], "int8")
    with pytest.raises(ArgumentError, match="this is no array"):
        empty((2, 2)).copyfrom([[1, 2], [3]])
    with pytest.raises(ArgumentError, match="expected an NDArray or a device, got a ndarray"):
        array([1.0]).copyto(np.zeros(1))  # type: ignore[arg-type]

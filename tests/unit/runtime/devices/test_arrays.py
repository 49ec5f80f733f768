"""Arrays in the memory of devices: copies, views, exchange, and that the memory is given back."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright.errors import ArgumentError, OutOfMemoryError, TensorError, UsageError
from loopwright.runtime import NDArray, from_dlpack
from loopwright.runtime.arrays.device import DeviceArray
from loopwright.runtime.devices import dlpack
from loopwright.runtime.memory import AsyncMemoryCopier, DeviceCommunicator, device_allocator
from loopwright.testing.simulated_device import SimulatedDevice
from tests.unit.runtime.devices.fake_cuda import FakeDriver


def live(where: str) -> int:
    """Bytes of a device that somebody holds."""
    return device_allocator(lw.device(where)).statistics().live_bytes


def test_elements_go_there_and_back(fake_gpus: FakeDriver) -> None:
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    a = lw.nd.array(source.T, device="cuda:1")
    assert isinstance(a, NDArray)
    assert (a.shape, a.dtype, a.ndim, a.size, a.nbytes) == ((3, 2), "float32", 2, 6, 24)
    assert (str(a.device), a.mem_scope, len(a)) == ("cuda(1)", "global", 3)
    np.testing.assert_array_equal(a.numpy(), source.T)
    b = lw.nd.empty((3, 2), device=lw.cuda(1)).copyfrom(a)
    np.testing.assert_array_equal(a.copyto("cpu").numpy(), b.asnumpy())
    c = a.copyto(lw.cuda(0))
    np.testing.assert_array_equal(c.numpy(), source.T)
    assert "cuMemcpyPeerAsync" in fake_gpus.calls
    np.testing.assert_array_equal(lw.nd.empty((3, 2)).copyfrom(c).numpy(), source.T)
    assert "on cuda(1)" in repr(a)
    assert lw.nd.empty((0, 3), device="cuda").numpy().shape == (0, 3)


def test_values_are_converted_as_on_the_host(fake_gpus: FakeDriver) -> None:
    a = lw.nd.empty((3,), "float32", "cuda").copyfrom([1, 2, 3])
    assert a.numpy().tolist() == [1, 2, 3]
    with pytest.raises(ArgumentError, match="float64 does not convert to int32"):
        lw.nd.empty((3,), "int32", "cuda").copyfrom(np.ones(3))
    with pytest.raises(ArgumentError, match=r"the array is \(3,\), the source \(2,\)"):
        a.copyfrom([1, 2])
    with pytest.raises(TensorError, match="uint4"):
        lw.nd.empty((3,), "uint4", "cuda")


def test_what_a_device_does_not_offer(fake_gpus: FakeDriver) -> None:
    a = lw.nd.array([1.0, 2.0], "float32", "cuda")
    for use in (lambda: np.asarray(a), lambda: a[0], lambda: a.__setitem__(0, 1)):
        with pytest.raises(ArgumentError, match=r"lies on cuda\(0\)"):
            use()
    for name in ("shape", "memory", "dtype"):  # kernels would touch what is not theirs
        with pytest.raises(AttributeError):
            setattr(a, name, (1000,))
    with pytest.raises(ArgumentError, match="no memory of scope 'texture'"):
        lw.nd.empty((2,), device="cuda", mem_scope="texture")
    with pytest.raises(ArgumentError, match="no memory of scope 'texture'"):
        lw.nd.empty((2,), device="cpu", mem_scope="texture")
    with pytest.raises(OutOfMemoryError, match=r"cuda\(0\)"):
        lw.nd.empty((1 << 28,), device="cuda")
    with pytest.raises(UsageError, match=r"cuda\(7\) cannot be used: .*cuda\(0\) to cuda\(1\)"):
        lw.nd.empty((2,), device="cuda:7")


def test_views_share_memory_and_keep_it(fake_gpus: FakeDriver) -> None:
    a = lw.nd.array(np.arange(4, dtype=np.float32), device="cuda")
    view = a.CreateView((3, 1), "int32")
    bits = view.numpy()
    assert bits.view(np.float32).ravel().tolist() == [0, 1, 2]
    del a
    gc.collect()
    np.testing.assert_array_equal(view.numpy(), bits)
    with pytest.raises(ArgumentError, match="needs 16 bytes, the array has 12"):
        view.CreateView((4,))
    assert live("cuda:0") == 256
    del view
    gc.collect()
    assert live("cuda:0") == 0


class Foreign:
    """An array of another library, on a GPU."""

    def __init__(self, a: NDArray) -> None:
        self.a = a

    def __dlpack__(self, **options: object) -> Any:
        return self.a.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 1)


def test_exchange_without_a_copy_between_libraries(fake_gpus: FakeDriver) -> None:
    a = lw.nd.array(np.arange(6, dtype=np.float32).reshape(2, 3), device="cuda:1")
    b = from_dlpack(a.to_dlpack())
    assert isinstance(b, DeviceArray)
    assert (b.shape, b.dtype, str(b.device), b.data) == ((2, 3), "float32", "cuda(1)", a.data)

    c = from_dlpack(Foreign(a))
    del a, b
    gc.collect()
    assert live("cuda:1") == 256
    np.testing.assert_array_equal(c.numpy(), np.arange(6).reshape(2, 3))
    del c
    gc.collect()
    assert live("cuda:1") == 0


class OneWay:
    """Hands out our own capsule, so that NumPy reads what we made."""

    def __init__(self, a: np.ndarray[Any, Any]) -> None:
        self.a = a

    def __dlpack__(self, **options: object) -> Any:
        return dlpack.export(self.a.ctypes.data, 0, self.a.shape, self.a.dtype.name, (1, 0), self.a)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8", "int64"])
def test_numpy_reads_our_capsules_and_we_read_numpy_s(dtype: str) -> None:
    source = np.arange(6, dtype=dtype).reshape(2, 3)
    theirs = np.from_dlpack(OneWay(source))
    ours = from_dlpack(source.__dlpack__())
    source[0, 0] = 9
    assert theirs[0, 0] == 9
    assert ours.numpy()[0, 0] == 9
    assert (ours.shape, ours.dtype) == ((2, 3), dtype)
    kept = weakref.ref(source)
    del source, ours
    gc.collect()
    assert theirs[0, 0] == 9
    del theirs
    gc.collect()
    assert kept() is None


def test_a_capsule_is_consumed_once() -> None:
    source = np.arange(3, dtype=np.int32)
    capsule = source.__dlpack__()
    assert '"dltensor"' in repr(capsule)
    made = from_dlpack(capsule)
    assert '"used_dltensor"' in repr(capsule)
    with pytest.raises(ArgumentError, match="consumed before"):
        from_dlpack(capsule)
    del source, capsule
    gc.collect()
    assert made.numpy().tolist() == [0, 1, 2]


def test_a_capsule_that_nobody_consumes_lets_go_of_its_memory() -> None:
    data = np.zeros(3)
    capsule, kept = OneWay(data).__dlpack__(), weakref.ref(data)
    del data
    gc.collect()
    assert kept() is not None
    del capsule
    gc.collect()
    assert kept() is None


def test_other_packages_may_declare_python_s_functions_differently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = ctypes.pythonapi.PyCapsule_GetPointer
    monkeypatch.setattr(shared, "argtypes", (ctypes.py_object, ctypes.c_char_p))
    assert from_dlpack(np.arange(3, dtype=np.int32).__dlpack__()).numpy().tolist() == [0, 1, 2]


def test_strides_of_capsules() -> None:
    square = np.arange(4, dtype=np.float32).reshape(2, 2)
    with pytest.raises(ArgumentError, match="not row-major contiguous"):
        from_dlpack(square.T.__dlpack__())
    assert from_dlpack(square[:, :1][:1].__dlpack__()).shape == (1, 1)
    with pytest.raises(ArgumentError, match="no dtype here"):
        from_dlpack(np.zeros(2, np.complex64).__dlpack__())


def test_opencl_arrays_where_a_platform_is() -> None:
    if not lw.opencl().exist:
        pytest.skip("there is no OpenCL platform")
    source = np.arange(8, dtype=np.float32)
    a = lw.nd.array(source, device="opencl")
    b = lw.nd.empty((8,), device="opencl")
    assert a.copyto(b) is b
    np.testing.assert_array_equal(b.numpy(), source)
    np.testing.assert_array_equal(a.CreateView((2, 4)).copyto("cpu").numpy(), source.reshape(2, 4))


def test_arrays_of_opencl_are_exchanged_at_any_place_of_their_buffer() -> None:
    if not lw.opencl().exist:
        pytest.skip(lw.opencl().why_absent())
    first = lw.nd.array(np.arange(4, dtype=np.float32), device="opencl")
    second = lw.nd.array(np.arange(4, 8, dtype=np.float32), device="opencl")
    assert first.memory.offset != second.memory.offset
    for a in (first, second):
        expected = a.numpy()
        b = from_dlpack(a.to_dlpack())
        np.testing.assert_array_equal(b.numpy(), expected)
        b.copyfrom(expected + 1)
        np.testing.assert_array_equal(a.numpy(), expected + 1)
    before = live("opencl")
    del first, second, a
    gc.collect()
    assert live("opencl") == before - 256  # `b` keeps the second one
    np.testing.assert_array_equal(b.numpy(), [5, 6, 7, 8])
    with pytest.raises(ArgumentError, match="of another library"):
        b.api.free(b.memory)


@pytest.mark.parametrize("where", ["cuda:0", "opencl:0"])
def test_numpy_refuses_or_copies_what_lies_on_a_device(where: str, fake_gpus: FakeDriver) -> None:
    if not lw.device(where).exist:
        pytest.skip(lw.device(where).why_absent())
    a = lw.nd.array(np.arange(3, dtype=np.float32), device=where)
    with pytest.raises((BufferError, RuntimeError), match=r"(?i)device"):
        np.from_dlpack(a)
    there = np.from_dlpack(a, device="cpu")
    assert there.tolist() == [0, 1, 2]
    a.copyfrom([7, 8, 9])
    assert there.tolist() == [0, 1, 2]
    with pytest.raises(BufferError, match="copy it with copyto first"):
        a.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="copy it with copyto first"):
        a.__dlpack__(dl_device=(8, 0))
    copied = from_dlpack(a.__dlpack__(copy=True))
    copied.copyfrom([1, 1, 1])
    assert a.numpy().tolist() == [7, 8, 9]
    del a, copied
    gc.collect()
    assert live(where) == 0


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
@pytest.mark.parametrize("where", ["cpu", "cuda:0"])
def test_shapes_and_bfloat16_in_capsules(
    where: str, shape: tuple[int, ...], fake_gpus: FakeDriver
) -> None:
    for dtype in ("bfloat16", "bool", "float32"):
        a = lw.nd.array(np.ones(shape, np.float32)).copyto("cpu").numpy()
        made = lw.nd.array(a.astype(lw.nd.empty((1,), dtype).numpy().dtype), device=where)
        back = from_dlpack(made.to_dlpack())
        assert (back.shape, back.dtype, back.device) == (shape, dtype, made.device)
        np.testing.assert_array_equal(back.numpy(), made.numpy())
    brain = lw.nd.array(np.ones(3, np.float32), "bfloat16")
    assert from_dlpack(OneWayOf(brain)).numpy().tolist() == [1, 1, 1]


class OneWayOf:
    """Another library's array of the host, with a type that NumPy does not know."""

    def __init__(self, a: NDArray) -> None:
        self.a = a

    def __dlpack__(self, **options: object) -> Any:
        return self.a.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_memory_that_is_pinned_for_a_gpu_is_the_host_s() -> None:
    source = np.arange(3, dtype=np.float32)
    capsule = dlpack.export(source.ctypes.data, 0, (3,), "float32", (3, 0), source)
    pinned = from_dlpack(capsule)
    assert (str(pinned.device), pinned.numpy().tolist()) == ("cpu(0)", [0, 1, 2])


def test_capsules_of_a_later_version_are_refused_in_words() -> None:
    with pytest.raises(ArgumentError, match="a capsule of DLPack's later version; pass the array"):
        from_dlpack(np.zeros(3).__dlpack__(max_version=(1, 0)))


def test_who_hands_out_an_array_is_told_the_stream_that_uses_it(fake_gpus: FakeDriver) -> None:
    a, asked = lw.nd.array([1.0], "float32", "cuda:1"), []

    class Producer(Foreign):
        def __dlpack__(self, **options: object) -> Any:
            asked.append(options["stream"])
            return super().__dlpack__()

    from_dlpack(Producer(a))
    with lw.cuda(1).stream() as stream:
        from_dlpack(Producer(a))
        assert asked == [1, stream.handle]


def test_pinned_arrays_are_the_driver_s_and_go_back_to_it(fake_gpus: FakeDriver) -> None:
    a = lw.nd.empty_pinned((3,), "float32", "cuda:1")
    assert (list(fake_gpus.pinned), str(a.device)) == ([a.data], "cpu(0)")
    a[:] = [1, 2, 3]
    there, back = lw.nd.empty((3,), device="cuda:1"), lw.nd.empty_pinned(3, device="cuda:1")
    with AsyncMemoryCopier(lw.cuda(1)) as copier:
        copier.copy_async(a, there)
        copier.copy_async(there, back)
        copier.sync()
    assert back.numpy().tolist() == [1, 2, 3]
    view = a.CreateView((1,))
    del a, back
    gc.collect()
    assert list(fake_gpus.pinned) == [view.data]
    del view
    gc.collect()
    assert not fake_gpus.pinned
    with pytest.raises(OutOfMemoryError, match=r"cuda\(0\): .*pinning"):
        lw.nd.empty_pinned((1 << 28,))


@pytest.mark.parametrize("where", ["cpu", "opencl"])
def test_elsewhere_such_an_array_is_as_any_other(where: str) -> None:
    if not lw.device(where).exist:
        pytest.skip(lw.device(where).why_absent())
    a = lw.nd.empty_pinned((2, 0), "int8", where)
    assert (a.shape, a.dtype, a.numpy().size) == ((2, 0), "int8", 0)
    b = lw.nd.empty_pinned((2, 3), "bfloat16", where)
    assert b.copyfrom(np.ones((2, 3))).numpy().tolist() == [[1] * 3] * 2
    for shape, error in (((-1,), ArgumentError), ((1 << 60,), OutOfMemoryError)):
        with pytest.raises(error):
            lw.nd.empty_pinned(shape, device=where)


def test_copies_through_the_host_take_pinned_memory(fake_gpus: FakeDriver) -> None:
    with SimulatedDevice(), DeviceCommunicator([lw.cuda(), (12, 0)], chunk_bytes=16) as both:
        source = lw.nd.array(np.arange(10, dtype=np.float32), device="cuda")
        target = lw.nd.empty((10,), device="ext_dev")
        assert both.copy(source, target) == "staged"
        assert len(fake_gpus.pinned) == 2
        assert target.numpy().tolist() == list(range(10))
        both.close()
        gc.collect()
        assert not fake_gpus.pinned
        del target
        gc.collect()
        device_allocator((12, 0)).release_cached()

"""Creation of arrays, random ones among them, and import of those of other libraries by DLPack."""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from loopwright import dtypes
from loopwright.errors import ArgumentError, OutOfMemoryError, RunError, TensorError
from loopwright.runtime.arrays.device import DeviceArray, Keeper
from loopwright.runtime.arrays.host import NDArray, aligned_bytes, elements_of, shape_of
from loopwright.runtime.devices import dlpack
from loopwright.runtime.devices.device import Device, DeviceType, cpu, device
from loopwright.runtime.devices.interface import HOST, Memory
from loopwright.runtime.memory import device_allocator

#: DLPack's codes of memory that the host reads by its address: its own, memory of it that is pinned
#: for CUDA or ROCm, and memory that CUDA moves.
_READABLE = (HOST, DeviceType.kDLCUDAHost, DeviceType.kDLROCMHost, 13)

_A = TypeVar("_A", bound=NDArray)


def random_fill(array: _A, seed: int = 0) -> _A:
    """Fill an array with random values for which no kernel is slow or undefined.

    Floats are uniform in 1 <= x < 10, as in TVM: no zero, denormal, infinity or NaN, and sums and
    products of a few hundred stay finite in float32. Whole numbers are 1 to 9, so that nothing is
    divided by zero; a bool is either with one half. The values depend on shape, dtype and seed
    alone, and are the same on every machine.

    ArgumentError where ``seed`` is no whole number of at least 0, or ``array`` no `NDArray`.
    """
    if not isinstance(array, NDArray):
        raise ArgumentError(
            f"random_fill: expected an NDArray, got a {type(array).__name__}; nd.empty makes one"
        )
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ArgumentError(f"random_fill: the seed is a whole number of at least 0, got {seed!r}")
    rng, shape, dtype = np.random.default_rng(int(seed)), array.shape, dtypes.check(array.dtype)
    values: npt.NDArray[Any]
    if dtype == "bool":
        values = rng.integers(0, 2, shape, dtype=np.uint8)
    elif not dtypes.is_float(dtype):
        values = rng.integers(1, 10, shape, dtype=np.int8)
    else:
        # Cut before it is rounded to the dtype: 9.999 would become 10 in a format of few digits.
        values = np.minimum(1 + 9 * rng.random(shape), 10 * (1 - 2.0**-8))
    array.copyfrom(values.astype(dtype))
    return array


def _home(where: Device | str | None) -> Device:
    """The requested device, which must be there."""
    home = cpu(0) if where is None else device(where)
    home.require()
    return home


def empty(
    shape: Sequence[int] | int,
    dtype: str = "float32",
    device: Device | str | None = None,
    mem_scope: str | None = None,
) -> NDArray:
    """An uninitialised array, aligned to 64 bytes on the host and to 256 elsewhere.

    Args:
        shape: extents, each at least 0.
        device: where, such as ``"cuda:0"``; default ``cpu(0)``.
        mem_scope: the device's memory that holds it; default its global one. Memory of other
            scopes comes from the device each time: a pool may cut global memory only.

    Raises:
        TensorError: the type is unknown or not supported.
        ArgumentError: an extent is negative, or the device has no memory of that scope.
        UsageError, OutOfMemoryError: the device is not here, or has no memory for it.
    """
    name = dtypes.check(dtype)
    where = _home(device)
    extents = shape_of(shape)
    nbytes = math.prod(extents) * dtypes.nbytes(name)
    scope = mem_scope or "global"
    if where.device_type == HOST and scope == "global":
        try:
            block = aligned_bytes(nbytes)
        except (MemoryError, ValueError):  # more than there is, or than NumPy can count
            raise OutOfMemoryError(f"cpu(0): no memory for an array of {nbytes} bytes") from None
        return NDArray(block.view(name).reshape(extents), where)
    if scope == "global":
        pool = device_allocator(where)
        memory = pool.alloc(nbytes)
        return DeviceArray(memory, extents, name, where, Keeper(memory, pool.free))
    memory = where.api.allocate(where.device_id, nbytes, scope=scope)
    return DeviceArray(memory, extents, name, where, Keeper(memory, where.api.free))


def empty_pinned(
    shape: Sequence[int] | int, dtype: str = "float32", device: Device | str = "cuda"
) -> NDArray:
    """An uninitialised array of the host from and to which copies of a device run fastest.

    Where the device's driver can pin memory, as CUDA's does, it is pinned: only then does a copy of
    `loopwright.runtime.memory.AsyncMemoryCopier` run beside other work. Elsewhere it is an ordinary
    array. Pinned memory cannot be swapped out; take little of it.

    ``device`` is the one that copies. Errors are those of `empty`, but OutOfMemoryError where the
    host has no such memory left.
    """
    name, where, extents = dtypes.check(dtype), _home(device), shape_of(shape)
    nbytes = math.prod(extents) * dtypes.nbytes(name)
    return _view(where.api.allocate_host(where.device_id, nbytes), name, extents)


def _view(memory: Memory, dtype: str, shape: tuple[int, ...]) -> NDArray:
    """An array over memory of the host, which it keeps alive."""
    raw = (ctypes.c_uint8 * memory.nbytes).from_address(memory.address)
    vars(raw)["owner"] = memory  # NumPy keeps `raw`, and so the memory
    return NDArray(np.frombuffer(raw, dtype).reshape(shape), cpu(0))  # type: ignore[call-overload]


NDArray._empty = empty


def array(
    source: object,
    dtype: str | Device | None = None,
    device: Device | str | None = None,
    mem_scope: str | None = None,
) -> NDArray:
    """A new array with the elements of `source` (anything that `numpy.asarray` takes).

    Args:
        source: the elements; always copied.
        dtype: element type; default that of `source`. A `Device` in its place is the device, for
            scripts of TVM: ``nd.array(a, cpu(0))``.
        device, mem_scope: see `empty`, whose errors are raised as well.

    Raises:
        ArgumentError: no array can be made of it, or its elements are of no such type.

    Example:
        >>> print(lw.nd.array([1, 2, 3], "int32").numpy())
        [1 2 3]
    """
    if isinstance(dtype, Device):
        dtype, device = None, dtype if device is None else device
    name = None if dtype is None else dtypes.check(dtype)
    try:
        data = np.asarray(elements_of(source) if isinstance(source, NDArray) else source, name)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(
            f"array: no array of {name or 'numbers'} can be made: {error}"
        ) from None
    return empty(data.shape, dtypes.check(data.dtype), device, mem_scope).copyfrom(data)


def from_dlpack(source: object) -> NDArray:
    """The memory of another library's array as an `NDArray`, without a copy.

    The source has ``__dlpack__``, or is a capsule that nobody has consumed; row-major and
    contiguous, on the CPU or on a device that is driven here.

    ArgumentError where it is not contiguous, or the capsule was consumed before, UsageError where
    its device is not driven here, TensorError where its element type is not supported.

    Example:
        >>> a = np.arange(3, dtype="float32")
        >>> view = lw.runtime.from_dlpack(a)
        >>> a[0] = 7
        >>> print(view.numpy())
        [7. 1. 2.]
    """
    if dlpack.is_capsule(source):
        return _of_capsule(source)
    if isinstance(source, NDArray):
        return source.CreateView(source.shape)
    kind, number = _device_of(source)
    if kind not in _READABLE:
        home = Device(kind, number)
        home.require()
        stream = home.api.exchange_stream(number)
        options = {} if stream is None else {"stream": stream}
        return _of_capsule(source.__dlpack__(**options))  # type: ignore[attr-defined]
    data = host_array(source)
    dtypes.check(data.dtype)
    if not data.flags.c_contiguous:
        raise ArgumentError(
            f"from_dlpack: strides {data.strides} of shape {data.shape} are not row-major "
            "contiguous; make a contiguous copy first"
        )
    return NDArray(data, cpu(0))


def _device_of(source: object) -> tuple[int, int]:
    """DLPack code and number of the device of an object with ``__dlpack__``; else ArgumentError."""
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        raise ArgumentError(
            f"{type(source).__name__} is not an array; pass a NumPy array, an NDArray or an "
            "object with __dlpack__"
        )
    kind, number = source.__dlpack_device__()
    return int(kind), int(number)


def is_on_host(source: object) -> bool:
    """Whether the host reads an array by its address: all but those whose DLPack device differs."""
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        return True
    return _device_of(source)[0] in _READABLE


def device_of(source: object) -> Device:
    """The device of an array that has ``__dlpack__``; else ArgumentError."""
    return Device(*_device_of(source))


def _of_capsule(capsule: object) -> NDArray:
    exchanged = dlpack.consume(capsule)
    name = dtypes.check(exchanged.dtype)
    if not exchanged.contiguous:
        raise ArgumentError(
            f"from_dlpack: an array of shape {exchanged.shape} is not row-major contiguous; make a "
            "contiguous copy first"
        )
    nbytes = math.prod(exchanged.shape) * dtypes.nbytes(name)
    if exchanged.device_type in _READABLE:
        memory = Memory(HOST, 0, exchanged.address, nbytes, exchanged.offset, owner=exchanged.owner)
        return _view(memory, name, exchanged.shape)
    home = Device(exchanged.device_type, exchanged.device_id)
    home.require()
    owner = _Borrowed(home, exchanged.owner)
    memory = home.api.adopt(home.device_id, exchanged.address, exchanged.offset, nbytes, owner)
    return DeviceArray(memory, exchanged.shape, name, home, owner)


class _Borrowed:
    """Holds memory of another library until no work of ours uses it any more.

    That library may reuse it at once and knows nothing of our streams.
    """

    def __init__(self, device: Device, owner: object) -> None:
        self._device, self._owner = device, owner

    def __del__(self) -> None:
        if sys.is_finalizing():
            return
        with contextlib.suppress(RunError):  # the device is lost, and its memory with it
            self._device.sync()


def host_array(source: object) -> npt.NDArray[Any]:
    """A NumPy view of host memory with ``__dlpack__``, without a copy; else ArgumentError."""
    if isinstance(source, DeviceArray):
        raise ArgumentError(
            f"lies on {source.device}, and the function runs on the CPU; pass a.numpy(), or "
            "a.copyto(lw.cpu())"
        )
    if isinstance(source, NDArray):
        return source._data
    code, _ = _device_of(source)
    if code not in _READABLE:
        raise ArgumentError(
            f"{type(source).__name__} lives on device type {code}; copy it to the CPU first"
        )
    try:
        return np.from_dlpack(source)  # type: ignore[arg-type]
    except (BufferError, RuntimeError, TypeError) as error:
        try:  # of a DLPack type that NumPy lacks, such as bfloat16
            return _of_capsule(source.__dlpack__())._data  # type: ignore[attr-defined]
        except (ArgumentError, TensorError, BufferError, RuntimeError, TypeError):
            pass
        name = type(source).__name__
        raise ArgumentError(f"{name} does not export its memory: {error}") from error

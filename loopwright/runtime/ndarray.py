"""`NDArray`: an array that kernels accept, in the host's memory or in that of a device.

Row-major and contiguous always, 64-byte aligned on the host when allocated here. It exchanges
memory with NumPy, PyTorch and others through DLPack without a copy.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import dtypes
from loopwright.errors import ArgumentError
from loopwright.runtime.devices import dlpack
from loopwright.runtime.devices.device import Device, cpu, device
from loopwright.runtime.devices.interface import HOST, DeviceAPI, Memory
from loopwright.runtime.devices.registry import device_api
from loopwright.runtime.memory import device_allocator, note_use
from loopwright.runtime.random_fill import random_fill as random_fill

ALIGNMENT = 64


def aligned_bytes(nbytes: int) -> npt.NDArray[np.uint8]:
    """Uninitialised bytes whose first one lies at a multiple of 64."""
    block = np.empty(nbytes + ALIGNMENT, dtype=np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + nbytes]


class NDArray:
    """A row-major contiguous array; `empty`, `array` and `from_dlpack` give one.

    One on another device than the CPU is a `DeviceArray`, whose elements are reached by copies.

    Example:
        >>> a = lw.nd.array(np.array([[1, 2], [3, 4]], "float32"))
        >>> print(a.shape, a.dtype, a.device)
        (2, 2) float32 cpu(0)
        >>> print(a.numpy())
        [[1. 2.]
         [3. 4.]]
    """

    __slots__ = ("_data", "device")

    def __init__(self, data: npt.NDArray[Any], device: Device) -> None:
        self._data = data
        self.device = device

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the dimensions."""
        return self._data.shape

    @property
    def dtype(self) -> str:
        """Name of the element type, such as ``float32``."""
        return self._data.dtype.name

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._data.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._data.size

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._data.nbytes

    @property
    def data(self) -> int:
        """Address of the first element."""
        return int(self._data.ctypes.data)

    def numpy(self) -> npt.NDArray[Any]:
        """A copy as a NumPy array. For a view without a copy use ``np.from_dlpack(a)``.

        Example:
            >>> print(lw.nd.array([1.0, 2.0], "float32").numpy())
            [1. 2.]
        """
        return self._data.copy()

    def asnumpy(self) -> npt.NDArray[Any]:
        """The same as `numpy`, by its older name.

        Example:
            >>> print(lw.nd.array([1.0, 2.0], "float32").asnumpy())
            [1. 2.]
        """
        return self.numpy()

    def copyfrom(self, source: object) -> NDArray:
        """Copy the elements of `source` into this array, and return it.

        Args:
            source: an NDArray, a NumPy array or what `numpy.asarray` takes, of the same shape.
                Values are converted where NumPy calls it ``same_kind`` (float64 to float32).

        Raises:
            ArgumentError: the shapes differ, or the conversion would change the kind of value.

        Example:
            >>> a = lw.nd.empty((2,), "float32")
            >>> print(a.copyfrom([1, 2]).numpy())
            [1. 2.]
        """
        data = _elements(source)
        _check_source(data, self)
        np.copyto(self._data, data, casting="same_kind")
        return self

    def copyto(self, target: NDArray | Device | str) -> NDArray:
        """Copy the elements into `target`, an NDArray, or into a new one on that device.

        Raises:
            ArgumentError: the target array has another shape or kind of element.

        Example:
            >>> a, b = lw.nd.array([1.0, 2.0], "float32"), lw.nd.empty((2,))
            >>> print(a.copyto(b).numpy())
            [1. 2.]
        """
        if isinstance(target, NDArray):
            return target.copyfrom(self)
        return empty(self.shape, self.dtype, device(target)).copyfrom(self)

    def CreateView(self, shape: Sequence[int], dtype: str | None = None) -> NDArray:
        """Another shape, and perhaps type, of the same memory, from its first byte on.

        Args:
            shape: extents of the view, which may need fewer bytes than this array has.
            dtype: element type; default that of this array.

        Raises:
            ArgumentError: the view needs more bytes than there are.

        Example:
            >>> a = lw.nd.array(np.arange(4, dtype="float32"))
            >>> print(a.CreateView((2, 2)).numpy())
            [[0. 1.]
             [2. 3.]]
        """
        name, extents, need = _view(self, shape, dtype)
        raw = self._data.reshape(-1).view(np.uint8)[:need]
        return NDArray(raw.view(name).reshape(extents), self.device)

    @property
    def mem_scope(self) -> str:
        """Scope of the memory that holds it: ``global``."""
        return "global"

    def to_dlpack(self) -> Any:
        """A DLPack capsule of this memory, without a copy, for whoever takes a capsule.

        Each capsule can be consumed once. ``from_dlpack`` functions that follow today's protocol
        take the array itself.

        Raises:
            ArgumentError: the memory is read-only, which a capsule cannot say.

        Example:
            >>> a = lw.nd.array([1.0, 2.0], "float32")
            >>> print("dltensor" in repr(a.to_dlpack()))
            True
        """
        try:
            return self.__dlpack__()
        except BufferError as error:
            raise ArgumentError(f"to_dlpack: {error}; copy the array first") from error

    def __dlpack__(self, **options: Any) -> Any:
        return self._data.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device.device_type, self.device.device_id)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        wanted = self._data.dtype if dtype is None else np.dtype(dtype)
        if wanted == self._data.dtype:
            return self._data.copy() if copy else self._data
        if copy is False:
            raise ValueError(f"{self.dtype} to {wanted.name} needs a copy")
        return self._data.astype(wanted)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, key: Any) -> Any:
        return self._data[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._data[key] = value

    def __repr__(self) -> str:
        return f"<NDArray {self.shape} {self.dtype} on {self.device}>\n{self._data}"


class DeviceArray(NDArray):
    """An array in the memory of a device; `empty` and `array` give one for a device.

    Copies to and from the host are complete when they return; those between arrays of one device
    wait in its current stream, like kernels.

    Example:
        >>> if lw.opencl().exist:
        ...     a = lw.nd.array([1.0, 2.0], "float32", lw.opencl())
        ...     assert a.numpy().tolist() == [1.0, 2.0]
        ...
    """

    __slots__ = ("_dtype", "_keeper", "_shape", "memory")

    def __init__(
        self,
        memory: Memory,
        shape: tuple[int, ...],
        dtype: str,
        device: Device,
        keeper: object,
    ) -> None:
        self.memory, self.device, self._keeper = memory, device, keeper
        self._shape, self._dtype = shape, np.dtype(dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the dimensions."""
        return self._shape

    @property
    def dtype(self) -> str:
        """Name of the element type, such as ``float32``."""
        return self._dtype.name

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self._dtype.itemsize

    @property
    def data(self) -> int:
        """Address of the first element, or OpenCL's handle of the memory."""
        return self.memory.address

    @property
    def api(self) -> DeviceAPI:
        """What drives its device."""
        return device_api(self.device.device_type)

    @property
    def mem_scope(self) -> str:
        """Scope of the memory that holds it, such as ``global``."""
        return self.memory.scope

    def numpy(self) -> npt.NDArray[Any]:
        """A copy as a NumPy array, when all has run that was in the current stream before.

        Example:
            >>> if lw.opencl().exist:
            ...     assert lw.nd.array([1, 2], "int32", lw.opencl()).numpy().tolist() == [1, 2]
            ...
        """
        made = np.empty(self._shape, self._dtype)
        self._exchange(made, into_host=True)
        return made

    def copyfrom(self, source: object) -> NDArray:
        """Copy the elements of `source` into this array, and return it; see `NDArray.copyfrom`.

        Example:
            >>> if lw.opencl().exist:
            ...     a = lw.nd.empty((2,), "float32", lw.opencl())
            ...     assert a.copyfrom([1, 2]).numpy().tolist() == [1.0, 2.0]
            ...
        """
        same = isinstance(source, DeviceArray) and (
            (source.shape, source.dtype, source.device.device_type)
            == (self.shape, self.dtype, self.device.device_type)
        )
        if same and isinstance(source, DeviceArray):
            api, there, here = self.api, source.device, self.device
            if there != here:  # what is queued here reads what was here before
                api.synchronize(here.device_id, api.current_stream(here.device_id))
            api.copy(source.memory, 0, self.memory, 0, self.nbytes)
            if there != here:
                api.synchronize(there.device_id, api.current_stream(there.device_id))
            return self
        data = _elements(source)
        _check_source(data, self)
        self._exchange(np.ascontiguousarray(data, self._dtype), into_host=False)
        return self

    def _exchange(self, host: npt.NDArray[Any], into_host: bool) -> None:
        """Copy all elements between here and an array of the host, and wait for that."""
        api, device_id = self.api, self.device.device_id
        other = Memory(HOST, 0, int(host.ctypes.data), host.nbytes, owner=host)
        stream = api.current_stream(device_id)
        note_use(self.memory, stream)
        if into_host:
            api.copy(self.memory, 0, other, 0, self.nbytes, stream)
        else:
            api.copy(other, 0, self.memory, 0, self.nbytes, stream)
        api.synchronize(device_id, stream)

    def CreateView(self, shape: Sequence[int], dtype: str | None = None) -> NDArray:
        """Another shape, and perhaps type, of the same memory; see `NDArray.CreateView`.

        Example:
            >>> if lw.opencl().exist:
            ...     a = lw.nd.array(np.arange(4, dtype="float32"), lw.opencl())
            ...     assert a.CreateView((2, 2)).numpy().tolist() == [[0.0, 1.0], [2.0, 3.0]]
            ...
        """
        name, extents, need = _view(self, shape, dtype)
        part = self.memory.part(0, need)
        return DeviceArray(part, extents, name, self.device, self._keeper)

    def to_dlpack(self) -> Any:
        """A DLPack capsule of this memory, without a copy, when the device has done what waits.

        Raises:
            ArgumentError: memory of this kind of devices has no address.

        Example:
            >>> if lw.cuda().exist:
            ...     assert "dltensor" in repr(lw.nd.empty((2,), "float32", lw.cuda()).to_dlpack())
            ...
        """
        try:
            return self.__dlpack__()
        except BufferError as error:
            raise ArgumentError(f"to_dlpack: {error}; copy the array to the host") from error

    def __dlpack__(self, **options: Any) -> Any:
        if self.memory.offset and not self.api.has_addresses:
            raise BufferError(f"a part of a buffer of {self.device} cannot be exchanged")
        if options.get("stream") != -1:
            self.api.synchronize(self.device.device_id)
        where = self.__dlpack_device__()
        return dlpack.export(self.memory.address, self._shape, self.dtype, where, self)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        raise ArgumentError(
            f"the array lies on {self.device}; a.numpy() copies its elements to the host"
        )

    def __len__(self) -> int:
        return self._shape[0]

    def __getitem__(self, key: Any) -> Any:
        raise ArgumentError(
            f"the array lies on {self.device}; a.numpy() copies its elements to the host"
        )

    def __setitem__(self, key: Any, value: Any) -> None:
        raise ArgumentError(f"the array lies on {self.device}; a.copyfrom(...) writes all of it")

    def __repr__(self) -> str:
        return f"<NDArray {self.shape} {self.dtype} on {self.device}>\n{self.numpy()}"


class _Keeper:
    """Gives memory of a device back when the last array of it has gone."""

    def __init__(self, memory: Memory, give_back: Callable[[Memory], object]) -> None:
        free = weakref.finalize(self, give_back, memory)
        free.atexit = False  # the process's end frees it all, and drivers may have gone before


def _elements(source: object) -> npt.NDArray[Any]:
    """The elements of an array, or of what NumPy makes one of, in the host's memory."""
    if isinstance(source, DeviceArray):
        return source.numpy()
    return source._data if isinstance(source, NDArray) else np.asarray(source)


def _check_source(data: npt.NDArray[Any], target: NDArray) -> None:
    """Refuse to copy what does not fit into an array."""
    if data.shape != target.shape:
        raise ArgumentError(f"copyfrom: the array is {target.shape}, the source {data.shape}")
    if not np.can_cast(data.dtype, np.dtype(target.dtype), casting="same_kind"):
        raise ArgumentError(
            f"copyfrom: {data.dtype.name} does not convert to {target.dtype} without losing its "
            f"kind; convert the source first with astype"
        )


def _view(a: NDArray, shape: Sequence[int], dtype: str | None) -> tuple[str, tuple[int, ...], int]:
    """Type, extents and bytes of a view of an array.

    Raises:
        ArgumentError: it needs more bytes than there are.
    """
    name = dtypes.check(dtype or a.dtype)
    extents = _shape(shape)
    need = math.prod(extents) * dtypes.nbytes(name)
    if need > a.nbytes:
        raise ArgumentError(
            f"CreateView: {extents} of {name} needs {need} bytes, the array has {a.nbytes}"
        )
    return name, extents, need


def _shape(shape: Sequence[int] | int) -> tuple[int, ...]:
    extents = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    if any(n < 0 for n in extents):
        raise ArgumentError(f"shape {extents} has a negative extent")
    return extents


def _home(where: Device | str | None) -> Device:
    """The device that is asked for, which must be there."""
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
        dtype: element type by name.
        device: where, such as ``"cuda:0"``; default ``cpu(0)``.
        mem_scope: the device's memory that holds it; default its global one.

    Raises:
        TensorError: the type is unknown or not supported.
        ArgumentError: an extent is negative, or the device has no memory of that scope.
        UsageError: the device is not here; the message says what is missing.
        OutOfMemoryError: the device has no memory for it.

    Example:
        >>> print(lw.nd.empty((2, 3), "float32").shape)
        (2, 3)
    """
    name = dtypes.check(dtype)
    where = _home(device)
    extents = _shape(shape)
    nbytes = math.prod(extents) * dtypes.nbytes(name)
    scope = mem_scope or "global"
    if where.device_type == HOST and scope == "global":
        return NDArray(aligned_bytes(nbytes).view(name).reshape(extents), where)
    if scope == "global":
        pool = device_allocator(where)
        memory = pool.alloc(nbytes)
        return DeviceArray(memory, extents, name, where, _Keeper(memory, pool.free))
    memory = where.api.allocate(where.device_id, nbytes, scope=scope)
    return DeviceArray(memory, extents, name, where, _Keeper(memory, where.api.free))


def array(
    source: object,
    dtype: str | Device | None = None,
    device: Device | str | None = None,
) -> NDArray:
    """A new array with the elements of `source` (anything that `numpy.asarray` takes).

    Args:
        source: the elements; always copied.
        dtype: element type; default that of `source`. A `Device` in its place is the device, for
            scripts of TVM: ``nd.array(a, cpu(0))``.
        device: where, such as ``"opencl:0"``; default ``cpu(0)``.

    Raises:
        TensorError: the type is unknown or not supported.
        UsageError: the device is not here; the message says what is missing.
        OutOfMemoryError: the device has no memory for it.

    Example:
        >>> print(lw.nd.array([1, 2, 3], "int32").numpy())
        [1 2 3]
    """
    if isinstance(dtype, Device):
        dtype, device = None, dtype if device is None else device
    name = None if dtype is None else dtypes.check(dtype)
    data = np.asarray(_elements(source), dtype=name)
    made = empty(data.shape, dtypes.check(data.dtype), device)
    return made.copyfrom(data)


def from_dlpack(source: object) -> NDArray:
    """The memory of another library's array as an `NDArray`, without a copy.

    Args:
        source: an object with ``__dlpack__``, or a capsule that nobody has consumed; row-major and
            contiguous, on the CPU or on a device that is driven here.

    Raises:
        ArgumentError: it is not contiguous, its device is not driven here, or the capsule was
            consumed before.
        TensorError: its element type is not supported.

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
    if _device_of(source) != HOST:
        return _of_capsule(source.__dlpack__())  # type: ignore[attr-defined]
    data = host_array(source)
    dtypes.check(data.dtype)
    if not data.flags.c_contiguous:
        raise ArgumentError(
            f"from_dlpack: strides {data.strides} of shape {data.shape} are not row-major "
            "contiguous; make a contiguous copy first"
        )
    return NDArray(data, cpu(0))


def _device_of(source: object) -> int:
    """DLPack's code of the device of an object with ``__dlpack__``.

    Raises:
        ArgumentError: it has none.
    """
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        raise ArgumentError(
            f"{type(source).__name__} is not an array; pass a NumPy array, an NDArray or an "
            "object with __dlpack__"
        )
    return int(source.__dlpack_device__()[0])


def _of_capsule(capsule: object) -> NDArray:
    found = dlpack.consume(capsule)
    name = dtypes.check(found.dtype)
    if not found.contiguous:
        raise ArgumentError(
            f"from_dlpack: an array of shape {found.shape} is not row-major contiguous; make a "
            "contiguous copy first"
        )
    nbytes = math.prod(found.shape) * dtypes.nbytes(name)
    if found.device_type == HOST:
        raw = (ctypes.c_uint8 * nbytes).from_address(found.address + found.offset)
        vars(raw)["owner"] = found.owner  # NumPy keeps `raw`, and so the capsule's memory
        return NDArray(np.frombuffer(raw, name).reshape(found.shape), cpu(0))  # type: ignore[call-overload]
    home = Device(found.device_type, found.device_id)
    home.require()
    memory = Memory(
        found.device_type, found.device_id, found.address, nbytes, found.offset, owner=found.owner
    )
    return DeviceArray(memory, found.shape, name, home, found.owner)


def host_array(source: object) -> npt.NDArray[Any]:
    """A NumPy view of an object with ``__dlpack__`` in host memory, without a copy.

    Raises:
        ArgumentError: there is no ``__dlpack__``, or the memory is not the host's.
    """
    if isinstance(source, DeviceArray):
        raise ArgumentError(
            f"lies on {source.device}, and the function runs on the CPU; pass a.numpy(), or "
            "a.copyto(lw.cpu())"
        )
    if isinstance(source, NDArray):
        return source._data
    code = _device_of(source)
    if code != HOST:
        raise ArgumentError(
            f"{type(source).__name__} lives on device type {code}; copy it to the CPU first"
        )
    try:
        return np.from_dlpack(source)  # type: ignore[arg-type]
    except (BufferError, RuntimeError, TypeError) as error:
        name = type(source).__name__
        raise ArgumentError(f"{name} does not export its memory: {error}") from error

"""`NDArray`: an array that kernels accept, NumPy storage inside.

Row-major and contiguous always, 64-byte aligned when allocated here. It exchanges memory with
NumPy, PyTorch and others through DLPack without a copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import dtypes
from loopwright.errors import ArgumentError
from loopwright.runtime.devices.device import Device, cpu, device
from loopwright.runtime.random_fill import random_fill as random_fill

ALIGNMENT = 64


def aligned_bytes(nbytes: int) -> npt.NDArray[np.uint8]:
    """Uninitialised bytes whose first one lies at a multiple of 64."""
    block = np.empty(nbytes + ALIGNMENT, dtype=np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + nbytes]


class NDArray:
    """A row-major contiguous array on a device; `empty`, `array` and `from_dlpack` give one.

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
        data = source._data if isinstance(source, NDArray) else np.asarray(source)
        if data.shape != self.shape:
            raise ArgumentError(f"copyfrom: the array is {self.shape}, the source {data.shape}")
        if not np.can_cast(data.dtype, self._data.dtype, casting="same_kind"):
            raise ArgumentError(
                f"copyfrom: {data.dtype.name} does not convert to {self.dtype} without losing its "
                f"kind; convert the source first with astype"
            )
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
        name = dtypes.check(dtype or self.dtype)
        extents = _shape(shape)
        need = math.prod(extents) * dtypes.nbytes(name)
        if need > self.nbytes:
            raise ArgumentError(
                f"CreateView: {extents} of {name} needs {need} bytes, the array has {self.nbytes}"
            )
        raw = self._data.reshape(-1).view(np.uint8)[:need]
        return NDArray(raw.view(name).reshape(extents), self.device)

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


def _shape(shape: Sequence[int] | int) -> tuple[int, ...]:
    extents = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    if any(n < 0 for n in extents):
        raise ArgumentError(f"shape {extents} has a negative extent")
    return extents


def _on_cpu(where: Device | str | None) -> Device:
    home = cpu(0) if where is None else device(where)
    home.require()
    return home


def empty(
    shape: Sequence[int] | int, dtype: str = "float32", device: Device | str | None = None
) -> NDArray:
    """An uninitialised array, 64-byte aligned.

    Args:
        shape: extents, each at least 0.
        dtype: element type by name.
        device: where; default and only choice ``cpu(0)``.

    Raises:
        TensorError: the type is unknown or not supported.
        ArgumentError: an extent is negative.

    Example:
        >>> print(lw.nd.empty((2, 3), "float32").shape)
        (2, 3)
    """
    name = dtypes.check(dtype)
    where = _on_cpu(device)
    extents = _shape(shape)
    raw = aligned_bytes(math.prod(extents) * dtypes.nbytes(name))
    return NDArray(raw.view(name).reshape(extents), where)


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
        device: where; default and only choice ``cpu(0)``.

    Raises:
        TensorError: the type is unknown or not supported.

    Example:
        >>> print(lw.nd.array([1, 2, 3], "int32").numpy())
        [1 2 3]
    """
    if isinstance(dtype, Device):
        dtype, device = None, dtype if device is None else device
    name = None if dtype is None else dtypes.check(dtype)
    data = np.asarray(source, dtype=name)
    copy = empty(data.shape, dtypes.check(data.dtype), device)
    np.copyto(copy._data, data)
    return copy


def from_dlpack(source: object) -> NDArray:
    """The memory of another library's CPU array as an `NDArray`, without a copy.

    Args:
        source: an object with ``__dlpack__``, row-major and contiguous.

    Raises:
        ArgumentError: it is not contiguous, or lives on another device.
        TensorError: its element type is not supported.

    Example:
        >>> a = np.arange(3, dtype="float32")
        >>> view = lw.runtime.from_dlpack(a)
        >>> a[0] = 7
        >>> print(view.numpy())
        [7. 1. 2.]
    """
    data = host_array(source)
    dtypes.check(data.dtype)
    if not data.flags.c_contiguous:
        raise ArgumentError(
            f"from_dlpack: strides {data.strides} of shape {data.shape} are not row-major "
            "contiguous; make a contiguous copy first"
        )
    return NDArray(data, cpu(0))


def host_array(source: object) -> npt.NDArray[Any]:
    """A NumPy view of an object with ``__dlpack__`` in host memory, without a copy.

    Raises:
        ArgumentError: there is no ``__dlpack__``, or the memory is not the host's.
    """
    if isinstance(source, NDArray):
        return source._data
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        raise ArgumentError(
            f"{type(source).__name__} is not an array; pass a NumPy array, an NDArray or an "
            "object with __dlpack__"
        )
    code = int(source.__dlpack_device__()[0])
    if code != 1:
        raise ArgumentError(
            f"{type(source).__name__} lives on device type {code}; copy it to the CPU first"
        )
    try:
        return np.from_dlpack(source)
    except (BufferError, RuntimeError, TypeError) as error:
        name = type(source).__name__
        raise ArgumentError(f"{name} does not export its memory: {error}") from error

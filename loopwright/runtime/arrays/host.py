"""`NDArray`: an array that kernels accept, in the host's memory.

Row-major and contiguous always, 64-byte aligned when allocated here. It exchanges memory with
NumPy, PyTorch and others through DLPack without a copy.
"""

from __future__ import annotations

import math
import mmap
import operator
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from loopwright import dtypes
from loopwright.errors import ArgumentError
from loopwright.runtime.devices import dlpack
from loopwright.runtime.devices.device import Device, device
from loopwright.runtime.devices.interface import HOST, Memory

#: Bytes of a huge page of x86 and of most of Arm.
HUGE_PAGE = 2 << 20
_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
#: Whether a system can be asked.
AVAILABLE = hasattr(mmap, "MADV_HUGEPAGE")
#: Bytes that an arena takes from the system at once. Untouched pages take no memory.
_CHUNK = 64 << 20
#: Share of its last huge page, in an array's bytes, up to which an array stays where it is.
_UNUSED_SHARE = 0.25
#: Alignment of arrays in bytes.
ALIGNMENT = 64


def huge_pages(nbytes: int) -> npt.NDArray[np.uint8]:
    """Zero bytes, at least 1, that begin with a huge page; freed with their last reference.

    A page of 2 MB takes one entry of the TLB in place of 512, and the processor prefetches within a
    page, not beyond it: weights of some megabytes, which come from memory in every run of a model,
    come faster (https://docs.kernel.org/admin-guide/mm/transhuge.html). Where Linux has none, and
    elsewhere, ordinary pages are used.
    """
    rounded = -(-nbytes // HUGE_PAGE) * HUGE_PAGE
    try:
        # Linux aligns such a mapping by itself since 6.7 only.
        mapping = mmap.mmap(-1, rounded + HUGE_PAGE, flags=_PRIVATE)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"no memory for {nbytes} bytes: {error}") from None
    with suppress(OSError):  # a kernel without huge pages
        mapping.madvise(mmap.MADV_HUGEPAGE)
    block = np.frombuffer(mapping, np.uint8)
    start = -block.ctypes.data % HUGE_PAGE
    return block[start : start + nbytes]


class Arena:
    """Copies of arrays side by side in huge pages.

    Memory is freed with the last array in it, so this is for arrays that live and die together.
    """

    def __init__(self) -> None:
        self._free = np.empty(0, np.uint8)

    def kept(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The array itself where it lies in huge pages that it nearly fills, else a copy.

        For arrays that their owner gives away: packed weights of a large model are gigabytes.
        """
        owner: object = array
        while isinstance(owner, np.ndarray):
            owner = owner.base
        mapped = isinstance(owner, memoryview) and isinstance(owner.obj, mmap.mmap)
        full = -array.nbytes % HUGE_PAGE <= _UNUSED_SHARE * array.nbytes
        return array if mapped and full else self.copy_of(array)

    def copy_of(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A copy, row-major, whose first element lies at a multiple of 64."""
        nbytes = array.nbytes
        if AVAILABLE:
            taken = -(-nbytes // ALIGNMENT) * ALIGNMENT
            if taken > len(self._free):
                self._free = huge_pages(max(taken, _CHUNK))
            block, self._free = self._free[:nbytes], self._free[taken:]
        else:
            block = aligned_bytes(nbytes)
        copy = block.view(array.dtype).reshape(array.shape)
        np.copyto(copy, array)
        return copy


def aligned_bytes(nbytes: int) -> npt.NDArray[np.uint8]:
    """Uninitialised bytes aligned to 64; large blocks are in huge pages."""
    if AVAILABLE and nbytes >= HUGE_PAGE:
        return huge_pages(nbytes)
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
    #: Makes an array on a device; `loopwright.runtime.ndarray` puts its function here.
    _empty: ClassVar[Callable[[tuple[int, ...], str, Device, str | None], NDArray]]

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
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * dtypes.nbytes(self.dtype)

    @property
    def data(self) -> int:
        """Address of the first element."""
        return int(self._data.ctypes.data)

    @property
    def memory(self) -> Memory:
        """The bytes of its elements as a piece of memory of its device."""
        return Memory(HOST, 0, self.data, self.nbytes, owner=self._data)

    def numpy(self) -> npt.NDArray[Any]:
        """A copy as a NumPy array. For a view without a copy use ``np.from_dlpack(a)``."""
        return self._data.copy()

    def asnumpy(self) -> npt.NDArray[Any]:
        """The same as `numpy`, by its older name."""
        return self.numpy()

    def copyfrom(self, source: object) -> NDArray:
        """Copy the elements of `source`, an argument of `numpy.asarray`, and return this array.

        ArgumentError where the shapes differ, or NumPy does not call the conversion ``same_kind``
        (float64 to float32 is).
        """
        data = elements_of(source)
        check_source(data, self)
        np.copyto(self._data, data, casting="same_kind")
        return self

    def copyto(self, target: NDArray | Device | str, mem_scope: str | None = None) -> NDArray:
        """Copy the elements into an array, or into a new one on a device, and return that.

        ``mem_scope`` is the device's memory for a new array, default its global one. ArgumentError
        where the target array has another shape, scope or kind of element.
        """
        if isinstance(target, NDArray):
            if mem_scope not in (None, target.mem_scope):
                raise ArgumentError(
                    f"copyto: the array lies in memory of scope {target.mem_scope!r}, not "
                    f"{mem_scope!r}; pass the device in its place"
                )
            return target.copyfrom(self)
        if not isinstance(target, Device | str):
            raise ArgumentError(
                f"copyto: expected an NDArray or a device, got a {type(target).__name__}; "
                "a.numpy() gives an array of NumPy"
            )
        return NDArray._empty(self.shape, self.dtype, device(target), mem_scope).copyfrom(self)

    def CreateView(self, shape: Sequence[int], dtype: str | None = None) -> NDArray:
        """Another shape, and perhaps type, of the same memory, from its first byte on.

        The view may need fewer bytes than this array has; ArgumentError where it needs more.
        """
        name, extents, need = view_of(self, shape, dtype)
        raw = self._data.reshape(-1).view(np.uint8)[:need]
        return NDArray(raw.view(name).reshape(extents), self.device)

    def _on_host(self) -> npt.NDArray[Any]:
        """The elements in host memory; no copy where they are there."""
        return self._data

    @property
    def mem_scope(self) -> str:
        """Scope of the memory that holds it: ``global``."""
        return "global"

    def to_dlpack(self) -> Any:
        """A DLPack capsule of this memory, without a copy, for libraries that do not take arrays.

        It can be consumed once. ArgumentError for read-only memory, which a capsule cannot mark.
        """
        try:
            return self.__dlpack__()
        except BufferError as error:
            raise ArgumentError(f"to_dlpack: {error}; copy the array first") from error

    def __dlpack__(self, **options: Any) -> Any:
        if self._data.dtype.kind == "V" and self._data.flags.writeable and not options.get("copy"):
            where = self.__dlpack_device__()  # NumPy has no bfloat16, DLPack has
            return dlpack.export(self.data, 0, self.shape, self.dtype, where, self)
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


def restored(data: npt.NDArray[Any], where: str, mem_scope: str) -> NDArray:
    """Unpickle an array on its device."""
    return NDArray._empty(data.shape, data.dtype.name, device(where), mem_scope).copyfrom(data)


def elements_of(source: object) -> npt.NDArray[Any]:
    """Host copy or view of the elements of any array-like; ArgumentError where NumPy makes none."""
    if isinstance(source, NDArray):
        return source._on_host()
    try:
        return np.asarray(source)
    except ValueError as error:
        raise ArgumentError(f"this is no array: {error}") from None


def check_source(data: npt.NDArray[Any], target: NDArray) -> None:
    if data.shape != target.shape:
        raise ArgumentError(f"copyfrom: the array is {target.shape}, the source {data.shape}")
    if not np.can_cast(data.dtype, np.dtype(target.dtype), casting="same_kind"):
        raise ArgumentError(
            f"copyfrom: {data.dtype.name} does not convert to {target.dtype} without losing its "
            f"kind; convert the source first with astype"
        )


def view_of(
    a: NDArray, shape: Sequence[int], dtype: str | None
) -> tuple[str, tuple[int, ...], int]:
    """Dtype, shape and bytes of a view of an array; ArgumentError where the array is smaller."""
    name = dtypes.check(dtype or a.dtype)
    extents = shape_of(shape)
    need = math.prod(extents) * dtypes.nbytes(name)
    if need > a.nbytes:
        raise ArgumentError(
            f"CreateView: {extents} of {name} needs {need} bytes, the array has {a.nbytes}"
        )
    return name, extents, need


def shape_of(shape: Sequence[int] | int) -> tuple[int, ...]:
    """Extents as a tuple of ints; ArgumentError where one is negative or not an integer."""
    items: Iterable[Any] = shape if isinstance(shape, Iterable) else (shape,)
    try:
        extents = tuple(operator.index(n) for n in items)
    except TypeError:
        raise ArgumentError(
            f"shape {shape!r} is none; pass whole numbers, such as (2, 3)"
        ) from None
    if any(n < 0 for n in extents):
        raise ArgumentError(f"shape {extents} has a negative extent")
    return extents

"""`DeviceArray`: an array in the memory of a device, whose elements are reached by copies."""

from __future__ import annotations

import ctypes
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from loopwright.errors import ArgumentError
from loopwright.runtime.arrays.host import NDArray, check_source, elements_of, restored, view_of
from loopwright.runtime.devices import dlpack
from loopwright.runtime.devices.device import Device
from loopwright.runtime.devices.interface import HOST, DeviceAPI, Memory, device_api
from loopwright.runtime.memory import note_use
from loopwright.runtime.memory.pool import lease_of


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

    __slots__ = ("_dtype", "_keeper", "_memory", "_shape")

    def __init__(
        self, memory: Memory, shape: tuple[int, ...], dtype: str, device: Device, keeper: object
    ) -> None:
        self._memory, self.device, self._keeper = memory, device, keeper
        self._shape, self._dtype = shape, np.dtype(dtype)

    @property
    def memory(self) -> Memory:
        return self._memory

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> str:
        return self._dtype.name

    @property
    def data(self) -> int:
        """Address of the first element, or OpenCL's handle of the memory."""
        return self.memory.address

    @property
    def api(self) -> DeviceAPI:
        """Backend of its device."""
        return device_api(self.device.device_type)

    @property
    def mem_scope(self) -> str:
        return self.memory.scope

    def numpy(self) -> npt.NDArray[Any]:
        """A copy as a NumPy array, after all earlier work in the current stream."""
        elements = np.empty(self.shape, self._dtype)
        self._exchange(elements, into_host=True)
        return elements

    def copyfrom(self, source: object) -> NDArray:
        """Copy the elements of `source` into this array, and return it; see `NDArray.copyfrom`."""
        if isinstance(source, DeviceArray) and (
            (source.shape, source.dtype, source.device.device_type)
            == (self.shape, self.dtype, self.device.device_type)
        ):
            api, there, here = self.api, source.device, self.device
            # The copy waits in a stream of the source's device, perhaps longer than arrays live.
            note_use(source.memory, api.current_stream(there.device_id))
            if there == here:
                note_use(self.memory, api.current_stream(here.device_id))
            else:  # queued work here reads the old elements
                api.synchronize(here.device_id, api.current_stream(here.device_id))
            api.copy(source.memory, 0, self.memory, 0, self.nbytes)
            if there != here:
                api.synchronize(there.device_id, api.current_stream(there.device_id))
            return self
        data = elements_of(source)
        check_source(data, self)
        self._exchange(np.ascontiguousarray(data, self._dtype), into_host=False)
        return self

    _on_host = numpy

    def _exchange(self, host: npt.NDArray[Any], into_host: bool) -> None:
        """Copy all elements between here and an array of the host, and wait for that."""
        api, device_id = self.api, self.device.device_id
        other = Memory(HOST, 0, int(host.ctypes.data), host.nbytes, owner=host)
        stream = api.current_stream(device_id)
        note_use(self.memory, stream)
        source, target = (self.memory, other) if into_host else (other, self.memory)
        api.copy(source, 0, target, 0, self.nbytes, stream)
        api.synchronize(device_id, stream)

    def CreateView(self, shape: Sequence[int], dtype: str | None = None) -> NDArray:
        """Another shape, and perhaps type, of the same memory; see `NDArray.CreateView`."""
        name, extents, need = view_of(self, shape, dtype)
        return DeviceArray(self.memory.part(0, need), extents, name, self.device, self._keeper)

    def __dlpack__(self, **options: Any) -> Any:
        where, wanted = self.__dlpack_device__(), options.get("dl_device")
        if wanted not in (None, where):
            if options.get("copy") is False or wanted[0] != HOST:
                raise BufferError(f"the array lies on {self.device}; copy it with copyto first")
            return self.copyto(Device(HOST)).__dlpack__(max_version=options.get("max_version"))
        if options.get("copy"):
            return self.copyto(self.device).__dlpack__(stream=options.get("stream"))
        stream = options.get("stream")
        if stream != -1:
            self._hand_over(stream)
        # Where a handle is an address, consumers that do not know of offsets are served too.
        begin, offset = (
            (self.memory.address, 0)
            if self.api.has_addresses
            else (self.memory.handle, self.memory.offset)
        )
        return dlpack.export(begin, offset, self.shape, self.dtype, where, self)

    def _hand_over(self, number: int | None) -> None:
        """Let a consumer's stream (DLPack's number) or the host wait for all work queued here."""
        lease, device_id = lease_of(self.memory), self.device.device_id
        if lease is not None:  # else nobody knows in which streams it was used
            streams = {id(s): s for s in lease.streams.values()}
            current = self.api.current_stream(device_id)
            streams[id(current)] = current
            if self.api.let_follow(device_id, list(streams.values()), number):
                return
        self.api.synchronize(device_id)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles and copies (module ``copy``) hold the elements, for a device of its name."""
        return restored, (self.numpy(), str(self.device), self.mem_scope)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        raise ArgumentError(
            f"the array lies on {self.device}; a.numpy() copies its elements to the host"
        )

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        raise ArgumentError(
            f"the array lies on {self.device}; a.numpy() copies its elements to the host"
        )

    def __setitem__(self, key: Any, value: Any) -> None:
        raise ArgumentError(f"the array lies on {self.device}; a.copyfrom(...) writes all of it")

    def __repr__(self) -> str:
        return f"<NDArray {self.shape} {self.dtype} on {self.device}>\n{self.numpy()}"


class Keeper:
    """Frees memory of a device when the last array of it is gone."""

    def __init__(self, memory: Memory, give_back: Callable[[Memory], object]) -> None:
        free = weakref.finalize(self, give_back, memory)
        free.atexit = False  # the process's end frees it all, and drivers may have gone before


_addressof, _view = ctypes.addressof, ctypes.c_char.from_buffer


class Extent(NamedTuple):
    """A range of memory."""

    #: Address space: type and number of a device; empty: the host's.
    space: tuple[int, ...]
    #: Addresses of the first byte, and behind the last one.
    begin: int
    end: int

    def meets(self, other: Extent) -> bool:
        """Whether the two share bytes."""
        return (
            self.begin < other.end
            and other.begin < self.end
            and self.space == other.space
            and self.begin < self.end
            and other.begin < other.end
        )


def extent(array: Any) -> Extent:
    """The memory from the first to the last byte of an array, of NumPy or of a device."""
    if isinstance(array, DeviceArray):
        memory = array.memory
        device = memory.device_type, memory.device_id
        if array.api.has_addresses:
            return Extent(device, memory.address, memory.address + memory.nbytes)
        # Without addresses, only pieces of one handle can meet.
        return Extent((*device, memory.handle), memory.offset, memory.offset + memory.nbytes)
    data = array._data if isinstance(array, NDArray) else array
    flags, nbytes = data.flags, data.nbytes
    # As `ArgumentChecks` has it: quick, of writable arrays that NumPy exports.
    quick = flags.carray and nbytes and data.dtype.kind != "V"
    begin = _addressof(_view(data)) if quick else data.__array_interface__["data"][0]  # type: ignore[arg-type]
    if flags.forc or not nbytes:
        return Extent((), begin, begin + nbytes)
    steps = [(n - 1) * s for n, s in zip(data.shape, data.strides, strict=True)]
    before, behind = (sum(f(0, s) for s in steps) for f in (min, max))
    return Extent((), begin + before, begin + behind + data.itemsize)


def buffer_of(array: Any) -> memoryview | None:
    """The buffer of another object in which an array of NumPy lies, such as a mapped file.

    As long as it is held, that object refuses to be closed or resized. NumPy does not hold it.
    """
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    try:
        return None if base is None else memoryview(base)
    except TypeError:  # it has none: an array of a device, a tensor of another library
        return None


class Taken:
    """Index of the memory of named arrays, to find overlaps."""

    def __init__(self, named: Iterable[tuple[str, Any]]) -> None:
        self._pieces: list[tuple[Extent, str]] = []
        for piece, name in sorted((extent(a), name) for name, a in named):
            last = self._pieces[-1][0] if self._pieces else None
            if last is not None and last.meets(piece):  # weights that are tied
                merged = last._replace(end=max(last.end, piece.end))
                self._pieces[-1] = (merged, self._pieces[-1][1])
            elif piece.begin < piece.end:
                self._pieces.append((piece, name))

    def by(self, written: Extent) -> str | None:
        """The name of an array that an extent overlaps; None: there is none."""
        at = bisect_left(self._pieces, ((written.space, written.end, 0), ""))
        return self._pieces[at - 1][1] if at and self._pieces[at - 1][0].meets(written) else None

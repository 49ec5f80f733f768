"""Extents of arrays in memory, to find those that overlap."""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from loopwright.runtime.arrays.device import DeviceArray
from loopwright.runtime.arrays.host import NDArray
from loopwright.runtime.devices.interface import Memory

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
        return extent_on_device(array.memory, array.api.has_addresses)
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


def extent_on_device(memory: Memory, has_addresses: bool) -> Extent:
    """The bytes of device memory; without addresses, only pieces of one handle can meet."""
    device = memory.device_type, memory.device_id
    if has_addresses:
        return Extent(device, memory.address, memory.address + memory.nbytes)
    space = (*device, memory.handle)
    return Extent(space, memory.offset, memory.offset + memory.nbytes)


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
        if at and self._pieces[at - 1][0].meets(written):
            return self._pieces[at - 1][1]
        return None

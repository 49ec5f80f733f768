"""Memory of the host as devices take it: arrays of NumPy, kept alive by their users."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from loopwright.errors import ArgumentError
from loopwright.runtime.devices.interface import HOST, Memory


class HasMemory(Protocol):
    """An array that knows its memory, as `loopwright.runtime.NDArray`."""

    @property
    def memory(self) -> Memory:
        """The bytes of its elements."""


#: Source or target of copies: memory, a contiguous NumPy array, or an NDArray on any device.
HostOrDevice = Memory | npt.NDArray[Any] | HasMemory


def as_memory(x: HostOrDevice, written: bool = False) -> Memory:
    """Memory as it is, or the bytes of a contiguous array, which live as long as the result.

    `written`: somebody will write into it, so that a read-only array is an ArgumentError.
    """
    if isinstance(x, Memory):
        return x
    memory = getattr(x, "memory", None)
    if isinstance(memory, Memory) and memory.device_type != HOST:
        return memory
    if isinstance(memory, Memory):
        x = np.asarray(x)  # a view of the same bytes, which says whether it may be written
    if not isinstance(x, np.ndarray):
        raise ArgumentError(
            f"expected an array of NumPy, an NDArray or memory, got a {type(x).__name__}; "
            "numpy.asarray makes an array of a list"
        )
    if not x.flags.c_contiguous:
        raise ArgumentError(
            f"an array of shape {x.shape} is not contiguous; copy it with numpy.ascontiguousarray"
        )
    if written and not x.flags.writeable:
        raise ArgumentError(f"an array of shape {x.shape} is read-only; pass one to write into")
    return Memory(HOST, 0, x.ctypes.data, x.nbytes, owner=x)


def same_size(source: Memory, target: Memory, nbytes: int | None) -> int:
    """Bytes to copy: the given number, or all, where both sides have the same size."""
    if nbytes is not None:
        return nbytes
    if source.nbytes != target.nbytes:
        raise ArgumentError(
            f"a copy of {source.nbytes} bytes into {target.nbytes}; say how many by nbytes"
        )
    return source.nbytes

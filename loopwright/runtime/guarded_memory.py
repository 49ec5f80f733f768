"""Memory that detects accesses out of bounds: pages between two ranges without access.

An array lies against one of the two edges. An access beyond that edge faults, which ends the
process; the rest of the pages at the other end holds a pattern that must survive.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Literal

import numpy as np
import numpy.typing as npt

#: The edge against which an array lies.
Side = Literal["start", "end"]
#: Default number of bytes without access before and after the pages.
GUARD_BYTES = 1 << 20
_PATTERN = 0xCB
_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)


class GuardedMemory:
    """Room for one array of up to `nbytes` at a time, freed with the last reference to it.

    Both sizes are rounded up to pages; `guard_bytes` is the range without access on each side, and
    ``size`` the bytes between the two.
    """

    def __init__(self, nbytes: int, guard_bytes: int = GUARD_BYTES) -> None:
        guard = _pages(guard_bytes)
        self.size = _pages(nbytes)
        try:
            mapping = mmap.mmap(-1, self.size + 2 * guard, flags=_PRIVATE)
        except (OSError, ValueError) as error:
            raise MemoryError(f"no memory for {self.size} bytes with guards: {error}") from error
        base = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        self._bytes = np.frombuffer(mapping, np.uint8)[guard : guard + self.size]
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        for at in (base, base + guard + self.size):
            if protect(ctypes.c_void_p(at), ctypes.c_size_t(guard), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self._start = self._end = 0

    def place(self, nbytes: int, side: Side, align: int = 1) -> npt.NDArray[np.uint8]:
        """The bytes of an array against one of the edges; around them lies the pattern.

        The address is a multiple of `align`, so that up to ``align - 1`` bytes may lie between the
        array and the edge.
        """
        self._start = (self.size - nbytes) // align * align if side == "end" else 0
        self._end = self._start + nbytes
        self._bytes[: self._start] = _PATTERN
        self._bytes[self._end :] = _PATTERN
        return self._bytes[self._start : self._end]

    def intact(self) -> bool:
        """Whether nobody has written around the array."""
        before, after = self._bytes[: self._start], self._bytes[self._end :]
        return bool((before == _PATTERN).all() and (after == _PATTERN).all())


def _pages(nbytes: int) -> int:
    """Bytes, rounded up to whole pages; at least one."""
    return max(1, -(-nbytes // mmap.PAGESIZE)) * mmap.PAGESIZE

"""Memory of the host in huge pages, for arrays that are read repeatedly.

A page of 2 MB takes one entry of the TLB in place of 512, and the processor prefetches within a
page, not beyond it: weights of some megabytes, which come from memory in every run of a model, come
faster (https://docs.kernel.org/admin-guide/mm/transhuge.html). Linux is asked for them; where it
has none, and elsewhere, ordinary pages are used.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

#: Bytes of a huge page of x86 and of most of Arm.
HUGE_PAGE = 2 << 20
_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
#: Whether a system can be asked.
AVAILABLE = hasattr(mmap, "MADV_HUGEPAGE")
#: Bytes that an arena takes from the system at once. Untouched pages take no memory.
_CHUNK = 64 << 20
_ALIGNMENT = 64


def huge_pages(nbytes: int) -> npt.NDArray[np.uint8]:
    """Zero bytes, at least 1, that begin with a huge page; freed with their last reference."""
    whole = -(-nbytes // HUGE_PAGE) * HUGE_PAGE
    try:
        # Linux aligns such a mapping by itself since 6.7 only.
        mapping = mmap.mmap(-1, whole + HUGE_PAGE, flags=_PRIVATE)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"no memory for {nbytes} bytes: {error}") from None
    with suppress(OSError):  # a kernel without huge pages
        mapping.madvise(mmap.MADV_HUGEPAGE)
    found = np.frombuffer(mapping, np.uint8)
    start = -found.ctypes.data % HUGE_PAGE
    return found[start : start + nbytes]


class Arena:
    """Copies of arrays side by side in huge pages.

    Memory is freed with the last array in it, so this is for arrays that live and die together.
    """

    def __init__(self) -> None:
        self._free = np.empty(0, np.uint8)

    def copy_of(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A copy, row-major, whose first element lies at a multiple of 64."""
        made = self._take(array.nbytes).view(array.dtype).reshape(array.shape)
        np.copyto(made, array)
        return made

    def _take(self, nbytes: int) -> npt.NDArray[np.uint8]:
        if not AVAILABLE:
            block = np.empty(nbytes + _ALIGNMENT, np.uint8)
            return block[-block.ctypes.data % _ALIGNMENT :][:nbytes]
        taken = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        if taken > len(self._free):
            self._free = huge_pages(max(taken, _CHUNK))
        found, self._free = self._free[:nbytes], self._free[taken:]
        return found

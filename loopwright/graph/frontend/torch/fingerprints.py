"""Fingerprints of memory: detect any changed byte, at the speed of reading it.

Bytes are read as pairs of 32-bit words. A fingerprint is, for each block and lane, the sum of
``(a + k) * (b + m)`` over its pairs, modulo 2**64, with odd multiples of the row as ``k`` and
``m``: a change within one pair is always detected; others but for about one of 2**60.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import driver, te
from loopwright.executors.sequence import sequence
from loopwright.runtime import Module
from loopwright.target import Target

#: Pairs side by side in a row, rows of a page, and pages of a block, of which threads take one at a
#: time. Pages of 4 KiB are read side by side: a processor fetches ahead within each of them alone.
_LANES, _ROWS, _PAGES = 8, 64, 16
_ROW_BYTES = 8 * _LANES


class Fingerprints:
    """Fingerprints of contiguous byte arrays as they were on construction; keeps them alive."""

    def __init__(self, memory: Sequence[npt.NDArray[np.uint8]], target: Target) -> None:
        calls, blocks = [], [part for m in memory for part in _blocks(m)]
        self._now = np.empty((sum(map(len, blocks)), _LANES), np.uint64)
        at = 0
        for block in blocks:
            out, at = self._now[at : at + len(block)], at + len(block)
            kernel = _kernel(target, whole=block.shape[1] == _PAGES)
            calls.append(kernel.get_function("fingerprint").bind(block, out))
        self._read = sequence(calls)
        # Bytes that fill no row are few: a copy is kept.
        tails = [_tail(m) for m in memory]
        self._tails = [(tail, tail.tobytes()) for tail in tails if len(tail)]
        self._read()
        self._then = self._now.copy()

    def changed(self) -> bool:
        """Whether the memory holds something else now; all of it is read."""
        self._read()
        same = np.array_equal(self._now, self._then)
        return not same or any(tail.tobytes() != kept for tail, kept in self._tails)


def _blocks(memory: npt.NDArray[np.uint8]) -> list[npt.NDArray[Any]]:
    """The rows of whole blocks, and the remaining ones as a block of one page of any length."""
    rows = memory[: len(memory) - len(_tail(memory))].view(np.uint32).reshape(-1, 2, _LANES)
    whole = len(rows) // (_PAGES * _ROWS) * (_PAGES * _ROWS)
    parts = [rows[:whole].reshape(-1, _PAGES, _ROWS, 2, _LANES), rows[None, None, whole:]]
    return [part for part in parts if part.size]


def _tail(memory: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The bytes that fill no row; all of them where they are not aligned as words."""
    aligned = memory.ctypes.data % 4 == 0
    return memory[len(memory) // _ROW_BYTES * _ROW_BYTES :] if aligned else memory


@lru_cache(maxsize=8)
def _kernel(target: Target, whole: bool) -> Module:
    blocks = te.size_var("blocks")
    pages, rows = (_PAGES, _ROWS) if whole else (1, te.size_var("rows"))
    words = te.placeholder((blocks, pages, rows, 2, _LANES), "uint32", name="words")
    page, row = te.reduce_axis((0, pages), name="page"), te.reduce_axis((0, rows), name="row")

    def keyed(block: Any, lane: Any, n: int, factor: int) -> Any:
        place = (page * rows + row).astype("uint32")
        key = (place * np.uint32(factor) + np.uint32(factor)).astype("uint64")
        return words[block, page, row, n, lane].astype("uint64") + key

    sums = te.compute(
        (blocks, _LANES),
        lambda block, lane: te.sum(
            keyed(block, lane, 0, 0x9E3779B1) * keyed(block, lane, 1, 0x85EBCA77),
            axis=[page, row],
        ),
        name="sums",
    )
    schedule = te.create_schedule(sums.op)
    block, lane = sums.op.axis
    schedule[sums].reorder(block, row, page, lane)
    schedule[sums].unroll(page)
    schedule[sums].vectorize(lane)
    schedule[sums].parallel(block)
    return driver.build(schedule, [words, sums], target, name="fingerprint")

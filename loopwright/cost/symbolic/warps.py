"""What the threads of a warp touch together: segments of global memory, turns at the banks of
shared memory.

An access of a warp is described by digits: thread ``i`` of the warp touches ``width`` bytes from
``sum(stride * ((i // run) % count))`` on. How much that is has no short expression (it is a count
of different values), so the lanes are gone through, once for each different description of a
population. The first warp of a block stands for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.cost.symbolic.symbols import Number, Sym

#: Banks of shared memory, and bytes that each serves at a time.
BANKS, WORD = 32, 4
#: A description: bytes apart, how many threads stand at a place, and how many places there are.
Digit = tuple[Number, Number, Number]

_Ints = npt.NDArray[np.int64]


def sectors(
    unit: int, warp: int, threads: Number, width: Number, digits: Sequence[Digit]
) -> Number:
    """Segments of ``unit`` bytes that a warp touches in one access.

    Args:
        unit: bytes of a segment; segments begin at multiples of it, and so does the memory.
        warp: threads of a warp.
        threads: threads of a block; where there are fewer than ``warp``, the others do nothing.
        width: bytes that a thread touches, at most ``unit``.
        digits: where the threads are.
    """
    return _apply("sectors", (unit, warp, threads, width), digits)


def wavefronts(warp: int, threads: Number, width: Number, digits: Sequence[Digit]) -> Number:
    """Turns that an access of shared memory takes: a bank serves one word a turn, to any number of
    threads. Accesses of 8 and 16 bytes are made by halves and quarters of a warp.

    Args:
        warp: threads of a warp.
        threads: threads of a block.
        width: bytes that a thread touches: up to 4, 8 or 16.
        digits: where the threads are.
    """
    return _apply("wavefronts", (BANKS, warp, threads, width), digits)


def _apply(op: str, head: tuple[Number, ...], digits: Sequence[Digit]) -> Number:
    args = (*head, *(x for digit in digits for x in digit))
    graph = next((x.graph for x in args if isinstance(x, Sym)), None)
    if graph is None:
        return int(COUNTS[op](*map(np.asarray, args)))
    return graph.apply(op, args)


def _count_sectors(*columns: Any) -> Any:
    def count(rows: _Ints) -> _Ints:
        unit, width = rows[:, 0, None], rows[:, 3, None]
        first = _offsets(rows)
        ends = np.concatenate([first // unit, (first + width - 1) // unit], axis=1)
        ends.sort(axis=1)
        changes: _Ints = np.count_nonzero(np.diff(ends, axis=1), axis=1)
        return 1 + changes

    return _by_description(count, columns)


def _count_wavefronts(*columns: Any) -> Any:
    def count(rows: _Ints) -> _Ints:
        out = np.zeros(len(rows), np.int64)
        words = np.maximum(rows[:, 3] // WORD, 1)
        for n in np.unique(words).tolist():
            which = words == n
            out[which] = _turns(rows[which], n)
        return out

    return _by_description(count, columns)


def _turns(rows: _Ints, words: int) -> _Ints:
    """Turns of accesses of so many words a thread: for each part of a warp those of the bank that
    has most different words to serve."""
    lanes = int(rows[0, 1])
    parts = min(words, lanes)
    first = _offsets(rows, parts) // WORD
    each = first[:, :, None] + np.arange(words)
    each = each.reshape(len(rows) * parts, -1)
    each.sort(axis=1)
    new = np.ones(each.shape, bool)
    new[:, 1:] = np.diff(each, axis=1) != 0
    bank = np.arange(len(each))[:, None] * BANKS + each % BANKS
    served = np.bincount(bank.ravel(), new.ravel(), len(each) * BANKS)
    turns = served.reshape(len(rows), parts, BANKS).max(axis=2).astype(np.int64)
    # A part in which no thread of the block is left takes no turn.
    active = np.arange(parts) * (lanes // parts) < rows[:, 2, None]
    return np.asarray((turns * active).sum(axis=1), np.int64)


def _offsets(rows: _Ints, parts: int = 1) -> _Ints:
    """Bytes at which the threads of a warp begin; (rows, lanes). Threads that a block lacks stand
    where the first one of their part of the warp does."""
    warp = int(rows[0, 1])
    places = _places(warp)
    out = np.zeros((len(rows), warp), np.int64)
    for at in range(4, rows.shape[1], 3):
        stride, run, count = rows[:, at], rows[:, at + 1], rows[:, at + 2]
        if stride.any():
            out += stride[:, None] * places[run, count]
    lane = np.arange(warp)
    each = max(warp // parts, 1)
    return np.where(lane < rows[:, 2, None], out, out[:, lane // each * each])


@cache
def _places(warp: int) -> _Ints:
    """``(lane // run) % count`` by run, count and lane: dividing takes longer than looking up."""
    run, count, lane = np.ogrid[: warp + 1, : warp + 1, :warp]
    return np.asarray(lane // np.maximum(run, 1) % np.maximum(count, 1), np.int64)


def _by_description(count: Callable[[_Ints], _Ints], columns: Sequence[Any]) -> Any:
    """``count`` of each candidate, computed once for equal ones."""
    whole = _plainly([np.asarray(c).astype(np.int64) for c in columns])
    length = np.broadcast_shapes(*(c.shape for c in whole))
    codes: _Ints = np.zeros(length, np.int64)
    room = 1
    for c in (c for c in whole if c.ndim):
        low, span = int(c.min()), int(c.max()) - int(c.min()) + 1
        if room * span >= 1 << 62:
            codes = np.unique(codes, return_inverse=True)[1].reshape(-1)
            room = len(codes)
        codes = codes * span + (c - low)
        room *= span
    _, first, which = np.unique(codes.reshape(-1), return_index=True, return_inverse=True)
    rows = np.stack([np.broadcast_to(c, length).reshape(-1)[first] for c in whole], axis=1)
    return count(rows)[which.reshape(-1)].reshape(length).astype(np.float64)


def _plainly(columns: Sequence[_Ints]) -> list[_Ints]:
    """Descriptions without what makes no difference inside of a warp, so that more are equal."""
    unit, warp, threads, width, *digits = columns
    out = [unit, warp, np.minimum(threads, warp), width]
    for at in range(0, len(digits), 3):
        stride, run, count = digits[at : at + 3]
        count = np.minimum(count, -(-warp // np.maximum(run, 1)))
        still = (count <= 1) | (stride == 0)
        out += [np.where(still, 0, stride), np.where(still, 1, run), np.where(still, 1, count)]
    return out


#: The operations of expressions, on columns: unit or banks, warp, threads, width, digits.
COUNTS: dict[str, Callable[..., Any]] = {
    "sectors": _count_sectors,
    "wavefronts": _count_wavefronts,
}

"""Memory touched by the threads of a warp: segments of global memory, turns of banks of shared one.

An access is described by digits: thread ``i`` touches ``width`` bytes from
``sum(stride * ((i // run) % count))`` on. The number of different values has no short expression:
lanes are enumerated, once for each description. The first warp of a block stands for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.cost.symbolic.symbols import Number, Sym, ceil_div, least, most

BANKS, WORD = 32, 4  #: banks of shared memory, and bytes that each serves at a time
#: A description: bytes apart, how many threads stand at a place, and how many places there are.
Digit = tuple[Number, Number, Number]
#: The operations of expressions; an access is described by its operation and the operands.
COUNTS = ("sectors", "wavefronts")
#: Numbers of a description that lie in one column are digits of this base; all but strides are
#: smaller.
_BASE = 128

Ints = npt.NDArray[np.int64]


def sectors(
    unit: int, warp: int, threads: Number, width: Number, digits: Sequence[Digit]
) -> Number:
    """Segments of ``unit`` bytes that a warp touches in one access.

    Segments and the memory begin at multiples of ``unit``; a thread touches ``width`` bytes, at
    most ``unit``. Where a block has fewer threads than ``warp``, the others do nothing.
    """
    return _apply("sectors", unit, warp, threads, width, digits)


def wavefronts(warp: int, threads: Number, width: Number, digits: Sequence[Digit]) -> Number:
    """Turns of a shared-memory access: a bank serves one word a turn, to any number of threads.

    Accesses of 8 and 16 bytes are made by halves and quarters of a warp.
    """
    return _apply("wavefronts", BANKS, warp, threads, width, digits)


def _apply(
    op: str, unit: int, warp: int, threads: Number, width: Number, digits: Sequence[Digit]
) -> Number:
    head = least(threads, warp) * _BASE + width
    packed = []
    for stride, run, count in digits:  # equal for digits that do not differ inside a warp
        run = least(run, warp)
        count = least(count, ceil_div(warp, most(run, 1)))
        packed.append((stride * _BASE + run) * _BASE + count)
    args = (unit, warp, head, *packed)
    graph = next((x.graph for x in args if isinstance(x, Sym)), None)
    return int(count_lanes(described([(op, args)]))[0]) if graph is None else graph.apply(op, args)


def described(accesses: Sequence[tuple[str, Sequence[Any]]]) -> Ints:
    """Descriptions of accesses as columns, int64 (fields, accesses * n): operation, unit or banks,
    warp, threads and width, and each digit, all ``(n,)`` or a single number."""
    length = max(np.size(x) for _, args in accesses for x in args)
    fields = 1 + max(len(args) for _, args in accesses)
    out = np.empty((fields, len(accesses), length), np.int64)
    for k, (op, args) in enumerate(accesses):
        out[0, k] = COUNTS.index(op)
        for field, x in enumerate(args, 1):
            out[field, k] = x
        out[1 + len(args) :, k] = _BASE + 1  # one place, from which no thread moves
    return out.reshape(fields, -1)


def count_lanes(columns: Ints) -> Ints:
    """Counts, int64 (n,), of descriptions (fields, n) as in `described`, lane by lane."""
    op, unit, warp, head, *packed = columns
    fields = [unit, warp, head // _BASE, head % _BASE]
    for digit in packed:
        fields += [digit // _BASE**2, digit // _BASE % _BASE, digit % _BASE]
    rows = np.stack(fields, axis=1)
    kinds = np.stack([op, warp, head % _BASE])
    out = np.empty(len(rows), np.int64)
    for kind in np.unique(kinds, axis=1).T:
        which = (kinds == kind[:, None]).all(axis=0)
        if COUNTS[kind[0]] == "sectors":
            out[which] = _segments(rows[which])
        else:
            out[which] = _turns(rows[which], max(int(kind[2]) // WORD, 1))
    return out


def _segments(rows: Ints) -> Ints:
    unit, width = rows[:, 0, None], rows[:, 3, None]
    first = _offsets(rows)
    ends = np.concatenate([first // unit, (first + width - 1) // unit], axis=1)
    ends.sort(axis=1)
    changes: Ints = np.count_nonzero(np.diff(ends, axis=1), axis=1)
    return 1 + changes


def _turns(rows: Ints, words: int) -> Ints:
    """Turns of accesses of ``words`` words: in each part of a warp those of the busiest bank."""
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


def _offsets(rows: Ints, parts: int = 1) -> Ints:
    """First bytes of a warp's threads, (rows, lanes); missing ones stand at their part's first."""
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
def _places(warp: int) -> Ints:
    """``(lane // run) % count`` by run, count and lane: looking up is faster than dividing."""
    run, count, lane = np.ogrid[: warp + 1, : warp + 1, :warp]
    return np.asarray(lane // np.maximum(run, 1) % np.maximum(count, 1), np.int64)


#: Descriptions that are kept, and places where one may be found, as a power of two.
KEPT, _PLACES = 1 << 15, 16
_MASK = (1 << _PLACES) - 1
#: Odd numbers that spread the fields of descriptions over 64 bits (Knuth, TAOCP 3, 6.4).
_SPREAD = np.random.default_rng(0).integers(-(1 << 62), 1 << 62, 64) * 2 + 1


class KnownCounts:
    """Counts by description, a cache that is emptied when ``kept`` descriptions fill it.

    Each has two places where it may be found; a later one may take them both.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        # For each number of fields: the kept descriptions, their counts, and their places.
        self._tables: dict[int, tuple[Ints, Ints, npt.NDArray[np.int32]]] = {}
        self._used: dict[int, int] = {}

    def columns(self, accesses: Sequence[tuple[str, Sequence[Any]]]) -> Any:
        """Counts of accesses as in `warps.described`, float64 (accesses, n)."""
        return self._counts(described(accesses)).astype(np.float64).reshape(len(accesses), -1)

    def _counts(self, wanted: Ints) -> Ints:
        fields = len(wanted)
        if fields not in self._tables:
            self._clear(fields)
        spread = _SPREAD[:fields] @ wanted
        kept, counts, places = self._tables[fields]
        rows = places[_first(spread)]
        unknown = _different(kept.take(rows, axis=1), wanted)
        if len(unknown):
            rows[unknown] = places[_second(spread[unknown])]
            unknown = unknown[_different(kept.take(rows[unknown], axis=1), wanted[:, unknown])]
        out = counts[rows]
        if len(unknown):
            new, first, which = np.unique(
                wanted[:, unknown], axis=1, return_index=True, return_inverse=True
            )
            counted = count_lanes(new)
            out[unknown] = counted[which.reshape(-1)]
            self._keep(new, counted, spread[unknown[first]])
        return out

    def _keep(self, new: Ints, counted: Ints, spread: Ints) -> None:
        fields, n = new.shape
        if self._used[fields] + n > self._kept:
            self._clear(fields)
        if n >= self._kept:
            return
        kept, counts, places = self._tables[fields]
        at = np.arange(self._used[fields], self._used[fields] + n)
        kept[:, at], counts[at] = new, counted
        taken = places[_first(spread)] > 0
        places[np.where(taken, _second(spread), _first(spread))] = at
        self._used[fields] += n

    def _clear(self, fields: int) -> None:
        # Unused entries are found in the first place, which no description equals.
        kept = np.full((fields, self._kept), -1, np.int64)
        counts, places = np.zeros(self._kept, np.int64), np.zeros(1 << _PLACES, np.int32)
        self._tables[fields], self._used[fields] = (kept, counts, places), 1


def _different(columns: Ints, wanted: Ints) -> Ints:
    """Positions of descriptions that differ from the wanted ones."""
    return np.flatnonzero(np.bitwise_or.reduce(columns ^ wanted, axis=0))


def _first(spread: Ints) -> Ints:
    return (spread >> (64 - _PLACES)) & _MASK


def _second(spread: Ints) -> Ints:
    return (spread >> (64 - 2 * _PLACES)) & _MASK

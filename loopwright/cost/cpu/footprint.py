"""Data touched by the loops around a statement: bytes, lines, strides and reuse, loop by loop.

Depth d is everything inside the d outermost loops. Caches are judged as least recently used memory:
data is found again when everything touched in between fits (Ansor, OSDI 2020; Pruner, ASPLOS 2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from math import gcd
from operator import mul

from loopwright.cost.cpu.machine import Machine
from loopwright.cost.symbolic.index_steps import LoopKey
from loopwright.cost.symbolic.loop_nest import NestAccess, NestBuffer, StageNest
from loopwright.cost.symbolic.symbols import (
    Number,
    at_most,
    ceil_div,
    least,
    magnitude,
    most,
    product,
    total,
    where,
)
from loopwright.schedule import StageId

PAGE = 4096  #: bytes of a page of memory
#: Counted share of the cost of an input that begins within a cache line, as NumPy's do: our own
#: arrays, in a model and in measurements, begin at one.
MISPLACED = 0.25


class Touched:
    """Data that one access touches at every depth of its nest; lists have one entry per depth."""

    def __init__(self, access: NestAccess, nest: StageNest, line: int) -> None:
        self.access = access
        # The neighbours in the line of an element that is read once are read soon after.
        self._misplaced = access.buffer.given and nest.op.reduction is not None
        size = access.buffer.itemsize
        dims = access.buffer.dims
        spans: list[Number] = [0] * len(dims)
        counts: list[Number] = [1] * len(dims)
        self.elements: list[Number] = [1]  # different elements
        self.lines: list[Number] = [1]  # cache lines
        #: bytes between two iterations of the loop at this depth; 0 where it does not move
        self.strides: list[Number] = []
        self.moves: list[bool] = []  # whether the loop at this depth moves the address
        #: different indices of each dimension of the buffer
        self.boxes: list[list[Number]] = [[1] * len(dims)]
        moving = {m.loop for moves in access.moves for m in moves}
        for x in reversed(nest.loops):
            stride: Number = 0
            box, elements, lines = self.boxes[0], self.elements[0], self.lines[0]
            if x.key in moving:
                stride = self._move(x.key, spans, counts)
                reach = zip(spans, counts, dims, strict=True)
                box = [least(least(1 + span, n), dim.extent) for span, n, dim in reach]
                elements, lines = product(box), self._lines(spans, box, size, line)
            self.strides.insert(0, stride)
            self.moves.insert(0, x.key in moving)
            self.boxes.insert(0, box)
            self.elements.insert(0, elements)
            self.lines.insert(0, lines)

    def _move(self, loop: LoopKey, spans: list[Number], counts: list[Number]) -> Number:
        """Add a loop to spans and counts of the dimensions; returns its stride in bytes."""
        stride: Number = 0
        buffer = self.access.buffer
        moves = ((d, m) for d, each in enumerate(self.access.moves) for m in each if m.loop == loop)
        for d, m in moves:
            step = magnitude(m.step)
            spans[d] = spans[d] + step * (m.count - 1)
            counts[d] = counts[d] * m.count
            bytes_apart = step * buffer.dims[d].stride * buffer.itemsize
            mine = where(at_most(m.count, 1), 0, bytes_apart)
            none = isinstance(stride, int) and stride == 0
            stride = mine if none else where(at_most(stride, 0), mine, stride)
        return stride

    def _lines(self, spans: list[Number], distinct: list[Number], size: int, line: int) -> Number:
        """Cache lines of a box: rows of the last dimension, or one run of contiguous rows."""
        dims = self.access.buffer.dims
        if not dims:
            return 1
        length = (spans[-1] + 1) * size
        placed = ceil_div(length, line)
        # Rows that begin anywhere in a line touch on average a part of one more.
        anywhere = (length + line - size) / line
        if any(n % line for n in self.access.buffer.rows_apart()):
            row = least(distinct[-1], anywhere)
        elif self._misplaced:
            row = least(distinct[-1], placed + (anywhere - placed) * MISPLACED)
        else:
            row = least(distinct[-1], placed)
        rows = product(distinct[:-1])
        run = 1 + total(least(spans[d], dim.extent - 1) * dim.stride for d, dim in enumerate(dims))
        return least(rows * row, ceil_div(run * size, line) + 1)

    def ways(self, depth: int, way: int, line: int) -> Number:
        """Ways (lines per set) of a cache, a way of ``way`` bytes, that the data of a depth needs.

        Rows whose distance shares a large power of two with ``way`` fall into few sets.
        """
        sets: Number = way // line
        if self.is_crowded(way, line):
            buffer, box = self.access.buffer, self.boxes[depth]
            sets = ceil_div(box[-1] * buffer.itemsize, line)
            for dim, n in zip(buffer.dims[:-1], box[:-1], strict=True):
                if isinstance(dim.stride, int):
                    sets = sets * least(n, _sets(dim.stride * buffer.itemsize, way, line))
        return self.lines[depth] / least(sets, way // line)

    def pages(self, depth: int) -> Number:
        """Memory pages of the data touched at a depth."""
        dims, size = self.access.buffer.dims, self.access.buffer.itemsize
        if len(dims) < 2:
            return 1 + self.elements[depth] * size / PAGE
        *rows, row = self.boxes[depth]
        apart = least(dims[-2].stride * size / PAGE, 1)
        return 1 + product(rows) * most(apart, row * size / PAGE)

    def is_crowded(self, way: int, line: int) -> bool:
        """Whether the touched data may fall into few of the sets."""
        return any(_sets(n, way, line) < way // line for n in self.access.buffer.rows_apart())


def _sets(apart: int, way: int, line: int) -> int:
    """Number of cache sets in which rows ``apart`` bytes apart begin."""
    return way // max(gcd(apart, way), line)


class Touches:
    def __init__(self, nest: StageNest, machine: Machine) -> None:
        self.nest, self.machine = nest, machine
        #: its store, then its loads
        self.accesses = [Touched(a, nest, machine.caches.line) for a in nest.accesses]
        #: iterations of the loops at and inside a depth (one entry more than loops)
        self.inner: list[Number] = [1]
        for loop in reversed(nest.loops):
            self.inner.insert(0, self.inner[0] * loop.extent)

    def without_store(self) -> Touches:
        made = Touches(self.nest, self.machine)
        made.accesses = self.accesses[1:]
        return made

    @cached_property
    def outer(self) -> list[Number]:
        """Iterations of the loops outside each depth."""
        return [*accumulate((x.extent for x in self.nest.loops), mul, initial=1)]

    @cached_property
    def bytes(self) -> list[Number]:
        """Bytes in the cache lines that all accesses touch, by depth."""
        line = self.machine.caches.line
        return [total(a.lines[d] for a in self.accesses) * line for d in range(len(self.inner))]

    def traffic(self, capacity: int) -> Number:
        """Bytes from beyond a cache of ``capacity`` bytes in the run, without streaming stores.

        At the outermost depth whose working set fits, each access brings the data that it touches
        in the loop around, once for each iteration outside of that.
        """
        asked: Number = self.nest.stage.nontemporal
        moved = self.moved(self.accesses, self.fitting(capacity))
        if isinstance(asked, int) and not asked:
            return moved
        loads = self.without_store()
        return where(asked, loads.moved(loads.accesses, loads.fitting(capacity)), moved)

    def fitting(self, capacity: int) -> list[Number]:
        return [at_most(n, capacity) for n in self.bytes]

    def ways(self, way: int) -> list[Number]:
        """Lines per set, at each depth, of a cache with ways of ``way`` bytes."""
        line, depths = self.machine.caches.line, range(len(self.inner))
        return [total(a.ways(d, way, line) for a in self.accesses) for d in depths]

    def crowded(self, way: int) -> list[Touched]:
        """Accesses that may fall into few sets of a cache with ways of ``way`` bytes."""
        line = self.machine.caches.line
        return [a for a in self.accesses if a.is_crowded(way, line)]

    def moved(self, accesses: Sequence[Touched], stays: Sequence[Number]) -> Number:
        """Bytes that accesses bring, if data stays in the cache at the depths of ``stays``."""
        line = self.machine.caches.line
        moved = [total(a.lines[d] for a in accesses) * line * n for d, n in enumerate(self.outer)]
        return self.outermost(stays, [moved[0], *moved[:-1]], moved[-1])

    def page_moves(self, pages: int) -> Number:
        """Number of times that an access moves to a page other than the last ``pages``."""
        touched = [total(a.pages(d) for a in self.accesses) for d in range(len(self.inner))]
        stays = [at_most(n, pages) for n in touched]
        moves = [n * out for n, out in zip(touched, self.outer, strict=True)]
        return self.outermost(stays, [0, *moves[:-1]], moves[-1])

    def outermost(
        self, stays: Sequence[Number], values: Sequence[Number], otherwise: Number
    ) -> Number:
        """Value at the outermost depth at which data stays."""
        out = otherwise
        for stay, value in zip(reversed(stays), reversed(values), strict=True):
            out = where(stay, value, out)
        return out

    @cached_property
    def parallel(self) -> Number:
        return product(x.extent for x in self.nest.loops if x.mark in ("parallel", "thread"))

    @cached_property
    def balance(self) -> Number:
        """Utilization of the threads when tasks are equally long: 0 to 1."""
        threads = self.machine.threads
        return self.parallel / (ceil_div(self.parallel, threads) * threads)

    @cached_property
    def vector_loop(self) -> int | None:
        marks = [x.mark for x in self.nest.loops]
        return marks.index("vectorized") if "vectorized" in marks else None

    @cached_property
    def vector_share(self) -> Number:
        """Share of the lanes of vector registers that do work: 0 to 1."""
        assert self.nest.buffer is not None
        lanes = self.machine.lanes(self.nest.buffer.itemsize)
        if self.vector_loop is None:
            return 1 / lanes
        n = self.nest.loops[self.vector_loop].extent
        return n / (ceil_div(n, lanes) * lanes)


class BufferUsage:
    def __init__(self, nests: Sequence[StageNest]) -> None:
        self._accesses: dict[StageId, list[tuple[StageNest, NestAccess]]] = {}
        for nest in nests:
            for a in nest.accesses:
                self._accesses.setdefault(a.buffer.stage, []).append((nest, a))
        self.made = frozenset(nest.stage.id for nest in nests)
        buffers = [accesses[0][1].buffer for accesses in self._accesses.values()]
        #: Bytes of all inputs, results and intermediate tensors that outlive one parallel task. A
        #: larger cache holds them from one call of the kernel to the next.
        self.used = total(b.elements * b.itemsize for b in buffers if not b.within)

    def resident(self, buffer: NestBuffer) -> Number:
        """Whether a buffer lives in registers: no remaining loop moves an index of it."""
        if not buffer.within:
            return False
        out: Number = True
        for nest, a in self._accesses[buffer.stage]:
            moving = {m.loop for moves in a.moves for m in moves}
            for x in nest.loops:
                if x.key in moving and x.mark not in ("unrolled", "vectorized"):
                    out = where(at_most(x.extent, 1), out, False)
        return out

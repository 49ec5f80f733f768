"""Data touched by the loops around a statement: bytes, lines, strides and reuse, loop by loop.

Depth d is everything inside the d outermost loops. Caches are judged as least recently used memory:
data is found again when everything touched in between fits (Ansor, OSDI 2020; Pruner, ASPLOS 2025).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property, wraps
from itertools import accumulate, pairwise
from math import gcd
from operator import mul
from typing import TypeVar

from loopwright.cost.cpu.machine import Machine
from loopwright.cost.symbolic.index_steps import LoopKey, Move
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
#: Rows that a core prefetches as streams.
STREAMS = 32

_Result = TypeVar("_Result")


def kept(method: Callable[..., _Result]) -> Callable[..., _Result]:
    """Keep a method's results by argument in its object: models ask the same again and again."""
    name = f"{method.__name__} by argument"

    @wraps(method)
    def asked(self: object, *args: object) -> _Result:
        results: dict[object, _Result] = self.__dict__.setdefault(name, {})
        if args not in results:
            results[args] = method(self, *args)
        return results[args]

    return asked


class Touched:
    """Data that one access touches at every depth of its nest; lists have one entry per depth."""

    def __init__(self, access: NestAccess, nest: StageNest, line: int) -> None:
        self.access, self._line = access, line
        # The neighbours in the line of an element that is read once are read soon after.
        self._misplaced = access.buffer.given and nest.op.reduction is not None
        dims = access.buffer.dims
        #: bytes between two iterations of the loop at this depth; 0 where it does not move
        self.strides: list[Number] = []
        self.moves: list[bool] = []  # whether the loop at this depth moves the address
        # Distance of the extreme indices of each dimension, and the iterations that move it. What
        # a loop does not move is the same object as inside of it, and is computed once.
        self._reaches: list[list[tuple[Number, Number]]] = [[(0, 1)] * len(dims)]
        moving: dict[LoopKey, list[tuple[int, Move]]] = {}
        for d, moves in enumerate(access.moves):
            for m in moves:
                moving.setdefault(m.loop, []).append((d, m))
        for x in reversed(nest.loops):
            moved = moving.get(x.key, [])
            self.strides.insert(0, self._stride(moved))
            self.moves.insert(0, bool(moved))
            reaches = self._reaches[0]
            if moved:
                reaches = list(reaches)
                for d, m in moved:
                    span, count = reaches[d]
                    reaches[d] = span + magnitude(m.step) * (m.count - 1), count * m.count
            self._reaches.insert(0, reaches)

    def _stride(self, moved: Sequence[tuple[int, Move]]) -> Number:
        """Bytes by which an iteration of a loop moves the address."""
        stride: Number = 0
        buffer = self.access.buffer
        for d, m in moved:
            bytes_apart = magnitude(m.step) * buffer.dims[d].stride * buffer.itemsize
            mine = where(at_most(m.count, 1), 0, bytes_apart)
            none = isinstance(stride, int) and stride == 0
            stride = mine if none else where(at_most(stride, 0), mine, stride)
        return stride

    @cached_property
    def boxes(self) -> list[list[Number]]:
        """Different indices of each dimension of the buffer."""
        dims = self.access.buffer.dims
        boxes: list[list[Number]] = [[1] * len(dims)]
        for inner, reaches in pairwise(reversed(self._reaches)):
            box = boxes[0]
            if reaches is not inner:
                box = [
                    n if reach is before else least(least(1 + reach[0], reach[1]), dim.extent)
                    for n, reach, before, dim in zip(box, reaches, inner, dims, strict=True)
                ]
            boxes.insert(0, box)
        return boxes

    @cached_property
    def elements(self) -> list[Number]:
        """Different elements."""
        return self._of_boxes(lambda box, _: product(box))

    @cached_property
    def lines(self) -> list[Number]:
        """Cache lines of a box: rows of the last dimension, or one run of contiguous rows."""
        buffer, line = self.access.buffer, self._line
        dims, size = buffer.dims, buffer.itemsize
        apart = any(n % line for n in buffer.rows_apart())

        def lines(box: Sequence[Number], reaches: Sequence[tuple[Number, Number]]) -> Number:
            length = (reaches[-1][0] + 1) * size
            # Rows that begin anywhere in a line touch on average a part of one more.
            anywhere = (length + line - size) / line
            row = anywhere
            if not apart:
                placed = ceil_div(length, line)
                row = placed + (anywhere - placed) * MISPLACED if self._misplaced else placed
            rows = product(box[:-1])
            spans = zip(reaches, dims, strict=True)
            run = 1 + total(least(span, dim.extent - 1) * dim.stride for (span, _), dim in spans)
            return least(rows * least(box[-1], row), ceil_div(run * size, line) + 1)

        return self._of_boxes(lines if dims else lambda *_: 1)

    @cached_property
    def pages(self) -> list[Number]:
        """Memory pages."""
        dims, size = self.access.buffer.dims, self.access.buffer.itemsize
        if len(dims) < 2:
            return [1 + n * size / PAGE for n in self.elements]
        apart = least(dims[-2].stride * size / PAGE, 1)

        def pages(box: Sequence[Number], _: object) -> Number:
            return 1 + product(box[:-1]) * most(apart, box[-1] * size / PAGE)

        return self._of_boxes(pages, pages(self.boxes[-1], None))

    def _of_boxes(
        self,
        figure: Callable[[Sequence[Number], Sequence[tuple[Number, Number]]], Number],
        of_one: Number = 1,
    ) -> list[Number]:
        """A figure of the box at each depth, ``of_one`` of a single element."""
        figures = [of_one]
        for inner, reaches, box in zip(
            self._reaches[:0:-1], self._reaches[-2::-1], self.boxes[-2::-1], strict=True
        ):
            figures.insert(0, figures[0] if reaches is inner else figure(box, reaches))
        return figures

    @cached_property
    def jumps(self) -> Number:
        """Page changes per byte: beyond the streams, each piece of a row is one."""
        size, dims = self.access.buffer.itemsize, self.access.buffer.dims
        if len(dims) < 2:
            return 0
        apart = least(dims[-2].stride * size / PAGE, 1)
        out: Number = 0
        outside: Sequence[Number] | None = None
        for box in self.boxes:
            if box is not outside:
                out = where(at_most(product(box[:-1]), STREAMS), out, apart / (box[-1] * size))
            outside = box
        return out

    def ways(self, way: int) -> list[Number]:
        """Ways (lines per set) of a cache, a way of ``way`` bytes, that the data needs.

        Rows whose distance shares a large power of two with ``way`` fall into few sets.
        """
        line, size = self._line, self.access.buffer.itemsize
        if not self.is_crowded(way):
            return [n / (way // line) for n in self.lines]
        dims = self.access.buffer.dims[:-1]
        few = [_sets(d.stride * size, way, line) if isinstance(d.stride, int) else 1 for d in dims]

        def sets(box: Sequence[Number], _: object) -> Number:
            rows = product(least(n, each) for n, each in zip(box[:-1], few, strict=True))
            return least(ceil_div(box[-1] * size, line) * rows, way // line)

        each = self._of_boxes(sets, least(ceil_div(size, line), way // line))
        return [n / sets for n, sets in zip(self.lines, each, strict=True)]

    def is_crowded(self, way: int) -> bool:
        """Whether the touched data may fall into few of the sets of a cache."""
        line = self._line
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
        loads = copy(self)
        loads.accesses = self.accesses[1:]
        loads.__dict__.pop("bytes", None)
        return loads

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
        each = [a.ways(way) for a in self.accesses]
        return [total(n[d] for n in each) for d in range(len(self.inner))]

    def crowded(self, way: int) -> list[Touched]:
        """Accesses that may fall into few sets of a cache with ways of ``way`` bytes."""
        return [a for a in self.accesses if a.is_crowded(way)]

    def moved(self, accesses: Sequence[Touched], stays: Sequence[Number]) -> Number:
        """Bytes that accesses bring, if data stays in the cache at the depths of ``stays``."""
        each = [self._brought(a) for a in accesses]
        brought = [total(n[d] for n in each) for d in range(len(self.inner))]
        return self.outermost(stays, [brought[0], *brought[:-1]], brought[-1])

    @kept
    def _brought(self, access: Touched) -> list[Number]:
        """Bytes that an access brings if data stays in the cache at a depth."""
        line = self.machine.caches.line
        return [n * line * outer for n, outer in zip(access.lines, self.outer, strict=True)]

    def page_moves(self, pages: int) -> Number:
        """Number of times that an access moves to a page other than the last ``pages``."""
        touched = [total(a.pages[d] for a in self.accesses) for d in range(len(self.inner))]
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

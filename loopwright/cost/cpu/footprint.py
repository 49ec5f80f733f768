"""What the loops around a statement touch: bytes, lines, strides and reuse, loop by loop.

Depth d is everything inside the d outermost loops: depth 0 is the whole stage, the largest depth
one run of the statement. Caches are judged as least recently used memory: data is found again when
what is touched in between fits (working sets as in the cache model of Ansor's features, OSDI 2020,
and of Pruner, ASPLOS 2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import gcd

from loopwright.cost.cpu.machine import Machine
from loopwright.cost.symbolic.index_steps import LoopKey
from loopwright.cost.symbolic.loop_nest import StageNest
from loopwright.cost.symbolic.nest_buffers import Access
from loopwright.cost.symbolic.symbols import (
    Number,
    at_most,
    ceil_div,
    least,
    magnitude,
    product,
    total,
    where,
)


class Touched:
    """What one access touches at every depth of its nest; lists have one entry a depth.

    Attributes:
        elements: different elements.
        lines: cache lines.
        strides: bytes between two iterations of the loop at this depth; 0 where it does not move.
        moves: whether the loop at this depth moves the address at all.
        boxes: different indices of each dimension of the buffer.
    """

    def __init__(self, access: Access, nest: StageNest, line: int) -> None:
        self.access = access
        size = access.buffer.itemsize
        dims = access.buffer.dims
        spans: list[Number] = [0] * len(dims)
        counts: list[Number] = [1] * len(dims)
        self.elements: list[Number] = [1]
        self.lines: list[Number] = [1]
        self.strides: list[Number] = []
        self.moves: list[bool] = []
        self.boxes: list[list[Number]] = [[1] * len(dims)]
        moving = {m.loop for moves in access.moves for m in moves}
        for x in reversed(nest.loops):
            if x.key not in moving:
                self.strides.insert(0, 0)
                self.moves.insert(0, False)
                self.elements.insert(0, self.elements[0])
                self.lines.insert(0, self.lines[0])
                self.boxes.insert(0, self.boxes[0])
                continue
            self.strides.insert(0, self._move(x.key, spans, counts))
            self.moves.insert(0, True)
            distinct = [
                least(least(1 + spans[d], counts[d]), dim.extent) for d, dim in enumerate(dims)
            ]
            self.boxes.insert(0, distinct)
            self.elements.insert(0, product(distinct))
            self.lines.insert(0, self._lines(spans, distinct, size, line))

    def _move(self, loop: LoopKey, spans: list[Number], counts: list[Number]) -> Number:
        """Take a loop into spans and counts of the dimensions; returns its stride in bytes."""
        stride: Number = 0
        buffer = self.access.buffer
        moves = ((d, m) for d, each in enumerate(self.access.moves) for m in each if m.loop == loop)
        for d, m in moves:
            step = magnitude(m.step)
            spans[d] = spans[d] + step * (m.count - 1)
            counts[d] = counts[d] * m.count
            bytes_apart = step * buffer.dims[d].stride * buffer.itemsize
            mine = where(at_most(m.count, 1), 0, bytes_apart)
            stride = mine if _zero(stride) else where(at_most(stride, 0), mine, stride)
        return stride

    def _lines(self, spans: list[Number], distinct: list[Number], size: int, line: int) -> Number:
        """Lines of a box: rows of the last dimension, or one run where rows follow on each other"""
        dims = self.access.buffer.dims
        if not dims:
            return 1
        row = least(distinct[-1], ceil_div((spans[-1] + 1) * size, line))
        rows: Number = 1
        for n in distinct[:-1]:
            rows = rows * n
        run = 1 + total(least(spans[d], dim.extent - 1) * dim.stride for d, dim in enumerate(dims))
        return least(rows * row, ceil_div(run * size, line) + 1)

    def stays(self, depth: int, way: int, ways: int, line: int) -> Number:
        """Whether the sets of a cache hold what is touched at a depth.

        Rows whose distance has a large power of two in common with a way of the cache fall into
        few sets, of which each holds as many lines as there are ways, however large the cache is.

        Args:
            depth: the depth.
            way: bytes of a way.
            ways: lines of a set.
            line: bytes of a line.
        """
        dims, box = self.access.buffer.dims, self.boxes[depth]
        if not dims:
            return True
        sets: Number = ceil_div(box[-1] * self.access.buffer.itemsize, line)
        crowded = False
        for dim, n in zip(dims[:-1], box[:-1], strict=True):
            reached = sets_of(dim.stride * self.access.buffer.itemsize, way, line)
            crowded = crowded or (reached < way // line and not _single(n))
            sets = sets * least(n, reached)
        if not crowded:
            return True
        return at_most(self.lines[depth], least(sets, way // line) * ways)


def sets_of(stride: Number, way: int, line: int) -> int:
    """Sets of a cache that rows so many bytes apart begin in: all, where that is not known yet."""
    return way // max(gcd(stride, way), line) if isinstance(stride, int) else way // line


def _single(n: Number) -> bool:
    return isinstance(n, int) and n == 1


def _zero(x: Number) -> bool:
    return isinstance(x, int) and x == 0


class Touches:
    """What a stage touches.

    Attributes:
        nest: the stage.
        accesses: its store, then its loads.
        inner: iterations of the loops at and inside a depth (one entry more than loops).
    """

    def __init__(self, nest: StageNest, machine: Machine) -> None:
        self.nest, self.machine = nest, machine
        self.accesses = [Touched(a, nest, machine.caches.line) for a in nest.accesses]
        self.inner: list[Number] = [1]
        for x in reversed(nest.loops):
            self.inner.insert(0, self.inner[0] * x.extent)

    @cached_property
    def outer(self) -> list[Number]:
        """Iterations of the loops outside a depth."""
        out: list[Number] = [1]
        for x in self.nest.loops:
            out.append(out[-1] * x.extent)
        return out

    @cached_property
    def bytes(self) -> list[Number]:
        """Bytes in the lines that all accesses touch, by depth."""
        line = self.machine.caches.line
        return [
            total(a.lines[d] for a in self.accesses) * line for d in range(len(self.nest.loops) + 1)
        ]

    def traffic(self, capacity: int) -> Number:
        """Bytes that come from beyond a cache of ``capacity`` bytes in the whole run.

        At the outermost depth whose working set fits, each access brings what it touches in the
        loop around, once for each iteration outside of that.
        """
        return total(self.moved(a, capacity) for a in self.accesses)

    def moved(self, a: Touched, capacity: int) -> Number:
        """Bytes of `traffic` that one access brings."""
        line = self.machine.caches.line
        return self._chosen([n * line for n in a.lines], self._fits(capacity))

    def crowded(self, a: Touched, capacity: int, way: int) -> Number:
        """Bytes that one access brings beyond those of `moved`, since its lines share few sets.

        Args:
            a: the access.
            capacity: bytes of the cache.
            way: bytes of a way of it.
        """
        line = self.machine.caches.line
        held = [a.stays(d, way, capacity // way, line) for d in range(len(a.lines))]
        if all(x is True for x in held):
            return 0
        fits = self._fits(capacity)
        both = [where(x, y, False) for x, y in zip(held, fits, strict=True)]
        moved = [n * line for n in a.lines]
        return self._chosen(moved, both) - self._chosen(moved, fits)

    def _fits(self, capacity: int) -> list[Number]:
        return [at_most(n, capacity) for n in self.bytes]

    def _chosen(self, touched: Sequence[Number], stays: Sequence[Number]) -> Number:
        """What is brought in all by an access that touches so much at each depth."""
        moved = [n * out for n, out in zip(touched, self.outer, strict=True)]
        out = moved[-1]
        for d in reversed(range(len(moved))):
            out = where(stays[d], moved[max(d - 1, 0)], out)
        return out

    @cached_property
    def parallel(self) -> Number:
        """Iterations of parallel loops."""
        out: Number = 1
        for x in self.nest.loops:
            if x.mark in ("parallel", "thread"):
                out = out * x.extent
        return out

    @cached_property
    def balance(self) -> Number:
        """Share of the threads' time that is used when tasks are equally long: 0 to 1."""
        threads = self.machine.threads
        return self.parallel / (ceil_div(self.parallel, threads) * threads)

    @cached_property
    def vector_loop(self) -> int | None:
        """Depth of the vectorized loop, or None."""
        for d, x in enumerate(self.nest.loops):
            if x.mark == "vectorized":
                return d
        return None

    @cached_property
    def vector_share(self) -> Number:
        """Lanes that do work, of those of the vector registers: 0 to 1."""
        assert self.nest.buffer is not None
        lanes = self.machine.lanes(self.nest.buffer.itemsize)
        if self.vector_loop is None:
            return 1 / lanes
        n = self.nest.loops[self.vector_loop].extent
        return n / (ceil_div(n, lanes) * lanes)

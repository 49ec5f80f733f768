"""The register tile of a stage: the code inside its unrolled and vectorized loops.

The set of inner loops depends on factors, since loops of one iteration disappear: every quantity is
an expression of them. Data that loops outside do not move is loaded before them, and stored after.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from loopwright.cost.cpu.footprint import MISPLACED, Touched, Touches, kept
from loopwright.cost.symbolic.index_steps import LoopKey
from loopwright.cost.symbolic.loop_nest import NestLoop
from loopwright.cost.symbolic.symbols import Number, at_most, least, magnitude, most, product, where

PICKED = 4  #: largest distance of lanes, in elements, that are picked out of whole vectors


def pieces(lanes: Number, each: int) -> Number:
    """Instructions for ``lanes`` lanes in registers of ``each``, a power of two, and its halves."""
    rest = lanes % each
    out = lanes // each
    while each > 1:
        each //= 2
        out = out + rest // each % 2
    return out


class Tile:
    def __init__(self, t: Touches) -> None:
        self.t, self.loops = t, t.nest.loops
        self.depths = {x.key: d for d, x in enumerate(self.loops)}  # depth of each loop of the nest
        dot = t.nest.dot
        # Adjacent elements that a dot product instruction takes at once.
        self._group = 1 if dot is None else dot.group
        self._grouped = None if dot is None else self.loops[-1].key
        self.inside: list[Number] = []  # for each loop of the nest, whether it is inside the tile
        straight: Number = True
        for x in reversed(self.loops):
            if x.mark not in ("unrolled", "vectorized"):
                straight = where(at_most(x.extent, 1), straight, False)
            self.inside.insert(0, straight)
        #: number of times that the tile runs
        self.runs = product(
            where(here, 1, x.extent) for here, x in zip(self.inside, self.loops, strict=True)
        )

    @kept
    def instructions(self, unit: int) -> Number:
        """Operations of one kind in a run, in units of ``unit`` bytes of a vector."""
        size = self.t.nest.accesses[0].buffer.itemsize
        return self._pieces(size, unit) * product(
            where(here, x.extent, 1)
            for d, (here, x) in enumerate(zip(self.inside, self.loops, strict=True))
            if d != self.t.vector_loop and x.key != self._grouped
        )

    def _pieces(self, size: int, unit: int) -> Number:
        return self._in_registers(max(1, unit // size))

    @kept
    def _in_registers(self, each: int) -> Number:
        d = self.t.vector_loop
        return 1 if d is None else pieces(self.loops[d].extent, each)

    @kept
    def loaded(self, a: Touched, unit: int) -> Number:
        """Different vectors (far-apart lanes: elements) that an access loads in a run, in units of
        ``unit`` bytes; shifted ones (``x[i], x[i + 1]``) are different."""
        return self.places(a) * self._lanes(a, unit)

    @kept
    def places(self, a: Touched) -> Number:
        """Different start positions of the vectors of an access in a run."""
        return self._positions(a, self.loops)

    @kept
    def loaded_in_step(self, a: Touched, unit: int) -> Number:
        """`loaded` for one step of the reduction."""
        spatial = [x for x in self.loops if x.kind != "reduce"]
        return self._positions(a, spatial) * self._lanes(a, unit)

    def _positions(self, a: Touched, loops: Sequence[NestLoop]) -> Number:
        """Different start positions of the vectors of an access in a run of some loops."""
        keys = {x.key for x in loops} - {self._grouped}
        out: Number = 1
        for dim, moves in zip(a.access.buffer.dims, a.access.moves, strict=True):
            span: Number = 0
            count: Number = 1
            for m in moves:
                d = self.depths.get(m.loop)
                if m.loop in keys and d is not None and d != self.t.vector_loop:
                    span = span + where(self.inside[d], magnitude(m.step) * (m.count - 1), 0)
                    count = count * where(self.inside[d], m.count, 1)
            out = out * least(least(1 + span, count), dim.extent)
        return out

    def _lanes(self, a: Touched, unit: int) -> Number:
        d = self.t.vector_loop
        if d is None or not a.moves[d]:
            return 1
        size = a.access.buffer.itemsize
        if not a.access.write:
            size *= self._group
        extent = self.loops[d].extent
        near = where(at_most(a.strides[d], size), True, self.turned(a))
        whole = self._pieces(size, unit)
        picked = least(whole * (a.strides[d] // size), extent)
        return where(near, whole, where(self.picked(a), picked, extent))

    @kept
    def picked(self, a: Touched) -> Number:
        """Whether lanes of a load lie a few elements apart and are picked out of whole vectors."""
        d = self.t.vector_loop
        if d is None or not a.moves[d]:
            return False
        size = a.access.buffer.itemsize
        apart = where(at_most(a.strides[d], size), False, at_most(a.strides[d], PICKED * size))
        return where(self.turned(a), False, apart)

    @kept
    def lines_of(self, a: Touched, unit: int) -> Number:
        """Cache lines of a load in units of ``unit`` bytes: more than one where vectors cross two,
        as inputs begin within a line, rows are no whole lines apart, or loops shift the vectors."""
        line = self.t.machine.caches.line
        d = self.t.vector_loop
        if d is None or not a.moves[d] or self._grouped is not None:
            return 1
        size, part = a.access.buffer.itemsize, min(unit, line)
        buffer = a.access.buffer
        odd: Number = any(n % line for n in buffer.rows_apart())
        for m in a.access.moves[-1]:
            if m.loop != self.loops[d].key:
                shift = m.step * size
                shifts = where(at_most(m.count, 1), False, at_most(shift // part * part, shift - 1))
                odd = where(shifts, True, odd)
        return where(odd, 1 + part / line, 1 + buffer.given * MISPLACED * part / line)

    @kept
    def turned(self, a: Touched) -> Number:
        """Whether squares of an access are transposed in registers: a copy whose lanes lie apart,
        while an unrolled loop runs along memory."""
        d = self.t.vector_loop
        if self.t.nest.op.reduction is not None or d is None:
            return False
        size = a.access.buffer.itemsize
        along: Number = False
        for x, moves, stride in zip(self.loops, a.moves, a.strides, strict=True):
            if x.mark == "unrolled" and moves:
                along = where(along, True, where(at_most(stride, 0), False, at_most(stride, size)))
        return where(at_most(a.strides[d], size), False, along)

    def executions(self, moved: Collection[int], first: int = 0) -> Number:
        """Number of executions of code that the loops at the depths ``moved``, and those outside
        depth ``first``, move, hoisted as far as possible."""
        out: Number = 1
        still: Number = True
        for d in reversed(range(len(self.loops))):
            extent = self.loops[d].extent
            if d in moved or d < first:
                still = where(at_most(extent, 1), still, False)
            still = where(self.inside[d], True, still)
            out = out * where(still, 1, extent)
        return out

    def depths_of(self, loops: Collection[LoopKey]) -> list[int]:
        return [d for d, x in enumerate(self.loops) if x.key in loops]

    def moving(self, a: Touched) -> list[int]:
        return [d for d, moves in enumerate(a.moves) if moves]

    def fixed(self, a: Touched) -> Number:
        """Whether none of the stage's own remaining loops moves an access."""
        out: Number = True
        for d in range(len(self.loops) - self.t.nest.own, len(self.loops)):
            x = self.loops[d]
            if a.moves[d] and x.mark not in ("unrolled", "vectorized"):
                out = where(at_most(x.extent, 1), out, False)
        return out

    def distinct(self, loops: Collection[LoopKey]) -> Number:
        """Product of the iterations of those loops that are inside."""
        return product(
            where(self.inside[d], self.loops[d].extent, 1) for d in self.depths_of(loops)
        )

    @cached_property
    def begun(self) -> Number:
        """Share of the runs that a guard outside the tile lets begin: 0 to 1."""
        out: Number = 1
        for split in self.t.nest.splits:
            if at_most(split.slots, split.extent) is True:
                continue
            # More slots than iterations: the guard stands in the innermost remaining loop.
            skips: Number = True
            for d in self.depths_of(split.loops):
                skips = where(self.inside[d], at_most(self.loops[d].extent, 1), skips)
            if len(self.depths_of(split.loops)) == len(split.loops):
                out = out * where(skips, least(split.extent / split.slots, 1), 1)
        return out

    @cached_property
    def held(self) -> Number:
        return self.loaded(self.t.accesses[0], self.t.machine.vector_bytes)

    @cached_property
    def reduced_outside(self) -> Number:
        """Steps of the reduction outside the tile: 1 where there are none."""
        return product(
            where(here, 1, x.extent)
            for here, x in zip(self.inside, self.loops, strict=True)
            if x.kind == "reduce"
        )

    @cached_property
    def reduced(self) -> Number:
        return product(x.extent for x in self.loops if x.kind == "reduce")

    @cached_property
    def live(self) -> Number:
        """Vectors of results that are live at once: all, or those between two reduction steps."""
        store = self.t.accesses[0]
        together: Number = 1
        out: Number = 1
        for d in reversed(range(len(self.loops))):
            x = self.loops[d]
            if x.kind == "reduce":
                out = where(self.inside[d], where(at_most(x.extent, 1), out, together), out)
            elif store.moves[d] and d != self.t.vector_loop:
                together = together * where(self.inside[d], x.extent, 1)
        pieces = self._pieces(store.access.buffer.itemsize, self.t.machine.vector_bytes)
        if self.reduced_in_lanes:
            return self.held * pieces
        return where(at_most(self.reduced_outside, 1), out * pieces, self.held)

    @property
    def reduced_in_lanes(self) -> bool:
        """Whether the vectorized loop is a reduction loop, so that each lane has its own sum."""
        d = self.t.vector_loop
        return d is not None and self.loops[d].kind == "reduce"

    @cached_property
    def steps(self) -> Number:
        """Steps of the reduction in a run; lanes with their own sums are no steps."""
        inside = self.reduced / self.reduced_outside / self._group
        d = self.t.vector_loop
        if d is None or not self.reduced_in_lanes:
            return inside
        return inside / where(self.inside[d], self.loops[d].extent, 1)

    @cached_property
    def independent(self) -> Number:
        """Results updated between two updates of the same one, in vectors."""
        store = self.t.accesses[0]
        reduced: Number = False
        out = self.live
        for d in reversed(range(len(self.loops))):
            x = self.loops[d]
            if x.kind == "reduce":
                reduced = where(self.inside[d], reduced, where(at_most(x.extent, 1), reduced, True))
            elif store.moves[d]:
                out = out * where(self.inside[d], 1, where(reduced, 1, x.extent))
        return most(out, 1)

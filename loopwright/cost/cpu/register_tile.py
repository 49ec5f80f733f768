"""The register tile of a stage: what stands inside its unrolled and vectorized loops.

Loops of one iteration do not exist once lowered, so which loops are inside depends on the factors:
every quantity is an expression of them. What the loop just outside does not move is loaded before
it (and a result stored after it): compilers hoist across any number of such loops.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from loopwright.cost.cpu.footprint import Touched, Touches
from loopwright.cost.symbolic.index_steps import LoopKey, Move
from loopwright.cost.symbolic.symbols import (
    Number,
    at_most,
    ceil_div,
    least,
    magnitude,
    most,
    product,
    where,
)


class Tile:
    """The register tile of a stage.

    Args:
        t: what the stage touches.

    Attributes:
        inside: for each loop of the nest whether it is inside of the tile.
        runs: how often the tile runs.
    """

    def __init__(self, t: Touches) -> None:
        self.t, self.loops = t, t.nest.loops
        self._depths = {x.key: d for d, x in enumerate(self.loops)}
        self.inside: list[Number] = []
        straight: Number = True
        for x in reversed(self.loops):
            if x.mark not in ("unrolled", "vectorized"):
                straight = where(at_most(x.extent, 1), straight, False)
            self.inside.insert(0, straight)
        self.runs = product(
            where(here, 1, x.extent) for here, x in zip(self.inside, self.loops, strict=True)
        )

    def instructions(self, unit: int) -> Number:
        """Operations of one kind in a run, in units of so many bytes of a vector."""
        size = self.t.nest.accesses[0].buffer.itemsize
        return self._pieces(size, unit) * product(
            where(here, x.extent, 1)
            for d, (here, x) in enumerate(zip(self.inside, self.loops, strict=True))
            if d != self.t.vector_loop
        )

    def _pieces(self, size: int, unit: int) -> Number:
        """Units of the vectorized loop; 1 where there is none."""
        d = self.t.vector_loop
        return 1 if d is None else ceil_div(self.loops[d].extent * size, unit)

    def loaded(self, a: Touched, unit: int) -> Number:
        """What an access asks of memory in a run: different vectors, or elements, in ``unit``.

        Shifted vectors are different ones (``x[i], x[i + 1]``); lanes that lie apart are elements.
        """
        return self._positions(a) * self._lanes(a, unit)

    def _positions(self, a: Touched) -> Number:
        """Different places at which vectors of an access begin in a run."""
        out: Number = 1
        for dim, moves in zip(a.access.buffer.dims, a.access.moves, strict=True):
            span, count = self._reach(moves)
            out = out * least(least(1 + span, count), dim.extent)
        return out

    def _reach(self, moves: Sequence[Move]) -> tuple[Number, Number]:
        """Distance of the extreme indices of a run, vectors apart, and how many there are."""
        span: Number = 0
        count: Number = 1
        for m in moves:
            d = self._depths.get(m.loop)
            if d is None or d == self.t.vector_loop:
                continue
            span = span + where(self.inside[d], magnitude(m.step) * (m.count - 1), 0)
            count = count * where(self.inside[d], m.count, 1)
        return span, count

    def _lanes(self, a: Touched, unit: int) -> Number:
        d = self.t.vector_loop
        if d is None or not a.moves[d]:
            return 1
        size = a.access.buffer.itemsize
        extent = self.loops[d].extent
        near = where(at_most(a.strides[d], size), True, self.turned(a))
        return where(near, ceil_div(extent * size, unit), extent)

    def turned(self, a: Touched) -> Number:
        """Whether squares of an access are turned in registers: a copy whose lanes lie apart,
        while an unrolled loop runs along memory."""
        d = self.t.vector_loop
        if self.t.nest.op.reduction is not None or d is None:
            return False
        size = a.access.buffer.itemsize
        along: Number = False
        for x, moves, stride in zip(self.loops, a.moves, a.strides, strict=True):
            if x.mark == "unrolled" and moves:
                runs = where(at_most(stride, 0), False, at_most(stride, size))
                along = where(along, True, runs)
        return where(at_most(a.strides[d], size), False, along)

    def executions(self, moved: Collection[int], first: int = 0) -> Number:
        """How often that runs which only the loops at these depths move, hoisted as far as it goes.

        Args:
            moved: depths.
            first: loops outside of this depth count as moving it.
        """
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
        """Depths of loops."""
        return [d for d, x in enumerate(self.loops) if x.key in loops]

    def moving(self, a: Touched) -> list[int]:
        """Depths of the loops that move an access."""
        return [d for d, moves in enumerate(a.moves) if moves]

    def fixed(self, a: Touched) -> Number:
        """Whether the stage's own loops that remain do not move an access."""
        out: Number = True
        for d in range(len(self.loops) - self.t.nest.own, len(self.loops)):
            x = self.loops[d]
            if a.moves[d] and x.mark not in ("unrolled", "vectorized"):
                out = where(at_most(x.extent, 1), out, False)
        return out

    def distinct(self, loops: Collection[LoopKey]) -> Number:
        """Combinations of those of some loops that are inside."""
        return product(
            where(self.inside[d], self.loops[d].extent, 1) for d in self.depths_of(loops)
        )

    @cached_property
    def held(self) -> Number:
        """Vectors of results that a run makes."""
        return self.loaded(self.t.accesses[0], self.t.machine.vector_bytes)

    @cached_property
    def reduced_outside(self) -> Number:
        """Steps of the reduction outside of the tile: 1 where there are none."""
        return product(
            where(here, 1, x.extent)
            for here, x in zip(self.inside, self.loops, strict=True)
            if x.kind == "reduce"
        )

    @cached_property
    def reduced(self) -> Number:
        """Steps of the reduction."""
        return product(x.extent for x in self.loops if x.kind == "reduce")

    @cached_property
    def live(self) -> Number:
        """Vectors of results that are wanted at the same time.

        All of them where the reduction goes on outside; else those between two steps of it.
        """
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
        return where(at_most(self.reduced_outside, 1), out * pieces, self.held)

    @cached_property
    def independent(self) -> Number:
        """Results that are updated between two updates of the same one, in vectors."""
        store = self.t.accesses[0]
        found: Number = False
        out = self.live
        for d in reversed(range(len(self.loops))):
            x = self.loops[d]
            if x.kind == "reduce":
                found = where(self.inside[d], found, where(at_most(x.extent, 1), found, True))
            elif store.moves[d]:
                out = out * where(self.inside[d], 1, where(found, 1, x.extent))
        return most(out, 1)

"""Conditions under which a stage reads (inlined padding), and their cost on a core.

A vector is loaded under a mask. One element for all lanes is loaded, and replaced where the
condition does not hold. Comparisons that differ between lanes make masks, of which few fit the
registers. Conditions that are constant at a place of the code cost nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from loopwright.cost.cpu.footprint import Touched, Touches
from loopwright.cost.cpu.register_tile import Tile
from loopwright.cost.symbolic.index_steps import LoopKey, SteppedIndex, extent_of
from loopwright.cost.symbolic.loop_nest import ReadCondition
from loopwright.cost.symbolic.symbols import (
    Number,
    at_most,
    ceil_div,
    least,
    most,
    product,
    total,
    where,
)

# Tiles that reach beyond the result: a nest with guards is written twice, once for tiles in which
# all of them hold (`loopwright.lowering.nest.tiles`). Where that test determines the position of a
# tile, masks of the other copy are constants, and it has no code for elements beyond the result.


def _loops_of(a: Touched) -> set[LoopKey]:
    return {m.loop for moves in a.access.moves for m in moves}


class Tails:
    def __init__(self, tile: Tile) -> None:
        self._tile, self._t = tile, tile.t

    @cached_property
    def _axes(self) -> list[tuple[SteppedIndex, Number]]:
        """Axes of the operation: index and extent."""
        op, axes = self._t.nest.op, self._t.nest.axes
        pairs = zip(op.axes, op.shape, strict=True)
        return [(axes[axis.var], extent_of(dim)) for axis, dim in pairs]

    @cached_property
    def partial(self) -> Number:
        """Share of the started tiles that reach beyond the result: 0 to 1."""
        out: Number = 0
        for index, extent in self._axes:
            over = self._fits(index, extent)
            if over is True or not self._is_tested(index):
                continue
            mine = self._iterations(index)
            tiles = product(m.count for m in index.moves) / mine * self._tile.begun
            out = out + where(over, 0, 1 - least(extent // mine / tiles, 1))
        return least(out, 1)

    def _fits(self, index: SteppedIndex, extent: Number) -> Number:
        """Whether no tile of an axis reaches beyond the result."""
        whole, part, is_cut = self._last_tile(index, extent)
        exact: Number = False  # the last tile has its own code and ends where the axis does
        if is_cut:
            exact = where(at_most((whole + part) * self._iterations(index), extent), True, False)
        return where(exact, True, at_most(index.width, extent))

    def _iterations(self, index: SteppedIndex) -> Number:
        """Points of an axis in a tile."""
        inside = [self._tile.inside[self._tile.depths[m.loop]] for m in index.moves]
        return product(where(i, m.count, 1) for i, m in zip(inside, index.moves, strict=True))

    def _last_tile(self, index: SteppedIndex, extent: Number) -> tuple[Number, Number, bool]:
        """Number of whole tiles of an axis whose last one has its own code, iterations of that as a
        share of a whole one's (0 if there is none), and whether there are such tiles."""
        stage = self._t.nest.stage
        for m in index.moves:
            owner, loop = m.loop
            if owner == stage.id and loop in stage.short_tiles:
                multiple = stage.short_tiles[loop]
                whole = extent // (m.count * m.step)
                rest = extent - whole * m.count * m.step
                part = ceil_div(rest, m.step * multiple) * multiple / m.count
                return whole, least(part, 1), True
        return extent, 0, False

    def shortened(self, in_flight: int) -> Number:
        """Work of all tiles over that of as many whole ones, as the last are shorter: 0 to 1.

        A tile with fewer than ``in_flight`` results takes as long as one with so many.
        """
        live = self._tile.live
        out: Number = 1
        for index, extent in self._axes:
            whole, part, is_cut = self._last_tile(index, extent)
            if is_cut:
                taken = most(live * part, in_flight) / most(live, in_flight)
                tiles = whole + where(at_most(part, 0), 0, 1)
                out = out * (whole + where(at_most(part, 0), 0, taken)) / tiles
        # Where each thread has one task the others wait for a whole one.
        few = at_most(self._t.parallel, self._t.machine.threads)
        return where(at_most(self._t.parallel, 1), out, where(few, 1, out))

    def _is_tested(self, index: SteppedIndex) -> bool:
        """Whether anything that an axis moves is in memory; local buffers have room for more."""
        loops = {m.loop for m in index.moves}
        return any(loops & _loops_of(a) for a in self._t.accesses if not a.access.buffer.within)

    def is_tested_alone(self, a: Touched) -> Number:
        """Whether each place of an access is tested separately in a tile that reaches too far: the
        lanes do not move it, and another axis along which it moves may end within a tile."""
        d = self._t.vector_loop
        if d is None or a.moves[d] or a.access.buffer.within:
            return False
        # Tests that are the same for all lanes, and no others, are made once, before the reduction.
        lanes = self._ends_within({self._tile.loops[d].key})
        return where(lanes, self._ends_within(_loops_of(a)), False)

    def _ends_within(self, loops: set[LoopKey]) -> Number:
        """Whether an axis that some loops move may end within a tile, where something tests it."""
        out: Number = False
        for index, extent in self._axes:
            if loops & {m.loop for m in index.moves} and self._is_tested(index):
                out = where(self._fits(index, extent), out, True)
        return out

    def rows_tested(self, a: Touched) -> Number:
        """Rows of vectors of an access that a tile which reaches too far tests one by one: sums of
        one row are finished before those of the next; 0 where none is tested."""
        d = self._t.vector_loop
        if d is None or not a.moves[d] or a.access.buffer.within:
            return 0
        lanes = self._tile.loops[d].key
        written = {x.key for x in self._tile.loops if x.mark == "unrolled"}
        rows: Number = 1
        tested: Number = False
        for index, inside, _ in self._reaching:
            keys = written & {m.loop for m in index.moves}
            if keys & _loops_of(a):
                tested = where(inside, tested, True)
                rows = rows * where(inside, 1, self._tile.distinct(keys))
        return where(self._ends_within({lanes}), where(tested, rows, 0), 0)

    def known(self, loops: Collection[LoopKey]) -> Number:
        """Whether the positions of some loops are constants at each place of the code: all are
        unrolled, or the test of the tail distinguishes their two iterations."""
        out: Number = True
        for d in self._tile.depths_of(loops):
            x = self._tile.loops[d]
            if x.mark in ("unrolled", "vectorized"):
                continue
            # A loop that moves an axis that may reach beyond the result, in one thread.
            keys = {m.loop for index, *_ in self._reaching for m in index.moves}
            two = at_most(x.extent, 2) if x.mark == "" and x.key in keys else False
            one = where(at_most(x.extent, 1), True, where(two, self.partial_tile_is_known, False))
            out = where(one, out, False)
        return out

    @cached_property
    def _reaching(self) -> list[tuple[SteppedIndex, Number, int]]:
        """Tested axes that may reach beyond the result: index, whether it does not, and extent."""
        axes = []
        for index, extent in self._axes:
            inside = self._fits(index, extent)
            if inside is not True and isinstance(extent, int) and self._is_tested(index):
                axes.append((index, inside, extent))
        return axes

    @cached_property
    def partial_tile_is_known(self) -> Number:
        """Whether the test of the tail determines the position of a tile: one axis alone reaches
        beyond the result, in one or two tiles."""
        out: Number = bool(self._reaching)
        for index, inside, _ in self._reaching:
            outside = [self._tile.depths[m.loop] for m in index.moves]
            pairs = [(self._tile.inside[d], self._tile.loops[d].extent) for d in outside]
            tiles = product(where(here, 1, n) for here, n in pairs)
            alone: Number = all(self._moves_one_axis(d) for d in outside)
            out = where(where(inside, True, where(at_most(tiles, 2), alone, False)), out, False)
        count = total(where(inside, 0, 1) for _, inside, _ in self._reaching)
        return where(at_most(count, 1), where(at_most(1, count), out, False), False)

    def _moves_one_axis(self, d: int) -> bool:
        """Whether a loop that is not fused moves one axis, in one thread."""
        x = self._tile.loops[d]
        axes = [a for a in self._t.nest.axes.values() if any(m.loop == x.key for m in a.moves)]
        return x.mark != "parallel" and len(axes) == 1

    @cached_property
    def alive(self) -> Number:
        """Share of the work of all tiles that is done: what is beyond the result is gone."""
        d = self._t.vector_loop
        lanes = self._t.machine.lanes(self._t.accesses[0].access.buffer.itemsize)
        out: Number = 1
        for index, inside, extent in self._reaching:
            vectors = d is not None and any(m.loop == self._tile.loops[d].key for m in index.moves)
            covered = -(-extent // lanes) * lanes if vectors else extent
            out = out * where(inside, 1, least(covered / index.width, 1))
        # Through several loops of the reduction compilers do not see that their sums are unused.
        reducing = total(
            where(here, 0, where(at_most(x.extent, 1), 0, 1))
            for here, x in zip(self._tile.inside, self._tile.loops, strict=True)
            if x.kind == "reduce"
        )
        return where(self.partial_tile_is_known, where(at_most(reducing, 1), out, 1), 1)

    @cached_property
    def cut(self) -> Number:
        """Share of the tiles that reach beyond the result where that is tested at run time."""
        return where(self.partial_tile_is_known, 0, self.partial)


#: Instructions of a comparison that guards a read, for 8 lanes where it differs between lanes.
TEST, LANES_TEST = 2, 4
#: Instructions that make a mask of 8 lanes; more for a guarded vector in a tile that reaches beyond
#: the result; and to spread it over whole vectors that lanes are picked from.
MASK, CUT, SPREAD = 1.5, 3, 6
#: Share of the guarded vectors with constant masks of lanes whose mask is combined with that of a
#: row: all lanes of the others are let through, or none.
EDGE = 0.5
MASKS = 4  #: masks of rows that stay in registers beside those of lanes


class ReadGuards:
    def __init__(self, t: Touches, tile: Tile, tails: Tails) -> None:
        self._t, self._tile, self._tails = t, tile, tails
        self._loads = t.accesses[1:]
        self._conditions = t.nest.conditions

    @cached_property
    def tests(self) -> Number:
        """Instructions of conditions."""
        tile, key = self._tile, self._lanes_key
        d = self._t.vector_loop
        lanes = 1 if d is None else (self._t.nest.loops[d].extent + 7) // 8 * LANES_TEST
        out: Number = 0
        for test in (x for guard in self._conditions for x in guard.tests):
            often = tile.executions(tile.depths_of(test))
            each = where(self._tails.known(test), 0, lanes if key in test else TEST)
            out = out + tile.distinct(test - {key}) * often * each
        return out

    @cached_property
    def reads(self) -> Number:
        """Number of guarded reads."""
        return total(self._guarded(guard) for guard in self._conditions)

    def _guarded(self, guard: ReadCondition) -> Number:
        often = self._tile.executions(self._tile.depths_of(guard.loops))
        places = self._guarded_places(guard) * often
        return where(self._tails.known(guard.loops), 0, places)

    @cached_property
    def let_through(self) -> Number:
        """Guarded elements of a run that are broadcast to all lanes."""
        tile, key, d = self._tile, self._lanes_key, self._t.vector_loop
        out: Number = 0
        for guard in self._conditions:
            vectors = [a for a in self._guarded_by(guard) if d is not None and a.moves[d]]
            if key not in guard.loops and not vectors:
                out = out + tile.distinct(guard.loops)
        return out

    @cached_property
    def selected(self) -> Number:
        """Broadcast reads that are made and then replaced where a guard fails."""
        d = self._t.vector_loop
        return total(
            self._guarded(guard)
            for guard in self._conditions
            if d is None or not any(a.moves[d] for a in self._guarded_by(guard))
        )

    @cached_property
    def unmasked(self) -> Number:
        """Share of the guarded vectors for whose masks there are no registers: 0 to 1."""
        tile, key = self._tile, self._lanes_key
        guards = [g for g in self._conditions if key in g.loops]
        tests = dict.fromkeys(x for g in guards for x in g.tests if key not in x)
        # A lane of a padded row is read where both the row's mask and the lane's mask are set.
        rows = total(tile.distinct(x) for x in tests)
        # With no part of the reduction outside, each mask is made and used once.
        beyond = where(at_most(tile.reduced_outside, 1), 0, most(1 - MASKS / most(rows, 1), 0))
        constant: Number = True
        for guard in guards:
            for test in guard.tests:
                if key in test:
                    constant = where(self._tails.known(test), constant, False)
        return where(constant, beyond * EDGE, beyond)

    @cached_property
    def masks(self) -> Number:
        """Number of masks of vectors that are made or combined; constant ones cost nothing."""
        tile, key, d = self._tile, self._lanes_key, self._t.vector_loop
        if d is None:
            return 0
        extent = self._t.nest.loops[d].extent
        lanes = self._t.machine.lanes(self._t.accesses[0].access.buffer.itemsize)
        eights, vectors = (extent + 7) // 8, (extent + lanes - 1) // lanes
        out: Number = 0  # few registers: masks of lanes are made anew and combined with each row's
        for guard in self._conditions:
            constant: Number = True
            for test in guard.tests:
                if key in test:
                    masks = tile.distinct(test - {key}) * tile.runs * eights * MASK
                    out = out + where(self._tails.known(test), 0, masks)
                    constant = where(self._tails.known(test), constant, False)
                else:
                    often = tile.executions(tile.depths_of(test))
                    out = out + where(self._tails.known(test), 0, tile.distinct(test) * often)
            joined = self._guarded_places(guard) * vectors * tile.runs
            spread: Number = 0
            for a in self._guarded_by(guard):
                spread = where(tile.picked(a), SPREAD, spread)
            if key in guard.loops:
                edge = where(self._tails.known(guard.loops), 0, EDGE)
                out = out + joined * (where(constant, edge, 1 + spread) + CUT * self._tails.cut)
        return out

    def _guarded_places(self, guard: ReadCondition) -> Number:
        """Guarded vectors of a run; a vector that several iterations read counts once."""
        found = self._tile.distinct(guard.loops - {self._lanes_key})
        for a in self._guarded_by(guard):
            found = least(found, self._tile.places(a))
        return found

    def _guarded_by(self, guard: ReadCondition) -> list[Touched]:
        """Loads that a condition may guard: every loop that moves the condition moves them."""
        loops = self._t.nest.loops
        return [
            a
            for a in self._loads
            if guard.loops <= {x.key for x, moves in zip(loops, a.moves, strict=True) if moves}
        ]

    @cached_property
    def _lanes_key(self) -> object:
        d = self._t.vector_loop
        return None if d is None else self._t.nest.loops[d].key

"""Conditions under which a stage reads (inlined padding), and their cost on a core.

A vector is loaded under a mask. One element for all lanes is loaded, and replaced where the
condition does not hold. Comparisons that differ between lanes make masks, of which few fit the
registers; masks of rows are combined with them. Conditions that are constant at a place of the code
cost nothing.
"""

from __future__ import annotations

from functools import cached_property

from loopwright.cost.cpu.footprint import Touched, Touches
from loopwright.cost.cpu.register_tile import Tile
from loopwright.cost.cpu.tails import Tails
from loopwright.cost.symbolic.loop_nest import ReadCondition
from loopwright.cost.symbolic.symbols import Number, at_most, least, most, total, where

#: Instructions of a comparison that guards a read, for 8 lanes where it differs between lanes.
TEST, LANES_TEST = 2, 4
#: Instructions that make a mask of 8 lanes; more for a guarded vector in a tile that reaches beyond
#: the result; and to spread it over whole vectors that lanes are picked from.
MASK, CUT, SPREAD = 1.5, 3, 6
#: Share of the guarded vectors with constant masks of lanes whose mask is combined with that of a
#: row: all lanes of the others are let through, or none.
EDGE = 0.5
#: Masks of rows that stay in registers beside those of lanes.
MASKS = 4


class Guards:
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
        """Share of the guarded vectors for whose masks there are no registers: 0 to 1.

        A lane of a padded row is read where both the row's mask and the lane's mask are set.
        """
        tile, key = self._tile, self._lanes_key
        guards = [g for g in self._conditions if key in g.loops]
        tests = dict.fromkeys(x for g in guards for x in g.tests if key not in x)
        rows = total(tile.distinct(x) for x in tests)
        # With no part of the reduction outside, each mask is made and used once.
        beyond = where(at_most(tile.reduced_outside, 1), 0, most(1 - MASKS / most(rows, 1), 0))
        known: Number = True
        for guard in guards:
            for test in guard.tests:
                if key in test:
                    known = where(self._tails.known(test), known, False)
        return where(known, beyond * EDGE, beyond)

    @cached_property
    def masks(self) -> Number:
        """Number of masks of vectors that are made or combined.

        There are few mask registers, so masks of lanes are made in each run of the tile and
        combined with that of each row; constant ones cost nothing.
        """
        tile, key, d = self._tile, self._lanes_key, self._t.vector_loop
        if d is None:
            return 0
        extent = self._t.nest.loops[d].extent
        lanes = self._t.machine.lanes(self._t.accesses[0].access.buffer.itemsize)
        eights, vectors = (extent + 7) // 8, (extent + lanes - 1) // lanes
        out: Number = 0
        for guard in self._conditions:
            known: Number = True
            for test in guard.tests:
                if key in test:
                    made = tile.distinct(test - {key}) * tile.runs * eights * MASK
                    out = out + where(self._tails.known(test), 0, made)
                    known = where(self._tails.known(test), known, False)
                else:
                    often = tile.executions(tile.depths_of(test))
                    out = out + where(self._tails.known(test), 0, tile.distinct(test) * often)
            joined = self._guarded_places(guard) * vectors * tile.runs
            spread: Number = 0
            for a in self._guarded_by(guard):
                spread = where(tile.picked(a), SPREAD, spread)
            if key in guard.loops:
                edge = where(self._tails.known(guard.loops), 0, EDGE)
                out = out + joined * (where(known, edge, 1 + spread) + CUT * self._tails.cut)
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

"""Conditions under which a stage reads (padding that is inlined), and what they cost a core.

A vector is loaded under a mask. One element for all lanes is loaded, and replaced where the
condition does not hold. Comparisons that differ between lanes make masks, of which few fit the
registers; the masks of rows are joined with them. What is a constant in a place of the code costs
nothing.
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
#: What makes the mask of 8 lanes; what is done besides to that of a guarded vector in a tile that
#: reaches beyond the result, and where lanes are picked out of whole vectors, over which the mask
#: is spread.
MASK, CUT, SPREAD = 1.5, 3, 6
#: The part of the guarded vectors with constant masks of lanes whose mask is joined with that of a
#: row: all lanes of the others are let through, or none.
EDGE = 0.5
#: Masks of rows that stay in registers beside those of lanes.
MASKS = 4


class Guards:
    """The conditions of a stage.

    Args:
        t: what the stage touches.
        tile: its register tile.
        tails: the tiles that reach beyond its result.
    """

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
        """How many reads they guard."""
        return total(self._guarded(guard) for guard in self._conditions)

    def _guarded(self, guard: ReadCondition) -> Number:
        often = self._tile.executions(self._tile.depths_of(guard.loops))
        places = self._guarded_places(guard) * often
        return where(self._tails.known(guard.loops), 0, places)

    @cached_property
    def let_through(self) -> Number:
        """Elements of a run that guards let through, to which one value belongs for all lanes."""
        tile, key, d = self._tile, self._lanes_key, self._t.vector_loop
        out: Number = 0
        for guard in self._conditions:
            vectors = [a for a in self._guarded_by(guard) if d is not None and a.moves[d]]
            if key not in guard.loops and not vectors:
                out = out + tile.distinct(guard.loops)
        return out

    @cached_property
    def selected(self) -> Number:
        """Reads that are made, and then replaced where a guard does not let them through: those of
        one element for all lanes."""
        d = self._t.vector_loop
        return total(
            self._guarded(guard)
            for guard in self._conditions
            if d is None or not any(a.moves[d] for a in self._guarded_by(guard))
        )

    @cached_property
    def unmasked(self) -> Number:
        """The part of the guarded vectors for whose masks there are no registers: 0 to 1.

        The lanes of a padded row are let through where the row's mask and the lanes' one are set.
        """
        tile, key = self._tile, self._lanes_key
        guards = [g for g in self._conditions if key in g.loops]
        tests = dict.fromkeys(x for g in guards for x in g.tests if key not in x)
        rows = total(tile.distinct(x) for x in tests)
        # Where nothing of the reduction is left outside, each mask is made and used once.
        beyond = where(at_most(tile.reduced_outside, 1), 0, most(1 - MASKS / most(rows, 1), 0))
        known: Number = True
        for guard in guards:
            for test in guard.tests:
                if key in test:
                    known = where(self._tails.known(test), known, False)
        return where(known, beyond * EDGE, beyond)

    @cached_property
    def masks(self) -> Number:
        """How often the mask of a vector is made, or joined with another one.

        There are few registers for masks, so that those of lanes are made in each run of the tile.
        That of a row is joined with each of them; constant ones cost nothing.
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
        """Vectors of a run that a guard lets through; what several iterations read counts once."""
        found = self._tile.distinct(guard.loops - {self._lanes_key})
        for a in self._guarded_by(guard):
            found = least(found, self._tile.places(a))
        return found

    def _guarded_by(self, guard: ReadCondition) -> list[Touched]:
        """The loads that a condition may guard: what moves the condition moves them."""
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

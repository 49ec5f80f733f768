"""Core cycles of a stage whose data is all in the first-level cache.

The maximum of arithmetic, loads, stores, instructions, and the wait of sums for one another. Data
that the loop outside a register tile does not move stays in registers, as far as there are any.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, reduce

from loopwright.cost.cpu.arithmetic import combining, work_of
from loopwright.cost.cpu.footprint import Touched, Touches, kept
from loopwright.cost.cpu.guards import ReadGuards, Tails
from loopwright.cost.cpu.register_tile import Tile
from loopwright.cost.symbolic.loop_nest import NestBuffer
from loopwright.cost.symbolic.symbols import Number, at_most, largest, least, most, total, where
from loopwright.te import OpNode

#: Per cycle: arithmetic, loads and stores of one data path's width; instructions.
OPERATIONS, LOADS, STORES, ISSUED = 2, 2, 1, 6
#: Cycles until a result can be used, and until one that was stored can be loaded.
LATENCY, FORWARD = 4, 8
#: Share of a wait that is not hidden by just as much work: products with 8 sums, enough in theory,
#: are slower than those with 16; so are tiles of one vector, which load as often as they multiply.
UNEVEN = 0.14
WINDOW = 256  #: instructions in flight, the window in which independent work is found
LOOP, END = 2, 1  #: instructions of an iteration of a loop; cycles of its end
#: Instructions of a guarded read; masks that are made or combined in a cycle; cycles of a guarded
#: vector whose mask does not stay in a register: mask and vector go through memory.
GUARDED, MASKED, UNMASKED = 3, 1, 4
SHUFFLES = 4  #: shuffles for each vector of a square that is transposed in registers
#: Instructions of a load in a tile that reaches beyond the result: it is compared, and masked.
PARTIAL = 5
#: The same for a broadcast element, which is branched around; sums that take nearly all registers
#: are spilled at each such place.
TESTED, TESTED_SPILLED = 8, 120
BODY = 1200  #: largest unrolled body, in instructions, that is still fetched fast
LOADED_AHEAD = 4  #: steps whose vectors compilers load first where these are no whole registers
#: Cycles more of a load across two cache lines, and the vectors for which that was seen: those of
#: AVX2, whose tiles are so small that nothing hides it.
CROSSED, CROSSED_BYTES = 0.5, 32
#: Operations that convert a vector of 16-bit floats to float32, and a broadcast one.
WIDENED, WIDENED_ONE = 2, 3
#: Operations beside each dot product of bytes that are both signed, or both unsigned, to sum up the
#: correction; and those to subtract it, once in a run of the tile.
SAME_SIGN, TAKEN_OFF = 0.1, 0.25
DIVISION, FUNCTION = 8, 20  #: operations of a division and of a function of a vector
#: Operations of the minimum or maximum of two vectors, with NaNs: two tests, one of both, a
#: selection; cycles of each in a chain.
EXTREME, EXTREME_LATENCY = 4, 8
HALVES_LATENCY = 6  #: latency in cycles of a dot product instruction of 16-bit floats


def operations(op: OpNode) -> int:
    """Vector operations of one element; a multiply-add counts as one."""
    w = work_of(op)
    simple = max(w.add, w.mul) + w.other
    return simple + EXTREME * w.extreme + DIVISION * w.div + FUNCTION * w.call


def _with_waits(busy: Number, wait: Number) -> Number:
    """Cycles of dependent work: the longer of both, and more where they are about equal."""
    longer, shorter = most(busy, wait), least(busy, wait)
    share = shorter / most(longer, 1)
    return longer + shorter * share * share * share * UNEVEN


class Core:
    def __init__(self, t: Touches, resident: Callable[[NestBuffer], Number]) -> None:
        self._t, self.tile, self._machine = t, Tile(t), t.machine
        self.tails = Tails(self.tile)
        self.guards = ReadGuards(t, self.tile, self.tails)
        self._is_resident = resident
        self._sums = t.nest.op.reduction is not None
        self._store, *self._loads = t.accesses
        self._resident = resident(self._store.access.buffer)

    @property
    def cycles(self) -> Number:
        """Cycles of the stage, summed over its threads."""
        tile, runs = self.tile, self.tile.runs
        wide, narrow = self._machine.vector_bytes, self._machine.datapath
        kinds = self._kinds
        vectors, halves = self.loaded
        again, stored = self.results
        iterations, ends = self.loops
        guards, tails = self.guards, self.tails
        shuffled = total(where(tile.turned(a), tile.loaded(a, narrow), 0) for a in self._loads)
        arithmetic = tile.instructions(narrow) * runs * kinds + guards.selected * self._split
        picked = self.picked
        arithmetic = arithmetic + shuffled * runs * SHUFFLES + picked + self.widened * self._split
        issued = (
            tile.instructions(wide) * runs * kinds
            + vectors
            + picked
            + self.widened
            + (again + stored) / self._split
            + guards.tests
            + guards.selected * GUARDED
            + tails.cut * (self._masked(vectors) + self._tested)
            + iterations * LOOP
        )
        spilled = self.spilled * tile.steps * runs
        d = self._t.vector_loop
        # Loads of elements that all lanes share.
        alike = [a for a in self._loads if d is not None and not a.moves[d]]
        shared = total(tile.loaded(a, narrow) * self._times_loaded(a) for a in alike)
        fed = _with_waits(arithmetic / OPERATIONS, shared / LOADS)
        held_up = most(stored / STORES, most(issued / ISSUED, guards.masks / MASKED))
        busy = most(most(fed, (halves + again) / LOADS), held_up)
        spills = spilled * self._split / STORES + guards.reads * guards.unmasked * UNMASKED
        long = most(tile.instructions(wide) - BODY, 0) / BODY / 2
        worked = _with_waits((busy + spills) * (1 + long), self._wait)
        worked = worked + self._rows_wait + self._crossing * CROSSED
        done = tile.begun * tails.shortened(self._latency * OPERATIONS)
        return done * (worked * tails.alive + ends * END)

    @property
    def _kinds(self) -> Number:
        """Vector operations of an element, or of a group that an instruction takes at once."""
        dot = self._t.nest.dot
        if dot is None:
            return operations(self._t.nest.op)
        corrected = dot.result == "int32" and dot.data == dot.kernel
        return 1 + SAME_SIGN + TAKEN_OFF / self.tile.steps if corrected else 1

    @cached_property
    def _split(self) -> Number:
        """Data-path operations of one vector."""
        narrow = self.tile.instructions(self._machine.datapath)
        return narrow / self.tile.instructions(self._machine.vector_bytes)

    @cached_property
    def loaded(self) -> tuple[Number, Number]:
        """Loads of operands, in vectors and in data-path operations."""
        tile, wide, narrow = self.tile, self._machine.vector_bytes, self._machine.datapath
        vectors: Number = 0
        halves: Number = 0
        for a in self._loads:
            times = self._times_loaded(a)
            vectors = vectors + tile.loaded(a, wide) * times
            halves = halves + tile.loaded(a, narrow) * times * tile.lines_of(a, narrow)
        return vectors, halves

    @property
    def _crossing(self) -> Number:
        """Loads that cross a cache line."""
        if self._machine.vector_bytes != CROSSED_BYTES:
            return 0
        tile, narrow = self.tile, self._machine.datapath
        return total(
            tile.loaded(a, narrow) * self._times_loaded(a) * (tile.lines_of(a, narrow) - 1)
            for a in self._loads
        )

    def _masked(self, vectors: Number) -> Number:
        """Instructions for masks of loads, if all tiles reach beyond the result."""
        if not self._t.nest.stage.short_tiles:
            return vectors * PARTIAL
        # The last tile has its own code: only vectors along the edge need masks, made once.
        d, wide = self._t.vector_loop, self._machine.vector_bytes
        along = [a for a in self._loads if d is not None and a.moves[d]]
        return total(self.tile.loaded(a, wide) * self._times_loaded(a) for a in along)

    @kept
    def _times_loaded(self, a: Touched) -> Number:
        tile = self.tile
        hoisted = tile.executions(tile.moving(a))
        wide = tile.loaded(a, self._machine.vector_bytes)
        times = where(at_most(wide, self._free - tile.live), hoisted, tile.runs)
        return where(self._is_resident(a.access.buffer), 0, times)

    @cached_property
    def widened(self) -> Number:
        """Conversions of 16-bit floats to float32, one for each load."""
        nest = self._t.nest
        if nest.dot is not None or not operations(nest.op):
            return 0  # copies keep the bits
        tile, wide = self.tile, self._machine.vector_bytes // 2
        out: Number = 0
        for read, a in zip(nest.op.distinct_reads, self._loads, strict=True):
            if read.dtype in ("float16", "bfloat16"):
                d = self._t.vector_loop
                each = WIDENED_ONE if d is None or not a.moves[d] else WIDENED
                out = out + each * tile.loaded(a, wide) * self._times_loaded(a)
        return out

    @cached_property
    def _tested(self) -> Number:
        """Instructions that test broadcast elements one by one, if all tiles reach too far."""
        tile, wide = self.tile, self._machine.vector_bytes
        few = at_most(tile.live, 3 * self._machine.registers // 4)
        loads = (where(self.tails.is_tested_alone(a), tile.loaded(a, wide), 0) for a in self._loads)
        return total(loads) * tile.runs * where(few, TESTED, TESTED_SPILLED)

    @cached_property
    def picked(self) -> Number:
        """Shuffles that pick lanes out of whole vectors: one for each."""
        tile, wide = self.tile, self._machine.vector_bytes
        return total(
            where(tile.picked(a), tile.loaded(a, wide) * tile.executions(tile.moving(a)), 0)
            for a in self._loads
        )

    @cached_property
    def _free(self) -> Number:
        """Registers for results: those that operands and guarded values do not need."""
        tile, wide = self.tile, self._machine.vector_bytes
        operands = [tile.loaded_in_step(a, wide) for a in self._loads]
        # The operand with the fewest registers is held whole, others one vector at a time.
        fewest = reduce(least, operands) if operands else 0
        d = self._t.vector_loop
        along = [a for a in self._loads if d is not None and a.moves[d]]
        ahead = total(tile.loaded_in_step(a, wide) for a in along)
        ahead = ahead * least(tile.steps, LOADED_AHEAD)
        # Vectors that are no whole registers are loaded some steps ahead, where a reduction
        # continues outside the tile.
        ragged: Number = False
        if d is not None:
            lanes = self._machine.lanes(self._store.access.buffer.itemsize)
            ragged = at_most(1, self._t.nest.loops[d].extent % lanes)
        fewest = where(ragged, where(at_most(tile.reduced_outside, 1), fewest, ahead), fewest)
        kept: Number = 0
        for a, each in zip(self._loads, operands, strict=True):  # held between the steps of a run
            kept = kept + where(at_most(each * tile.steps, tile.loaded(a, wide)), 0, each)
        return self._machine.registers - fewest - most(kept, 1) - self.guards.let_through

    @cached_property
    def _times(self) -> Number:
        """Number of times that results are loaded and stored, unless loops keep them."""
        tile, nest = self.tile, self._t.nest
        return tile.executions(tile.moving(self._store), len(nest.loops) - nest.own)

    @cached_property
    def _once(self) -> Number:
        """Number of times that the tile starts anew."""
        return self.tile.runs / self.tile.reduced_outside

    @cached_property
    def _kept(self) -> Number:
        """Whether results stay in registers from one run of the tile to the next."""
        stored = at_most(self.tile.runs, self._times)
        return where(self._resident, True, where(stored, False, True))

    @cached_property
    def spilled(self) -> Number:
        """Vectors of results beyond the registers."""
        if not self._sums:
            return 0
        tile = self.tile
        spilled = most(tile.live - self._free, 0)
        inside = at_most(tile.reduced, tile.reduced_outside)
        return where(self._kept, spilled, where(inside, 0, spilled))

    @cached_property
    def results(self) -> tuple[Number, Number]:
        """Loads and stores of results, in data-path operations, without spills."""
        tile, narrow = self.tile, self._machine.datapath
        held = tile.loaded(self._store, narrow)
        if not self._sums:
            return 0, where(self._resident, 0, held * tile.runs)
        # A sum that no loop keeps in a register is stored after every step; where its address is
        # a constant, compilers see through half of that.
        steps = tile.instructions(narrow) * tile.runs
        steps = where(tile.fixed(self._store), (steps + held * tile.runs) / 2, steps)
        each = where(self._kept, held * self._times, steps)
        whole = at_most(self._times, self._once)
        again = where(whole, 0, held * self._times)
        first = where(whole, 0, held * self._once)
        return where(self._resident, 0, again), where(self._resident, 0, each + first)

    @cached_property
    def _wait(self) -> Number:
        """Cycles until sums are ready for the next step, where too few are independent."""
        if not self._sums:
            return 0
        tile = self.tile
        body = tile.instructions(self._machine.vector_bytes)
        kept = where(self._kept, True, at_most(tile.runs, self._once))
        latency = where(kept, self._latency, self._latency + FORWARD)
        ahead = most(WINDOW / (2 * tile.independent * tile.reduced), 1)
        return tile.runs * body * latency / tile.independent / ahead

    @property
    def _latency(self) -> int:
        """Latency in cycles of a sum or another reduction step."""
        nest = self._t.nest
        if nest.dot is not None and nest.dot.result == "float32":
            return HALVES_LATENCY
        return EXTREME_LATENCY if combining(nest.op).extreme else LATENCY

    @cached_property
    def loops(self) -> tuple[Number, Number]:
        """Iterations of the stage's own loops, and the number of loop exits."""
        iterations: Number = 0
        ends: Number = 0
        loops = self._t.nest.loops
        for d in range(len(loops) - self._t.nest.own, len(loops)):
            if loops[d].mark not in ("unrolled", "vectorized"):
                alone = at_most(loops[d].extent, 1)
                iterations = iterations + where(alone, 0, self._t.outer[d + 1])
                ends = ends + where(alone, 0, self._t.outer[d])
        return iterations, ends

    @cached_property
    def _rows_wait(self) -> Number:
        """Cycles in which sums wait, row after row, in tiles that reach beyond the result."""
        if not self._sums:
            return 0
        rows = largest(map(self.tails.rows_tested, self._loads))
        wait = self.tails.cut * self.tile.runs * rows * self.tile.steps * LATENCY
        # With the whole reduction unrolled each row is a separate piece of code.
        return where(at_most(self.tile.reduced_outside, 1), wait, 0)

"""Space of contractions on a GPU: the tiles, those that fit, and a good first one.

Functions of tiles take one tile or arrays of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import ceil, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import dtypes
from loopwright.ir.expr import IterVar
from loopwright.space.rules.device_gpu import Device, powers
from loopwright.space.rules.knobs_gpu import Knobs, LoopSizes, Names, Values
from loopwright.space.rules.operand_gpu import Count, Operand, Tile, ceil_div, least, sectors

_VIRTUAL, _REGISTERS = (1, 2, 4), 8
_MOST_THREADS = 64
#: Bytes of accumulators of a thread: half of the registers that it can have.
_ACCUMULATOR_BYTES = 512
#: Registers of a thread for all else.
_OTHER_REGISTERS = 32
#: Accumulators of a thread and threads of a block that the default has at most: more of both leave
#: each thread too few registers.
_DEFAULT_SUMS, _DEFAULT_THREADS = 64, 256
#: Steps of the longest reduction loop that are staged at once, and those that are unrolled.
_STAGED, _STEPS = 32, 16
#: Threads that a block has at least where the shape allows: those of a warp.
_FEWEST_THREADS = 32
#: A loop without a divisor of at least this is staged with a tail.
_FEW_STEPS = 8
#: Other reduction loops up to this length are staged as a whole, and unrolled.
_SHORT = 7
#: Tiles of all loops together that one knob offers, and those that are counted.
_TOGETHER, _COUNTED = 768, 1 << 14
#: Tiles of a loop may overrun it by a quarter of its length.
_OVERRUN = 1.25
#: Most unrolled multiplications of a thread; more code leaves the instruction cache.
_COPIES = 2048
#: Weights of accesses of shared and of global memory beside a multiplication in the choice of the
#: default, and threads that hide its latencies.
_SHARED_COST, _GLOBAL_COST, _ENOUGH_THREADS = 1.0, 16.0, 128


@dataclass(frozen=True)
class ContractionSpace:
    """Inputs of the knobs of a contraction."""

    device: Device
    dtype: str  # of the sums
    lengths: Mapping[IterVar, int]  # lengths of the tiled loops
    reduce: tuple[IterVar, ...]  # reduction loops
    operands: tuple[Operand, ...]  # those that go through shared memory
    blocks: int  # blocks for each block of the tiled loops
    alone: bool = True  # whether the program is this kernel
    store_width: int = 1  # elements of the result that a thread may store at once
    prefix: str = ""  # of the names of the knobs

    @cached_property
    def names(self) -> dict[IterVar, str]:
        """Names of the knobs of loops."""
        names = Names()
        tiles = {x: names.of(f"{self.prefix}tile_{x.name}") for x in self.lengths}
        return tiles | {k: names.of(f"{self.prefix}split_{k.name}") for k in self.reduce}

    def flag(self, name: str, value: Values) -> Any:
        return value(self.prefix + name)

    @property
    def main_position(self) -> int:
        """Position of the longest reduction loop."""
        return max(range(len(self.reduce)), key=lambda n: self.reduce[n].count)

    def tiles(self, value: Values) -> dict[IterVar, Tile]:
        return {x: value(self.names[x]) for x in self.lengths}

    def steps(self, value: Values) -> dict[IterVar, int]:
        """Iterations of the reduction that a configuration stages at once."""
        return {k: prod(value(self.names[k])) for k in self.reduce}

    def threads(self, value: Values) -> Any:
        return prod(tile[1] for tile in self.tiles(value).values())

    def sizes(self, value: Values) -> dict[IterVar, int]:
        """Extents of the part that a block works on at a time."""
        return {**{x: prod(tile) for x, tile in self.tiles(value).items()}, **self.steps(value)}

    def launches(self, tiles: Iterable[Tile]) -> Any:
        """Whether a block can be launched, and has a warp of threads where the shape gives one."""
        virtual, threads, registers = (prod(n) for n in zip(*tiles, strict=True))
        sums = virtual * registers * dtypes.nbytes(self.dtype)
        words = threads * (sums // 4 + _OTHER_REGISTERS)
        fits = (sums <= _ACCUMULATOR_BYTES) & (virtual <= self.device.vthreads)
        few_enough = (threads <= self.device.threads) & (words <= self.device.registers)
        return fits & few_enough & (threads >= self.fewest_threads)

    def copies(self, value: Values) -> int:
        """Unrolled multiplications of a thread."""
        steps: int = prod(value(self.names[k])[-1] for k in self.reduce)
        return steps * prod(v * r for v, _, r in self.tiles(value).values())

    @cached_property
    def fewest_threads(self) -> int:
        """A warp, or as many threads as the longest tiles have together."""
        most = prod(max(t for _, t, _ in tiles_of(n)) for n in self.lengths.values())
        return min(_FEWEST_THREADS, most, self.device.threads)

    def staged(self, value: Values) -> int:
        """Bytes of shared memory of a configuration."""
        pad = self.widest if self.flag("pad", value) else 0
        width = self.widest if self.flag("fetch", value) else 1
        sizes, threads = self.sizes(value), self.threads(value)
        total: int = sum(o.bytes(sizes, pad, threads, width) for o in self.operands)
        return 2 * total if self.flag("double", value) else total

    def staged_by(self, tiles: Mapping[IterVar, Tile], steps: Mapping[IterVar, int]) -> Count:
        """Bytes of shared memory of tiles without gaps."""
        sizes = {**{x: prod(tile) for x, tile in tiles.items()}, **steps}
        threads = prod(t for _, t, _ in tiles.values())
        return sum(o.bytes(sizes, 0, threads, self.widest) for o in self.operands)

    @cached_property
    def widest(self) -> int:
        """Elements that a thread fetches at once, at most."""
        return max((o.fetch_width(self.device) for o in self.operands), default=1)

    def fetches(self, sizes: Mapping[IterVar, int]) -> bool:
        """Whether rows of these tiles consist of whole vectors."""
        return all(o.box(sizes)[-1] % o.fetch_width(self.device) == 0 for o in self.operands)

    @cached_property
    def has_vectors(self) -> bool:
        """Whether a thread can read or write several elements at once."""
        reads = (o.lanes > 1 and o.side_by_side(o.turned) is not None for o in self.operands)
        return self.store_width > 1 or any(reads)

    def accepts(self, value: Values) -> bool:
        """Whether a configuration can be launched, and its vectors fit its tiles."""
        tiles = self.tiles(value)
        if not self.launches(tiles.values()) or self.copies(value) > _COPIES:
            return False
        if self.flag("fetch", value) and not self.fetches(self.sizes(value)):
            return False
        if self.flag("vector", value) and not self.vectors(tiles, self.flag("turn", value)):
            return False
        return self.staged(value) <= self.device.shared

    def vectors(self, tiles: Mapping[IterVar, Tile], turn: bool) -> bool:
        """Whether register tiles consist of whole vectors, of operands and of the result."""
        *_, last = self.lengths
        if self.store_width > 1 and tiles[last][2] % self.store_width:
            return False
        sides = ((o.lanes, o.side_by_side(turn)) for o in self.operands)
        return all(x is None or tiles[x][2] % n == 0 for n, x in sides)

    def cost(self, tiles: Mapping[IterVar, Tile], steps: Mapping[IterVar, int]) -> Count:
        """Cost by which the default is chosen: time for each useful multiplication, in
        multiplications.

        Overrun, loads of shared memory by the register tile and of global memory by the block, the
        share of processors that the last wave of blocks leaves idle, and too few threads; of global
        memory whole sectors are loaded, however short the rows of a tile are.
        """
        block = {x: prod(tile) for x, tile in tiles.items()}
        overrun = prod(ceil_div(n, block[x]) * block[x] / n for x, n in self.lengths.items())
        shared = sum(self._loads(o, tiles) for o in self.operands)
        outside = sum(
            sectors(o, {**block, **steps}) / prod(block[x] for x in self._reusing(o))
            for o in self.operands
        )
        count = self.blocks * prod(ceil_div(n, block[x]) for x, n in self.lengths.items())
        waves = count / self.device.processors
        threads = prod(t for _, t, _ in tiles.values())
        hidden = -least(-1.0, -_ENOUGH_THREADS / threads)
        loads = _SHARED_COST * shared + _GLOBAL_COST * outside
        return overrun * ceil_div(count, self.device.processors) / waves * hidden**0.5 * (1 + loads)

    def _reusing(self, o: Operand) -> list[IterVar]:
        return [x for x in self.lengths if not o.access.moves_with(x)]

    def _loads(self, o: Operand, tiles: Mapping[IterVar, Tile]) -> Count:
        """Loads of shared memory for each multiplication; neighbours whose register tiles are wider
        than a vector conflict in its banks.
        """
        vector = self.device.vector_bytes // dtypes.nbytes(o.tensor.dtype)
        meet: Any = False
        for x in self.lengths:
            if o.access.moves_with(x):
                meet = meet | (tiles[x][2] > vector)
        return (1 + meet) / prod(tiles[x][0] * tiles[x][2] for x in self._reusing(o))


def define_contraction_space(knobs: Knobs, space: ContractionSpace) -> None:
    """Define the knobs of a contraction; configurations that no device would launch are refused.

    The search for a default takes long, so nothing is done where the knobs are known.
    """
    if not knobs.collects:
        return
    steps = _default_steps(space)
    tiles = knobs.once(f"{space.prefix}default tile", lambda: _default_tiles(space, steps))
    one_each = space.alone and knobs.once("one each", lambda: _has_many_tiles(space))
    knobs.loops(
        f"{space.prefix}tile",
        {space.names[x]: LoopSizes(n, tiles_of(n), tiles[x]) for x, n in space.lengths.items()},
        None if one_each else lambda: _tiles_together(space, tiles, steps),
    )
    parts = {k: _steps_of(k, space) for k in space.reduce}
    knobs.loops(
        f"{space.prefix}steps",
        {space.names[k]: LoopSizes(k.count, parts[k], steps[k]) for k in space.reduce},
        None if one_each else lambda: list(product(*parts.values())),
    )
    _define_words(knobs, space, tiles, steps)
    knobs.keep(space.accepts)


def _define_words(
    knobs: Knobs,
    space: ContractionSpace,
    tiles: Mapping[IterVar, Tile],
    steps: Mapping[IterVar, tuple[int, ...]],
) -> None:
    """Define the flags: vectors of global memory, vectors of shared memory, dimensions transposed
    there, gaps between its rows, two halves; by default as the tiles allow.
    """
    turned = any(o.turned for o in space.operands)
    sizes = {x: prod(tile) for x, tile in tiles.items()} | {k: prod(n) for k, n in steps.items()}
    either, p = [True, False], space.prefix
    wide = space.widest > 1
    knobs.flag(f"{p}fetch", either if wide else [False], wide and space.fetches(sizes))
    wide = space.has_vectors
    knobs.flag(f"{p}vector", either if wide else [False], wide and space.vectors(tiles, turned))
    knobs.choice(f"{p}turn", either if turned else [False])
    knobs.flag(f"{p}pad", [False, True])
    knobs.choice(f"{p}double", [False, True])


def tiles_of(length: int) -> list[Tile]:
    """Tiles of a loop, of few parts: no longer than it, and not overrunning it by much."""
    divisors = [n for n in range(1, min(length, _MOST_THREADS) + 1) if length % n == 0]
    registers = sorted({*powers(_REGISTERS), *(n for n in divisors if n <= _REGISTERS)})
    threads = sorted({*powers(_MOST_THREADS), *divisors})
    tiles = product(_VIRTUAL, threads, registers)
    return [t for t in tiles if prod(t) <= length and _overrun(length, t) <= _OVERRUN]


def _overrun(length: int, tile: Iterable[int]) -> float:
    size = prod(tile)
    return ceil(length / size) * size / length


def _steps_of(k: IterVar, space: ContractionSpace) -> list[tuple[int, ...]]:
    """Splits of a reduction loop: three parts if it is the longest, else two."""
    if k is not space.reduce[space.main_position]:
        return [(n,) for n in sorted({1, k.count if k.count <= _SHORT else 1})]
    divisors = [n for n in range(1, min(k.count, _STAGED) + 1) if k.count % n == 0]
    usable = (
        divisors if max(divisors) >= min(_FEW_STEPS, k.count) else powers(min(_STAGED, k.count))
    )
    inner = [n for n in {*powers(_STEPS), *usable} if n <= _STEPS]
    return [(n // i, i) for n in sorted({*usable}) for i in sorted(inner) if n % i == 0]


def _default_steps(space: ContractionSpace) -> dict[IterVar, tuple[int, ...]]:
    """About 16 unrolled steps of the reduction at a time."""
    steps: dict[IterVar, tuple[int, ...]] = {}
    short = 1
    for n, k in enumerate(space.reduce):
        if n != space.main_position:
            steps[k] = max(_steps_of(k, space))
            short *= steps[k][0]
    k = space.reduce[space.main_position]
    wanted = max(2.0, 16 / short)
    choices = [parts for parts in _steps_of(k, space) if prod(parts) <= wanted] or [(1, 1)]
    steps[k] = max(choices, key=lambda parts: (prod(parts), parts[1]))
    return steps


def _default_tiles(
    space: ContractionSpace, parts: Mapping[IterVar, tuple[int, ...]]
) -> dict[IterVar, Tile]:
    """Cheapest tiles that fit."""
    steps = {k: prod(sizes) for k, sizes in parts.items()}
    written = prod(sizes[-1] for sizes in parts.values())
    most = min(_DEFAULT_SUMS, _COPIES // written)
    found = _combined(space, [_tried(n, len(space.lengths)) for n in space.lengths.values()])
    tiles = _by_loop(space, found)
    sums = prod(v * r for v, _, r in tiles.values())
    threads = prod(t for _, t, _ in tiles.values())
    few = (sums <= most) & (threads <= _DEFAULT_THREADS)
    found = found[few & (space.staged_by(tiles, steps) <= space.device.shared)]
    if not len(found):  # the shared memory is too small for any tile of a warp
        return dict.fromkeys(space.lengths, (1, 1, 1))
    best = found[np.argmin(space.cost(_by_loop(space, found), steps))]
    return {x: tuple(best[n].tolist()) for n, x in enumerate(space.lengths)}


def _tiles_together(
    space: ContractionSpace,
    default: Mapping[IterVar, Tile],
    parts: Mapping[IterVar, tuple[int, ...]],
) -> list[tuple[tuple[int, ...], ...]]:
    """Tiles of all loops of which a block can be launched; of many those that are cheap, and some
    of the others: denser the cheaper they are.
    """
    steps = {k: prod(sizes) for k, sizes in parts.items()}
    choices = [tiles_of(n) for n in space.lengths.values()]
    if prod(map(len, choices)) > _COUNTED and len(choices) > 2:
        choices = [_tried(n, len(choices)) for n in space.lengths.values()]
    found = _launchable(space, choices)
    order = np.argsort(space.cost(_by_loop(space, found), steps), kind="stable")
    if len(order) > _TOGETHER:
        places = np.linspace(0, 1, _TOGETHER) ** 2 * (len(order) - 1)
        order = order[np.unique(places.astype(np.int64))]
    first = tuple(default[x] for x in space.lengths)
    chosen = [tuple(map(tuple, point)) for point in found[order].tolist()]
    return list(dict.fromkeys([first, *chosen]))


def _has_many_tiles(space: ContractionSpace) -> bool:
    """Whether one knob cannot offer all tiles together of which a block can be launched.

    Then each loop of a kernel alone has its own, so that none is missing and neighbours differ in
    one loop; of a program of several kernels hardly any point would pass the limits of all.
    """
    choices = [tiles_of(n) for n in space.lengths.values()]
    return prod(map(len, choices)) > _COUNTED or len(_launchable(space, choices)) > _TOGETHER


def _launchable(
    space: ContractionSpace, choices: Sequence[Sequence[Tile]]
) -> npt.NDArray[np.int64]:
    """Tiles of all loops together that a block can have, with the fewest steps staged."""
    fewest = {k: prod(min(_steps_of(k, space))) for k in space.reduce}
    found = _combined(space, choices)
    fits = space.staged_by(_by_loop(space, found), fewest) <= space.device.shared
    return found[np.broadcast_to(fits, len(found))]  # one answer for all where nothing is staged


def _combined(space: ContractionSpace, choices: Sequence[Sequence[Tile]]) -> npt.NDArray[np.int64]:
    """Tiles of all loops together of which a block can be launched, ``(n, loops, 3)``; those whose
    first loops exceed a limit alone are left out early.
    """
    found = np.ones((1, 0, 3), np.int64)
    for tiles in choices:
        mine = np.array(tiles, np.int64).reshape(-1, 1, 3)
        left = np.repeat(found, len(mine), axis=0)
        found = np.concatenate([left, np.tile(mine, (len(found), 1, 1))], axis=1)
        virtual, threads, registers = found.prod(axis=1).T
        sums = virtual * registers * dtypes.nbytes(space.dtype)
        few = (threads <= space.device.threads) & (virtual <= space.device.vthreads)
        found = found[few & (sums <= _ACCUMULATOR_BYTES)]
    launches = space.launches(_by_loop(space, found).values())
    return found[launches]


def _by_loop(space: ContractionSpace, found: npt.NDArray[np.int64]) -> dict[IterVar, Tile]:
    """For each loop arrays of the parts of its tiles."""
    return {x: tuple(found[:, n].T) for n, x in enumerate(space.lengths)}


def _tried(length: int, axes: int) -> list[Tile]:
    """Tiles of a loop that the search for the default looks at: those that hardly overrun it."""
    most = 128 if axes < 3 else 64
    tiles = [
        (v, t, r)
        for v, t, r in tiles_of(length)
        if v <= (2 if axes < 3 else 1) and t <= _MOST_THREADS // 2 and v * t * r <= most
    ]
    least = min(_overrun(length, tile) for tile in tiles)
    return [tile for tile in tiles if _overrun(length, tile) <= max(1.1, least)]

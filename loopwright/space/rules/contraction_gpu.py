"""Rule for contractions: sums over products of operands that share spatial loops.

Each spatial loop that does not move some operand is worth a tile: blocks, virtual threads, threads
and a register tile. The operand tiles of a block for some steps of the reduction are copied to
shared memory by all of its threads, those of a thread for one step to registers (Volkov and Demmel,
SC 2008; CUTLASS; TVM calls it multi-level tiling with cooperative fetching).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product
from math import ceil, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import dtypes, te
from loopwright.cost import ceil_div, least, most
from loopwright.ir.expr import IterVar
from loopwright.space.expression import AccessMap, accesses, extents, read_at_start, readers
from loopwright.space.rules.common_gpu import (
    MOST_BLOCKS_YZ,
    KernelStages,
    Knobs,
    LaunchLimits,
    LoopSizes,
    Values,
    common_width,
    copy_together,
    is_one,
    powers,
    unique_name,
    width_of,
)
from loopwright.space.structure import fused
from loopwright.task import SplitEntity

#: A tile (virtual threads, threads, registers) of one loop, or arrays of each.
Tile = tuple[Any, Any, Any]
Count = Any  #: a number, or an array of one for each of many tiles
_SECTOR = 32  #: bytes that memory is read in


@dataclass(frozen=True)
class StagedOperand:
    access: AccessMap  # its read in the reduction
    computed: bool  # whether it is computed there, not copied
    tiled: tuple[IterVar, ...]  # loops that have tiles
    lanes: int  # elements that a thread reads at once

    @property
    def tensor(self) -> te.Tensor:
        return self.access.tensor

    @property
    def turned(self) -> bool:
        """Whether tiles move in another than the last dimension, so that transposing it helps."""
        return list(self.order(True)) != sorted(self.order(True))

    def order(self, turn: bool) -> tuple[int, ...]:
        """Order of dimensions in shared memory: with ``turn`` those that tiles move come last."""
        dims = range(len(self.access.dims))

        def moves(dim: int) -> bool:
            index = self.access.dims[dim]
            return index is not None and any(x in index.moves for x in self.tiled)

        return tuple(sorted(dims, key=moves) if turn else dims)

    def side_by_side(self, turn: bool) -> IterVar | None:
        """Tiled loop whose register tile is contiguous in shared memory, if any."""
        index = self.access.dims[self.order(turn)[-1]]
        if index is None or list(index.moves.values()) != [1]:
            return None
        (axis,) = index.moves
        return axis if any(x is axis for x in self.tiled) else None

    def box(self, sizes: Mapping[IterVar, Count]) -> list[Count]:
        """Extents of the box that a tile reads; a dimension that is not affine counts in full."""
        counts: list[Count] = []
        for index, whole in zip(self.access.dims, self.tensor.static_shape, strict=True):
            moves = {} if index is None else index.moves
            reach = 1 + sum(abs(c) * (sizes.get(x, 1) - 1) for x, c in moves.items())
            counts.append(whole if index is None else least(reach, whole))
        return counts

    def fetch_width(self, device: LaunchLimits) -> int:
        """Elements that may be copied at once: none crosses the end of a row of the tensor."""
        if self.computed or self.access.contiguous is None:
            return 1
        index, whole = self.access.dims[-1], self.tensor.static_shape[-1]
        assert index is not None
        return common_width(device.lanes(self.tensor.dtype), whole, index.offset)

    def bytes(self, sizes: Mapping[IterVar, Count], pad: int, threads: Count, width: int) -> Count:
        """Most bytes of shared memory, with gaps, and rows that the last copy round overruns."""
        box = self.box(sizes)
        row, at_once = prod(box[1:]), threads * width
        box[0] = ceil_div(ceil_div(box[0] * row, at_once) * at_once, row)
        # The gaps cost most where the rows are shortest.
        line = reduce(least, box) if self.turned else box[-1]
        return prod(box) // line * (line + 2 * pad) * dtypes.nbytes(self.tensor.dtype)


def sectors(o: StagedOperand, sizes: Mapping[IterVar, Count]) -> Count:
    """Loaded elements per element of a row of a tile, since whole sectors are loaded."""
    row = o.box(sizes)[-1] * dtypes.nbytes(o.tensor.dtype)
    return most(1.0, _SECTOR / row)


_VIRTUAL, _REGISTERS = (1, 2, 4), 8
_MOST_THREADS = 64
#: Bytes of accumulators of a thread: half of the registers that it can have.
_ACCUMULATOR_BYTES = 512
_OTHER_REGISTERS = 32  #: registers of a thread for all else
#: Accumulators of a thread and threads of a block that the default has at most: more of both leave
#: each thread too few registers.
_DEFAULT_SUMS, _DEFAULT_THREADS = 64, 256
#: Steps of the longest reduction loop that are staged at once, and those that are unrolled.
_STAGED, _STEPS = 32, 16
_FEWEST_THREADS = 32  #: threads that a block has at least where the shape allows: those of a warp
_FEW_STEPS = 8  #: a loop without a divisor of at least this is staged with a tail
_SHORT = 7  #: other reduction loops up to this length are staged as a whole, and unrolled
#: Tiles of all loops together that one knob offers, and those that are counted.
_TOGETHER, _COUNTED = 768, 1 << 14
_OVERRUN = 1.25  #: tiles of a loop may overrun it by a quarter of its length
_COPIES = 2048  #: most unrolled multiplications of a thread; more code leaves the instruction cache
#: Weights of accesses of shared and of global memory beside a multiplication in the choice of the
#: default, and threads that hide its latencies.
_SHARED_COST, _GLOBAL_COST, _ENOUGH_THREADS = 1.0, 16.0, 128


# Functions of tiles take one tile or arrays of them.


@dataclass(frozen=True)
class ContractionSpace:
    device: LaunchLimits
    dtype: str  # of the sums
    lengths: Mapping[IterVar, int]  # lengths of the tiled loops
    reduce: tuple[IterVar, ...]  # reduction loops
    operands: tuple[StagedOperand, ...]  # those that go through shared memory
    blocks: int  # blocks for each block of the tiled loops
    alone: bool = True  # whether the program is this kernel
    store_width: int = 1  # elements of the result that a thread may store at once
    prefix: str = ""  # of the names of the knobs

    @cached_property
    def names(self) -> dict[IterVar, str]:
        taken, p = set[str](), self.prefix
        tiles = {x: unique_name(f"{p}tile_{x.name}", taken) for x in self.lengths}
        return tiles | {k: unique_name(f"{p}split_{k.name}", taken) for k in self.reduce}

    def flag(self, name: str, value: Values) -> Any:
        return value(self.prefix + name)

    @property
    def main_position(self) -> int:
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
        return max((o.fetch_width(self.device) for o in self.operands), default=1)

    def fetches(self, sizes: Mapping[IterVar, int]) -> bool:
        """Whether rows of these tiles consist of whole vectors."""
        return all(o.box(sizes)[-1] % o.fetch_width(self.device) == 0 for o in self.operands)

    @cached_property
    def has_vectors(self) -> bool:
        reads = (o.lanes > 1 and o.side_by_side(o.turned) is not None for o in self.operands)
        return self.store_width > 1 or any(reads)

    def accepts(self, value: Values) -> bool:
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
        multiplications. Overrun, loads of shared memory by the register tile and of global memory
        by the block (whole sectors), idle processors in the last wave, and too few threads."""
        block = {x: prod(tile) for x, tile in tiles.items()}
        overrun = prod(ceil_div(n, block[x]) * block[x] / n for x, n in self.lengths.items())
        shared = sum(self._loads(o, tiles) for o in self.operands)
        outside = sum(
            sectors(o, {**block, **steps})
            / prod(n for x, n in block.items() if not o.access.moves_with(x))
            for o in self.operands
        )
        count = self.blocks * prod(ceil_div(n, block[x]) for x, n in self.lengths.items())
        waves = count / self.device.processors
        threads = prod(t for _, t, _ in tiles.values())
        hidden: Count = most(1.0, _ENOUGH_THREADS / threads)
        loads = _SHARED_COST * shared + _GLOBAL_COST * outside
        return overrun * ceil_div(count, self.device.processors) / waves * hidden**0.5 * (1 + loads)

    def _loads(self, o: StagedOperand, tiles: Mapping[IterVar, Tile]) -> Count:
        """Loads of shared memory for each multiplication; register tiles that are wider than a
        vector conflict in its banks."""
        vector = self.device.vector_bytes // dtypes.nbytes(o.tensor.dtype)
        meet: Any = False
        moved = [tiles[x] for x in self.lengths if o.access.moves_with(x)]
        for _, _, registers in moved:
            meet = meet | (registers > vector)
        still = (tiles[x] for x in self.lengths if not o.access.moves_with(x))
        return (1 + meet) / prod(virtual * registers for virtual, _, registers in still)


def define_contraction_space(knobs: Knobs, space: ContractionSpace) -> None:
    """Define the knobs of a contraction. The search for a default takes long, so nothing is done
    where the knobs are known."""
    if not knobs.collects:
        return
    steps = _default_steps(space)
    tiles = knobs.once(f"{space.prefix}default tile", lambda: _default_tiles(space, steps))
    # Where one knob cannot offer all launchable tiles together, each loop of a kernel alone has its
    # own; of a program of several kernels hardly any point would pass the limits of all.

    def has_many_tiles() -> bool:
        every = [tiles_of(n) for n in space.lengths.values()]
        return prod(map(len, every)) > _COUNTED or len(_launchable(space, every)) > _TOGETHER

    one_each = space.alone and knobs.once("one each", has_many_tiles)
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
    # Vectors of global and of shared memory, dimensions transposed there, gaps, two halves.
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
    knobs.keep(space.accepts)


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
    few = max(divisors) < min(_FEW_STEPS, k.count)
    usable = powers(min(_STAGED, k.count)) if few else divisors
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
    steps = {k: prod(sizes) for k, sizes in parts.items()}
    written = prod(sizes[-1] for sizes in parts.values())
    most = min(_DEFAULT_SUMS, _COPIES // written)
    points = _combined(space, [_tried(n, len(space.lengths)) for n in space.lengths.values()])
    tiles = _by_loop(space, points)
    sums = prod(v * r for v, _, r in tiles.values())
    threads = prod(t for _, t, _ in tiles.values())
    few = (sums <= most) & (threads <= _DEFAULT_THREADS)
    points = points[few & (space.staged_by(tiles, steps) <= space.device.shared)]
    if not len(points):  # the shared memory is too small for any tile of a warp
        return dict.fromkeys(space.lengths, (1, 1, 1))
    best = points[np.argmin(space.cost(_by_loop(space, points), steps))]
    return {x: tuple(best[n].tolist()) for n, x in enumerate(space.lengths)}


def _tiles_together(
    space: ContractionSpace,
    default: Mapping[IterVar, Tile],
    parts: Mapping[IterVar, tuple[int, ...]],
) -> list[tuple[tuple[int, ...], ...]]:
    """Tiles of all loops of which a block can be launched: of many the cheap ones, and some others,
    denser the cheaper they are."""
    steps = {k: prod(sizes) for k, sizes in parts.items()}
    choices = [tiles_of(n) for n in space.lengths.values()]
    if prod(map(len, choices)) > _COUNTED and len(choices) > 2:
        choices = [_tried(n, len(choices)) for n in space.lengths.values()]
    points = _launchable(space, choices)
    order = np.argsort(space.cost(_by_loop(space, points), steps), kind="stable")
    if len(order) > _TOGETHER:
        places = np.linspace(0, 1, _TOGETHER) ** 2 * (len(order) - 1)
        order = order[np.unique(places.astype(np.int64))]
    first = tuple(default[x] for x in space.lengths)
    chosen = [tuple(map(tuple, point)) for point in points[order].tolist()]
    return list(dict.fromkeys([first, *chosen]))


def _launchable(
    space: ContractionSpace, choices: Sequence[Sequence[Tile]]
) -> npt.NDArray[np.int64]:
    """Tiles of all loops together that a block can have, with the fewest steps staged."""
    fewest = {k: prod(min(_steps_of(k, space))) for k in space.reduce}
    points = _combined(space, choices)
    fits = space.staged_by(_by_loop(space, points), fewest) <= space.device.shared
    return points[np.broadcast_to(fits, len(points))]  # one answer for all where nothing is staged


def _combined(space: ContractionSpace, choices: Sequence[Sequence[Tile]]) -> npt.NDArray[np.int64]:
    """Tiles of all loops together of which a block can be launched, ``(n, loops, 3)``."""
    points = np.ones((1, 0, 3), np.int64)
    for tiles in choices:  # what exceeds a limit with its first loops is left out early
        mine = np.array(tiles, np.int64).reshape(-1, 1, 3)
        left = np.repeat(points, len(mine), axis=0)
        points = np.concatenate([left, np.tile(mine, (len(points), 1, 1))], axis=1)
        virtual, threads, registers = points.prod(axis=1).T
        sums = virtual * registers * dtypes.nbytes(space.dtype)
        few = (threads <= space.device.threads) & (virtual <= space.device.vthreads)
        points = points[few & (sums <= _ACCUMULATOR_BYTES)]
    return points[space.launches(_by_loop(space, points).values())]


def _by_loop(space: ContractionSpace, points: npt.NDArray[np.int64]) -> dict[IterVar, Tile]:
    """For each loop arrays of the parts of its tiles."""
    return {x: tuple(points[:, n].T) for n, x in enumerate(space.lengths)}


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


_MOST_TILED = 3  #: loops that are tiled, at most; the others are run by blocks
#: Reuse of an operand below which a tile in shared memory is not worth its barriers.
_LEAST_REUSE = 4


@dataclass(frozen=True)
class Contraction:
    kernel: KernelStages  # its stages; the result is elementwise over the reduction, or that itself
    reduction: te.Tensor  # the sum
    operands: tuple[AccessMap, ...]  # its reads
    tiled: tuple[IterVar, ...]  # spatial loops that get tiles, in their order
    #: For a loop that moves an operand by blocks alone, their length: a tile lies in one of them.
    groups: Mapping[IterVar, int]

    @property
    def out(self) -> te.Tensor:
        return self.kernel.out


def contraction_of(kernel: KernelStages, reduction: te.Tensor) -> Contraction | None:
    """Contraction in a kernel by its only reduction, of the shape of the result, or None where the
    operands have too little in common."""
    operands = tuple(accesses(reduction, start=False))
    axes = reduction.op.axis
    shared = [x for x in axes if any(a.moves_with(x) for a in operands)]
    alone = [x for x in shared if not all(a.steps.get(x) == 1 for a in operands)]
    reuse = [extents(x for x in alone if a.steps.get(x) != 1) for a in operands]
    if len(operands) < 2 or min(reuse) < _LEAST_REUSE:
        return None
    groups = {x: n for x in alone for a in operands if (n := a.steps.get(x, 1)) > 1 and n < x.count}
    # The last loop, along which memory runs, then the longest loop of each other set of operands,
    # then the longest of the rest.
    ranked = sorted(alone, key=lambda x: (x is not axes[-1], -x.count))
    kinds: dict[frozenset[int], IterVar] = {}
    for x in ranked:
        kinds.setdefault(frozenset(n for n, a in enumerate(operands) if a.moves_with(x)), x)
    chosen = set(list(dict.fromkeys([*kinds.values(), *ranked]))[:_MOST_TILED])
    return Contraction(kernel, reduction, operands, tuple(x for x in axes if x in chosen), groups)


def schedule_contraction(knobs: Knobs, c: Contraction, prefix: str = "") -> None:
    """Define the knobs of a contraction, named with a prefix, and schedule it by them."""
    s, space = knobs.s, _space_of(c, prefix)
    define_contraction_space(knobs, space)
    stages = [o.tensor for o in space.operands if o.computed]
    acc = s.cache_write(c.out, "local") if c.out is c.reduction else c.reduction
    if acc is c.reduction:
        s[acc].set_scope("local")
    c.kernel.inline(s, but=[c.out, c.reduction, *stages])
    s[acc].compute_at(s[c.out], _bind_result(knobs, c, space))
    _stage_operands(knobs, space, acc)


def _space_of(c: Contraction, prefix: str) -> ContractionSpace:
    device = LaunchLimits.current()
    lengths = {x: c.groups.get(x, x.count) for x in c.tiled}
    program = c.kernel.program
    operands = []
    early = read_at_start(c.reduction)
    for a in c.operands:
        again = a.tensor in early or sum(b.tensor is a.tensor for b in c.operands) > 1
        computed = c.kernel.computes(a.tensor)
        alone = readers(a.tensor, program) == [c.reduction]
        affine = bool(a.dims) and None not in a.dims  # one element needs no tile
        if affine and not again and (alone or not computed):
            operands.append(StagedOperand(a, computed, c.tiled, device.lanes(a.tensor.dtype)))
    axes = c.reduction.op.axis
    blocks = prod(x.count // lengths.get(x, 1) if x in c.groups else 1 for x in axes)
    blocks *= extents(x for x in axes if x not in lengths)
    last, width = axes[-1], 1
    if last in lengths:
        width = common_width(device.lanes(*c.kernel.dtypes), lengths[last], last.count)
    reduce = tuple(c.reduction.op.reduce_axis)
    alone = len(c.kernel.stages) == len(program)
    return ContractionSpace(
        device, c.reduction.dtype, lengths, reduce, tuple(operands), blocks, alone, width, prefix
    )


def _bind_result(knobs: Knobs, c: Contraction, space: ContractionSpace) -> IterVar:
    """Tile the result and bind its loops; returns the loop of the threads."""
    s, out = knobs.s, c.out
    outer: list[IterVar] = []
    parts: list[list[IterVar]] = []
    for mine, axis in zip(s[out].op.axis, c.reduction.op.axis, strict=True):
        loop = mine
        if axis in c.groups:
            group, loop = s[out].split(loop, factor=c.groups[axis])
            outer.append(group)
        if axis in space.lengths:
            parts.append(SplitEntity([-1, *knobs.value(space.names[axis])]).apply(s, out, loop))
        else:
            outer.append(loop)
    blocks, virtual, threads, inner = ([p[n] for p in parts] for n in range(4))
    s[out].reorder(*outer, *blocks, *virtual, *threads, *inner)
    count = prod(x.count for x in c.reduction.op.axis if x not in space.lengths)
    count *= prod(-(-x.count // n) for x, n in c.groups.items())
    if outer and count <= MOST_BLOCKS_YZ:
        s[out].bind(fused(s, out, outer), te.thread_axis("blockIdx.z"))
    else:
        blocks = [*outer, *blocks]
    s[out].bind(fused(s, out, blocks), te.thread_axis("blockIdx.x"))
    for loop in virtual:
        s[out].bind(loop, te.thread_axis("vthread"))
    thread = fused(s, out, threads)
    s[out].bind(thread, te.thread_axis("threadIdx.x"))
    for loop in inner[:-1]:
        s[out].unroll(loop)
    last = inner[-1]
    width = width_of(space.flag("vector", knobs.value), space.store_width)
    if not is_one(width):
        last, lanes = s[out].split(last, factor=width)
        s[out].vectorize(lanes)
    s[out].unroll(last)
    return thread


def _stage_operands(knobs: Knobs, space: ContractionSpace, acc: te.Tensor) -> None:
    """Split the reduction, and copy the operands to shared memory and to registers."""
    s = knobs.s
    outer: list[IterVar] = []
    middle: list[IterVar] = []
    inner: list[IterVar] = []
    for k, axis in zip(space.reduce, s[acc].op.reduce_axis, strict=True):
        parts = SplitEntity([-1, *knobs.value(space.names[k])]).apply(s, acc, axis)
        outer.append(parts[0])
        middle += parts[1:-1]
        inner.append(parts[-1])
    # The longest reduction loop turns fastest around the stages: it is what fills them in turn.
    outer.append(outer.pop(space.main_position))
    tile = s[acc].op.axis
    s[acc].reorder(*outer, *middle, *inner, *tile)
    for loop in [*tile, *inner]:
        s[acc].unroll(loop)
    for o in space.operands:
        staged = _to_shared(knobs, space, o, acc)
        s[staged].compute_at(s[acc], outer[-1])
        own = s.cache_read(staged, "local", [acc])
        s[own].compute_at(s[acc], inner[-1])
        _to_registers(knobs, space, own, o)


def _to_shared(
    knobs: Knobs, space: ContractionSpace, o: StagedOperand, acc: te.Tensor
) -> te.Tensor:
    s, value = knobs.s, knobs.value
    if o.computed:
        staged = o.tensor
        s[staged].set_scope("shared")
    else:
        staged = s.cache_read(o.tensor, "shared", [acc])
    order = o.order(space.flag("turn", value))
    if list(order) != sorted(order):
        s[staged].transform_layout(lambda *x: tuple(x[d] for d in order))
    pad = space.flag("pad", value)
    if pad is not False and len(order) > 1:  # without a gap any stride is a multiple of 1
        gap = pad * space.widest
        s[staged].storage_align(len(order) - 2, 1 + pad * (2 * space.widest - 1), gap)
    width = width_of(space.flag("fetch", value), o.fetch_width(space.device))
    copy_together(s, staged, space.threads(value), width)
    if space.flag("double", value):
        s[staged].double_buffer()
    return staged


def _to_registers(knobs: Knobs, space: ContractionSpace, own: te.Tensor, o: StagedOperand) -> None:
    """Copy the data of a thread for one step; in vectors where it is contiguous."""
    s, turn = knobs.s, space.flag("turn", knobs.value)
    axes = list(s[own].op.axis)
    last = axes.pop(o.order(turn)[-1])
    width = width_of(space.flag("vector", knobs.value), o.lanes)
    if not is_one(width) and o.side_by_side(turn) is not None:
        last, lanes = s[own].split(last, factor=width)
        s[own].vectorize(lanes)
    for x in [*axes, last]:
        s[own].unroll(x)

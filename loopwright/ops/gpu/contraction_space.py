"""The space of contractions on a GPU: which tiles there are, which fit, and a good first one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import ceil, prod, sqrt

from loopwright import dtypes, te
from loopwright.ir.expr import IterVar
from loopwright.ops.gpu.launch import Device, common_width, powers
from loopwright.space.access import Access
from loopwright.task.space import ConfigSpace
from loopwright.task.template_config import TemplateConfig

#: A tile (virtual threads, threads, registers) of one loop.
Tile = tuple[int, int, int]
_VIRTUAL, _REGISTERS = (1, 2, 4), 8
_MOST_THREADS = 64
#: Bytes of accumulators of a thread: half of the registers that it can have.
_ACCUMULATOR_BYTES = 512
#: Registers of a thread for all else.
_OTHER_REGISTERS = 32
#: Accumulators of a thread and threads of a block that the default has at most: more of both leave
#: each thread too few registers.
_DEFAULT_SUMS, _DEFAULT_THREADS = 64, 256
#: Steps of the longest reduction loop that are staged at once, and those that are written out.
_STAGED, _STEPS = 32, 16
#: Threads that a block has at least where the shape allows: those of a warp.
_FEWEST_THREADS = 32
#: A loop that no number from here on divides is staged with a tail.
_FEW_STEPS = 8
#: Other reduction loops up to this length are staged as a whole, and written out.
_SHORT = 7
#: Bytes that memory is read in.
_SECTOR = 32
#: Tiles of a loop may overrun it by a quarter of its length.
_OVERRUN = 1.25
#: Multiplications that a thread writes out at most; the code of more leaves the instruction cache.
_COPIES = 2048
#: How the default weighs an access of shared and of global memory beside a multiplication, and how
#: many threads hide its latencies.
_SHARED_COST, _GLOBAL_COST, _ENOUGH_THREADS = 1.0, 16.0, 128


@dataclass(frozen=True)
class Operand:
    """An operand that goes through shared memory.

    Attributes:
        access: how the reduction reads it.
        computed: whether it is computed there, not copied.
        tiled: the loops that have tiles.
        lanes: elements that a thread reads at once.
    """

    access: Access
    computed: bool
    tiled: tuple[IterVar, ...]
    lanes: int

    @property
    def tensor(self) -> te.Tensor:
        """What is read."""
        return self.access.tensor

    @property
    def turned(self) -> bool:
        """Whether tiles move in another than the last dimension, so that turning it helps."""
        return list(self.order(True)) != sorted(self.order(True))

    def order(self, turn: bool) -> tuple[int, ...]:
        """The order of dimensions in shared memory: with ``turn`` those in which tiles move come
        last."""
        dims = range(len(self.access.dims))
        return tuple(sorted(dims, key=self._in_tile) if turn else dims)

    def _in_tile(self, dim: int) -> bool:
        index = self.access.dims[dim]
        return index is not None and any(x in index.moves for x in self.tiled)

    def side_by_side(self, turn: bool) -> IterVar | None:
        """The tiled loop whose register tile lies side by side in shared memory, if any."""
        index = self.access.dims[self.order(turn)[-1]]
        if index is None or list(index.moves.values()) != [1]:
            return None
        (axis,) = index.moves
        return axis if axis in self.tiled else None

    def box(self, sizes: Mapping[IterVar, int]) -> list[int]:
        """Extents of what a tile reads."""
        return self.access.tile(sizes)

    def fetch_width(self, device: Device) -> int:
        """Elements that may be copied at once: none crosses the end of a row of the tensor."""
        if self.computed or self.access.contiguous is None:
            return 1
        index, whole = self.access.dims[-1], self.tensor.static_shape[-1]
        assert index is not None
        return common_width(device.lanes(self.tensor.dtype), whole, index.offset)

    def bytes(self, sizes: Mapping[IterVar, int], pad: int, threads: int, width: int) -> int:
        """Shared memory that it takes, at most: gaps count, and rows that the last round of copying
        threads overruns."""
        box = self.box(sizes)
        row, at_once = prod(box[1:]), threads * width
        box[0] = ceil(ceil(box[0] * row / at_once) * at_once / row)
        if self.turned:  # the gaps cost most where the rows are shortest
            box.sort(reverse=True)
        return prod(box[:-1]) * (box[-1] + 2 * pad) * dtypes.nbytes(self.tensor.dtype)


@dataclass(frozen=True)
class ContractionSpace:
    """What the knobs of a contraction depend on.

    Attributes:
        device: the limits.
        dtype: of the sums.
        lengths: the tiled loops, and how long they are.
        reduce: the reduction loops.
        operands: those that go through shared memory.
        blocks: blocks for each block of the tiled loops.
        store_width: elements of the result that a thread may store at once.
    """

    device: Device
    dtype: str
    lengths: Mapping[IterVar, int]
    reduce: tuple[IterVar, ...]
    operands: tuple[Operand, ...]
    blocks: int
    store_width: int = 1

    @property
    def main_position(self) -> int:
        """Which reduction loop is the longest."""
        return max(range(len(self.reduce)), key=lambda n: self.reduce[n].count)

    def tiles(self, cfg: TemplateConfig) -> dict[IterVar, Tile]:
        """The tiles of a configuration."""
        return {x: cfg[f"tile_{x.name}"].size[1:] for x in self.lengths}

    def steps(self, cfg: TemplateConfig) -> dict[IterVar, int]:
        """The iterations of the reduction that a configuration stages at once."""
        return {k: prod(cfg[f"split_{k.name}"].size[1:]) for k in self.reduce}

    def threads(self, cfg: TemplateConfig) -> int:
        """Threads of a block."""
        return prod(tile[1] for tile in self.tiles(cfg).values())

    def sizes(self, cfg: TemplateConfig) -> dict[IterVar, int]:
        """Extents of what a block works on at a time."""
        return {**{x: prod(tile) for x, tile in self.tiles(cfg).items()}, **self.steps(cfg)}

    def launches(self, tiles: Iterable[Tile]) -> bool:
        """Whether a block of these tiles can be launched, and has a warp of threads where the shape
        gives it one."""
        virtual, threads, registers = (int(prod(n)) for n in zip(*tiles, strict=True))
        sums = virtual * registers * dtypes.nbytes(self.dtype)
        words = threads * (sums // 4 + _OTHER_REGISTERS)
        fits = sums <= _ACCUMULATOR_BYTES and virtual <= self.device.vthreads
        few_enough = threads <= self.device.threads and words <= self.device.registers
        return fits and few_enough and threads >= self.fewest_threads

    def copies(self, cfg: TemplateConfig) -> int:
        """Multiplications that a thread writes out."""
        steps: int = prod(cfg[f"split_{k.name}"].size[-1] for k in self.reduce)
        return steps * prod(v * r for v, _, r in self.tiles(cfg).values())

    @cached_property
    def fewest_threads(self) -> int:
        """A warp, or as many as the longest tiles have together."""
        most = prod(max(t for _, t, _ in tiles_of(n)) for n in self.lengths.values())
        return min(_FEWEST_THREADS, most, self.device.threads)

    def staged(self, cfg: TemplateConfig) -> int:
        """Bytes of shared memory of a configuration."""
        pad, width = (self.widest if cfg[name].val else n for name, n in (("pad", 0), ("fetch", 1)))
        sizes, threads = self.sizes(cfg), self.threads(cfg)
        total = sum(o.bytes(sizes, pad, threads, width) for o in self.operands)
        return 2 * total if cfg["double"].val else total

    def staged_by(self, tiles: Mapping[IterVar, Tile], steps: Mapping[IterVar, int]) -> int:
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

    def accepts(self, cfg: TemplateConfig) -> bool:
        """Whether a configuration can be launched, and its vectors fit its tiles."""
        tiles = self.tiles(cfg)
        if not self.launches(tiles.values()) or self.copies(cfg) > _COPIES:
            return False
        if cfg["fetch"].val and not self.fetches(self.sizes(cfg)):
            return False
        if cfg["vector"].val and not self.vectors(tiles, cfg["turn"].val):
            return False
        return self.staged(cfg) <= self.device.shared

    def vectors(self, tiles: Mapping[IterVar, Tile], turn: bool) -> bool:
        """Whether register tiles consist of whole vectors, of operands and of the result."""
        *_, last = self.lengths
        if self.store_width > 1 and tiles[last][2] % self.store_width:
            return False
        sides = ((o.lanes, o.side_by_side(turn)) for o in self.operands)
        return all(x is None or tiles[x][2] % n == 0 for n, x in sides)

    def cost(self, tiles: Mapping[IterVar, Tile], steps: Mapping[IterVar, int]) -> float:
        """What the default is chosen by: time for each useful multiplication, in multiplications.

        Overrun, loads of shared memory by the register tile and of global memory by the block, the
        share of processors that the last wave of blocks leaves idle, and too few threads; of global
        memory whole sectors are loaded, however short the rows of a tile are.
        """
        block = {x: prod(tile) for x, tile in tiles.items()}
        overrun = prod(ceil(n / block[x]) * block[x] / n for x, n in self.lengths.items())
        shared = sum(self._loads(o, tiles) for o in self.operands)
        outside = sum(
            _sectors(o, {**block, **steps}) / prod(block[x] for x in self._reusing(o))
            for o in self.operands
        )
        count = self.blocks * prod(ceil(n / block[x]) for x, n in self.lengths.items())
        waves = count / self.device.processors
        threads = prod(t for _, t, _ in tiles.values())
        hidden = sqrt(max(1.0, _ENOUGH_THREADS / threads))
        loads = _SHARED_COST * shared + _GLOBAL_COST * outside
        return overrun * ceil(waves) / waves * hidden * (1 + loads)

    def _reusing(self, o: Operand) -> list[IterVar]:
        return [x for x in self.lengths if not o.access.moves_with(x)]

    def _loads(self, o: Operand, tiles: Mapping[IterVar, Tile]) -> float:
        """Loads of shared memory for each multiplication; neighbours whose register tiles are wider
        than a vector meet in its banks."""
        vector = self.device.vector_bytes // dtypes.nbytes(o.tensor.dtype)
        meet = any(tiles[x][2] > vector for x in self.lengths if o.access.moves_with(x))
        return (2 if meet else 1) / prod(tiles[x][0] * tiles[x][2] for x in self._reusing(o))


def _sectors(o: Operand, sizes: Mapping[IterVar, int]) -> float:
    """Elements that are loaded for each element of a row of a tile, which is part of sectors."""
    row = o.box(sizes)[-1] * dtypes.nbytes(o.tensor.dtype)
    return max(1.0, _SECTOR / row)


def define_contraction_space(cfg: TemplateConfig, space: ContractionSpace) -> None:
    """The knobs of a contraction; configurations that no device would launch are filtered.

    Only a space asks for them: a configuration has them, and the search for a default takes long.
    """
    if not isinstance(cfg, ConfigSpace):
        return
    steps = _default_steps(space)
    tiles = _default_tiles(space, steps)
    for x, n in space.lengths.items():
        sizes = [[-1, *tile] for tile in tiles_of(n)]
        name = f"tile_{x.name}"
        cfg.define_split(name, n, policy="candidate", candidate=sizes, default=[-1, *tiles[x]])
    for k in space.reduce:
        sizes = [[-1, *parts] for parts in _steps_of(k, space)]
        name = f"split_{k.name}"
        cfg.define_split(
            name, k.count, policy="candidate", candidate=sizes, default=[-1, *steps[k]]
        )
    _define_words(cfg, space, tiles, steps)
    cfg.multi_filter(space.accepts)


def _define_words(
    cfg: TemplateConfig,
    space: ContractionSpace,
    tiles: Mapping[IterVar, Tile],
    steps: Mapping[IterVar, tuple[int, ...]],
) -> None:
    """The knobs that are yes or no: vectors of global memory, vectors of shared memory, dimensions
    turned there, gaps between its rows, two halves; by default what the tiles allow."""
    turned = any(o.turned for o in space.operands)
    sizes = {x: prod(tile) for x, tile in tiles.items()} | {k: prod(n) for k, n in steps.items()}
    either = [True, False]
    cfg.define_knob(
        "fetch", either if space.widest > 1 else [False],
        default=space.widest > 1 and space.fetches(sizes),
    )  # fmt: skip
    cfg.define_knob(
        "vector", either if space.has_vectors else [False],
        default=space.has_vectors and space.vectors(tiles, turned),
    )  # fmt: skip
    cfg.define_knob("turn", either if turned else [False])
    cfg.define_knob("pad", [False, True])
    cfg.define_knob("double", [False, True])


def tiles_of(length: int) -> list[Tile]:
    """The tiles of a loop, of few parts: no longer than it, and not overrunning it by much."""
    divisors = [n for n in range(1, min(length, _MOST_THREADS) + 1) if length % n == 0]
    registers = sorted({*powers(_REGISTERS), *(n for n in divisors if n <= _REGISTERS)})
    threads = sorted({*powers(_MOST_THREADS), *divisors})
    tiles = product(_VIRTUAL, threads, registers)
    return [t for t in tiles if prod(t) <= length and _overrun(length, t) <= _OVERRUN]


def _overrun(length: int, tile: Iterable[int]) -> float:
    size = prod(tile)
    return ceil(length / size) * size / length


def _steps_of(k: IterVar, space: ContractionSpace) -> list[tuple[int, ...]]:
    """How a reduction loop is staged: in three parts if it is the longest, else in two."""
    if k is not space.reduce[space.main_position]:
        return [(n,) for n in sorted({1, k.count if k.count <= _SHORT else 1})]
    divisors = [n for n in range(1, min(k.count, _STAGED) + 1) if k.count % n == 0]
    usable = (
        divisors if max(divisors) >= min(_FEW_STEPS, k.count) else powers(min(_STAGED, k.count))
    )
    inner = [n for n in {*powers(_STEPS), *usable} if n <= _STEPS]
    return [(n // i, i) for n in sorted({*usable}) for i in sorted(inner) if n % i == 0]


def _default_steps(space: ContractionSpace) -> dict[IterVar, tuple[int, ...]]:
    """About 16 steps of the reduction at a time, all of them written out."""
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
    """The cheapest tiles that fit."""
    steps = {k: prod(sizes) for k, sizes in parts.items()}
    written = prod(sizes[-1] for sizes in parts.values())
    most = min(_DEFAULT_SUMS, _COPIES // written)
    axes = list(space.lengths)
    choices = [_tried(n, len(axes)) for n in space.lengths.values()]
    best: tuple[float, Sequence[Tile]] | None = None
    for tiles in product(*choices):
        sums = prod(v * r for v, _, r in tiles)
        threads = prod(t for _, t, _ in tiles)
        if sums > most or threads > _DEFAULT_THREADS or not space.launches(tiles):
            continue
        of = dict(zip(axes, tiles, strict=True))
        if space.staged_by(of, steps) > space.device.shared:
            continue
        cost = space.cost(of, steps)
        if best is None or cost < best[0]:
            best = cost, tiles
    if best is None:  # the shared memory is too small for any tile of a warp
        return dict.fromkeys(axes, (1, 1, 1))
    return dict(zip(axes, best[1], strict=True))


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

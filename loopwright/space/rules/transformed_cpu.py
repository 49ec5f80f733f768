"""Products between transforms on CPUs, as in Winograd's convolutions.

Tiles of an image are transformed to some places each, a product over the channels is computed for
every place, and its results are transformed back (Winograd 1980; Lavin and Gray, CVPR 2016). There
is more data between the transforms: so a task does all three for some rows of tiles, or, where the
image is small, the last two for some of the channels. Vectors run along channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from loopwright import te
from loopwright.ir.expr import IterVar
from loopwright.space.analysis import StageClass, analyze
from loopwright.space.expression import accesses, is_computed, is_own, producers
from loopwright.space.rules.common_cpu import (
    MIN_TASKS,
    column_tiles,
    compute_in_vectors,
    element_bytes,
    fits_registers,
    row_tiles,
    run,
    vector_lanes,
    vector_registers,
)
from loopwright.space.structure import Sketch, Structure, Variant, fused, scheduled

_Tile = tuple[int, int, int]  #: channels, and tiles across and down, of a register tile
_VECTORS, _ACROSS, _DOWN = (1, 2, 3, 4), (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14), (1, 2, 4)
_UNROLL, _ROWS, _PANELS = (2, 4, 8), (1, 2, 3, 4, 7, 14, 28), (1, 2, 4, 8)
_MOST_PLACES = 64  #: places of a tile: more would be too much code
#: Accumulators that keep the multipliers of a core busy, and some that leave compilers room.
_BUSY, _ROOMY = 8, 24
#: Bytes of the data between the transforms of a task: about half of a second-level cache.
_BETWEEN = 1 << 19
_PANEL = 4  #: vectors of channels of the result that a task holds at once by default


def transformed(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> list[Structure]:
    """Structures of a product between two transforms with one result; none for others."""
    stages = _transforms_of(outputs[0]) if len(outputs) == 1 else None
    if stages is None:
        return []
    why = "a task makes all three steps for some rows of tiles: what lies between stays in cache"
    alone = Variant("transforms at tasks", why, partial(_schedule, stages, False))
    why = "tiles are few: they are transformed once, and tasks share out the channels"
    shared = Variant("image transformed before", why, partial(_schedule, stages, True))
    few = stages.out.static_shape[0] * stages.tiles[0] < MIN_TASKS
    return scheduled([shared, alone] if few else [alone, shared], outputs, args)


@dataclass(frozen=True, eq=False)
class _Transforms:
    out: te.Tensor  # (images, rows, columns, channels)
    columns: te.Tensor  # transformed back along columns; the result is transformed back along rows
    product: te.Tensor  # (places down, places across, images, tiles down, tiles across, channels)
    weights: te.Tensor  # second operand of the product, (places, places, inner channels, channels)
    within: tuple[te.Tensor, ...]  # stages that weights are computed of on the way
    image: te.Tensor  # first operand of the product
    rows: te.Tensor  # transformed along rows, and then along columns
    pad: te.Tensor | None  # padded image that this reads; None where it reads an input
    #: stages that are elementwise behind all of it, and others that are read once
    inlined: tuple[te.Tensor, ...]

    @property
    def step(self) -> int:
        """Rows, and columns, of the result in a tile."""
        return self.columns.static_shape[0]

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles down and across an image."""
        *_, down, across, _ = self.product.static_shape
        return down, across

    @property
    def places(self) -> int:
        """Places to which a tile is transformed."""
        down, across, *_ = self.product.static_shape
        return down * across

    @property
    def channels(self) -> int:
        return self.product.static_shape[-1]

    def room(self, rows: int, channels: int) -> int:
        """Bytes between the transforms of some rows of tiles, for some channels of the result."""
        inner = self.image.static_shape[-1]
        tiles = rows * self.tiles[1]
        return self.places * tiles * (inner + channels) * element_bytes(self.product)


def _transforms_of(out: te.Tensor) -> _Transforms | None:
    """Stages of a product between two transforms; None for other expressions."""
    products = [s for s in analyze(out) if s.kind is StageClass.CONTRACTION]
    if len(products) != 1 or len(out.shape) != 4 or len(products[0].tensor.shape) != 6:
        return None
    (stage,) = products
    product, operands = stage.tensor, [o.tensor for o in stage.operands]
    every = producers(out)
    if len(operands) != 2 or len(stage.reduced) != 1 or stage.combiner != "sum":
        return None
    image, weights = operands
    behind = [t for t in every if product in t.op.input_tensors]
    if len(behind) != 1 or not (is_computed(image) and is_computed(weights)):
        return None
    (columns,) = behind
    before = image.op.input_tensors
    if len(before) != 1 or not is_computed(before[0]):
        return None
    rows = before[0]
    (read,) = rows.op.input_tensors if len(rows.op.input_tensors) == 1 else (None,)
    pad = read if read is not None and is_computed(read) else None
    within = tuple(t for t in producers(weights) if t is not weights)
    stages = {out, columns, product, image, rows, pad, weights, *within}
    inlined = tuple(t for t in every if t not in stages)
    transforms = _Transforms(out, columns, product, weights, within, image, rows, pad, inlined)
    return transforms if _fit(transforms, every) else None


def _fit(stages: _Transforms, every: Sequence[te.Tensor]) -> bool:
    """Whether loops and shapes are those of tiles of an image with its channels last."""
    out, product = stages.out.static_shape, stages.product.static_shape
    step, (down, across) = stages.step, stages.tiles
    others = [t for t in every if t is not stages.product]
    if any(t.op.reduce_axis for t in others) or stages.places > _MOST_PLACES:
        return False
    if stages.columns.static_shape[1:] != product[1:] or out[0] != product[2]:
        return False
    if out[3] != product[5] or (-(-out[1] // step), -(-out[2] // step)) != (down, across):
        return False
    if stages.image.static_shape[:5] != product[:5] or len(stages.rows.shape) != 5:
        return False
    if len(stages.weights.shape) != 4 or (stages.pad is not None and len(stages.pad.shape) != 4):
        return False
    # The last loop of a stage moves all reads along memory, or not at all.
    of_weights = (stages.weights, *stages.within)
    pairs = [(a, t.op.axis[-1]) for t in others if t not in of_weights for a in accesses(t)]
    reads = [(a.dims, last) for a, last in pairs if a.moves_with(last)]
    return all(dims and dims[-1] is not None and is_own(dims[-1], last) for dims, last in reads)


def _schedule(stages: _Transforms, before: bool, sketch: Sketch) -> None:
    s = sketch.s
    for t in stages.inlined:
        s[t].compute_inline()
    width, across, down = sketch.numbers("tile", *_tiles(stages))
    task, panel = _tasks(sketch, stages, before, width)
    _product(sketch, stages, panel, (down, across, width))
    _weights(sketch, stages, width)
    _image(sketch, stages, None if before else task)


def _tiles(stages: _Transforms) -> tuple[list[_Tile], _Tile]:
    """Register tiles, (channels, tiles across, tiles down), and the one to begin with."""
    down, across = stages.tiles
    dtype, room = stages.product.dtype, vector_registers()
    lanes = vector_lanes(dtype)
    widths = column_tiles(stages.channels, dtype, _VECTORS)
    even = [w for w in widths if stages.channels % w == 0] or widths[:1]
    fits = fits_registers(dtype)
    tiles = [
        (w, a, d)
        for w in even
        for a in row_tiles(across, _ACROSS)
        for d in row_tiles(down, _DOWN)
        if fits(a * d, w)
    ]

    def cost(tile: _Tile) -> float:
        w, a, d = tile
        vectors, rows = w // lanes, a * d
        covered = -(-across // a) * a * -(-down // d) * d / (across * down)
        waiting = max(1.0, _BUSY / (rows * vectors))
        crowded = 0.3 if rows * vectors > room * _ROOMY // 32 else 0.0
        return covered * (waiting + (rows + vectors) / (2 * rows * vectors) + crowded)

    return tiles, min(tiles, key=cost)


def _tasks(
    sketch: Sketch, stages: _Transforms, before: bool, width: int
) -> tuple[IterVar, IterVar]:
    """Tile the result; returns the loops of a task, and of rows of tiles of a panel."""
    s, out, lanes = sketch.s, stages.out, vector_lanes(stages.out.dtype)
    images, down = out.static_shape[0], stages.tiles[0]
    rows = [r for r in _ROWS if r <= down]
    panels = [p for p in _PANELS if p * lanes <= stages.channels]
    enough = [r for r in rows if images * -(-down // r) >= MIN_TASKS] or rows[:1]
    small = [r for r in enough if stages.room(r, _PANEL * lanes) <= _BETWEEN] or rows[:1]
    row_block = sketch.number("rows", rows, rows[-1] if before else small[-1])
    panel_block = sketch.number("panel", panels, panels[:2][-1])
    n, y, x, o = s[out].op.axis
    y, y_inside = s[out].split(y, factor=stages.step)
    x, x_inside = s[out].split(x, factor=stages.step)
    y_task, y = s[out].split(y, factor=row_block)
    o, lane = s[out].split(o, factor=lanes)
    o, vectors = s[out].split(o, factor=width // lanes)
    panel, o = s[out].split(o, factor=panel_block)
    inside = [y, x, o, vectors, y_inside, x_inside, lane]
    outer = [n, panel, y_task] if before else [n, y_task, panel]
    s[out].reorder(*outer, *inside)
    run(s, out, [y_inside, x_inside, lane])
    task = fused(s, out, outer if before else outer[:2])
    s[out].parallel(task)
    columns = stages.columns
    s[columns].compute_at(s[out], vectors)
    first, second, *rest, lane = s[columns].op.axis
    s[columns].reorder(*rest, first, second, lane)
    run(s, columns, [first, second, lane])
    return task, (task if before else panel)


def _product(
    sketch: Sketch, stages: _Transforms, panel: IterVar, tile: tuple[int, int, int]
) -> None:
    """Schedule the product for every place, in register tiles of image tiles and channels."""
    s, product, (down, across, width) = sketch.s, stages.product, tile
    local = s.cache_write(product, "local")
    s[product].compute_at(s[stages.out], panel)
    a, b, n, y, x, o = s[product].op.axis
    x, x_inside = s[product].split(x, factor=across)
    y, y_inside = s[product].split(y, factor=down)
    o, lane = s[product].split(o, factor=width)
    s[product].reorder(a, b, n, o, y, x, y_inside, x_inside, lane)
    run(s, product, [y_inside, x_inside, lane])
    s[local].compute_at(s[product], x)
    a, b, n, y, x, o = s[local].op.axis
    (k,) = s[local].op.reduce_axis
    unroll = [u for u in _UNROLL if u <= k.count] or [1]
    k, again = s[local].split(k, factor=sketch.number("unroll", unroll, unroll[len(unroll) // 2]))
    s[local].reorder(a, b, n, k, again, y, x, o)
    run(s, local, [again, y, x, o])
    # While the product of one place is made, the weights of the next one are fetched.
    place = s[product].op.axis[1]
    s[local].prefetch_next(stages.weights, k, product, place, sketch.number("ahead", [1, 0]))


def _weights(sketch: Sketch, stages: _Transforms, width: int) -> None:
    """Schedule the weights as the product reads them, in panels, transformed once if constant."""
    s, weights = sketch.s, stages.weights
    s[weights].transform_layout(lambda a, b, c, o: (a, b, o // width, c, o % width))
    lanes = vector_lanes(weights.dtype)
    a, b, c, o = s[weights].op.axis
    o, lane = s[weights].split(o, factor=lanes)
    s[weights].reorder(c, o, a, b, lane)
    run(s, weights, [a, b, lane])
    s[weights].parallel(c)
    for t in stages.within:
        s[t].compute_at(s[weights], o)
        *rest, lane = s[t].op.axis
        s[t].reorder(*rest, lane)
        run(s, t, [*rest[:2], lane])


def _image(sketch: Sketch, stages: _Transforms, task: IterVar | None) -> None:
    s, image, lanes = sketch.s, stages.image, vector_lanes(stages.image.dtype)
    a, b, n, y, x, c = s[image].op.axis
    c, lane = s[image].split(c, factor=lanes)
    s[image].reorder(n, y, x, c, a, b, lane)
    run(s, image, [a, b, lane])
    if task is None:
        task = s[image].fuse(n, y)
        s[image].parallel(task)
        reader = image
    else:
        s[image].compute_at(s[stages.out], task)
        reader = stages.out
    s[stages.rows].compute_at(s[image], c)
    a, n, y, x, c = s[stages.rows].op.axis
    s[stages.rows].reorder(n, y, x, a, c)
    run(s, stages.rows, [x, a, c])
    if stages.pad is not None:
        compute_in_vectors(s, stages.pad, reader, task)

"""Rows of a kernel on CPUs: dot products, chains over rows, and reductions to few elements.

A row lies in the first-level cache while all of its reductions run over it. Reductions run over
several vectors of partial results, so that additions do not wait for one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any

from loopwright import te
from loopwright.ir.expr import IterVar, position_of
from loopwright.schedule import Schedule
from loopwright.space.analysis import StageAnalysis, StageClass
from loopwright.space.expression import extents
from loopwright.space.kernels import Kernel, RowChain, runs_along_memory
from loopwright.space.rules.common_cpu import (
    ALONE,
    MAY_BE_ALONE,
    MIN_TASKS,
    compute_in_vectors,
    compute_inline,
    cut_short,
    element_bytes,
    most_with_tasks,
    past_the_caches,
    rfactored,
    run,
    run_in_tiles,
    vector_lanes,
    vector_registers,
)
from loopwright.space.structure import Sketch, Variant, fused
from loopwright.target import Target

_SIDES = (1, 2, 3, 4, 5, 6, 8)
_DOT_VECTORS = (1, 2, 4)
_BLOCKS = (1, 2, 4, 8, 16, 32, 64)
_UNROLL = (1, 2, 4)
#: Rows up to which a product is better made of dot products than with a packed operand.
_FEW_ROWS = 64
_IN_FLIGHT = 16  #: accumulators that hide how long an addition takes
_VECTORS = (1, 2, 4, 8)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
_AT_ONCE = 4  #: vectors at once that the default configuration has
#: Intermediate rows of which each may be kept or recomputed; of more all are kept.
_MOST_CHOICES = 3
_PARTS = (2, 4, 8, 16, 32, 64)
#: Elements of a result that threads do not share out, and of a reduction that is worth parts.
_FEW, _LONG = 64, 4096
#: Bytes of a matrix that is read row by row where one row is the result; rows read at a time.
_LARGE, _TOGETHER = 1 << 20, (4, 8, 16)
_WORTH_THREADS = 1 << 18  #: elements for which threads are woken by default


# Where the last loop of a reduction moves every operand along memory, as with weights stored
# (N, K), vectors run along it and nothing has to be packed; several elements of the result are
# computed at once, so that loaded data is used for more than one.


def dot_variants(kernel: Kernel) -> list[Variant]:
    """Variants of a reduction along memory by dot products; none for other kernels."""
    stage = kernel.single
    if stage is None or not stage.spatial or not runs_along_memory(stage):
        return []
    if stage.reduced[-1].count < vector_lanes(stage.tensor.dtype):
        return []
    why = "every operand runs along memory with the reduction"
    variants = [Variant("dot products", why, partial(_schedule_dots, kernel, stage, False))]
    if kernel.work > MAY_BE_ALONE or any(kernel.computes(o.tensor) for o in stage.operands):
        return variants
    alone = Variant("dot products, one thread", why, partial(_schedule_dots, kernel, stage, True))
    return [alone, *variants] if kernel.work <= ALONE else [*variants, alone]


def _schedule_dots(kernel: Kernel, stage: StageAnalysis, alone: bool, sketch: Sketch) -> None:
    _Dots(sketch, kernel, stage, alone).schedule()


def pays_by_dots(stage: StageAnalysis) -> bool:
    """Whether a contraction has so few rows that packing an operand does not pay."""
    largest = max(stage.spatial, key=lambda x: x.count)
    rows = extents(x for x in stage.spatial if x is not largest)
    long = stage.reduced[-1].count >= vector_lanes(stage.tensor.dtype)
    return rows <= _FEW_ROWS and long and runs_along_memory(stage)


class _Dots:
    def __init__(self, sketch: Sketch, kernel: Kernel, stage: StageAnalysis, alone: bool) -> None:
        self.alone = alone
        self.sketch, self.s, self.kernel, self.stage = sketch, sketch.s, kernel, stage
        self.lanes = vector_lanes(stage.tensor.dtype)
        self.column = max(reversed(stage.spatial), key=lambda x: x.count > 1)
        # The longest loop that moves an operand but not another one, which the columns move.
        moving = [o for o in stage.operands if o.access.moves_with(self.column)]
        others = [x for x in stage.spatial if x is not self.column and x.count > 1]
        rows = [x for x in others if not all(o.access.moves_with(x) for o in moving)]
        self.row = max(rows, key=lambda x: x.count, default=None)

    def _tiles(self) -> tuple[list[tuple[int, int, int]], tuple[int, int, int]]:
        """Rows, columns and lanes of partial results, and those with the fewest loads."""
        room, last = vector_registers(), self.stage.reduced[-1].count
        heights = [n for n in _SIDES if n <= (1 if self.row is None else self.row.count)]
        widths = [n for n in _SIDES if n <= self.column.count]
        tiles = [
            (r, c, v * self.lanes)
            for r in heights
            for c in widths
            for v in _DOT_VECTORS
            if r * c * v + min(r, c) * v + 1 <= room and self.lanes * v <= max(last, self.lanes)
        ]

        def cost(tile: tuple[int, int, int]) -> float:
            r, c, v = tile[0], tile[1], tile[2] // self.lanes
            n = self.row.count if self.row is not None else 1
            covered = run_in_tiles(n, r, 1, _IN_FLIGHT // (c * v)) / n
            m = self.column.count
            covered *= run_in_tiles(m, c, 1, _IN_FLIGHT // (r * v)) / m
            tail = -(-last // (self.lanes * v)) * self.lanes * v / last
            waiting = max(1.0, _IN_FLIGHT / (r * c * v))
            return covered * tail * (waiting + (r + c) / (2 * r * c))

        return tiles, min(tiles, key=cost)

    def schedule(self) -> None:
        s, out, stage = self.s, self.kernel.out, self.stage.tensor
        kept = [o.tensor for o in self.stage.operands if self.kernel.computes(o.tensor)]
        compute_inline(s, self.kernel, kept)
        for t in dict.fromkeys(kept):
            compute_in_vectors(s, t, out, None)
        acc = s.cache_write(out, "local") if out is stage else stage
        tiles, best = self._tiles()
        rows, columns, width = self.sketch.numbers("tile", tiles, best)
        at = self._result(rows, columns, best)
        s[acc].compute_at(s[out], at)
        axis = dict(zip(self.stage.spatial, s[acc].op.axis, strict=True))
        tile = [axis[x] for x in (self.row, self.column) if x is not None]
        others = [axis[x] for x in self.stage.spatial if axis[x] not in set(tile)]
        *reduce, last = s[acc].op.reduce_axis
        k0, k1 = s[acc].split(last, factor=width)
        k0, again = s[acc].split(k0, factor=self.sketch.number("unroll", _UNROLL))
        s[acc].reorder(*others, *reduce, k0, again, *tile, k1)
        for x in [again, *tile]:
            s[acc].unroll(x)
        cut_short(s, acc, *tile)
        s[acc].vectorize(k1)

    def _result(self, rows: Any, columns: Any, best: tuple[int, int, int]) -> IterVar:
        s, out = self.s, self.kernel.out
        axis = dict(zip(self.stage.spatial, s[out].op.axis, strict=True))
        others = [axis[x] for x in self.stage.spatial if x not in {self.row, self.column}]
        c1, c2 = s[out].split(axis[self.column], factor=columns)
        blocks = [b for b in _BLOCKS if b <= self.column.count]
        panels = -(-self.column.count // best[1])
        count = extents(x for x in self.stage.spatial if x not in {self.row, self.column})
        outer, inner = [], []
        if self.row is not None:
            r1, r2 = s[out].split(axis[self.row], factor=rows)
            count *= -(-self.row.count // best[0])
            outer, inner = [r1], [r2]
        block = most_with_tasks(blocks, panels, count, 8)
        c0, c1 = s[out].split(c1, factor=self.sketch.number("block", blocks, block))
        s[out].reorder(*others, c0, *outer, c1, *inner, c2)
        task = fused(s, out, [*others, c0, *outer])
        if not self.alone:
            s[out].parallel(task)
        for x in [*inner, c2]:
            s[out].unroll(x)
        cut_short(s, out, *inner, c2)
        return c1


def chain_variants(kernel: Kernel) -> list[Variant]:
    """Variants of a chain over rows along memory, best first; none for other kernels."""
    chain = kernel.chain
    if chain is None:
        return []
    if kernel.single is not None and kernel.single.kind is StageClass.CONTRACTION:
        return []
    again = [t for t in chain.whole if not t.op.reduce_axis][:_MOST_CHOICES]
    why, variants = "every stage needs its own row of the others alone", []
    for kept in product([True, False], repeat=len(again)):
        inlined = [t for t, keep in zip(again, kept, strict=True) if not keep]
        names = ", ".join(t.name for t in inlined)
        name = f"rows in cache, {names} computed again" if names else "rows in cache"
        variants.append(Variant(name, why, partial(_schedule, chain, [*inlined, *kernel.numbers])))
    several = _across(kernel)
    if kernel.single is not None and kernel.single.kind is StageClass.ROW_REDUCTION:
        several += dot_variants(kernel)
    # Several rows at once keep memory busy, where rows come from there.
    inputs = {x for r in chain.reductions for x in r.op.input_tensors}
    size = sum(prod(x.static_shape) * element_bytes(x) for x in inputs)
    streamed = size > Target.current().hardware.caches.l3
    return [*several, *variants] if streamed else [*variants, *several]


def _across(kernel: Kernel) -> list[Variant]:
    """Vectors along a loop of the result that moves no operand, since only the reduced expression
    depends on it: sums up to each place, counts of each value."""
    stage = kernel.single
    if stage is None or not stage.spatial:
        return []
    last = stage.spatial[-1]
    moved = any(o.access.moves_with(last) for o in stage.operands)
    if moved or last.count < vector_lanes(stage.tensor.dtype):
        return []
    why = f"every operand stands still along {last.name}: each element serves all of a vector"
    return [Variant("vectors across", why, partial(_schedule_across, kernel, stage))]


def _schedule_across(kernel: Kernel, stage: StageAnalysis, sketch: Sketch) -> None:
    """Keep some vectors of results in registers while the reduction runs over its operands."""
    s, out, t = sketch.s, kernel.out, stage.tensor
    compute_inline(s, kernel, [])
    partial_results = s.cache_write(out, "local") if out is t else t
    lanes, count = vector_lanes(t.dtype), stage.spatial[-1].count
    widths = [lanes * v for v in _VECTORS if lanes * v <= count]
    width = sketch.number("width", widths, max(w for w in widths if w <= _AT_ONCE * lanes))
    *outer, column = s[out].op.axis
    tile, lane = s[out].split(column, factor=width)
    task = fused(s, out, [*outer, tile])
    task, here = s[out].split(task, factor=sketch.number("rows", _ROWS))
    s[out].parallel(task)
    s[out].vectorize(lane)
    s[partial_results].compute_at(s[out], here)
    *still, column = s[partial_results].op.axis
    *reduce, last = s[partial_results].op.reduce_axis
    last, again = s[partial_results].split(last, factor=sketch.number("unroll", _UNROLL))
    s[partial_results].reorder(*still, *reduce, last, again, column)
    run(s, partial_results, (again, column))


def _schedule(chain: RowChain, inlined: Sequence[te.Tensor], sketch: Sketch) -> None:
    s, out = sketch.s, chain.out
    for t in inlined:
        s[t].compute_inline()
    knobs = _Knobs(sketch, chain)
    row = fused(s, out, s[out].op.axis[: chain.rank])
    task, row = s[out].split(row, factor=knobs.rows)
    s[out].parallel(task)
    for t in [*chain.whole, *chain.single, *chain.reductions]:
        if t is not out and t not in inlined:
            s[t].compute_at(s[out], row)
            _vectors(s, t, chain.rank, knobs)
    lane = _vectors(s, out, chain.rank, knobs)
    if lane is not None and not out.op.reduce_axis:
        past_the_caches(sketch, out, lane)


class _Knobs:
    def __init__(self, sketch: Sketch, chain: RowChain) -> None:
        lanes = vector_lanes(chain.reductions[0].dtype)
        length = max(extents(r.op.reduce_axis) for r in chain.reductions)
        widths = [lanes * v for v in _VECTORS if lanes * v <= max(length, lanes)]
        count = extents(chain.reductions[0].op.axis)
        counts = [r for r in _ROWS if r <= count]
        enough = max((r for r in counts if -(-count // r) >= MIN_TASKS), default=1)
        wide = max(w for w in widths if w <= _AT_ONCE * lanes)
        self.width: Any = sketch.number("width", widths, wide)
        self.rows: Any = sketch.number("rows", counts, enough)
        self.unroll: Any = sketch.number("unroll", _UNROLL)


def _vectors(s: Schedule, t: te.Tensor, rank: int, knobs: _Knobs) -> IterVar | None:
    """Vectorize the last loop of a stage, a reduction loop where it has one; returns the lanes."""
    loops: list[IterVar] = [*s[t].op.axis[rank:], *s[t].op.reduce_axis]
    if not loops:
        return None
    rest, lane = s[t].split(loops[-1], factor=knobs.width)
    _, again = s[t].split(rest, factor=knobs.unroll)
    s[t].unroll(again)
    s[t].vectorize(lane)
    return lane


def whole_variants(kernel: Kernel) -> list[Variant]:
    """Variants of a long reduction to few elements; none for other kernels."""
    stage = kernel.single
    if stage is None:
        return []
    if extents(stage.spatial) >= _FEW:
        return _row_variants(kernel, stage)
    why = "the result has few elements: parts of the reduction run in parallel"
    variants = []
    if extents(stage.reduced) >= _LONG and _parted(stage).count >= _PARTS[0]:
        variants = [Variant("reduction in parts", why, partial(_schedule_parts, kernel, stage))]
    if extents(stage.spatial) > 1:
        return variants
    one = Variant("one reduction", "one thread reduces it", partial(_schedule_one, kernel, stage))
    return [*variants, one] if extents(stage.reduced) >= _WORTH_THREADS else [one, *variants]


def _row_variants(kernel: Kernel, stage: StageAnalysis) -> list[Variant]:
    """Row of sums of rows of a matrix that is too large for caches: memory is read in its order."""
    last = stage.spatial[-1]
    if len(stage.reduced) != 1 or last.count != extents(stage.spatial):
        return []
    read = max(stage.operands, key=lambda o: extents(o.moves))
    lies = read.strides.get(last) == 1 and read.strides.get(stage.reduced[0]) == last.count
    if not lies or extents(read.moves) * element_bytes(read.tensor) < _LARGE:
        return []
    why = f"{read.tensor.name} is read once, row by row: each thread adds up rows of its own"
    return [Variant("a row in parts", why, partial(_schedule_row, kernel, stage))]


def _schedule_row(kernel: Kernel, stage: StageAnalysis, sketch: Sketch) -> None:
    s, t = sketch.s, stage.tensor
    compute_inline(s, kernel, [])
    count = stage.reduced[0].count
    steps = [-(-count // p) for p in _PARTS if p <= count]
    liked = min(steps, key=lambda n: abs(-(-count // n) - MIN_TASKS))
    loop, _ = s[t].split(s[t].op.reduce_axis[0], factor=sketch.number("steps", steps, liked))
    parts = rfactored(s, t, loop)
    part, *others, column = s[parts].op.axis
    (step,) = s[parts].op.reduce_axis
    step, together = s[parts].split(step, factor=sketch.number("together", _TOGETHER, 8))
    lanes = vector_lanes(t.dtype)
    width = sketch.number("width", [lanes * v for v in _VECTORS[:3]], 2 * lanes)
    block, lane = s[parts].split(column, factor=width)
    s[parts].reorder(part, *others, step, block, together, lane)
    s[parts].unroll(together)
    s[parts].vectorize(lane)
    s[parts].parallel(part)
    *others, column = s[t].op.axis
    block, lane = s[t].split(column, factor=width)
    s[t].reorder(*others, block, *s[t].op.reduce_axis, lane)
    s[t].vectorize(lane)
    if kernel.out is not t:
        compute_in_vectors(s, kernel.out, kernel.out, None)


def _parted(stage: StageAnalysis) -> IterVar:
    """Loop that is split into parts: the first with enough iterations for contiguous parts."""
    enough = [x for x in stage.reduced if x.count >= MIN_TASKS]
    return enough[0] if enough else max(stage.reduced, key=lambda x: x.count)


def _schedule_parts(kernel: Kernel, stage: StageAnalysis, sketch: Sketch) -> None:
    s, t = sketch.s, stage.tensor
    compute_inline(s, kernel, [])
    parted = _parted(stage)
    lanes = vector_lanes(t.dtype)
    parts = [p for p in _PARTS if p * (lanes if parted is stage.reduced[-1] else 1) <= parted.count]
    parts = parts or [_PARTS[0]]
    axis = s[t].op.reduce_axis[position_of(parted, stage.reduced)]
    steps = sorted({_step(parted.count, p, lanes) for p in parts})
    liked = _step(parted.count, min(parts, key=lambda p: abs(p - MIN_TASKS)), lanes)
    loop, _ = s[t].split(axis, factor=sketch.number("steps", steps, liked))
    parts_of = rfactored(s, t, loop)
    s[parts_of].parallel(s[parts_of].op.axis[0])
    # The steps of a part are the last loop now: they go where the loop was that is cut.
    *kept, own = s[parts_of].op.reduce_axis
    kept.insert(position_of(parted, stage.reduced), own)
    s[parts_of].reorder(*kept)
    _in_partial_sums(sketch, parts_of, kept)


def _step(count: int, parts: int, lanes: int) -> int:
    """Iterations of a part: whole vectors where there are many."""
    step = -(-count // parts)
    whole = lanes * _VECTORS[-1]
    return -(-step // whole) * whole if step > whole else step


def _schedule_one(kernel: Kernel, stage: StageAnalysis, sketch: Sketch) -> None:
    compute_inline(sketch.s, kernel, [])
    _in_partial_sums(sketch, stage.tensor, sketch.s[stage.tensor].op.reduce_axis)


def _in_partial_sums(sketch: Sketch, t: te.Tensor, reduce: Sequence[IterVar]) -> None:
    """Vectorize partial results along the last of the loops of a reduction."""
    s, lanes = sketch.s, vector_lanes(t.dtype)
    # The steps of a part are a symbol, and many.
    loops = [x for x in reduce if not isinstance(x.extent, int) or x.extent > 1]
    last = loops[-1] if loops else reduce[-1]
    most = last.extent if isinstance(last.extent, int) else lanes * _VECTORS[-1]
    widths = [lanes * v for v in _VECTORS if lanes * v <= max(lanes, most)]
    rest, lane = s[t].split(last, factor=sketch.number("width", widths, max(widths[:3])))
    _, again = s[t].split(rest, factor=sketch.number("unroll", _UNROLL))
    s[t].unroll(again)
    s[t].vectorize(lane)

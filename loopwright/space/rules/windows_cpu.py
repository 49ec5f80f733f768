"""Reductions along whose result memory runs, on CPUs: pooling, depthwise convolution, columns.

Vectors run along the last loop of the result. A register tile of some rows of them stays over the
whole reduction; where that is long, and reads memory once, a line of results in the first-level
cache may be better, since memory is then read in long runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from loopwright import te
from loopwright.ir.expr import IterVar
from loopwright.space import registers
from loopwright.space.access import extents
from loopwright.space.analysis import StageAnalysis, StageClass
from loopwright.space.kernels import Kernel
from loopwright.space.rules.pieces import (
    MIN_TASKS,
    compute_in_vectors,
    compute_inline,
    fused,
    most_with_tasks,
    run,
)
from loopwright.space.sketch import Sketch
from loopwright.space.structure import Structure
from loopwright.space.variant import Variant, structures_of

_VECTORS = (1, 2, 3, 4, 7, 8)
_ROWS = (1, 2, 3, 4, 6, 8)
_BLOCKS = (1, 2, 4, 8, 16, 32, 64)
_UNROLL = (1, 2, 4, 8, 16)
_RUNS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
#: Taps that are written out.
_SHORT = 8
#: Accumulators, and rows, of the default register tile; its tiles in a task.
_AT_ONCE, _TOGETHER, _IN_TASK = 16, 2, 8


def windows(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> list[Structure]:
    """The structures of an expression with one such reduction: none where it is something else.

    Args:
        outputs: the results; one, elementwise over the reduction.
        args: the arguments in calling order.
    """
    return structures_of(window_variants, outputs, args)


def window_variants(kernel: Kernel) -> list[Variant]:
    """Ways to schedule a reduction along whose result memory runs, the most sensible first.

    Args:
        kernel: any kernel; for what is something else there are none.
    """
    stage = kernel.single
    if stage is None or not stage.spatial or stage.spatial[-1].count == 1:
        return []
    vector = stage.spatial[-1]
    strides = [o.strides.get(vector) for o in stage.operands if o.access.moves_with(vector)]
    slides = stage.kind is StageClass.WINDOW
    if not strides or not (all(n == 1 for n in strides) or (slides and None not in strides)):
        return []
    inner = any(kernel.computes(o.tensor) for o in stage.operands)
    places = ["inline", "task", "root"] if inner else ["inline"]
    found = [_tiles(kernel, stage, place) for place in places]
    if stage.kind is not StageClass.ROW_REDUCTION or stage.reduced[-1].count <= _SHORT:
        return found
    return [_lines(kernel, stage), *found]


def _tiles(kernel: Kernel, stage: StageAnalysis, place: str) -> Variant:
    name = f"tiles along {stage.spatial[-1].name}"
    return Variant(
        name if place == "inline" else f"{name}, producers at {place}",
        "every operand moves along memory with the last loop, or stands still",
        partial(_schedule, kernel, stage, place),
    )


def _schedule(kernel: Kernel, stage: StageAnalysis, place: str, sketch: Sketch) -> None:
    s, out, reduction = sketch.s, kernel.out, stage.tensor
    kept = [o.tensor for o in stage.operands if kernel.computes(o.tensor) and place != "inline"]
    compute_inline(s, kernel, kept)
    acc = s.cache_write(out, "local") if out is reduction else reduction
    task, at = _tiled(sketch, out, stage)
    s[acc].compute_at(s[out], at)
    *before, column = s[acc].op.axis
    row = [before.pop()] if before else []
    *reduce, last = s[acc].op.reduce_axis
    again = [last]
    if last.count > _SHORT:
        unroll = [u for u in _UNROLL if u <= last.count]
        last, inner = s[acc].split(last, factor=sketch.number("unroll", unroll, 8))
        reduce, again = [*reduce, last], [inner]
    tile = [*again, *row, column]
    s[acc].reorder(*before, *reduce, *tile)
    run(s, acc, tile)
    for t in dict.fromkeys(kept):
        compute_in_vectors(s, t, out, task if place == "task" else None)


def _tile(sketch: Sketch, stage: StageAnalysis) -> tuple[Any, ...]:
    dtype = stage.tensor.dtype
    fits, lanes = registers.fitting(dtype), registers.lanes(dtype)
    *others, vector = stage.spatial
    heights = registers.row_tiles(others[-1].count, _ROWS) if others else [1]
    widths = registers.column_tiles(vector.count, dtype, _VECTORS)
    found = [(r, w) for r in heights for w in widths if fits(r, w)]
    liked = [(r, w) for r, w in found if r <= _TOGETHER and r * w <= _AT_ONCE * lanes]

    def cost(tile: tuple[int, int]) -> float:
        rows, width = tile
        covered = -(-vector.count // width) * width / vector.count
        return covered * (1 + lanes / width) * (1 + 0.5 / rows)

    return sketch.numbers("tile", found, min(liked, default=found[0], key=cost))


def _tiled(sketch: Sketch, out: te.Tensor, stage: StageAnalysis) -> tuple[IterVar, IterVar]:
    """Tile the result; the loops of a task and of a register tile."""
    s = sketch.s
    *outer, last = s[out].op.axis
    height, width = _tile(sketch, stage)
    column, lane = s[out].split(last, factor=width)
    s[out].vectorize(lane)
    if not outer:
        s[out].parallel(column)
        return column, column
    *others, row = outer
    block = [b for b in _BLOCKS if b <= row.count]
    r1, r2 = s[out].split(row, factor=height)
    wanted = most_with_tasks(block, -(-row.count // _TOGETHER), extents(others), _IN_TASK)
    r0, r1 = s[out].split(r1, factor=sketch.number("rows", block, wanted))
    s[out].reorder(*others, r0, r1, column, r2, lane)
    s[out].unroll(r2)
    task = fused(s, out, [*others, r0])
    if extents(outer) >= MIN_TASKS:
        s[out].parallel(task)
        return task, column
    # Few rows: what lies side by side is shared out too.
    s[out].reorder(column, r1)
    task = s[out].fuse(task, column)
    s[out].parallel(task)
    return task, r1


# ---------------------------------------------------------------- lines of results


def _lines(kernel: Kernel, stage: StageAnalysis) -> Variant:
    return Variant(
        f"lines along {stage.spatial[-1].name}",
        "memory is read in long runs, and a line of results lies in the first-level cache",
        partial(_schedule_lines, kernel, stage),
    )


def _schedule_lines(kernel: Kernel, stage: StageAnalysis, sketch: Sketch) -> None:
    s, out, reduction = sketch.s, kernel.out, stage.tensor
    compute_inline(s, kernel, [])
    acc = s.cache_write(out, "local") if out is reduction else reduction
    lanes, count = registers.lanes(reduction.dtype), stage.spatial[-1].count
    runs = [lanes * v for v in _RUNS if lanes * v < count] or [lanes]
    others = extents(stage.spatial[:-1])
    length = sketch.number("columns", runs, _longest_run(runs, count, others))
    *outer, last = s[out].op.axis
    column, line = s[out].split(last, factor=length)
    _, lane = s[out].split(line, factor=lanes)
    s[out].vectorize(lane)
    task = fused(s, out, [*outer, column])
    s[out].parallel(task)
    s[acc].compute_at(s[out], task)
    *before, along = s[acc].op.axis
    *reduce, rows = s[acc].op.reduce_axis
    unroll = [u for u in _UNROLL if u <= rows.count]
    k0, again = s[acc].split(rows, factor=sketch.number("rows", unroll, max(unroll[:4])))
    along, lane = s[acc].split(along, factor=lanes)
    s[acc].reorder(*before, *reduce, k0, along, again, lane)
    run(s, acc, [again, lane])


def _longest_run(runs: Sequence[int], count: int, others: int) -> int:
    """The longest run that leaves two tasks for each thread: less is read at once the shorter."""
    return max((r for r in runs if others * -(-count // r) >= 2), default=runs[0])

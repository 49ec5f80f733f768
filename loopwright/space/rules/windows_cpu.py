"""Reductions along whose result memory runs, on CPUs: pooling, depthwise convolution, columns.

Vectors run along a loop with which every operand moves side by side, or stands still; a register
tile of some rows of them stays over the whole reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopwright import te
from loopwright.ir.expr import IterVar
from loopwright.space import registers
from loopwright.space.access import extents, is_computed, producers
from loopwright.space.analysis import StageAnalysis, analyze
from loopwright.space.rules.pieces import compute_in_vectors
from loopwright.space.sketch import Sketch
from loopwright.space.structure import Structure

_VECTORS = (1, 2, 3, 4, 7, 8)
_ROWS = (1, 2, 3, 4, 6, 8)
#: Taps that are written out.
_SHORT = 8
_AT_ONCE, _TOGETHER = 4, 2


def windows(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> list[Structure]:
    """The structures of an expression with one such reduction: none where it is something else.

    Args:
        outputs: the results; one, elementwise over the reduction.
        args: the arguments in calling order.
    """
    (out,) = outputs
    stages = [s for s in analyze(out) if s.reduced]
    if len(stages) != 1 or not stages[0].spatial:
        return []
    (stage,) = stages
    vector = stage.spatial[-1]
    strides = [o.strides.get(vector) for o in stage.operands if o.access.moves_with(vector)]
    if vector.count == 1 or not strides or any(n != 1 for n in strides):
        return []
    inner = [t for t in producers(stage.tensor) if t is not stage.tensor]
    places = ["inline", "root", "task"] if inner else ["inline"]
    return [_structure(out, stage, args, place) for place in places]


def _structure(
    out: te.Tensor, stage: StageAnalysis, args: Sequence[te.Tensor], place: str
) -> Structure:
    sketch = Sketch([out], args)
    s, reduction = sketch.s, stage.tensor
    kept = {out, reduction}
    if place != "inline":
        kept |= {o.tensor for o in stage.operands}
    for t in producers(out):
        if t not in kept:
            s[t].compute_inline()
    acc = s.cache_write(out, "local") if out is reduction else reduction
    *outer, last = s[out].op.axis
    height, width = _tile(sketch, stage)
    task, at = _tiled(sketch, out, outer, last, height, width)
    s[acc].compute_at(s[out], at)
    *before, column = s[acc].op.axis
    row = [before.pop()] if before else []
    reduce = list(s[acc].op.reduce_axis)
    s[acc].reorder(*before, *reduce, *row, column)
    for x in row:
        s[acc].unroll(x)
    if reduce[-1].count <= _SHORT:
        s[acc].unroll(reduce[-1])
    s[acc].vectorize(column)
    for o in stage.operands if place != "inline" else ():
        if is_computed(o.tensor):
            compute_in_vectors(s, o.tensor, out, task if place == "task" else None)
    sketch.why.append("every operand moves along memory with the last loop, or stands still")
    name = f"tiles along {stage.spatial[-1].name}"
    return sketch.finished(name if place == "inline" else f"{name}, producers at {place}")


def _tile(sketch: Sketch, stage: StageAnalysis) -> tuple[Any, ...]:
    dtype = stage.tensor.dtype
    fits, lanes = registers.fitting(dtype), registers.lanes(dtype)
    *others, vector = stage.spatial
    heights = registers.row_tiles(others[-1].count, _ROWS) if others else [1]
    widths = registers.column_tiles(vector.count, dtype, _VECTORS)
    found = [(r, w) for r in heights for w in widths if fits(r, w)]
    liked = [(r, w) for r, w in found if r <= _TOGETHER and w <= _AT_ONCE * lanes]
    return sketch.numbers("tile", found, max(liked, default=found[0]))


def _tiled(
    sketch: Sketch, out: te.Tensor, outer: Sequence[IterVar], last: IterVar, height: Any, width: Any
) -> tuple[IterVar, IterVar]:
    """Tile the result; the loops of a task and of a register tile."""
    s = sketch.s
    column, lane = s[out].split(last, factor=width)
    s[out].vectorize(lane)
    if not outer:
        s[out].parallel(column)
        return column, column
    *others, row = outer
    block = [b for b in (1, 2, 4, 8, 16, 32) if b <= row.count]
    count = extents(others)
    enough = [b for b in block if count * row.count >= 8 * b * _TOGETHER]
    r1, r2 = s[out].split(row, factor=height)
    r0, r1 = s[out].split(r1, factor=sketch.number("rows", block, max(enough, default=1)))
    s[out].reorder(*others, r0, r1, column, r2, lane)
    s[out].unroll(r2)
    task = s[out].fuse(*others, r0) if others else r0
    s[out].parallel(task)
    return task, column

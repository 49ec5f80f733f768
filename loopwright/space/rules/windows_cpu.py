"""Reductions on CPUs whose result loops run along memory: pooling, depthwise convolution, columns.

A register tile of rows of vectors along the last loop stays over the whole reduction; a window of
few taps is unrolled. Where the reduction is long, a line of results in the first-level cache may be
better, since memory is then read in long runs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from loopwright import te
from loopwright.ir.expr import IfThenElse, IterVar
from loopwright.ir.visitor import free_vars, nodes
from loopwright.space.analysis import OperandUse, StageAnalysis, StageClass
from loopwright.space.expression import expressions, extents
from loopwright.space.kernels import Kernel
from loopwright.space.rules.common_cpu import (
    MIN_TASKS,
    column_tiles,
    compute_in_vectors,
    compute_inline,
    fits_registers,
    most_with_tasks,
    row_tiles,
    run,
    vector_lanes,
)
from loopwright.space.structure import Sketch, Variant, fused

_VECTORS = (1, 2, 3, 4, 7, 8)
_ROWS = (1, 2, 3, 4, 6, 8)
_BLOCKS = (1, 2, 4, 8, 16, 32, 64)
_UNROLL = (1, 2, 4, 8, 16)
_RUNS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
#: Unrolled taps; taps of a whole window, and vector operations in one piece of code, for which
#: compilers need less than half a second.
_SHORT, _WINDOW, _WRITTEN = 8, 64, 1024
#: Accumulators, and rows, of the default register tile; its tiles in a task.
_AT_ONCE, _TOGETHER, _IN_TASK = 16, 2, 8


def window_variants(kernel: Kernel) -> list[Variant]:
    """Variants of a reduction along whose result memory runs, best first; none for others."""
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
    written = [x for x in (_Tiles(kernel, stage, p, slides) for p in places) if x.tiles]
    tilings = [*written, _Tiles(kernel, stage, "inline")] if slides and written else written
    variants = [x.variant() for x in tilings or [_Tiles(kernel, stage, place) for place in places]]
    if stage.kind is not StageClass.ROW_REDUCTION or stage.reduced[-1].count <= _SHORT:
        return variants
    why = "memory is read in long runs, and a line of results lies in the first-level cache"
    lines = Variant(f"lines along {vector.name}", why, partial(_schedule_lines, kernel, stage))
    return [lines, *variants]


class _Tiles:
    """Register tiles of rows of vectors, with operands computed at ``place``: "inline", "task" or
    "root". With ``written`` the whole window is unrolled, and neighbouring vectors of a row where
    conditions of inlined padding along them then become constants."""

    def __init__(
        self, kernel: Kernel, stage: StageAnalysis, place: str, written: bool = False
    ) -> None:
        self._kernel, self._stage, self._place, self._written = kernel, stage, place, written
        *outer, vector = stage.spatial

        def shared(x: IterVar) -> int:
            return sum(not o.access.moves_with(x) for o in stage.operands)

        # Rows that leave many operands in place share loads; those of inner loops lie close.
        self._row = max(reversed(outer), key=shared, default=None)
        self._at = next((n for n, x in enumerate(outer) if x is self._row), 0)
        tested = any(_is_tested(kernel, o, vector) for o in stage.operands)
        self._has_tasks = extents(outer) >= MIN_TASKS
        self._whole_rows = written and place == "inline" and tested and self._has_tasks
        dtype, row = stage.tensor.dtype, self._row
        fits = fits_registers(dtype)
        heights = [1] if row is None else row_tiles(row.count, _ROWS)
        widths = column_tiles(vector.count, dtype, _VECTORS)
        tiles = [(r, w) for r in heights for w in widths if fits(r, w)]
        #: rows and columns of the tiles; none where the code would be too long
        self.tiles = [t for t in tiles if not written or self._length(t) <= _WRITTEN]

    def variant(self) -> Variant:
        name = f"tiles along {self._stage.spatial[-1].name}"
        name += ", taps written out" if self._written else ""
        name += "" if self._place == "inline" else f", producers at {self._place}"
        why = "every operand moves along memory with the last loop, or stands still"
        return Variant(name, why, self._schedule)

    def _length(self, tile: tuple[int, int]) -> int:
        """Vector operations of the unrolled code."""
        rows, width = tile
        taps, count = extents(self._stage.reduced), self._stage.spatial[-1].count
        if taps > _WINDOW:
            return _WRITTEN + 1
        vectors = -(-width // vector_lanes(self._stage.tensor.dtype))
        return taps * rows * vectors * (-(-count // width) if self._whole_rows else 1)

    def _schedule(self, sketch: Sketch) -> None:
        s, out, reduction = sketch.s, self._kernel.out, self._stage.tensor
        kept = [o.tensor for o in self._stage.operands if self._kernel.computes(o.tensor)]
        kept = kept if self._place != "inline" else []
        compute_inline(s, self._kernel, kept)
        acc = s.cache_write(out, "local") if out is reduction else reduction
        task, at = self._tiled(sketch)
        s[acc].compute_at(s[out], at)
        *before, column = s[acc].op.axis
        row = [] if self._row is None else [before.pop(self._at)]
        reduce, again = self._taps(sketch, acc)
        tile = [*again, *row, column]
        s[acc].reorder(*before, *reduce, *tile)
        run(s, acc, tile)
        for t in dict.fromkeys(kept):
            compute_in_vectors(s, t, out, task if self._place == "task" else None)

    def _taps(self, sketch: Sketch, acc: te.Tensor) -> tuple[list[IterVar], list[IterVar]]:
        """Loops of the reduction that stay loops, and the unrolled ones."""
        s = sketch.s
        if self._written:
            return [], list(s[acc].op.reduce_axis)
        *reduce, last = s[acc].op.reduce_axis
        if last.count <= _SHORT:
            return reduce, [last]
        unroll = [u for u in _UNROLL if u <= last.count]
        last, inner = s[acc].split(last, factor=sketch.number("unroll", unroll, 8))
        return [*reduce, last], [inner]

    def _tile(self, sketch: Sketch) -> tuple[Any, ...]:
        lanes, count = vector_lanes(self._stage.tensor.dtype), self._stage.spatial[-1].count
        liked = [(r, w) for r, w in self.tiles if r <= _TOGETHER and r * w <= _AT_ONCE * lanes]

        def cost(tile: tuple[int, int]) -> float:
            rows, width = tile
            covered = -(-count // width) * width / count
            return covered * (1 + lanes / width) * (1 + 0.5 / rows)

        return sketch.numbers("tile", self.tiles, min(liked, default=self.tiles[0], key=cost))

    def _tiled(self, sketch: Sketch) -> tuple[IterVar, IterVar]:
        """Tile the result; returns the loops of a task and of a register tile."""
        s, out = sketch.s, self._kernel.out
        *outer, last = s[out].op.axis
        height, width = self._tile(sketch)
        column, lane = s[out].split(last, factor=width)
        s[out].vectorize(lane)
        if not outer:
            s[out].parallel(column)
            return column, column
        row = outer[self._at]
        others = [x for x in outer if x is not row]
        block = [b for b in _BLOCKS if b <= row.count]
        r1, r2 = s[out].split(row, factor=height)
        wanted = most_with_tasks(block, -(-row.count // _TOGETHER), extents(others), _IN_TASK)
        r0, r1 = s[out].split(r1, factor=sketch.number("rows", block, wanted))
        s[out].reorder(*others, r0, r1, column, r2, lane)
        s[out].unroll(r2)
        task = fused(s, out, [*others, r0])
        if self._has_tasks:
            s[out].parallel(task)
            if self._whole_rows:
                s[out].unroll(column)
            return task, column
        # Few rows: what lies side by side is shared out too.
        s[out].reorder(column, r1)
        task = s[out].fuse(task, column)
        s[out].parallel(task)
        return task, r1


def _is_tested(kernel: Kernel, operand: OperandUse, axis: IterVar) -> bool:
    """Whether a condition along an axis decides the value of a computed operand, as in padding."""
    stage = next((s for s in kernel.stages if s.tensor is operand.tensor), None)
    if stage is None:
        return False
    dims = zip(stage.spatial, operand.access.dims, strict=True)
    moved = [x for x, dim in dims if dim is None or axis in dim.moves]
    inside = (n for e in expressions(stage.tensor.op) for n in nodes(e))
    tested = {v for n in inside if isinstance(n, IfThenElse) for v in free_vars(n.cond)}
    if any(x.var in tested for x in moved):
        return True
    return any(_is_tested(kernel, o, x) for o in stage.operands for x in moved)


# ---------------------------------------------------------------- lines of results


def _schedule_lines(kernel: Kernel, stage: StageAnalysis, sketch: Sketch) -> None:
    s, out, reduction = sketch.s, kernel.out, stage.tensor
    compute_inline(s, kernel, [])
    acc = s.cache_write(out, "local") if out is reduction else reduction
    lanes, count = vector_lanes(reduction.dtype), stage.spatial[-1].count
    runs = [lanes * v for v in _RUNS if lanes * v < count] or [lanes]
    others = extents(stage.spatial[:-1])
    # The longest run that leaves two tasks; shorter runs read less at once.
    longest = max((n for n in runs if others * -(-count // n) >= 2), default=runs[0])
    length = sketch.number("columns", runs, longest)
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

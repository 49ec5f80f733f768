"""Reductions along memory on CPUs as dot products: a register tile of vectors of partial results.

Where the last loop of the reduction moves every operand along memory, as with weights stored (N,
K), nothing has to be packed: vectors run along the reduction, and several elements of the result
are computed at once, so that loaded data is used for more than one.
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
from loopwright.space.chains import runs_along_memory
from loopwright.space.kernels import Kernel
from loopwright.space.rules.pieces import (
    ALONE,
    MAY_BE_ALONE,
    compute_in_vectors,
    compute_inline,
    cut_short,
    fused,
    most_with_tasks,
)
from loopwright.space.sketch import Sketch
from loopwright.space.structure import Structure
from loopwright.space.variant import Variant, structures_of

_SIDES = (1, 2, 3, 4, 5, 6, 8)
_VECTORS = (1, 2, 4)
_BLOCKS = (1, 2, 4, 8, 16, 32, 64)
_UNROLL = (1, 2, 4)
#: Rows up to which a product is better made of dot products than with a packed operand.
_FEW_ROWS = 64
#: Accumulators that hide how long an addition takes.
_IN_FLIGHT = 16


def dots(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> list[Structure]:
    """Structure of a reduction along memory that is no contraction, by dot products; the one result
    is elementwise over it.
    """
    return structures_of(row_variants, outputs, args)


def row_variants(kernel: Kernel) -> list[Variant]:
    """Ways to schedule a reduction of rows along memory by dot products; none for other kernels."""
    stage = kernel.single
    if stage is None or stage.kind is not StageClass.ROW_REDUCTION:
        return []
    return dot_variants(kernel)


def dot_variants(kernel: Kernel) -> list[Variant]:
    """Ways to schedule a reduction along memory by dot products; none for other kernels."""
    stage = kernel.single
    if stage is None or not stage.spatial or not runs_along_memory(stage):
        return []
    if stage.reduced[-1].count < registers.lanes(stage.tensor.dtype):
        return []
    why = "every operand runs along memory with the reduction"
    found = [Variant("dot products", why, partial(_scheduled, kernel, stage, False))]
    reads = any(kernel.computes(o.tensor) for o in stage.operands)
    if kernel.work > MAY_BE_ALONE or reads:
        return found
    name = "dot products, one thread"
    alone = Variant(name, why, partial(_scheduled, kernel, stage, True))
    return [alone, *found] if kernel.work <= ALONE else [*found, alone]


def _scheduled(kernel: Kernel, stage: StageAnalysis, alone: bool, sketch: Sketch) -> None:
    _Dots(sketch, kernel, stage, alone).schedule()


def pays_by_dots(stage: StageAnalysis) -> bool:
    """Whether a contraction has so few rows that packing an operand does not pay."""
    largest = max(stage.spatial, key=lambda x: x.count)
    rows = extents(x for x in stage.spatial if x is not largest)
    long = stage.reduced[-1].count >= registers.lanes(stage.tensor.dtype)
    return rows <= _FEW_ROWS and long and runs_along_memory(stage)


class _Dots:
    def __init__(
        self, sketch: Sketch, kernel: Kernel, stage: StageAnalysis, alone: bool = False
    ) -> None:
        self.alone = alone
        self.sketch, self.s, self.kernel, self.stage = sketch, sketch.s, kernel, stage
        self.lanes = registers.lanes(stage.tensor.dtype)
        self.column = max(reversed(stage.spatial), key=lambda x: x.count > 1)
        self.row = self._row()

    def _row(self) -> IterVar | None:
        """Longest loop that moves an operand but not another one, which the columns move."""
        moving = [o for o in self.stage.operands if o.access.moves_with(self.column)]
        found = [
            x for x in self.stage.spatial
            if x is not self.column and x.count > 1
            and not all(o.access.moves_with(x) for o in moving)
        ]  # fmt: skip
        return max(found, key=lambda x: x.count, default=None)

    def _tiles(self) -> tuple[list[tuple[int, int, int]], tuple[int, int, int]]:
        """Rows, columns and lanes of partial results, and those with the fewest loads."""
        room, last = registers.registers(), self.stage.reduced[-1].count
        heights = [n for n in _SIDES if n <= (1 if self.row is None else self.row.count)]
        widths = [n for n in _SIDES if n <= self.column.count]
        found = [
            (r, c, v * self.lanes) for r in heights for c in widths for v in _VECTORS
            if r * c * v + min(r, c) * v + 1 <= room and self.lanes * v <= max(last, self.lanes)
        ]  # fmt: skip

        def cost(tile: tuple[int, int, int]) -> float:
            r, c, v = tile[0], tile[1], tile[2] // self.lanes
            n = self.row.count if self.row is not None else 1
            covered = registers.run_in_tiles(n, r, 1, _IN_FLIGHT // (c * v)) / n
            m = self.column.count
            covered *= registers.run_in_tiles(m, c, 1, _IN_FLIGHT // (r * v)) / m
            tail = -(-last // (self.lanes * v)) * self.lanes * v / last
            waiting = max(1.0, _IN_FLIGHT / (r * c * v))
            return covered * tail * (waiting + (r + c) / (2 * r * c))

        return found, min(found, key=cost)

    def schedule(self) -> None:
        s, out, stage = self.s, self.kernel.out, self.stage.tensor
        kept = [o.tensor for o in self.stage.operands if self.kernel.computes(o.tensor)]
        compute_inline(s, self.kernel, kept)
        for t in dict.fromkeys(kept):
            compute_in_vectors(s, t, out, None)
        acc = s.cache_write(out, "local") if out is stage else stage
        found, best = self._tiles()
        rows, columns, width = self.sketch.numbers("tile", found, best)
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
        """Tile the result; returns the loop of a register tile."""
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

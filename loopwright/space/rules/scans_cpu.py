"""Scans on CPUs: running sums, products and maxima, each place over all elements up to it.

As a reduction a scan is quadratic work, in blocks it is linear (Blelloch, 1990): the totals of
blocks, their running totals, and the scan inside each block, each free of dependences along memory.
Rows are divided among the threads with all three; of too few rows each of the three is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from loopwright import te
from loopwright.ir.expr import IterVar, position_of
from loopwright.ir.reduction import Scan
from loopwright.space.analysis import StageAnalysis
from loopwright.space.expression import extents
from loopwright.space.kernels import Kernel
from loopwright.space.rules.common_cpu import (
    ALONE,
    MAY_BE_ALONE,
    MIN_TASKS,
    compute_inline,
    run,
    vector_lanes,
)
from loopwright.space.structure import Sketch, Variant, fused

#: Places of a block where vectors run across the scan; vectors of a block where they run along it.
_ACROSS, _ALONG = (8, 4), (1,)
#: Running totals that are computed without blocks of their own; blocks of these.
_FEW, _OF_BLOCKS = 32, 16
#: Points of all blocks together up to which one thread does all of it by default.
_LITTLE = ALONE // 4
_WORTH_TASKS = 64  #: blocks for which threads are woken
_ROWS = (1, 2, 4, 8, 16, 32)
_VECTORS = (1, 2)


def scan_variants(kernel: Kernel) -> list[Variant]:
    """Variants of a scan, the most sensible first; none for other kernels."""
    stage = kernel.single
    scan = stage.scan if stage is not None else None
    if stage is None or scan is None:
        return []
    low, high = scan.range
    along = scan.place is stage.spatial[-1]
    lanes = vector_lanes(stage.tensor.dtype)
    blocks = [lanes * v for v in _ALONG] if along else list(_ACROSS)
    scans = [_Scan(kernel, stage, scan, n) for n in blocks if 1 < n < high - low]
    alone = [replace(x, alone=True) for x in scans if kernel.work * x.block <= MAY_BE_ALONE]
    little = [x for x in alone if kernel.work * x.block <= _LITTLE]
    return [x.variant() for x in [*little, *scans, *(x for x in alone if x not in little)]]


@dataclass(frozen=True, eq=False)
class _Scan:
    kernel: Kernel
    stage: StageAnalysis
    scan: Scan
    block: int  # places of a block
    alone: bool = False  # whether one thread does all of it, since waking others takes longer

    @property
    def _place(self) -> int:
        return position_of(self.scan.place, self.stage.spatial)

    @property
    def _vector(self) -> IterVar | None:
        """Loop of the vectors, where they run across the scan."""
        last = self.stage.spatial[-1]
        return None if self.scan.place is last else last

    @property
    def _rows(self) -> list[IterVar]:
        taken = (self.scan.place, self._vector)
        return [x for x in self.stage.spatial if not any(x is y for y in taken)]

    def variant(self) -> Variant:
        name = f"running along {self.scan.place.name} in blocks of {self.block}"
        over, place = self.scan.over.name, self.scan.place.name
        why = f"{over} runs up to {place}: whole blocks are combined once"
        return Variant(f"{name}, one thread" if self.alone else name, why, self.schedule)

    def schedule(self, sketch: Sketch) -> None:
        s, out, t = sketch.s, self.kernel.out, self.stage.tensor
        compute_inline(s, self.kernel, [])
        k = s[t].op.reduce_axis[position_of(self.scan.over, self.stage.reduced)]
        stages: list[tuple[te.Tensor, bool]] = []
        blocks, block = t, self.block
        while True:
            blocks, totals = s.blocked_scan(blocks, k, block)
            stages += [(totals, True), (blocks, False)]
            (k,) = s[blocks].op.reduce_axis
            if k.count <= _FEW:
                break
            block = _OF_BLOCKS
        acc = s.cache_write(out, "local") if out is t else t
        task, at = self._tiled(sketch, out)
        # The scan inside a block, in registers.
        s[acc].compute_at(s[out], at)
        axes = list(s[acc].op.axis)
        place = axes.pop(self._place)
        last = axes.pop() if self._vector is not None else None
        tile = [*s[acc].op.reduce_axis, place, *([last] if last is not None else [])]
        s[acc].reorder(*axes, *tile)
        run(s, acc, tile)
        for t, is_total in stages:
            self._between(sketch, t, is_total, out, task)

    def _tiled(self, sketch: Sketch, out: te.Tensor) -> tuple[IterVar | None, IterVar]:
        """Tile the result; returns the loop at which totals are computed (None: before all tasks),
        and the loop of a block."""
        s = sketch.s
        axis = dict(zip(self.stage.spatial, s[out].op.axis, strict=True))
        rows = [axis[x] for x in self._rows]
        place, inner = s[out].split(axis[self.scan.place], factor=self.block)
        column: IterVar | None = None
        lane = inner
        if self._vector is not None:
            lanes, count = vector_lanes(self.stage.tensor.dtype), self._vector.count
            widths = [lanes * v for v in _VECTORS if lanes * v <= max(count, lanes)]
            width = sketch.number("width", widths, widths[-1])
            column, lane = s[out].split(axis[self._vector], factor=width)
            s[out].reorder(*rows, column, place, inner, lane)
            s[out].unroll(inner)
        else:
            s[out].reorder(*rows, place, lane)
        s[out].vectorize(lane)
        outer = [*rows, *([column] if column is not None else [])]
        if not outer or (self._tasks < MIN_TASKS and not self.alone):
            task = fused(s, out, [*outer, place])
            if not self.alone:
                s[out].parallel(task)
            return None, task
        task = fused(s, out, outer)
        if self.alone:
            return task, place
        counts = [n for n in _ROWS if n * MIN_TASKS <= self._tasks]
        task, row = s[out].split(task, factor=sketch.number("rows", counts, counts[-1]))
        s[out].parallel(task)
        return row, place

    @property
    def _tasks(self) -> int:
        """Number of independent scans, vectors of them counted as one."""
        if self._vector is None:
            return extents(self._rows)
        lanes = vector_lanes(self.stage.tensor.dtype)
        return extents(self._rows) * -(-self._vector.count // (2 * lanes))

    def _between(
        self, sketch: Sketch, t: te.Tensor, is_total: bool, out: te.Tensor, task: IterVar | None
    ) -> None:
        """Totals of blocks, or running totals of few."""
        s = sketch.s
        axes, reduce = list(s[t].op.axis), list(s[t].op.reduce_axis)
        if task is not None:
            s[t].compute_at(s[out], task)
        elif extents(axes[: self._place + 1]) >= _WORTH_TASKS:
            shared = fused(s, t, axes[: self._place + 1])
            if not self.alone:
                s[t].parallel(shared)
        lanes = vector_lanes(t.dtype)
        if self._vector is None and is_total:
            _, lane = s[t].split(reduce[-1], factor=lanes)
        elif self._vector is not None or task is not None:
            _, lane = s[t].split(axes[-1], factor=lanes)
            s[t].reorder(*reduce, lane)
            s[t].unroll(reduce[-1])
        else:
            return
        s[t].vectorize(lane)

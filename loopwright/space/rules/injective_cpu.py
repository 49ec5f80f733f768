"""Kernels without reductions on CPUs: vectors along memory, stencils in tiles, transposed squares.

Stages read at several places may be kept for a tile, as in Halide (PLDI 2013).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from loopwright import te
from loopwright.ir.expr import IterVar, position_of
from loopwright.space.analysis import StageClass
from loopwright.space.expression import extents
from loopwright.space.kernels import Kernel
from loopwright.space.rules.common_cpu import (
    LINE,
    MIN_TASKS,
    compute_in_vectors,
    compute_inline,
    element_bytes,
    most_with_tasks,
    past_the_caches,
    run,
    vector_lanes,
)
from loopwright.space.structure import Sketch, Variant, fused

_VECTORS = (1, 2, 4, 8)
_ROWS = (1, 2, 4, 8, 16, 32, 64)
_MOST_CHOICES = 4  #: stages of which one at a time may be recomputed where it is read
_TOGETHER = (1, 2, 4)  #: rows that go through memory side by side
#: Sides of a transposed block, whose rows are written side by side: more of them were slower, up to
#: threefold for bytes; and the largest side of a square that is transposed in registers.
_SIDES, _SQUARE = (4, 8, 16, 32), 16


def injective_variants(kernel: Kernel) -> list[Variant]:
    """Variants of a kernel without reductions, the most sensible first; none for others."""
    if kernel.reductions or not kernel.out.shape:
        return []
    variants = _turned_squares(kernel)
    # Stages that another one reads at more than one place.
    reads = ([o.tensor for o in s.operands if kernel.computes(o.tensor)] for s in kernel.stages)
    spread = tuple(dict.fromkeys(t for read in reads for t in read if read.count(t) > 1))
    names = ", ".join(t.name for t in spread)
    why = "what is read at several places is computed once"
    if spread:
        variants += [
            Variant(f"{names} in tiles", why, partial(_schedule, kernel, spread, True)),
            Variant(f"{names} before", why, partial(_schedule, kernel, spread, False)),
        ]
    if not kernel.may_inline:
        return variants
    # Recomputing one of a few stages may cost less than keeping it.
    alike: Counter[str] = Counter()  # stages may have one name
    for again in spread if 1 < len(spread) <= _MOST_CHOICES else ():
        kept = [t for t in spread if t is not again]
        name = f"{', '.join(t.name for t in kept)} in tiles, {again.name} computed again"
        alike[name] += 1
        name += f" ({alike[name]})" * (alike[name] > 1)
        cheap = f"{why}, but {again.name}, which is cheap"
        variants.append(Variant(name, cheap, partial(_schedule, kernel, kept, True)))
    why = "no reduction: each element is computed where it is needed"
    return [*variants, Variant("vectors along memory", why, partial(_schedule, kernel, (), False))]


def _schedule(kernel: Kernel, kept: Sequence[te.Tensor], in_tiles: bool, sketch: Sketch) -> None:
    s, out = sketch.s, kernel.out
    compute_inline(s, kernel, kept)
    task = _along_memory(sketch, kernel)
    for t in reversed(kept):
        compute_in_vectors(s, t, out, task if in_tiles else None)


def _along_memory(sketch: Sketch, kernel: Kernel) -> IterVar:
    """Vectorize the last dimension, with some rows for each task; rows that read the same places go
    side by side, so that these are loaded once."""
    out = kernel.out
    s, lanes = sketch.s, vector_lanes(out.dtype)
    *outer, last = s[out].op.axis
    widths = [lanes * v for v in _VECTORS if lanes * v <= max(last.count, lanes)]
    even = [w for w in widths if w <= 4 * lanes and last.count % w == 0]
    width = sketch.number("width", widths, max(even, default=widths[0]))
    column, lane = s[out].split(last, factor=width)
    s[out].vectorize(lane)
    wide = [x for x in outer if x.count > 1]
    # Neighbouring rows make a task: they read neighbouring places.
    row = wide[-1] if wide else column
    count = row.count if wide else -(-last.count // widths[0])
    others = [x for x in outer if x is not row]
    beside: list[IterVar] = []
    if wide and _share(kernel, out, row):
        together = [n for n in _TOGETHER if n <= count]
        row, again = s[out].split(row, factor=sketch.number("together", together, together[:2][-1]))
        s[out].unroll(again)
        beside, count = [again], -(-count // together[:2][-1])
    counts = [r for r in _ROWS if r <= count]
    liked = most_with_tasks(counts, count, extents(others))
    rows, inner = s[out].split(row, factor=sketch.number("rows", counts, liked))
    s[out].reorder(*others, rows, inner, *([column, *beside, lane] if beside else []))
    past_the_caches(sketch, out, lane)
    task = fused(s, out, [*others, rows])
    s[out].parallel(task)
    return task


def _share(kernel: Kernel, tensor: te.Tensor, row: IterVar) -> bool:
    """Whether neighbouring rows of a stage read the same places."""
    stage = next((s for s in kernel.stages if s.tensor is tensor), None)
    if stage is None:
        return False
    read: dict[te.Tensor, tuple[int, ...]] = {}
    for o in stage.operands:
        if not o.access.moves_with(row) and o.moves:
            return True
        at = tuple(d.offset for d in o.access.dims if d is not None and row in d.moves)
        if read.setdefault(o.tensor, at) != at:
            return True
        if not kernel.computes(o.tensor):
            continue
        axes = zip(o.tensor.op.axis, o.access.dims, strict=True)
        if any(_share(kernel, o.tensor, x) for x, d in axes if d is not None and row in d.moves):
            return True
    return False


# ---------------------------------------------------------------- transposes


def _turned_squares(kernel: Kernel) -> list[Variant]:
    """Blocks of the loop along which an operand lies in memory and of that of the result."""
    if len(kernel.stages) != 1 or kernel.stages[0].kind is not StageClass.TRANSPOSE:
        return []
    (stage,) = kernel.stages
    last = stage.spatial[-1]
    reads = [o.access for o in stage.operands if o.access.contiguous is not None]
    turned = next(a for a in reads if a.contiguous is not last and a.moves_with(last))
    along = turned.contiguous
    assert along is not None
    why = f"{turned.tensor.name} lies in memory along {along.name}, the result along {last.name}"
    name = f"squares of {along.name} x {last.name}"
    at = position_of(along, stage.spatial)
    return [Variant(name, why, partial(_schedule_squares, kernel, at))]


def _schedule_squares(kernel: Kernel, at: int, sketch: Sketch) -> None:
    s, out, lanes = sketch.s, kernel.out, vector_lanes(kernel.out.dtype)
    axes = list(s[out].op.axis)
    across, last = axes[at], axes[-1]
    sides = [n for n in _SIDES if n <= across.count] or [across.count]
    side = sketch.number("rows", sides, sides[-1])
    square = min(lanes, _SQUARE)
    widths = [square * v for v in _VECTORS if square * v <= max(last.count, square)]
    width = sketch.number("columns", widths, square)
    a0, a1 = s[out].split(across, factor=side)
    l0, l1 = s[out].split(last, factor=width)
    l1, lane = s[out].split(l1, factor=square)
    others = [x for x in axes if x is not across and x is not last]
    s[out].reorder(*others, a0, l0, l1, a1, lane)
    run(s, out, (a1, lane))
    if square * element_bytes(out) >= LINE:
        past_the_caches(sketch, out, lane)
    enough = extents(others) * -(-across.count // _SIDES[-1]) >= MIN_TASKS
    s[out].parallel(fused(s, out, [*others, a0] if enough else [*others, a0, l0]))

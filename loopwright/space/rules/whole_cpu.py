"""Reductions to few elements, or to one row, on CPUs: threads take parts of the reduction.

Partial results are a stage of their own, an element or a row for each part, in parallel; the rest
is little.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from loopwright import te
from loopwright.ir.expr import IterVar, position_of
from loopwright.space import registers
from loopwright.space.access import extents
from loopwright.space.analysis import StageAnalysis
from loopwright.space.kernels import Kernel
from loopwright.space.rules.pieces import MIN_TASKS, compute_in_vectors, compute_inline, rfactored
from loopwright.space.sketch import Sketch
from loopwright.space.structure import Structure
from loopwright.space.variant import Variant, structures_of

_PARTS = (2, 4, 8, 16, 32, 64)
_VECTORS = (1, 2, 4, 8)
_UNROLL = (1, 2, 4)
#: Elements of a result that threads do not share out, and of a reduction that is worth parts.
_FEW, _LONG = 64, 4096
#: Bytes of a matrix that is read row by row where one row is the result; rows read at a time.
_LARGE, _TOGETHER = 1 << 20, (4, 8, 16)
#: Elements for which threads are woken by default.
_WORTH_THREADS = 1 << 18


def whole(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> list[Structure]:
    """Structure of a long reduction to few elements, over which the one result is elementwise; none
    for other expressions.
    """
    return structures_of(whole_variants, outputs, args)


def whole_variants(kernel: Kernel) -> list[Variant]:
    """Ways to schedule a long reduction to few elements; none for other kernels."""
    stage = kernel.single
    if stage is None:
        return []
    if extents(stage.spatial) >= _FEW:
        return _row_variants(kernel, stage)
    why = "the result has few elements: parts of the reduction run in parallel"
    found = []
    if extents(stage.reduced) >= _LONG and _parted(stage).count >= _PARTS[0]:
        found = [Variant("reduction in parts", why, partial(_schedule, kernel, stage))]
    if extents(stage.spatial) > 1:
        return found
    one = Variant("one reduction", "one thread reduces it", partial(_schedule_one, kernel, stage))
    return [*found, one] if extents(stage.reduced) >= _WORTH_THREADS else [one, *found]


def _row_variants(kernel: Kernel, stage: StageAnalysis) -> list[Variant]:
    """Row of sums of rows of a matrix that is too large for caches: memory is read in its order."""
    last = stage.spatial[-1]
    if len(stage.reduced) != 1 or last.count != extents(stage.spatial):
        return []
    read = max(stage.operands, key=lambda o: extents(o.moves))
    lies = read.strides.get(last) == 1 and read.strides.get(stage.reduced[0]) == last.count
    if not lies or extents(read.moves) * registers.nbytes(read.tensor) < _LARGE:
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
    lanes = registers.lanes(t.dtype)
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


def _schedule(kernel: Kernel, stage: StageAnalysis, sketch: Sketch) -> None:
    s, t = sketch.s, stage.tensor
    compute_inline(s, kernel, [])
    parted = _parted(stage)
    lanes = registers.lanes(t.dtype)
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
    _vectors(sketch, parts_of, kept)


def _step(count: int, parts: int, lanes: int) -> int:
    """Iterations of a part: whole vectors where there are many."""
    step = -(-count // parts)
    whole = lanes * _VECTORS[-1]
    return -(-step // whole) * whole if step > whole else step


def _schedule_one(kernel: Kernel, stage: StageAnalysis, sketch: Sketch) -> None:
    compute_inline(sketch.s, kernel, [])
    _vectors(sketch, stage.tensor, sketch.s[stage.tensor].op.reduce_axis)


def _vectors(sketch: Sketch, t: te.Tensor, reduce: Sequence[IterVar]) -> None:
    """Vectorize partial results along the last of the loops of a reduction."""
    s, lanes = sketch.s, registers.lanes(t.dtype)
    # The steps of a part are a symbol, and many.
    loops = [x for x in reduce if not isinstance(x.extent, int) or x.extent > 1]
    last = loops[-1] if loops else reduce[-1]
    most = last.extent if isinstance(last.extent, int) else lanes * _VECTORS[-1]
    widths = [lanes * v for v in _VECTORS if lanes * v <= max(lanes, most)]
    rest, lane = s[t].split(last, factor=sketch.number("width", widths, max(widths[:3])))
    _, again = s[t].split(rest, factor=sketch.number("unroll", _UNROLL))
    s[t].unroll(again)
    s[t].vectorize(lane)

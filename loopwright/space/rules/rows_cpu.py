"""Chains over rows on CPUs: the stages of a row are computed when its turn comes, in vectors.

A row then lies in the first-level cache while all of its reductions run over it. Reductions run
over several vectors of partial results, so that additions do not wait for one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any

from loopwright import te
from loopwright.ir.expr import IterVar
from loopwright.space import registers
from loopwright.space.access import extents
from loopwright.space.analysis import StageAnalysis, StageClass
from loopwright.space.chains import RowChain
from loopwright.space.kernels import Kernel
from loopwright.space.rules.dots_cpu import row_variants
from loopwright.space.rules.pieces import MIN_TASKS, compute_inline, fused, run
from loopwright.space.sketch import Sketch
from loopwright.space.structure import Structure
from loopwright.space.variant import Variant, structures_of
from loopwright.target import Target

_VECTORS = (1, 2, 4, 8)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
_UNROLL = (1, 2, 4)
#: Vectors at once that the default configuration has.
_AT_ONCE = 4
#: Intermediate rows of which each may be kept or recomputed; of more all are kept.
_MOST_CHOICES = 3


def rows(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> list[Structure]:
    """Structures of a chain over rows along memory with one result; none for other expressions."""
    return structures_of(chain_variants, outputs, args)


def chain_variants(kernel: Kernel) -> list[Variant]:
    """Ways to schedule a chain over rows along memory, best first; none for other kernels."""
    chain = kernel.chain
    if chain is None:
        return []
    if kernel.single is not None and kernel.single.kind is StageClass.CONTRACTION:
        return []
    again = [t for t in chain.whole if not t.op.reduce_axis][:_MOST_CHOICES]
    choices = product([True, False], repeat=len(again))
    found = [
        _variant(chain, [t for t, keep in zip(again, kept, strict=True) if not keep])
        for kept in choices
    ]
    several = [*_across(kernel), *row_variants(kernel)]
    return [*several, *found] if _is_streamed(chain) else [*found, *several]


def _across(kernel: Kernel) -> list[Variant]:
    """Vectors along a loop of the result that moves no operand, since only the reduced expression
    depends on it: sums up to each place, counts of each value.
    """
    stage = kernel.single
    if stage is None or not stage.spatial:
        return []
    last = stage.spatial[-1]
    moved = any(o.access.moves_with(last) for o in stage.operands)
    if moved or last.count < registers.lanes(stage.tensor.dtype):
        return []
    why = f"every operand stands still along {last.name}: each element serves all of a vector"
    return [Variant("vectors across", why, partial(_schedule_across, kernel, stage))]


def _schedule_across(kernel: Kernel, stage: StageAnalysis, sketch: Sketch) -> None:
    """Keep some vectors of results in registers while the reduction runs over its operands."""
    s, out, t = sketch.s, kernel.out, stage.tensor
    compute_inline(s, kernel, [])
    partial_results = s.cache_write(out, "local") if out is t else t
    lanes, count = registers.lanes(t.dtype), stage.spatial[-1].count
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


def _is_streamed(chain: RowChain) -> bool:
    """Whether rows come from memory: several at once then keep it busy."""
    inputs = {x for r in chain.reductions for x in r.op.input_tensors}
    size = sum(prod(x.static_shape) * registers.nbytes(x) for x in inputs)
    return size > Target.current().hardware.caches.l3


def _variant(chain: RowChain, inlined: Sequence[te.Tensor]) -> Variant:
    again = ", ".join(t.name for t in inlined)
    return Variant(
        f"rows in cache, {again} computed again" if again else "rows in cache",
        "every stage needs its own row of the others alone",
        partial(_schedule, chain, inlined),
    )


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
    _vectors(s, out, chain.rank, knobs)


class _Knobs:
    """Knobs that all stages of a chain share."""

    def __init__(self, sketch: Sketch, chain: RowChain) -> None:
        lanes = registers.lanes(chain.reductions[0].dtype)
        length = max(extents(r.op.reduce_axis) for r in chain.reductions)
        widths = [lanes * v for v in _VECTORS if lanes * v <= max(length, lanes)]
        count = extents(chain.reductions[0].op.axis)
        counts = [r for r in _ROWS if r <= count]
        enough = max((r for r in counts if -(-count // r) >= MIN_TASKS), default=1)
        wide = max(w for w in widths if w <= _AT_ONCE * lanes)
        self.width: Any = sketch.number("width", widths, wide)
        self.rows: Any = sketch.number("rows", counts, enough)
        self.unroll: Any = sketch.number("unroll", _UNROLL)


def _vectors(s: Any, t: te.Tensor, rank: int, knobs: _Knobs) -> None:
    """Vectorize the last loop of a stage, a reduction loop where it has one."""
    loops: list[IterVar] = [*s[t].op.axis[rank:], *s[t].op.reduce_axis]
    if not loops:
        return
    rest, lane = s[t].split(loops[-1], factor=knobs.width)
    _, again = s[t].split(rest, factor=knobs.unroll)
    s[t].unroll(again)
    s[t].vectorize(lane)

"""Chains over rows on CPUs: what a row needs is computed when its turn comes, in vectors.

A row then lies in the first-level cache while all of its reductions run over it. Reductions run
over several vectors of partial results, so that additions do not wait for one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from loopwright import te
from loopwright.ir.expr import IterVar
from loopwright.space import registers
from loopwright.space.access import extents
from loopwright.space.analysis import analyze
from loopwright.space.chains import RowChain, row_chain
from loopwright.space.sketch import Sketch
from loopwright.space.structure import Structure

_VECTORS = (1, 2, 4, 8)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
_UNROLL = (1, 2, 4)
#: Tasks that the default configuration leaves at least, and its vectors at once.
_MIN_TASKS, _AT_ONCE = 8, 4
#: Rows on the way of which each may be kept or computed again; of more all are kept.
_MOST_CHOICES = 3


def rows(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> list[Structure]:
    """The structures of a chain over rows along memory: none where the expression is something
    else.

    Args:
        outputs: the results; one.
        args: the arguments in calling order.
    """
    (out,) = outputs
    chain = row_chain(out)
    if chain is None or not _along_memory(chain):
        return []
    again = [t for t in chain.whole if not t.op.reduce_axis][:_MOST_CHOICES]
    choices = product([True, False], repeat=len(again))
    return [
        _structure(chain, args, [t for t, keep in zip(again, kept, strict=True) if not keep])
        for kept in choices
    ]


def _along_memory(chain: RowChain) -> bool:
    """Whether every operand of a reduction stands still along its last loop, or runs along memory
    with it."""
    for r in chain.reductions:
        (stage,) = [s for s in analyze(r) if s.tensor is r]
        last = r.op.reduce_axis[-1]
        moved = [o.strides.get(last) for o in stage.operands if o.access.moves_with(last)]
        if not moved or any(stride != 1 for stride in moved):
            return False
    return True


def _structure(
    chain: RowChain, args: Sequence[te.Tensor], inlined: Sequence[te.Tensor]
) -> Structure:
    sketch = Sketch([chain.out], args)
    s, out = sketch.s, chain.out
    for t in inlined:
        s[t].compute_inline()
    knobs = _Knobs(sketch, chain)
    loops = list(s[out].op.axis[: chain.rank])
    row = s[out].fuse(*loops) if len(loops) > 1 else loops[0]
    task, row = s[out].split(row, factor=knobs.rows)
    s[out].parallel(task)
    stages = [*chain.whole, *chain.single, *chain.reductions]
    for t in stages:
        if t is not out and t not in inlined:
            s[t].compute_at(s[out], row)
            _vectors(s, t, chain.rank, knobs)
    _vectors(s, out, chain.rank, knobs)
    again = ", ".join(t.name for t in inlined)
    sketch.why.append("every stage needs its own row of the others alone")
    return sketch.finished(f"rows in cache, {again} computed again" if again else "rows in cache")


class _Knobs:
    """What all stages of a chain share."""

    def __init__(self, sketch: Sketch, chain: RowChain) -> None:
        lanes = registers.lanes(chain.reductions[0].dtype)
        length = max(extents(r.op.reduce_axis) for r in chain.reductions)
        widths = [lanes * v for v in _VECTORS if lanes * v <= max(length, lanes)]
        count = extents(chain.reductions[0].op.axis)
        counts = [r for r in _ROWS if r <= count]
        enough = max((r for r in counts if -(-count // r) >= _MIN_TASKS), default=1)
        wide = max(w for w in widths if w <= _AT_ONCE * lanes)
        self.width: Any = sketch.number("width", widths, wide)
        self.rows: Any = sketch.number("rows", counts, enough)
        self.unroll: Any = sketch.number("unroll", _UNROLL)


def _vectors(s: Any, t: te.Tensor, rank: int, knobs: _Knobs) -> None:
    """Vectors along the last loop of a stage, a reduction loop where it has one."""
    loops: list[IterVar] = [*s[t].op.axis[rank:], *s[t].op.reduce_axis]
    if not loops:
        return
    rest, lane = s[t].split(loops[-1], factor=knobs.width)
    _, again = s[t].split(rest, factor=knobs.unroll)
    s[t].unroll(again)
    s[t].vectorize(lane)

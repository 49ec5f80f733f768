"""Reductions whose loops are bound to threads: each accumulates in a local buffer, `AllReduce`
combines the results, and one thread stores them. Guards that differ between threads stand around
accumulation and store only, so that every thread takes part in the combination."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, binary
from loopwright.ir.stmt import AllReduce, If, Stmt
from loopwright.lowering.nest.accumulators import accumulators, tile_loops
from loopwright.lowering.nest.multi_output import combine_into, write_all
from loopwright.schedule.bounds.launches import cross_tags
from loopwright.schedule.bounds.results import StageBounds
from loopwright.schedule.state import State


def cross_thread_of(state: State, sb: StageBounds) -> CrossThread | None:
    """The cross-thread reduction of a stage, or None if no loop of it asks for one."""
    tags = tuple(cross_tags(sb.stage))
    if not tags or sb.op.reduction is None:
        return None
    return CrossThread(f"{state.label(sb.stage.id)}.acc", sb, tags)


class CrossThread:
    """The reduction of one stage by the threads of ``tags``."""

    def __init__(self, name: str, sb: StageBounds, tags: tuple[str, ...]) -> None:
        assert sb.op.reduction is not None
        assert sb.kernel is not None
        self.tags, self.combiner, self.name = tags, sb.op.reduction.combiner, name
        tile = tile_loops(sb)
        #: The place of the element at hand in them.
        self.element: tuple[Expr, ...] = tuple(x.var for x in tile)
        #: The accumulators of one thread, one for each output.
        self.buffers = accumulators(name, tuple(sb.sizes.dim(x.extent) for x in tile), sb.op.dtypes)
        # In local memory every thread keeps the result; else one thread stores it.
        axes = [] if sb.scope == "local" else [sb.kernel.launches[t] for t in tags]
        chosen = dict(sb.stage.predicate or ())
        #: Thread axes with their values in the thread that stores the result.
        self.writer = [(x.var, chosen.get(x.tag, 0)) for x in axes if x.extent != 1]

    def _load(self) -> list[Expr]:
        return [Load(b, self.element, b.dtype) for b in self.buffers]

    def start(self) -> Stmt:
        """Set the accumulators of one element to the reducer's identity."""
        return write_all(self.buffers, self.element, self.combiner.identity)

    def update(self, values: Sequence[Expr]) -> Stmt:
        """Combine one more value of each output into the accumulators."""
        return combine_into(
            self.buffers, self.element, self.combiner, self._load(), values, self.name
        )

    def combine(self) -> Stmt:
        """Combine the accumulators of one element across the threads."""
        return AllReduce(self.combiner, tuple(self.buffers), self.element, self.tags)

    def store(
        self, buffers: Sequence[Buffer], indices: tuple[Expr, ...], init: Sequence[Expr] | None
    ) -> Stmt:
        """Store the result as the element; where threads share the buffer, one thread does."""
        out = write_all(buffers, indices, self._load())
        if init is not None:
            out = combine_into(buffers, indices, self.combiner, init, self._load(), self.name)
        for var, n in reversed(self.writer):
            out = If(binary("==", var, n), out)
        return out

"""Reductions whose loops are bound to threads.

Each thread accumulates what its iterations cover in a local buffer, `AllReduce` combines the
threads' results, and one thread stores them. The accumulator has a dimension for each spatial loop
inside the reduction. Guards that differ between threads stand around the accumulation and the
store only, so that every thread takes part in the combination.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, binary
from loopwright.ir.stmt import AllReduce, If, Stmt
from loopwright.lowering.nest.multi_output import combine_into, write_all
from loopwright.schedule.bounds.launches import cross_tags
from loopwright.schedule.bounds.results import StageBounds
from loopwright.schedule.state import State


def cross_thread_of(state: State, sb: StageBounds) -> CrossThread | None:
    """The accumulator of a stage with a reduction loop bound to threads, else None."""
    tags = tuple(cross_tags(sb.stage))
    if not tags or sb.op.reduction is None:
        return None
    return CrossThread(f"{state.label(sb.stage.id)}.acc", sb, tags)


class CrossThread:
    """What a stage needs to reduce with the threads of ``tags``.

    Attributes:
        buffers: the accumulators of one thread, one an output.
    """

    def __init__(self, name: str, sb: StageBounds, tags: tuple[str, ...]) -> None:
        assert sb.op.reduction is not None
        assert sb.kernel is not None
        self.tags, self.combiner, self.name = tags, sb.op.reduction.combiner, name
        first = next(p for p, x in enumerate(sb.loops) if x.loop.kind == "reduce")
        inside = [
            x
            for x in sb.loops[first:]
            if x.loop.kind != "reduce" and x.extent != 1 and sb.launch_var(x) is None
        ]
        self.element: tuple[Expr, ...] = tuple(x.var for x in inside)
        shape, types = tuple(sb.sizes.dim(x.extent) for x in inside), sb.op.dtypes
        names = [name] if len(types) == 1 else [f"{name}.v{k}" for k in range(len(types))]
        self.buffers = [Buffer(n, shape, t, "local") for n, t in zip(names, types, strict=True)]
        # In local memory every thread keeps the result; else one thread stores it.
        axes = [] if sb.scope == "local" else [sb.kernel.launches[t] for t in tags]
        chosen = dict(sb.stage.predicate or ())
        self.writer = [(x.var, chosen.get(x.tag, 0)) for x in axes if x.extent != 1]

    def _load(self) -> list[Expr]:
        return [Load(b, self.element, b.dtype) for b in self.buffers]

    def start(self) -> Stmt:
        """The accumulators of one element at the reducer's identity."""
        return write_all(self.buffers, self.element, self.combiner.identity)

    def update(self, values: Sequence[Expr]) -> Stmt:
        """One more value, one an output, in the accumulators."""
        return combine_into(
            self.buffers, self.element, self.combiner, self._load(), values, self.name
        )

    def combine(self) -> Stmt:
        """The accumulators of one element combined across the threads."""
        return AllReduce(self.combiner, tuple(self.buffers), self.element, self.tags)

    def store(
        self, buffers: Sequence[Buffer], indices: tuple[Expr, ...], init: Sequence[Expr] | None
    ) -> Stmt:
        """The result as the element, written by one thread where threads share the buffer."""
        out = write_all(buffers, indices, self._load())
        if init is not None:
            out = combine_into(buffers, indices, self.combiner, init, self._load(), self.name)
        for var, n in reversed(self.writer):
            out = If(binary("==", var, n), out)
        return out

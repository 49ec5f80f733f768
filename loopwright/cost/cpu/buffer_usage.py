"""What the stages of a schedule must know of one another."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.cost.symbolic.loop_nest import Access, NestBuffer, StageNest
from loopwright.cost.symbolic.symbols import Number, at_most, total, where
from loopwright.schedule.state import StageId


class Whole:
    """The buffers of all stages, and who touches them.

    Attributes:
        used: bytes of all inputs, results and tensors in between that outlive one task. A level
            that holds them holds them from call to call.
    """

    def __init__(self, nests: Sequence[StageNest]) -> None:
        self._accesses: dict[StageId, list[tuple[StageNest, Access]]] = {}
        for nest in nests:
            for a in nest.accesses:
                self._accesses.setdefault(a.buffer.stage, []).append((nest, a))
        buffers = [found[0][1].buffer for found in self._accesses.values()]
        self.used = total(b.elements * b.itemsize for b in buffers if not b.within)

    def resident(self, buffer: NestBuffer) -> Number:
        """Whether a buffer is a set of registers: no loop that remains moves an index of it."""
        if not buffer.within:
            return False
        out: Number = True
        for nest, a in self._accesses[buffer.stage]:
            moved = {m.loop for moves in a.moves for m in moves}
            for x in nest.loops:
                if x.key in moved and x.mark not in ("unrolled", "vectorized"):
                    out = where(at_most(x.extent, 1), out, False)
        return out

"""Accesses to the buffers of a schedule, and the bytes that the buffers take together."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.cost.symbolic.loop_nest import StageNest
from loopwright.cost.symbolic.nest_buffers import Access, NestBuffer
from loopwright.cost.symbolic.symbols import Number, at_most, total, where
from loopwright.schedule.state import StageId


class BufferUsage:
    def __init__(self, nests: Sequence[StageNest]) -> None:
        self._accesses: dict[StageId, list[tuple[StageNest, Access]]] = {}
        for nest in nests:
            for a in nest.accesses:
                self._accesses.setdefault(a.buffer.stage, []).append((nest, a))
        self.made = frozenset(nest.stage.id for nest in nests)
        buffers = [accesses[0][1].buffer for accesses in self._accesses.values()]
        #: Bytes of all inputs, results and intermediate tensors that outlive one parallel task. A
        #: larger cache holds them from one call of the kernel to the next.
        self.used = total(b.elements * b.itemsize for b in buffers if not b.within)

    def resident(self, buffer: NestBuffer) -> Number:
        """Whether a buffer lives in registers: no remaining loop moves an index of it."""
        if not buffer.within:
            return False
        out: Number = True
        for nest, a in self._accesses[buffer.stage]:
            for extent in _moving_extents(nest, a):
                out = where(at_most(extent, 1), out, False)
        return out


def _moving_extents(nest: StageNest, access: Access) -> list[Number]:
    """Extents of the loops that move an access and are still loops in the generated code."""
    moving = {m.loop for moves in access.moves for m in moves}
    return [
        x.extent for x in nest.loops if x.key in moving and x.mark not in ("unrolled", "vectorized")
    ]

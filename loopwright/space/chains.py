"""Chains over rows: expressions in which every stage needs its own row of the others alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopwright import te
from loopwright.space.access import Index, accesses, producers


@dataclass(frozen=True)
class RowChain:
    """A chain of reductions over rows: softmax, layer normalisation, a norm, one reduction.

    Attributes:
        out: the result: a number a row, or a row.
        reductions: numbers that each row needs, reduced from something over all of it; in order.
        whole: rows that are computed on the way.
        single: numbers that are computed from such numbers.
    """

    out: te.Tensor
    reductions: tuple[te.Tensor, ...]
    whole: tuple[te.Tensor, ...]
    single: tuple[te.Tensor, ...]

    @property
    def rank(self) -> int:
        """Dimensions that count rows."""
        return len(self.reductions[0].shape)


def row_chain(out: te.Tensor) -> RowChain | None:
    """The chain in an expression, or None where it is none: all reductions have one shape, which
    the result begins with, and every stage reads others at its own row.

    Args:
        out: the result.
    """
    chain = producers(out)
    reductions = [t for t in chain if t.op.reduce_axis]
    if not reductions or not reductions[0].shape:
        return None
    shape = reductions[0].static_shape
    if any(r.static_shape != shape for r in reductions):
        return None
    if not all(_reads_own_row(t, chain, len(shape)) for t in chain):
        return None
    below = [t for t in chain if t is not out and t not in reductions]
    return RowChain(
        out,
        tuple(reductions),
        tuple(t for t in below if t.static_shape != shape),
        tuple(t for t in below if t.static_shape == shape),
    )


def _reads_own_row(reader: te.Tensor, chain: Sequence[te.Tensor], rank: int) -> bool:
    own: list[Index | None] = [Index({x: 1}) for x in reader.op.axis[:rank]]
    computed = [a for a in accesses(reader) if a.tensor in chain]
    return len(own) == rank and all(list(a.dims[:rank]) == own for a in computed)

"""Chains over rows: expressions in which every stage needs its own row of the others alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopwright import te
from loopwright.space.access import is_own, producers
from loopwright.space.analysis import StageAnalysis, analyze


@dataclass(frozen=True)
class RowChain:
    """Chain of reductions over rows: softmax, layer normalisation, a norm, one reduction."""

    out: te.Tensor  # a number a row, or a row
    #: numbers of each row, reduced from something over all of it; in order
    reductions: tuple[te.Tensor, ...]
    whole: tuple[te.Tensor, ...]  # intermediate rows
    single: tuple[te.Tensor, ...]  # numbers computed from such numbers
    #: whether every operand of a reduction stands still along its last loop, or runs along memory
    #: with it
    along_memory: bool

    @property
    def rank(self) -> int:
        """Dimensions that count rows."""
        return len(self.reductions[0].shape)


def row_chain(out: te.Tensor, stages: Sequence[StageAnalysis] | None = None) -> RowChain | None:
    """Chain in an expression, or None: all reductions have one shape, which the result begins with,
    and every stage reads others at its own row.

    ``stages`` are those of the chain, inputs first; None for all that the result needs.
    """
    found = analyze(out) if stages is None else stages
    chain = producers(out) if stages is None else [s.tensor for s in found]
    reductions = [s for s in found if s.reduced]
    if not reductions or not reductions[0].tensor.shape:
        return None
    shape = reductions[0].tensor.static_shape
    if any(r.tensor.static_shape != shape for r in reductions):
        return None
    if not all(_reads_own_row(s, chain, len(shape)) for s in found):
        return None
    reduced = {r.tensor for r in reductions}
    below = [t for t in chain if t is not out and t not in reduced]
    return RowChain(
        out,
        tuple(r.tensor for r in reductions),
        tuple(t for t in below if t.static_shape != shape),
        tuple(t for t in below if t.static_shape == shape),
        all(map(runs_along_memory, reductions)),
    )


def runs_along_memory(stage: StageAnalysis) -> bool:
    """Whether the last loop moves every operand of a reduction along memory, or not at all."""
    last = stage.reduced[-1]
    moved = [o.strides.get(last) for o in stage.operands if o.access.moves_with(last)]
    return bool(moved) and all(stride == 1 for stride in moved)


def _reads_own_row(reader: StageAnalysis, chain: Sequence[te.Tensor], rank: int) -> bool:
    own = reader.spatial[:rank]
    computed = [o.access for o in reader.operands if o.tensor in chain]
    return len(own) == rank and all(
        is_own(dim, x) for a in computed for dim, x in zip(a.dims, own, strict=False)
    )

"""Stages of one kernel of a program that may have several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopwright import te
from loopwright.schedule import Schedule
from loopwright.space.access import accesses, is_computed, producers, readers


@dataclass(frozen=True)
class Kernel:
    """Result in global memory with the stages that it computes on its way."""

    out: te.Tensor
    #: stages of the kernel, the result last; other reads are inputs, and results of other kernels
    stages: tuple[te.Tensor, ...]
    program: tuple[te.Tensor, ...]  # all stages of the program

    @property
    def reductions(self) -> list[te.Tensor]:
        """Reducing stages, inputs first."""
        return [t for t in self.stages if t.op.reduce_axis]

    @property
    def dtypes(self) -> set[str]:
        """Types of the reads of its stages and of its result."""
        return {self.out.dtype, *(x.dtype for t in self.stages for x in t.op.input_tensors)}

    def computes(self, tensor: te.Tensor) -> bool:
        return any(tensor.op is t.op for t in self.stages)

    def inline(self, s: Schedule, but: Sequence[te.Tensor]) -> None:
        """Inline the stages but some; those that an earlier kernel inlines already are so here."""
        for t in self.stages:
            if t not in but and s.state.stages[s[t].id].attach.kind != "inline":
                s[t].compute_inline()


def whole_program(*outs: te.Tensor) -> Kernel:
    """All stages of an expression as one kernel, of the last result."""
    of = {t.op: t for out in outs for t in producers(out)}  # outputs of an operation are one stage
    of |= {out.op: out for out in outs}
    chain = tuple(of.values())
    return Kernel(outs[-1], chain, chain)


def kernel_of(out: te.Tensor, program: Sequence[te.Tensor], others: Sequence[te.Tensor]) -> Kernel:
    """Kernel of a result, given all stages, inputs first, and the results of all kernels."""
    mine, elsewhere = {out.op}, {t.op for t in others if t is not out}
    for t in reversed(program):
        if t.op in mine:
            mine |= {x.op for x in t.op.input_tensors if is_computed(x)} - elsewhere
    return Kernel(out, tuple(t for t in program if t.op in mine), tuple(program))


def is_elementwise_over(kernel: Kernel, reduction: te.Tensor) -> bool:
    """Whether every stage behind a reduction reads it, and stages over it, at its own element."""
    out, chain = kernel.out, kernel.stages
    behind = {reduction}
    for t in chain[chain.index(reduction) + 1 :]:
        if _reads_otherwise(t, behind):
            return False
        behind |= {t} if any(a.tensor in behind for a in accesses(t)) else set()
    return out in behind and out.static_shape == reduction.static_shape


def last_elementwise(reduction: te.Tensor, program: Sequence[te.Tensor]) -> te.Tensor:
    """Last stage that depends elementwise on a reduction alone, which computes it as its epilogue;
    one with several results has a kernel of its own.
    """
    found = reduction
    while True:
        behind = readers(found, program)
        if len(behind) != 1 or behind[0].op.reduce_axis or _reads_otherwise(behind[0], {found}):
            return found
        if behind[0].static_shape != reduction.static_shape or behind[0].op.num_outputs > 1:
            return found
        found = behind[0]


def _reads_otherwise(t: te.Tensor, sources: set[te.Tensor]) -> bool:
    own = [{x: 1} for x in t.op.axis]
    mine = [a for a in accesses(t) if a.tensor in sources]
    return any([d and dict(d.moves) for d in a.dims] != own for a in mine)

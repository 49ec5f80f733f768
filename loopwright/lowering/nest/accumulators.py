"""Accumulators of reductions that do not add into the stage's own buffer."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Dim
from loopwright.schedule.bounds.results import LoopBound, StageBounds


def first_reduction_loop(sb: StageBounds) -> int:
    """Index of the outermost reduction loop of a stage."""
    return next(p for p, x in enumerate(sb.loops) if x.loop.kind == "reduce")


def tile_loops(sb: StageBounds) -> list[LoopBound]:
    """The loops over elements inside the outermost reduction loop, each a dimension of
    accumulators; without those over threads, which have accumulators of their own."""
    return [
        x
        for x in sb.loops[first_reduction_loop(sb) :]
        if x.loop.kind != "reduce" and x.extent != 1 and sb.launch_var(x) is None
    ]


def accumulators(name: str, shape: tuple[Dim, ...], types: Sequence[str]) -> list[Buffer]:
    """Local buffers of one shape, one for each output of a stage."""
    names = [name] if len(types) == 1 else [f"{name}.v{k}" for k in range(len(types))]
    return [Buffer(n, shape, t, "local") for n, t in zip(names, types, strict=True)]

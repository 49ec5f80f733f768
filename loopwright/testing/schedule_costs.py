"""The costs of a schedule in the interpreter and the compiler, so that random ones stay small."""

from __future__ import annotations

from math import prod

from loopwright.schedule.bounds.infer import attach_position
from loopwright.schedule.bounds.results import Bounds, LoopBound
from loopwright.schedule.state import State


def costs(state: State, bounds: Bounds) -> tuple[int, int]:
    """Executions of statements, and copies of them in the code, of the worst stage."""
    work, copies = 0, 0
    for sb in bounds.stages.values():
        loops, stage = list(sb.loops), sb.stage
        while stage.attach.kind == "at":
            host, pos = attach_position(state, stage, bounds)
            loops += host.loops[: pos + 1]
            stage = host.stage
        work = max(work, prod(x.count for x in loops))
        copies = max(copies, prod(_copies(x) for x in loops))
    return work, copies


def _copies(x: LoopBound) -> int:
    kind = x.mark.kind if x.mark else ""
    return x.count if kind == "unrolled" else -(-x.count // 8) if kind == "vectorized" else 1

"""Order of the stages that depends on the program, not on the schedule."""

from __future__ import annotations

from math import prod

from loopwright.cost.cpu.arithmetic import work_of
from loopwright.cost.symbolic.index_steps import number_of
from loopwright.cost.symbolic.loop_nest import StageNest, nests_of
from loopwright.schedule.state import State


def by_arithmetic(state: State) -> list[StageNest]:
    """Computed stages, the one with the most arithmetic first.

    Recomputed work counts once, so all schedules of a program have one order.
    """
    nests = nests_of(state)
    order = sorted(range(len(nests)), key=lambda i: (-_arithmetic(nests[i]), -i))
    return [nests[i] for i in order]


def _arithmetic(nest: StageNest) -> int:
    """Operations of a stage's whole tensor, at least 1 an element; unknown extents count as 1."""
    extents = [*nest.op.shape, *(number_of(a.extent) for a in nest.op.reduce_axes)]
    return prod(n for n in extents if isinstance(n, int)) * (1 + work_of(nest.op).flop)

"""Rules that need extents: checked after bound inference and before lowering."""

from __future__ import annotations

from loopwright.schedule.bounds.results import Bounds
from loopwright.schedule.state import State
from loopwright.schedule.steps import Step


def validate_bounds(state: State, bounds: Bounds) -> None:
    """Ask every primitive whether what its steps left in the state can be lowered."""
    for primitive in Step.registry.values():
        primitive.check_bounds(state, bounds)

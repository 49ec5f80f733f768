"""Schedules: how a program is computed. Immutable states, steps, traces, and bound inference."""

from __future__ import annotations

from loopwright.schedule.apply import apply
from loopwright.schedule.bounds.infer import infer_bounds
from loopwright.schedule.bounds.results import Bounds, StageBounds
from loopwright.schedule.schedule import Schedule, create_schedule, replay
from loopwright.schedule.stage import Stage
from loopwright.schedule.state import State
from loopwright.schedule.steps import Step

__all__ = [
    "Bounds",
    "Schedule",
    "Stage",
    "StageBounds",
    "State",
    "Step",
    "apply",
    "create_schedule",
    "infer_bounds",
    "replay",
]

"""Refusal to reorder a reduction whose reducer forbids it."""

from __future__ import annotations

from loopwright.schedule.state import StageState, refuse
from loopwright.te.reducer_laws import why_in_order


def refuse_in_order(stage: StageState, verb: str, t: int) -> None:
    """Refuse to combine the terms of a stage in another order, where its reducer forbids it."""
    red = stage.op.reduction
    if red is not None and (why := why_in_order(red.combiner)):
        refuse(
            verb,
            t,
            f"the reducer {red.combiner.name!r} of {stage.op.name!r} depends on the order of its "
            f"terms, which {verb} changes: {why}; reduce in one serial loop, or mend the reducer",
        )

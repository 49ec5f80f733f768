"""Loops around a stage that is computed inside others, and the place of its buffer."""

from __future__ import annotations

from loopwright.schedule.state import StageId, StageState, State, refuse


def loops_around(state: State, stage: StageState) -> list[tuple[StageId, int]]:
    """The loops around a stage, innermost first, each as a stage and a position there."""
    out: list[tuple[StageId, int]] = []
    while stage.attach.kind == "at":
        host = state.stages[stage.attach.stage]
        last = host.leaves.index(stage.attach.loop)
        out += [(host.id, p) for p in range(last, -1, -1)]
        stage = host
    return out


def store_position(state: State, stage: StageState) -> tuple[StageId, int]:
    """Loop inside which an attached stage's buffer exists (-1: around all); checks store_at."""
    around = loops_around(state, stage)
    at = stage.store or stage.attach
    if at.kind == "root":
        return around[-1][0], -1
    host = state.stages[at.stage]
    wanted = (host.id, host.leaves.index(at.loop) if at.loop in host.leaves else -1)
    if wanted not in around:
        inside = ", ".join(
            state.loop_label(state.stages[sid], state.stages[sid].leaves[p]) for sid, p in around
        )
        refuse(
            "store_at",
            at.step,
            f"loop {state.loop_label(host, at.loop)!r} is not around the place where "
            f"{state.label(stage.id)!r} is computed; name one of {inside}",
        )
    return wanted

"""Rules and effects of the primitives that say where a stage is computed."""

from __future__ import annotations

from loopwright.schedule import steps as st
from loopwright.schedule.state import ROOT, Attach, StageId, StageState, State, refuse


def movable(state: State, sid: StageId, who: str, t: int) -> StageState:
    """The stage, which must be neither an input nor an output."""
    stage = state.stage(sid, who)
    if stage.op.is_placeholder:
        refuse(who, t, f"{stage.op.name!r} is an input; use cache_read to make a stage of it")
    if sid in state.outputs:
        refuse(
            who,
            t,
            f"{state.label(sid)!r} is an output and is computed at root; use cache_write and move "
            "the cache stage",
        )
    return stage


def compute_at(state: State, step: st.ComputeAt, t: int) -> State:
    """Attach a stage at a loop of a stage that depends on it."""
    stage = movable(state, step.stage, "compute_at", t)
    parent = state.compute_stage(step.parent, "compute_at")
    state.leaf(parent, step.loop, "compute_at")
    if parent.id == stage.id:
        name = state.label(stage.id)
        refuse(
            "compute_at", t, f"{name!r} cannot be computed inside itself; name a stage that uses it"
        )
    check_used(state, parent.id, stage.id, t)
    return state.with_stage(stage, attach=Attach("at", parent.id, step.loop, t))


def check_used(state: State, parent: StageId, sid: StageId, t: int) -> None:
    """Refuse to compute a stage inside one that does not use it."""
    if not _depends(state, parent, sid):
        users = ", ".join(state.label(c) for c in state.consumers(sid)) or "no stage"
        refuse(
            "compute_at",
            t,
            f"{state.label(parent)!r} does not use {state.label(sid)!r}, directly or "
            f"through others; it is used by {users}",
        )


def _depends(state: State, consumer: StageId, producer: StageId) -> bool:
    todo, seen = [consumer], set()
    while todo:
        cur = todo.pop()
        for r in state.stages[cur].op.reads():
            if r.source == producer:
                return True
            if r.source not in seen:
                seen.add(r.source)
                todo.append(r.source)
    return False


def compute_inline(state: State, step: st.ComputeInline, t: int) -> State:
    """Substitute a stage into its readers (done when bounds are inferred)."""
    stage = movable(state, step.stage, "compute_inline", t)
    name = state.label(stage.id)
    if stage.op.reduction is not None:
        refuse(
            "compute_inline",
            t,
            f"{name!r} is a reduction and would be computed again at every use; use compute_at",
        )
    for loop in stage.leaves:
        if state.attached_at(stage.id, loop):
            inside = state.label(state.attached_at(stage.id, loop)[0])
            refuse(
                "compute_inline",
                t,
                f"stage {inside!r} is computed inside {name!r}; move it out first",
            )
    return state.with_stage(stage, attach=Attach("inline", step=t), store=None, double=None)


def compute_root(state: State, step: st.ComputeRoot, t: int) -> State:
    """Detach a stage."""
    stage = state.compute_stage(step.stage, "compute_root")
    return state.with_stage(stage, attach=ROOT, store=None)

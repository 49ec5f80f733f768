"""Rules and effects of the primitives that say how a stage's buffer lies in memory."""

from __future__ import annotations

from loopwright.errors import did_you_mean
from loopwright.ir.kinds import SCOPES
from loopwright.schedule import steps as st
from loopwright.schedule.rules.placement import movable
from loopwright.schedule.state import Attach, StageId, StageState, State, refuse


def check_scope(scope: str, who: str, t: int) -> None:
    """Refuse a memory scope that does not exist."""
    if scope not in SCOPES:
        refuse(
            who,
            t,
            f"unknown scope {scope!r}{did_you_mean(str(scope), SCOPES)}; use {', '.join(SCOPES)}",
        )


def own_buffer(state: State, sid: int | str, who: str, t: int) -> StageState:
    """The stage, which must have a buffer that belongs to no caller."""
    stage = movable(state, sid, who, t)
    if stage.attach.kind == "inline":
        refuse(
            who,
            t,
            f"{state.label(sid)!r} is inlined and has no buffer; use compute_root or compute_at "
            "first",
        )
    return stage


def set_scope(state: State, step: st.SetScope, t: int) -> State:
    """Put a stage's buffer into another memory scope."""
    stage = own_buffer(state, step.stage, "set_scope", t)
    check_scope(step.scope, "set_scope", t)
    return state.with_stage(stage, scope=step.scope, since=stage.after("set_scope", t))


def storage_align(state: State, step: st.StorageAlign, t: int) -> State:
    """Ask for a stride of the form ``k * factor + offset`` in one dimension of a buffer."""
    stage = own_buffer(state, step.stage, "storage_align", t)
    ndim = len(stage.layout) if stage.layout is not None else len(stage.op.shape)
    if not 0 <= step.dim < ndim:
        refuse(
            "storage_align",
            t,
            f"the buffer of {state.label(stage.id)!r} has {ndim} dimensions, there is no dimension "
            f"{step.dim}",
        )
    if not _at_least(step.factor, 1) or not _at_least(step.offset, 0):
        refuse(
            "storage_align",
            t,
            "factor must be positive and offset 0 or more (a stride is k * factor + offset), got "
            f"{step.factor!r} and {step.offset!r}",
        )
    kept = tuple(a for a in stage.align if a[0] != step.dim)
    align = (*kept, (step.dim, step.factor, step.offset))
    return state.with_stage(stage, align=align, since=stage.after("storage_align", t))


def _at_least(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def store_at(state: State, step: st.StoreAt, t: int) -> State:
    """Let a buffer exist inside a loop that lies around the one where the stage is computed."""
    stage = _computed_at(state, step.stage, "store_at", t)
    parent = state.compute_stage(step.parent, "store_at")
    state.leaf(parent, step.loop, "store_at")
    new = state.with_stage(stage, store=Attach("at", parent.id, step.loop, t))
    store_position(new, new.stages[stage.id])
    return new


def store_root(state: State, step: st.StoreRoot, t: int) -> State:
    """Let a buffer exist around all loops of the outermost stage where the stage is computed."""
    stage = _computed_at(state, step.stage, "store_root", t)
    return state.with_stage(stage, store=Attach("root", step=t))


def _computed_at(state: State, sid: StageId, who: str, t: int) -> StageState:
    stage = own_buffer(state, sid, who, t)
    if stage.attach.kind != "at":
        refuse(
            who,
            t,
            f"{state.label(sid)!r} is computed at root, where its buffer is; call compute_at first",
        )
    return stage


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
    """Where the buffer of an attached stage exists: inside a loop (-1: around them all).

    Raises:
        ScheduleError: the loop that store_at named is not around the one of compute_at.
    """
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


def double_buffer(state: State, step: st.DoubleBuffer, t: int) -> State:
    """Ask for two halves of a buffer."""
    stage = own_buffer(state, step.stage, "double_buffer", t)
    return state.with_stage(stage, double=t)


def aligned_strides(
    shape: tuple[int, ...], align: tuple[tuple[int, int, int], ...]
) -> tuple[int, ...] | None:
    """Strides in elements of a buffer, each the smallest that fits; None when there is no gap."""
    if not align:
        return None
    wanted = {dim: (factor, offset) for dim, factor, offset in align}
    strides: list[int] = []
    dense = stride = 1
    for dim in reversed(range(len(shape))):
        if dim in wanted:
            factor, offset = wanted[dim]
            stride += (offset - stride) % factor
        strides.append(stride)
        stride *= shape[dim]
    for n in shape:
        dense *= n
    return None if stride == dense else tuple(reversed(strides))

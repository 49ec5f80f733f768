"""Rules and effects of the primitives that say how a stage's buffer lies in memory."""

from __future__ import annotations

from loopwright.errors import did_you_mean
from loopwright.schedule import steps as st
from loopwright.schedule.placement import movable
from loopwright.schedule.state import StageState, State, refuse

SCOPES = ("global", "local", "shared")


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
    return state.with_stage(stage, scope=step.scope)


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
    return state.with_stage(stage, align=(*kept, (step.dim, step.factor, step.offset)))


def _at_least(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


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

"""Rules and effects of groups of stages that are computed in one place together.

A stage of a group *follows* it as long as no step of its own says where it is computed: its
``attach`` is then that of the group, or of the group around that. What follows is worked out again
after each step (`keep_groups`), so that all else sees stages with a place and knows of no groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from loopwright.schedule import steps as st
from loopwright.schedule.rules import placement
from loopwright.schedule.state import ROOT, Attach, Group, StageId, StageState, State, refuse


def create_group(state: State, step: st.CreateGroup, t: int) -> State:
    """Group the stages on all ways from some tensors to others."""
    outputs = (step.stage, *step.outputs)
    for sid in outputs:
        state.compute_stage(sid, "create_group")
    for sid in step.inputs:
        state.stage(sid, "create_group")
    chosen = _between(state, outputs, step.inputs, step.include_inputs)
    if all(state.stages[sid].op.is_placeholder for sid in chosen):
        refuse(
            "create_group",
            t,
            f"no stage lies between {_names(state, step.inputs) or 'no inputs'} and "
            f"{_names(state, outputs)}; inputs are tensors that the outputs are computed from",
        )
    parent = _parent(state, chosen, t)
    new = Group(f"s{t}", parent)
    groups = dict(state.groups)
    for g in state.groups.values():
        if g.parent == parent and chosen.issuperset(members(state, g.id)):
            _check_host(state, g.attach, f"the {group_label(state, g.id)}", chosen, t)
            groups[g.id] = replace(g, parent=new.id)
    stages = dict(state.stages)
    for sid in chosen:
        stage = stages[sid]
        if stage.attach.group is None:
            _check_host(state, stage.attach, repr(state.label(sid)), chosen, t)
        if stage.group == parent:
            stages[sid] = replace(stage, group=new.id)
    return replace(state, stages=stages, groups={**groups, new.id: new})


def _between(
    state: State, outputs: Iterable[StageId], inputs: tuple[StageId, ...], include: bool
) -> set[StageId]:
    """Stages that some output needs and that need some input; inputs too, if asked for."""
    needed, todo = set(inputs), list(outputs)
    while todo:
        sid = todo.pop()
        if sid not in inputs:
            needed.add(sid)
            todo += {r.source for r in state.stages[sid].op.reads()} - needed
    reach = set(inputs)
    for sid in state.order:
        if sid in needed and any(r.source in reach for r in state.stages[sid].op.reads()):
            reach.add(sid)
    return reach & needed if include else reach & needed - set(inputs)


def _parent(state: State, chosen: set[StageId], t: int) -> StageId | None:
    """The smallest group that all chosen stages belong to.

    Raises:
        ScheduleError: a group has some of the stages and others, too.
    """
    around: list[Group] = []
    for g in state.groups.values():
        own = members(state, g.id)
        if chosen.issubset(own):
            around.append(g)
        elif not chosen.isdisjoint(own) and not chosen.issuperset(own):
            refuse(
                "create_group",
                t,
                f"the {group_label(state, g.id)} has {_names(state, chosen.intersection(own))} of "
                f"the stages asked for, but not {_names(state, chosen.difference(own))}; groups "
                "are nested or have no stage in common",
            )
    return max(around, key=lambda g: _depth(state, g)).id if around else None


def _depth(state: State, g: Group) -> int:
    return 0 if g.parent is None else 1 + _depth(state, state.groups[g.parent])


def _check_host(state: State, at: Attach, what: str, chosen: set[StageId], t: int) -> None:
    """Refuse what is computed in a stage outside of the group that it is to belong to."""
    if at.kind == "at" and at.stage not in chosen:
        refuse(
            "create_group",
            t,
            f"{what} is computed at loop "
            f"{state.loop_label(state.stages[at.stage], at.loop)!r} (step {at.step}), outside of "
            "the group; call create_group before that and move the group",
        )


# ---------------------------------------------------------------- moving


def compute_at(state: State, step: st.ComputeAt, t: int) -> State:
    """Attach a group, or a stage, which may only be computed inside stages of its group."""
    if step.stage not in state.groups:
        stage = state.stage(step.stage, "compute_at")
        if stage.group is not None:
            _check_inside(state, repr(state.label(stage.id)), stage.group, step.parent, t)
        return placement.compute_at(state, step, t)
    group = state.groups[step.stage]
    parent = state.compute_stage(step.parent, "compute_at")
    state.leaf(parent, step.loop, "compute_at")
    own, label = members(state, group.id), f"the {group_label(state, group.id)}"
    if parent.id in own:
        refuse(
            "compute_at",
            t,
            f"{label} cannot be computed inside its own stage {state.label(parent.id)!r}; name a "
            "stage that uses it",
        )
    if group.parent is not None:
        _check_inside(state, label, group.parent, parent.id, t)
    for sid in own:
        if not state.stages[sid].op.is_placeholder:
            placement.movable(state, sid, "compute_at", t)
            placement.check_used(state, parent.id, sid, t)
    moved = replace(group, attach=Attach("at", parent.id, step.loop, t))
    return replace(state, groups={**state.groups, group.id: moved})


def _check_inside(state: State, what: str, gid: StageId, parent: StageId, t: int) -> None:
    if parent not in members(state, gid):
        refuse(
            "compute_at",
            t,
            f"{what} belongs to the {group_label(state, gid)} and can be computed only inside "
            f"stages of that, not inside {state.label(state.stage(parent, 'compute_at').id)!r}; "
            "move the group",
        )


def compute_root(state: State, step: st.ComputeRoot, t: int) -> State:
    """Detach a group or a stage; it follows the group around it, if there is one."""
    if step.stage not in state.groups:
        return placement.compute_root(state, step, t)
    group = replace(state.groups[step.stage], attach=ROOT)
    return replace(state, groups={**state.groups, group.id: group})


def keep_groups(before: State, after: State, step: st.Step) -> State:
    """A state in which stages that a step made join the group, and those that follow do so.

    Raises:
        ScheduleError: a stage would follow its group to a loop that is gone.
    """
    stages = dict(after.stages)
    for sid in after.stages.keys() - before.stages.keys():
        stages[sid] = replace(stages[sid], group=before.stages[step.stage].group)
    for sid, stage in stages.items():
        follows = stage.attach.kind == "root" or stage.attach.group is not None
        if stage.group is None or not follows or stage.op.is_placeholder:
            continue
        at = _place(after, stage.group)
        if at != stage.attach:
            _check_alive(after, stage, at, step.primitive)
            store = stage.store if at.kind == "at" else None
            stages[sid] = replace(stage, attach=at, store=store)
    return replace(after, stages=stages)


def _place(state: State, gid: StageId | None) -> Attach:
    """Where stages are computed that follow a group."""
    while gid is not None:
        group = state.groups[gid]
        if group.attach.kind == "at":
            return replace(group.attach, group=gid)
        gid = group.parent
    return ROOT


def _check_alive(state: State, stage: StageState, at: Attach, who: str) -> None:
    """Refuse a place in a stage that has changed since the group was moved there."""
    if at.kind != "at" or at.group is None:
        return
    host = state.stages[at.stage]
    if host.attach.kind == "inline" or at.loop not in host.leaves:
        what = f"the {group_label(state, at.group)}"
        refuse(
            who,
            state.steps,
            f"{state.label(stage.id)!r} follows {what} to loop "
            f"{state.loop_label(host, at.loop)!r} (step {at.step}), which is no longer there; move "
            "the group first",
        )


# ---------------------------------------------------------------- looking


def members(state: State, gid: StageId) -> tuple[StageId, ...]:
    """The stages of a group and of groups inside it, in topological order."""
    inside = {gid}
    for g in state.groups.values():
        around: StageId | None = g.id
        while around is not None and around != gid:
            around = state.groups[around].parent
        inside |= set() if around is None else {g.id}
    return tuple(sid for sid in state.order if state.stages[sid].group in inside)


def group_label(state: State, gid: StageId) -> str:
    """Printed name of a group: ``group of B, C``."""
    return f"group of {_names(state, members(state, gid))}"


def _names(state: State, stages: Iterable[StageId]) -> str:
    chosen = set(stages)
    return ", ".join(state.label(sid) for sid in state.order if sid in chosen)

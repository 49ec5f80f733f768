"""The primitives that place a stage, or a group of stages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from loopwright.schedule.state import (
    ROOT,
    Attach,
    GroupState,
    IllegalStep,
    StageId,
    StageState,
    State,
)
from loopwright.schedule.steps import Step, TraceNames, register


@register("create_group")
class CreateGroup(Step):
    outputs: tuple[StageId, ...]
    inputs: tuple[StageId, ...]
    include_inputs: bool = False

    def apply(self, state: State, t: int) -> State:
        outputs = (self.stage, *self.outputs)
        for sid in outputs:
            state.compute_stage(sid)
        for sid in self.inputs:
            state.stage(sid)
        chosen = _between(state, outputs, self.inputs, self.include_inputs)
        if all(state.stages[sid].op.is_placeholder for sid in chosen):
            raise IllegalStep(
                f"no stage lies between {_labels(state, self.inputs) or 'no inputs'} and "
                f"{_labels(state, outputs)}; inputs are tensors that the outputs are computed from"
            )
        parent = _parent(state, chosen)
        new = GroupState(f"s{t}", parent)
        inner = [g for g in state.groups.values() if g.parent == parent]
        inner = [g for g in inner if chosen.issuperset(members(state, g.id))]
        for g in inner:
            _check_host(state, g.attach, f"the {group_label(state, g.id)}", chosen)
        for stage in (state.stages[sid] for sid in chosen):
            if stage.attach.group is None:
                _check_host(state, stage.attach, repr(state.label(stage.id)), chosen)
        groups = {g.id: replace(g, parent=new.id) for g in inner}
        stages = {
            sid: replace(state.stages[sid], group=new.id)
            for sid in chosen
            if state.stages[sid].group == parent
        }
        return replace(
            state, stages={**state.stages, **stages}, groups={**state.groups, **groups, new.id: new}
        )

    def as_python(self, names: TraceNames) -> str:
        new = names.new_group()
        outputs = ", ".join(names.tensor(x) for x in (self.stage, *self.outputs))
        inputs = ", ".join(names.tensor(x) for x in self.inputs)
        include = ", include_inputs=True" if self.include_inputs else ""
        return f"{new} = s.create_group([{outputs}], [{inputs}]{include})"


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


def _parent(state: State, chosen: set[StageId]) -> StageId | None:
    """Smallest group with all chosen stages; no group may have some of them and others."""
    around: list[GroupState] = []
    for g in state.groups.values():
        stages = set(members(state, g.id))
        if chosen <= stages:
            around.append(g)
        elif chosen & stages and not stages <= chosen:
            raise IllegalStep(
                f"the {group_label(state, g.id)} has {_labels(state, chosen & stages)} of "
                f"the stages asked for, but not {_labels(state, chosen - stages)}; groups "
                "are nested or have no stage in common"
            )
    return max(around, key=lambda g: _depth(state, g)).id if around else None


def _depth(state: State, g: GroupState) -> int:
    return 0 if g.parent is None else 1 + _depth(state, state.groups[g.parent])


def _check_host(state: State, at: Attach, what: str, chosen: set[StageId]) -> None:
    if at.kind == "at" and at.stage not in chosen:
        raise IllegalStep(
            f"{what} is computed at loop "
            f"{state.loop_label(state.stages[at.stage], at.loop)!r} (step {at.step}), outside of "
            "the group; call create_group before that and move the group"
        )


# ---------------------------------------------------------------- following


def keep_groups(before: State, after: State, sid: StageId) -> State:
    """The state after a step on a stage, whose group new stages join; those that follow a group do
    so, and a group whose loop is gone is refused."""
    stages = dict(after.stages)
    for new in after.stages.keys() - before.stages.keys():
        stages[new] = replace(stages[new], group=before.stages[sid].group)
    for stage in list(stages.values()):
        follows = stage.attach.kind == "root" or stage.attach.group is not None
        if stage.group is None or not follows or stage.op.is_placeholder:
            continue
        at = ROOT
        gid: StageId | None = stage.group
        while gid is not None and at is ROOT:
            group = after.groups[gid]
            if group.attach.kind == "at":
                at = replace(group.attach, group=gid)
            gid = group.parent
        if at != stage.attach:
            _check_alive(after, stage, at)
            store = stage.store if at.kind == "at" else None
            stages[stage.id] = replace(stage, attach=at, store=store)
    return replace(after, stages=stages)


def _check_alive(state: State, stage: StageState, at: Attach) -> None:
    """Refuse a place in a stage that has changed since the group was moved there."""
    if at.kind != "at" or at.group is None:
        return
    host = state.stages[at.stage]
    if host.attach.kind == "inline" or at.loop not in host.leaves:
        what = f"the {group_label(state, at.group)}"
        # A stage that gave its reduction to another one does not even know the loop any more.
        name = host.loops[at.loop].name if at.loop in host.loops else at.loop
        raise IllegalStep(
            f"{state.label(stage.id)!r} follows {what} to loop "
            f"'{state.label(host.id)}.{name}' (step {at.step}), which is no longer there; move "
            "the group first"
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
    return f"group of {_labels(state, members(state, gid))}"


def _labels(state: State, stages: Iterable[StageId]) -> str:
    chosen = set(stages)
    return ", ".join(state.label(sid) for sid in state.order if sid in chosen)


@register("compute_at")
class ComputeAt(Step):
    parent: StageId
    loop: str

    def apply(self, state: State, t: int) -> State:
        if self.stage in state.groups:
            return self._move_group(state, state.groups[self.stage], t)
        stage = state.stage(self.stage)
        if stage.group is not None:
            _check_inside(state, repr(state.label(stage.id)), stage.group, self.parent)
        movable(state, stage.id)
        parent = self._host(state)
        if parent.id == stage.id:
            raise IllegalStep(
                f"{state.label(stage.id)!r} cannot be computed inside itself; name a stage that "
                "uses it"
            )
        _check_used(state, parent.id, stage.id)
        return state.with_stage(replace(stage, attach=Attach("at", parent.id, self.loop, t)))

    def _host(self, state: State) -> StageState:
        parent = state.compute_stage(self.parent)
        state.leaf(parent, self.loop)
        return parent

    def _move_group(self, state: State, group: GroupState, t: int) -> State:
        parent = self._host(state)
        stages, label = members(state, group.id), f"the {group_label(state, group.id)}"
        if parent.id in stages:
            raise IllegalStep(
                f"{label} cannot be computed inside its own stage {state.label(parent.id)!r}; name "
                "a stage that uses it"
            )
        if group.parent is not None:
            _check_inside(state, label, group.parent, parent.id)
        for sid in stages:
            if not state.stages[sid].op.is_placeholder:
                movable(state, sid)
                _check_used(state, parent.id, sid)
        return state.with_group(replace(group, attach=Attach("at", parent.id, self.loop, t)))

    def arguments(self, names: TraceNames) -> str:
        return f"{names.stage(self.parent)}, {names.loop(self.parent, self.loop)}"


@register("compute_inline")
class ComputeInline(Step):
    def apply(self, state: State, t: int) -> State:
        """Mark the stage; it is substituted when bounds are inferred."""
        stage = movable(state, self.stage)
        name = state.label(stage.id)
        if stage.op.reduction is not None:
            raise IllegalStep(
                f"{name!r} is a reduction and would be computed again at every use; use compute_at"
            )
        for use in (u for x in stage.leaves for u in state.uses(stage, x)):
            if use.kind == "attached":
                raise IllegalStep(
                    f"stage {state.label(use.stage)!r} is computed inside {name!r}; move it out "
                    "first"
                )
        return state.with_stage(
            replace(stage, attach=Attach("inline", step=t), store=None, double=None)
        )


@register("compute_root")
class ComputeRoot(Step):
    def apply(self, state: State, t: int) -> State:
        if self.stage in state.groups:
            return state.with_group(replace(state.groups[self.stage], attach=ROOT))
        stage = state.compute_stage(self.stage)
        return state.with_stage(replace(stage, attach=ROOT, store=None))


# ---------------------------------------------------------------- rules


def movable(state: State, sid: StageId) -> StageState:
    """A stage that is no input and no output."""
    stage = state.stage(sid)
    if stage.op.is_placeholder:
        raise IllegalStep(f"{stage.op.name!r} is an input; use cache_read to make a stage of it")
    if sid in state.outputs:
        raise IllegalStep(
            f"{state.label(sid)!r} is an output and is computed at root; use cache_write and move "
            "the cache stage"
        )
    return stage


def _check_inside(state: State, what: str, gid: StageId, parent: StageId) -> None:
    if parent not in members(state, gid):
        raise IllegalStep(
            f"{what} belongs to the {group_label(state, gid)} and can be computed only inside "
            f"stages of that, not inside {state.label(state.stage(parent).id)!r}; "
            "move the group"
        )


def _check_used(state: State, parent: StageId, sid: StageId) -> None:
    """Refuse a place in a stage that does not need stage ``sid``, nor through others."""
    todo, seen = [parent], {parent}
    while todo and sid not in seen:
        sources = {r.source for r in state.stages[todo.pop()].op.reads()}
        todo += sources - seen
        seen |= sources
    if sid not in seen:
        users = ", ".join(state.label(c) for c in state.consumers(sid)) or "no stage"
        raise IllegalStep(
            f"{state.label(parent)!r} does not use {state.label(sid)!r}, directly or through "
            f"others; it is used by {users}"
        )

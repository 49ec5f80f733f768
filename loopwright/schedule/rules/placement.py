"""The primitives that place a stage, or a group of stages."""

from __future__ import annotations

from dataclasses import replace

from loopwright.schedule.names import Names
from loopwright.schedule.rules.grouping import group_label, members
from loopwright.schedule.state import ROOT, Attach, GroupState, StageId, StageState, State, refuse
from loopwright.schedule.steps import Step, register


@register("compute_at")
class ComputeAt(Step):
    """Compute the stage, or the group, inside a loop of ``parent``."""

    parent: StageId
    loop: str

    def apply(self, state: State, t: int) -> State:
        if self.stage in state.groups:
            return self._move_group(state, state.groups[self.stage], t)
        stage = state.stage(self.stage, "compute_at")
        if stage.group is not None:
            _check_inside(state, repr(state.label(stage.id)), stage.group, self.parent, t)
        movable(state, stage.id, "compute_at", t)
        parent = self._host(state)
        if parent.id == stage.id:
            refuse(
                "compute_at",
                t,
                f"{state.label(stage.id)!r} cannot be computed inside itself; name a stage that "
                "uses it",
            )
        _check_used(state, parent.id, stage.id, t)
        return state.with_stage(replace(stage, attach=Attach("at", parent.id, self.loop, t)))

    def _host(self, state: State) -> StageState:
        parent = state.compute_stage(self.parent, "compute_at")
        state.leaf(parent, self.loop, "compute_at")
        return parent

    def _move_group(self, state: State, group: GroupState, t: int) -> State:
        parent = self._host(state)
        own, label = members(state, group.id), f"the {group_label(state, group.id)}"
        if parent.id in own:
            refuse(
                "compute_at",
                t,
                f"{label} cannot be computed inside its own stage {state.label(parent.id)!r}; name "
                "a stage that uses it",
            )
        if group.parent is not None:
            _check_inside(state, label, group.parent, parent.id, t)
        for sid in own:
            if not state.stages[sid].op.is_placeholder:
                movable(state, sid, "compute_at", t)
                _check_used(state, parent.id, sid, t)
        return state.with_group(replace(group, attach=Attach("at", parent.id, self.loop, t)))

    def as_python(self, names: Names) -> str:
        """Text such as ``s[B].compute_at(s[C], i)``."""
        parent, loop = names.stage(self.parent), names.loop(self.parent, self.loop)
        return f"{names.stage(self.stage)}.compute_at({parent}, {loop})"


@register("compute_inline")
class ComputeInline(Step):
    """Substitute the stage into its consumers."""

    def apply(self, state: State, t: int) -> State:
        """Mark the stage; it is substituted when bounds are inferred."""
        stage = movable(state, self.stage, "compute_inline", t)
        name = state.label(stage.id)
        if stage.op.reduction is not None:
            refuse(
                "compute_inline",
                t,
                f"{name!r} is a reduction and would be computed again at every use; use compute_at",
            )
        for use in (u for x in stage.leaves for u in state.uses(stage, x)):
            if use.kind == "attached":
                refuse(
                    "compute_inline",
                    t,
                    f"stage {state.label(use.stage)!r} is computed inside {name!r}; move it out "
                    "first",
                )
        return state.with_stage(
            replace(stage, attach=Attach("inline", step=t), store=None, double=None)
        )

    def as_python(self, names: Names) -> str:
        return f"{names.stage(self.stage)}.compute_inline()"


@register("compute_root")
class ComputeRoot(Step):
    """Compute the stage, or the group, on its own, before its consumers."""

    def apply(self, state: State, t: int) -> State:
        """Detach it; it follows the group around it, if there is one."""
        if self.stage in state.groups:
            return state.with_group(replace(state.groups[self.stage], attach=ROOT))
        stage = state.compute_stage(self.stage, "compute_root")
        return state.with_stage(replace(stage, attach=ROOT, store=None))

    def as_python(self, names: Names) -> str:
        return f"{names.stage(self.stage)}.compute_root()"


# ---------------------------------------------------------------- rules


def movable(state: State, sid: StageId, who: str, t: int) -> StageState:
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


def _check_inside(state: State, what: str, gid: StageId, parent: StageId, t: int) -> None:
    if parent not in members(state, gid):
        refuse(
            "compute_at",
            t,
            f"{what} belongs to the {group_label(state, gid)} and can be computed only inside "
            f"stages of that, not inside {state.label(state.stage(parent, 'compute_at').id)!r}; "
            "move the group",
        )


def _check_used(state: State, parent: StageId, sid: StageId, t: int) -> None:
    if not _depends(state, parent, sid):
        users = ", ".join(state.label(c) for c in state.consumers(sid)) or "no stage"
        refuse(
            "compute_at",
            t,
            f"{state.label(parent)!r} does not use {state.label(sid)!r}, directly or "
            f"through others; it is used by {users}",
        )


def _depends(state: State, consumer: StageId, producer: StageId) -> bool:
    todo, seen = [consumer], {consumer}
    while todo:
        sources = {r.source for r in state.stages[todo.pop()].op.reads()}
        if producer in sources:
            return True
        todo += sources - seen
        seen |= sources
    return False

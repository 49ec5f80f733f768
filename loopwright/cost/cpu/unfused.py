"""Schedules as caches see them: fused parallel loops as the loops that they were made of."""

from __future__ import annotations

from dataclasses import replace

from loopwright.schedule.state import Attach, FuseRel, SplitRel, StageId, StageState, State


def unfused(state: State) -> State:
    """State in which the original loops replace fused parallel ones, nested.

    A fused loop runs the inner loop again in each iteration of the outer one: data that moves with
    the inner loop alone is touched again, and comes from memory again where caches do not hold it.
    Only two loops show that. The result is no valid schedule state: several nested loops of a stage
    are parallel.
    """
    stages: dict[StageId, StageState] = {}
    innermost: dict[tuple[StageId, str], str] = {}
    for sid, stage in state.stages.items():
        stages[sid], ends = _unfused(stage)
        innermost |= {(sid, fused): inner for fused, inner in ends.items()}
    if not innermost:
        return state
    for sid, stage in stages.items():
        at, store = _moved(stage.attach, innermost), stage.store and _moved(stage.store, innermost)
        stages[sid] = replace(stage, attach=at, store=store)
    return replace(state, stages=stages)


def _unfused(stage: StageState) -> tuple[StageState, dict[str, str]]:
    """Stage with its fused parallel loops replaced, and the innermost loop of each."""
    leaves, marks = list(stage.leaves), dict(stage.marks)
    kept: list[SplitRel | FuseRel] = []
    ends: dict[str, str] = {}
    for rel in reversed(stage.relations):
        mark = marks.get(rel.fused) if isinstance(rel, FuseRel) else None
        if not isinstance(rel, FuseRel) or mark is None or mark.kind != "parallel":
            kept.insert(0, rel)
            continue
        at = leaves.index(rel.fused)
        leaves[at : at + 1] = [rel.outer, rel.inner]
        del marks[rel.fused]
        marks |= {rel.outer: mark, rel.inner: mark}
        ends[rel.fused] = rel.inner
    if not ends:
        return stage, ends
    return replace(stage, leaves=tuple(leaves), marks=marks, relations=tuple(kept)), ends


def _moved(at: Attach, innermost: dict[tuple[StageId, str], str]) -> Attach:
    """Attachment point inside the loops of a fused one."""
    while (at.stage, at.loop) in innermost:
        at = replace(at, loop=innermost[at.stage, at.loop])
    return at

"""The primitive that brings the data needed next nearer to the core, a share at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from loopwright.ir.sizes import Symbol
from loopwright.schedule.bounds.results import Bounds, LoopBound, StageBounds
from loopwright.schedule.loop_use import LoopNote
from loopwright.schedule.names import Names
from loopwright.schedule.nesting import loops_around
from loopwright.schedule.rules.prefetch import check_prefetched, source_of
from loopwright.schedule.state import Prefetched, StageId, State, refuse
from loopwright.schedule.steps import Step, register


@dataclass(frozen=True, slots=True)
class Shares(LoopNote):
    """In each iteration of a loop, fetch a share of what a later one of another loop reads."""

    #: Stage of the loop ``ahead``: this one, or one around it.
    around: StageId
    #: That loop, how many iterations ahead (0: nothing is fetched), and the tensor.
    ahead: Prefetched

    def needs(self, stage: StageId, loop: str) -> bool:
        return (stage, loop) == (self.around, self.ahead.loop)


@register("prefetch_next")
class PrefetchNext(Step):
    """In each iteration of a loop, prefetch a share of what a loop around it reads next."""

    loop: str
    source: StageId
    around: StageId
    outer: str
    offset: int = 1
    value_index: int = 0

    def apply(self, state: State, t: int) -> State:
        """Note what a loop prefetches; the last wish for a tensor at a loop counts."""
        stage = state.compute_stage(self.stage, "prefetch_next")
        loop = state.leaf(stage, self.loop, "prefetch_next")
        around = state.compute_stage(self.around, "prefetch_next")
        outer = state.leaf(around, self.outer, "prefetch_next")
        source = source_of("prefetch_next", state, self.source, self.value_index, t)
        if not _is_offset(self.offset):
            why = f"offset is how many iterations ahead, 0 or more; got {self.offset!r}"
            refuse("prefetch_next", t, why)
        ahead = Prefetched(outer.id, source.id, self.value_index, self.offset, t)
        new = Shares(loop.id, t, f"prefetches a tensor (step {t})", around.id, ahead)
        kept = (x for x in stage.notes if not _replaces(new, x))
        return state.with_stage(replace(stage, notes=(*kept, new)))

    def as_python(self, names: Names) -> str:
        """Text such as ``s[acc].prefetch_next(B, k, s[C], i)``."""
        tensor = names.output(self.source, self.value_index)
        loop = names.loop(self.stage, self.loop)
        outer = names.loop(self.around, self.outer)
        around = names.stage(self.around)
        given = f"{tensor}, {loop}, {around}, {outer}"
        given += f", {names.number(self.offset)}" if self.offset != 1 else ""
        return f"{names.stage(self.stage)}.prefetch_next({given})"

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        """Check that the loop ahead is around the other; reads and extents must be known."""
        for sb in bounds.stages.values():
            for note in shares_of(sb):
                _check(state, bounds, sb, note)


def shares_of(sb: StageBounds) -> list[Shares]:
    return [x for x in sb.stage.notes if isinstance(x, Shares) and x.ahead.offset]


def loops_between(state: State, bounds: Bounds, sb: StageBounds, note: Shares) -> list[LoopBound]:
    """Loops inside the one ahead, down to that of the shares, outermost first."""
    wanted = (note.around, bounds.stages[note.around].stage.leaves.index(note.ahead.loop))
    last = sb.stage.leaves.index(note.loop)
    around = [(sb.stage.id, p) for p in range(last, -1, -1)] + loops_around(state, sb.stage)
    if wanted not in around[1:]:
        label = state.loop_label(bounds.stages[note.around].stage, note.ahead.loop)
        own = state.loop_label(sb.stage, note.loop)
        outside = [_label(state, x) for x in around[1:]]
        others = f"name one of {', '.join(outside)}" if outside else "there is none around that"
        why = f"loop {label!r} is not around loop {own!r}; {others}"
        refuse("prefetch_next", note.step, why)
    between = around[: around.index(wanted)]
    return [bounds.stages[sid].loops[p] for sid, p in reversed(between)]


def _label(state: State, at: tuple[StageId, int]) -> str:
    stage = state.stages[at[0]]
    return repr(state.loop_label(stage, stage.leaves[at[1]]))


def _is_offset(v: object) -> bool:
    """Whether an offset is 0 or more, or not known."""
    if isinstance(v, int) and not isinstance(v, bool):
        return v >= 0
    return isinstance(v, Symbol)


def _replaces(new: Shares, old: LoopNote) -> bool:
    """Whether a wish is for the same tensor at the same loop as an earlier one."""
    if not isinstance(old, Shares):
        return False
    return (old.loop, *old.ahead.what[1:]) == (new.loop, *new.ahead.what[1:])


def _check(state: State, bounds: Bounds, sb: StageBounds, note: Shares) -> None:
    if note.around not in bounds.stages:
        label = state.label(note.around)
        refuse("prefetch_next", note.step, f"{label!r} is inlined and has no loops")
    host = bounds.stages[note.around].stage
    if note.ahead.loop not in host.leaves:
        label = state.label(host.id)
        refuse("prefetch_next", note.step, f"the loop of {label!r} that was named is gone")
    mark = sb.stage.marks.get(note.loop)
    if mark is not None and mark.kind == "vectorized":
        label = state.loop_label(sb.stage, note.loop)
        why = f"loop {label!r} is vectorized (step {mark.step}), its iterations run at once; "
        refuse("prefetch_next", note.step, why + "fetch shares at a loop outside of it")
    shape = state.stages[note.ahead.source].op.shape
    if not all(isinstance(n, int) for n in shape):
        label = state.output_label(note.ahead.source, note.ahead.value_index)
        why = f"the shape of {label!r} depends on sizes, so that shares are not known; use prefetch"
        refuse("prefetch_next", note.step, why)
    for x in loops_between(state, bounds, sb, note):
        if not isinstance(x.extent, int):
            refuse(
                "prefetch_next",
                note.step,
                f"loop {x.loop.name!r} has no constant extent, so that shares are not known; "
                "name a loop inside of it",
            )
    check_prefetched("prefetch_next", state, bounds, bounds.stages[note.around], note.ahead)

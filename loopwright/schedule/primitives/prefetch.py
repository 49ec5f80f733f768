"""The primitive that brings the data of a later iteration nearer to the core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from loopwright.ir.affine import to_affine
from loopwright.ir.expr import Read
from loopwright.schedule.bounds.infer import runs_inside
from loopwright.schedule.bounds.results import Bounds, LoopBound, StageBounds
from loopwright.schedule.state import (
    IllegalStep,
    LoopNote,
    Prefetched,
    StageId,
    StageState,
    State,
    loops_around,
    refuse,
)
from loopwright.schedule.steps import Step, TraceNames, at_least, is_int, register


@register("prefetch")
class Prefetch(Step):
    loop: str
    source: StageId
    offset: int
    value_index: int = 0

    def apply(self, state: State, t: int) -> State:
        """Note what a loop prefetches; a later offset for one tensor replaces the earlier."""
        stage = state.compute_stage(self.stage)
        loop = state.leaf(stage, self.loop)
        source = source_of(state, self.source, self.value_index)
        if not is_int(self.offset) or self.offset < 1:
            raise IllegalStep(
                f"offset is how many iterations ahead, a positive integer; got {self.offset!r}"
            )
        new = Prefetched(loop.id, source.id, self.value_index, self.offset, t)
        kept = tuple(p for p in stage.prefetches if p.what != new.what)
        return state.with_stage(replace(stage, prefetches=(*kept, new)))

    def arguments(self, names: TraceNames) -> str:
        tensor = names.output(self.source, self.value_index)
        return f"{tensor}, {names.loop(self.stage, self.loop)}, {self.offset}"

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        for sb in bounds.stages.values():
            for want in sb.stage.prefetches:
                check_prefetched("prefetch", state, bounds, sb, want)


def source_of(state: State, source: StageId, output: int) -> StageState:
    stage = state.stage(source)
    n = stage.op.num_outputs
    if not 0 <= output < n:
        label = state.label(stage.id)
        raise IllegalStep(f"{label!r} has {n} output(s), there is no output {output}")
    return stage


def reads_inside(
    state: State, bounds: Bounds, sb: StageBounds, want: Prefetched
) -> Iterator[tuple[StageBounds, Read]]:
    """Reads of the tensor inside the loop, those of stages computed there included."""
    pos, tensor = sb.stage.leaves.index(want.loop), (want.source, want.value_index)
    for reader, read in ((x, r) for x in bounds.stages.values() for r in x.op.reads()):
        same = (read.source, read.value_index) == tensor
        if same and runs_inside(state, reader, sb, pos, bounds):
            yield reader, read


def check_prefetched(
    who: str, state: State, bounds: Bounds, sb: StageBounds, want: Prefetched
) -> None:
    """Refuse to prefetch for a loop data not read inside it, at affine indices, from memory."""
    label = state.loop_label(sb.stage, want.loop)
    name = state.output_label(want.source, want.value_index)
    mark, inside = sb.stage.marks.get(want.loop), sb.stage.tensorized
    at = sb.stage.leaves.index(want.loop)
    why = ""
    if sb.kernel is not None:
        root = state.label(sb.kernel.root)
        why = (
            f"loop {label!r} belongs to the kernel of {root!r}, whose threads hide latency; copy "
            f"{name!r} with cache_read and double_buffer the copy"
        )
    elif mark is not None and mark.kind == "vectorized":
        why = (
            f"loop {label!r} is vectorized (step {mark.step}), its iterations run at once; "
            "prefetch at a loop outside of it"
        )
    elif inside is not None and at >= sb.stage.leaves.index(inside.loop):
        why = (
            f"loop {label!r} belongs to intrinsic {inside.intrin.name!r} (step {inside.step}); "
            "prefetch at a loop outside of it"
        )
    elif want.source not in bounds.ops:
        why = f"{name!r} is inlined and is not in memory; prefetch what it reads"
    elif (sb.stage.id, at) in loops_around(state, state.stages[want.source]):
        why = f"{name!r} is computed inside loop {label!r}, one iteration at a time; prefetch what "
        why += "it reads, or compute it outside of the loop"
    else:
        reads = list(reads_inside(state, bounds, sb, want))
        forms = (
            to_affine(i, reader.values, bounds.ranges)
            for reader, read in reads
            for i in read.indices
        )
        if not reads:
            readers = ", ".join(state.label(c) for c in state.consumers(want.source)) or "no stage"
            why = f"nothing inside loop {label!r} reads {name!r}; it is read by {readers}"
        elif any(a is None for a in forms):
            why = (
                f"{name!r} is read inside loop {label!r} at an index that is not affine in the "
                "loops, so what an iteration ahead will read is not known"
            )
    if why:
        refuse(who, want.step, why)


@dataclass(frozen=True, slots=True)
class Shares(LoopNote):
    """In each iteration of a loop, fetch a share of what a later one of another loop reads."""

    around: StageId  #: stage of the loop ``ahead``: this one, or one around it
    #: That loop, how many iterations ahead (0: nothing is fetched), and the tensor.
    ahead: Prefetched

    def needs(self, stage: StageId, loop: str) -> bool:
        return (stage, loop) == (self.around, self.ahead.loop)


@register("prefetch_next")
class PrefetchNext(Step):
    loop: str
    source: StageId
    around: StageId
    outer: str
    offset: int = 1
    value_index: int = 0

    def apply(self, state: State, t: int) -> State:
        """Note what a loop prefetches; the last wish for a tensor at a loop counts."""
        stage = state.compute_stage(self.stage)
        loop = state.leaf(stage, self.loop)
        around = state.compute_stage(self.around)
        outer = state.leaf(around, self.outer)
        source = source_of(state, self.source, self.value_index)
        if not at_least(self.offset, 0):
            raise IllegalStep(
                f"offset is how many iterations ahead, 0 or more; got {self.offset!r}"
            )
        ahead = Prefetched(outer.id, source.id, self.value_index, self.offset, t)
        new = Shares(loop.id, t, f"prefetches a tensor (step {t})", around.id, ahead)
        what = (loop.id, *ahead.what[1:])
        kept = (
            x
            for x in stage.notes
            if not isinstance(x, Shares) or (x.loop, *x.ahead.what[1:]) != what
        )
        return state.with_stage(replace(stage, notes=(*kept, new)))

    def arguments(self, names: TraceNames) -> str:
        tensor = names.output(self.source, self.value_index)
        loop, outer = names.loop(self.stage, self.loop), names.loop(self.around, self.outer)
        offset = f", {names.number(self.offset)}" if self.offset != 1 else ""
        return f"{tensor}, {loop}, {names.stage(self.around)}, {outer}{offset}"

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        for sb in bounds.stages.values():
            for note in shares_of(sb):
                if why := _why_no_shares(state, bounds, sb, note):
                    refuse("prefetch_next", note.step, why)
                around = bounds.stages[note.around]
                check_prefetched("prefetch_next", state, bounds, around, note.ahead)


def shares_of(sb: StageBounds) -> list[Shares]:
    return [x for x in sb.stage.notes if isinstance(x, Shares) and x.ahead.offset]


def loops_between(state: State, bounds: Bounds, sb: StageBounds, note: Shares) -> list[LoopBound]:
    """Loops inside the one ahead, down to that of the shares, outermost first."""
    wanted = (note.around, bounds.stages[note.around].stage.leaves.index(note.ahead.loop))
    last = sb.stage.leaves.index(note.loop)
    around = [(sb.stage.id, p) for p in range(last, -1, -1)] + loops_around(state, sb.stage)
    if wanted not in around[1:]:
        label = state.loop_label(bounds.stages[note.around].stage, note.ahead.loop)
        inner = state.loop_label(sb.stage, note.loop)
        hosts = [(state.stages[sid], p) for sid, p in around[1:]]
        outside = [repr(state.loop_label(host, host.leaves[p])) for host, p in hosts]
        others = f"name one of {', '.join(outside)}" if outside else "there is none around that"
        why = f"loop {label!r} is not around loop {inner!r}; {others}"
        refuse("prefetch_next", note.step, why)
    between = around[: around.index(wanted)]
    return [bounds.stages[sid].loops[p] for sid, p in reversed(between)]


def _why_no_shares(state: State, bounds: Bounds, sb: StageBounds, note: Shares) -> str:
    """Reason why shares of a prefetch cannot be made at a loop; or ''."""
    if note.around not in bounds.stages:
        return f"{state.label(note.around)!r} is inlined and has no loops"
    host = bounds.stages[note.around].stage
    if note.ahead.loop not in host.leaves:
        return f"the loop of {state.label(host.id)!r} that was named is gone"
    mark = sb.stage.marks.get(note.loop)
    if mark is not None and mark.kind == "vectorized":
        return (
            f"loop {state.loop_label(sb.stage, note.loop)!r} is vectorized (step {mark.step}), its "
            "iterations run at once; fetch shares at a loop outside of it"
        )
    if not all(isinstance(n, int) for n in state.stages[note.ahead.source].op.shape):
        label = state.output_label(note.ahead.source, note.ahead.value_index)
        return (
            f"the shape of {label!r} depends on sizes, so that shares are not known; use prefetch"
        )
    for x in loops_between(state, bounds, sb, note):
        if not isinstance(x.extent, int):
            return (
                f"loop {x.loop.name!r} has no constant extent, so that shares are not known; name "
                "a loop inside of it"
            )
    return ""

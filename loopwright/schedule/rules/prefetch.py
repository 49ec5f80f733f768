"""The primitive that brings the data of a later iteration nearer to the core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from loopwright.ir.affine import to_affine
from loopwright.ir.expr import Read
from loopwright.schedule.bounds.infer import runs_inside
from loopwright.schedule.bounds.results import Bounds, StageBounds
from loopwright.schedule.names import Names
from loopwright.schedule.nesting import loops_around
from loopwright.schedule.state import Prefetched, StageId, StageState, State, Tensorized, refuse
from loopwright.schedule.steps import Step, register


@register("prefetch")
class Prefetch(Step):
    """In each iteration of a loop, prefetch what the one ``offset`` later reads of a tensor."""

    loop: str
    source: StageId
    offset: int
    value_index: int = 0

    def apply(self, state: State, t: int) -> State:
        """Note what a loop prefetches; a later offset for one tensor replaces the earlier."""
        stage = state.compute_stage(self.stage, "prefetch")
        loop = state.leaf(stage, self.loop, "prefetch")
        source = source_of("prefetch", state, self.source, self.value_index, t)
        if isinstance(self.offset, bool) or not isinstance(self.offset, int) or self.offset < 1:
            refuse(
                "prefetch",
                t,
                f"offset is how many iterations ahead, a positive integer; got {self.offset!r}",
            )
        new = Prefetched(loop.id, source.id, self.value_index, self.offset, t)
        kept = tuple(p for p in stage.prefetches if p.what != new.what)
        return state.with_stage(replace(stage, prefetches=(*kept, new)))

    def as_python(self, names: Names) -> str:
        """Text such as ``s[C].prefetch(B, k, 4)``."""
        tensor = names.output(self.source, self.value_index)
        loop = names.loop(self.stage, self.loop)
        return f"{names.stage(self.stage)}.prefetch({tensor}, {loop}, {self.offset})"

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        """Refuse data that are not read inside the loop, at affine indices, from memory."""
        for sb in bounds.stages.values():
            for want in sb.stage.prefetches:
                check_prefetched("prefetch", state, bounds, sb, want)


def source_of(who: str, state: State, source: StageId, output: int, t: int) -> StageState:
    stage = state.stage(source, who)
    n = stage.op.num_outputs
    if not 0 <= output < n:
        label = state.label(stage.id)
        refuse(who, t, f"{label!r} has {n} output(s), there is no output {output}")
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
    mark = sb.stage.marks.get(want.loop)
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
    elif (inside := _intrinsic_around(sb, want)) is not None:
        why = (
            f"loop {label!r} belongs to intrinsic {inside.intrin.name!r} (step {inside.step}); "
            "prefetch at a loop outside of it"
        )
    elif want.source not in bounds.ops:
        why = f"{name!r} is inlined and is not in memory; prefetch what it reads"
    elif (sb.stage.id, sb.stage.leaves.index(want.loop)) in loops_around(
        state, state.stages[want.source]
    ):
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


def _intrinsic_around(sb: StageBounds, want: Prefetched) -> Tensorized | None:
    """The intrinsic that replaces a loop of the stage around the wanted one, or that one."""
    done, leaves = sb.stage.tensorized, sb.stage.leaves
    inside = done is not None and leaves.index(want.loop) >= leaves.index(done.loop)
    return done if inside else None

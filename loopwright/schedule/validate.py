"""Rules that need extents: checked after bound inference and before lowering."""

from __future__ import annotations

from math import prod

from loopwright.schedule.bounds.infer import Bounds, LoopBound, StageBounds, attach_position
from loopwright.schedule.rules.layout import check_one_to_one
from loopwright.schedule.rules.prefetch import check_prefetches
from loopwright.schedule.rules.storage import loops_around, store_position
from loopwright.schedule.rules.tensorize import match_intrinsic
from loopwright.schedule.rules.threads import validate_kernels
from loopwright.schedule.state import Attach, StageState, State, refuse

#: Longest vector loop. Long vectors are cut into registers; beyond this it is a mistake.
MAX_VECTOR = 1024
#: Most copies of a body that explicit unrolling may make, loops around an attached stage included.
MAX_UNROLL = 4096
#: A vector loop is written out in pieces of the native length, which is at least about this.
_PIECE = 16


def validate_bounds(state: State, bounds: Bounds) -> None:
    """Check vector lengths, unroll sizes, the nesting of marked loops, and thread axes.

    Raises:
        ScheduleError: names the step, the loop, the extent, the limit and the remedy.
    """
    validate_kernels(state, bounds)
    for sb in bounds.stages.values():
        _check_storage(state, bounds, sb)
        check_prefetches(state, bounds, sb)
        if sb.stage.tensorized is not None:
            match_intrinsic(state, sb)
        for x in sb.loops:
            _check_constant(state, sb, x)
        if sb.stage.align and not all(isinstance(n, int) for n in sb.shape):
            refuse(
                "storage_align",
                sb.stage.since["storage_align"],
                f"the shape of {state.label(sb.stage.id)!r} is known only when the program runs; "
                "compute it at a loop where its tile is constant",
            )
    for sb in bounds.stages.values():
        copies = _copies_around(state, bounds, sb)
        vector: LoopBound | None = None
        for x in sb.loops:
            if x.mark is None:
                continue
            if x.mark.kind == "vectorized":
                _check_vector(state, sb, x, vector)
                vector = x
            copies *= _copies(x)
            if copies > MAX_UNROLL:
                _refuse_copies(state, sb, x, copies)


def _check_storage(state: State, bounds: Bounds, sb: StageBounds) -> None:
    """Iterations that run at once share no buffer, and two halves need a serial loop."""
    stage = sb.stage
    if stage.layout is not None:
        name = state.label(stage.id)
        check_one_to_one(stage.layout, tuple(sb.shape), name, "covers", stage.laid_out)
    around = loops_around(state, stage)
    if stage.store is not None:
        end = store_position(state, stage)
        inside = around[: around.index(end)] if end in around else around
        for x in (bounds.stages[sid].loops[p] for sid, p in inside):
            if x.mark is not None and x.mark.kind != "unrolled":
                _refuse_shared(state, sb, stage.store, x)
    if stage.double is not None:
        _check_double(state, bounds, sb, stage.double)


def _refuse_shared(state: State, sb: StageBounds, store: Attach, x: LoopBound) -> None:
    assert x.mark is not None
    name = state.label(sb.stage.id)
    refuse(
        "store_at" if store.kind == "at" else "store_root",
        store.step,
        f"{name!r} is stored outside of loop {x.loop.name!r}, which is {x.mark.kind} (step "
        f"{x.mark.step}): iterations that run at once would write into one buffer; store it inside "
        "of that loop",
    )


def _check_double(state: State, bounds: Bounds, sb: StageBounds, t: int) -> None:
    stage, name = sb.stage, state.label(sb.stage.id)
    if stage.attach.kind != "at":
        refuse(
            "double_buffer",
            t,
            f"{name!r} is computed at root, once; compute it at a serial loop of a stage that uses "
            "it",
        )
    host, pos = attach_position(state, stage, bounds)
    x = host.loops[pos]
    label = state.loop_label(host.stage, x.loop.id)
    if x.mark is not None:
        refuse(
            "double_buffer",
            t,
            f"{name!r} is computed at loop {label!r}, which is {x.mark.kind} (step {x.mark.step}); "
            "two halves need a serial loop",
        )
    if stage.store is not None and store_position(state, stage) != (host.stage.id, pos):
        refuse(
            "double_buffer",
            t,
            f"the buffer of {name!r} exists outside of loop {label!r} (step {stage.store.step}); "
            "store it where it is computed",
        )
    # The half is filled by the stage and by those that are computed inside it.
    inside = [x for x in bounds.stages.values() if _runs_in(state, x.stage, stage)]
    reads = {r.source: x.stage.id for x in inside for r in x.op.reads()}
    for sid, reader in reads.items():
        other = state.stages[sid]
        inner = f"{state.label(reader)!r}, computed inside {name!r},"
        who = repr(name) if reader == stage.id else inner
        at = other.attach
        same = at.kind == "at" and (at.stage, at.loop) == (stage.attach.stage, stage.attach.loop)
        if same and other.double is None:
            refuse(
                "double_buffer",
                t,
                f"{who} reads {state.label(sid)!r}, which is computed at loop {label!r} too, for "
                "the same iteration only; double_buffer it as well, or compute it inside "
                f"{name!r}",
            )


def _runs_in(state: State, stage: StageState, host: StageState) -> bool:
    while stage.id != host.id and stage.attach.kind == "at":
        stage = state.stages[stage.attach.stage]
    return stage.id == host.id


def _check_constant(state: State, sb: StageBounds, x: LoopBound) -> None:
    """What is written out needs a number of iterations that is known when it is compiled."""
    verb = {"vectorized": "vectorize", "unrolled": "unroll"}.get(x.mark.kind if x.mark else "")
    if verb is None or isinstance(x.extent, int):
        return
    assert x.mark is not None
    name = state.loop_label(sb.stage, x.loop.id)
    refuse(
        verb,
        x.mark.step,
        f"loop {name!r} has {sb.sizes.dim(x.extent)} iterations, which is known only "
        f"when the program runs; split it by a constant factor and {verb} the inner part",
    )


def _copies(x: LoopBound) -> int:
    kind = x.mark.kind if x.mark else ""
    return x.count if kind == "unrolled" else -(-x.count // _PIECE) if kind == "vectorized" else 1


def _copies_around(state: State, bounds: Bounds, sb: StageBounds) -> int:
    """Copies that the loops around an attached stage make of all of it."""
    stage, copies = sb.stage, 1
    while stage.attach.kind == "at":
        host, pos = attach_position(state, stage, bounds)
        outer = [x for x in host.loops[: pos + 1] if x.mark and x.mark.kind == "unrolled"]
        copies *= prod(x.count for x in outer)
        stage = host.stage
    return copies


def _check_vector(state: State, sb: StageBounds, x: LoopBound, other: LoopBound | None) -> None:
    assert x.mark is not None
    name = state.loop_label(sb.stage, x.loop.id)
    if x.count > MAX_VECTOR:
        refuse(
            "vectorize",
            x.mark.step,
            f"loop {name!r} has {x.count} iterations, the longest vector is {MAX_VECTOR}; split "
            "it and vectorize the inner part",
        )
    if other is not None:
        outer = state.loop_label(sb.stage, other.loop.id)
        refuse(
            "vectorize",
            x.mark.step,
            f"loop {name!r} lies inside loop {outer!r}, which is vectorized already; fuse the two "
            "or vectorize one",
        )


def _refuse_copies(state: State, sb: StageBounds, x: LoopBound, copies: int) -> None:
    assert x.mark is not None
    name = state.loop_label(sb.stage, x.loop.id)
    verb, doing = ("unroll", "unrolling")
    if x.mark.kind == "vectorized":
        verb, doing = ("vectorize", "vectorizing")
    refuse(
        verb,
        x.mark.step,
        f"{doing} loop {name!r} would make {copies} copies of the body (limit {MAX_UNROLL}); "
        "split it and unroll a smaller part",
    )

"""The primitives of a stage's buffer: its place, its memory and its strides."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from loopwright.errors import did_you_mean
from loopwright.ir.kinds import SCOPES, WARP_SIZE, Scope
from loopwright.schedule.bounds.infer import attach_position
from loopwright.schedule.bounds.results import Bounds, StageBounds
from loopwright.schedule.primitives.placement import movable
from loopwright.schedule.state import (
    Attach,
    IllegalStep,
    StageId,
    StageState,
    State,
    loops_around,
    refuse,
    store_position,
)
from loopwright.schedule.steps import Step, TraceNames, at_least, register


def check_scope(scope: str) -> None:
    if scope not in SCOPES:
        raise IllegalStep(
            f"unknown scope {scope!r}{did_you_mean(str(scope), SCOPES)}; use {', '.join(SCOPES)}"
        )


def own_buffer(state: State, sid: StageId) -> StageState:
    """A stage whose buffer may be changed: no input, no output, not inlined."""
    stage = movable(state, sid)
    if stage.attach.kind == "inline":
        raise IllegalStep(
            f"{state.label(sid)!r} is inlined and has no buffer; use compute_root or compute_at "
            "first"
        )
    return stage


@register("set_scope")
class SetScope(Step):
    scope: Scope

    def apply(self, state: State, t: int) -> State:
        stage = own_buffer(state, self.stage)
        check_scope(self.scope)
        return state.with_stage(replace(stage, scope=self.scope, since=stage.after("set_scope", t)))

    def arguments(self, names: TraceNames) -> str:
        return repr(self.scope)

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        """Refuse shared and local buffers that outlive their kernel, warp buffers without one."""
        for sb in bounds.stages.values():
            if sb.scope == "warp":
                _check_warp(state, bounds, sb)
        kernels = [(sid, k.root) for sid, k in bounds.kernels.items() if sid in bounds.stages]
        for root, read in ((root, r) for sid, root in kernels for r in bounds.ops[sid].reads()):
            source = bounds.stages.get(read.source)
            if source is None or source.padded or source.scope == "global":
                continue
            name, host, since = state.label(read.source), state.label(root), source.stage.since
            verb = next(v for v in ("set_scope", "cache_read", "cache_write") if v in since)
            refuse(
                verb,
                since[verb],
                f"{name!r} is in {source.scope} memory but is computed outside of the kernel of "
                f"{host!r} that reads it; compute it at a loop of {host!r}, or keep it in global "
                "memory",
            )


@register("storage_align")
class StorageAlign(Step):
    """Ask for strides of ``k * factor + offset`` elements in a dimension of the stage's buffer."""

    dim: int
    factor: int
    offset: int

    def apply(self, state: State, t: int) -> State:
        stage = own_buffer(state, self.stage)
        ndim = len(stage.layout) if stage.layout is not None else len(stage.op.shape)
        if not 0 <= self.dim < ndim:
            raise IllegalStep(
                f"the buffer of {state.label(stage.id)!r} has {ndim} dimensions, there is no "
                f"dimension {self.dim}"
            )
        if not at_least(self.factor, 1) or not at_least(self.offset, 0):
            raise IllegalStep(
                "factor must be positive and offset 0 or more (a stride is k * factor + offset), "
                f"got {self.factor!r} and {self.offset!r}"
            )
        kept = tuple(a for a in stage.align if a[0] != self.dim)
        align = (*kept, (self.dim, self.factor, self.offset))
        return state.with_stage(replace(stage, align=align, since=stage.after("storage_align", t)))

    def arguments(self, names: TraceNames) -> str:
        return f"{self.dim}, {self.factor}, {self.offset}"

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        """Refuse symbolic shapes: strides are numbers."""
        for sb in bounds.stages.values():
            if sb.stage.align and not all(isinstance(n, int) for n in sb.shape):
                refuse(
                    "storage_align",
                    sb.stage.since["storage_align"],
                    f"the shape of {state.label(sb.stage.id)!r} is known only when the program "
                    "runs; compute it at a loop where its tile is constant",
                )


@register("store_at")
class StoreAt(Step):
    parent: StageId
    loop: str

    def apply(self, state: State, t: int) -> State:
        stage = _computed_at(state, self.stage)
        parent = state.compute_stage(self.parent)
        state.leaf(parent, self.loop)
        new = state.with_stage(replace(stage, store=Attach("at", parent.id, self.loop, t)))
        store_position(new, new.stages[stage.id])
        return new

    def arguments(self, names: TraceNames) -> str:
        return f"{names.stage(self.parent)}, {names.loop(self.parent, self.loop)}"

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        """Refuse a buffer shared by iterations that run at once; so for `StoreRoot`, too."""
        for sb in bounds.stages.values():
            store = sb.stage.store
            if store is None:
                continue
            around, end = loops_around(state, sb.stage), store_position(state, sb.stage)
            inside = around[: around.index(end)] if end in around else around
            for x in (bounds.stages[sid].loops[p] for sid, p in inside):
                if x.mark is not None and x.mark.kind != "unrolled":
                    refuse(
                        "store_at" if store.kind == "at" else "store_root",
                        store.step,
                        f"{state.label(sb.stage.id)!r} is stored outside of loop {x.loop.name!r}, "
                        f"which is {x.mark.kind} (step {x.mark.step}): iterations that run at once "
                        "would write into one buffer; store it inside of that loop",
                    )


@register("store_root")
class StoreRoot(Step):
    def apply(self, state: State, t: int) -> State:
        stage = _computed_at(state, self.stage)
        return state.with_stage(replace(stage, store=Attach("root", step=t)))


def _computed_at(state: State, sid: StageId) -> StageState:
    stage = own_buffer(state, sid)
    if stage.attach.kind != "at":
        raise IllegalStep(
            f"{state.label(sid)!r} is computed at root, where its buffer is; call compute_at first"
        )
    return stage


#: Most places that `double_buffer` gives a buffer: each is memory, and each but one a copy of what
#: fills it before the loop.
MAX_COPIES = 8


@register("double_buffer")
class DoubleBuffer(Step):
    stages: int = 2

    def apply(self, state: State, t: int) -> State:
        stage = own_buffer(state, self.stage)
        if not at_least(self.stages, 2) or self.stages > MAX_COPIES:
            raise IllegalStep(
                "stages is how many iterations have a place in the buffer, from 2 to "
                f"{MAX_COPIES}, got {self.stages!r}"
            )
        return state.with_stage(replace(stage, double=t, copies=self.stages))

    def arguments(self, names: TraceNames) -> str:
        return "" if self.stages == 2 else f"stages={self.stages}"

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        """Check that the loop is serial, and that sources are there for later iterations."""
        for sb in bounds.stages.values():
            t = sb.stage.double
            if t is not None and (why := _why_not_double(state, bounds, sb)):
                refuse("double_buffer", t, why)


def aligned_strides(
    shape: tuple[int, ...], align: tuple[tuple[int, int, int], ...]
) -> tuple[int, ...] | None:
    """Strides in elements of a buffer, each the smallest that fits; None when there is no gap."""
    if not align:
        return None
    wanted = {dim: (factor, offset) for dim, factor, offset in align}
    strides: list[int] = []
    stride = 1
    for dim in reversed(range(len(shape))):
        if dim in wanted:
            factor, offset = wanted[dim]
            stride += (offset - stride) % factor
        strides.append(stride)
        stride *= shape[dim]
    return None if stride == prod(shape) else tuple(reversed(strides))


# ---------------------------------------------------------------- rules that need extents


def _check_warp(state: State, bounds: Bounds, sb: StageBounds) -> None:
    """Check that a buffer of a warp lies in a kernel of whole warps, spread over its lanes."""
    name, since = repr(state.label(sb.stage.id)), sb.stage.since
    verb = next((v for v in ("set_scope", "cache_read", "cache_write") if v in since), "set_scope")
    t = since.get(verb, 0)
    kernel = sb.kernel
    lanes = kernel.launches.get("threadIdx.x") if kernel is not None else None
    if lanes is None or lanes.extent != WARP_SIZE or not sb.padded:
        has = "none" if lanes is None else f"a threadIdx.x of {lanes.extent}"
        where = has if sb.padded else "its own loops at root"
        refuse(
            verb,
            t,
            f"{name} is spread over the lanes of a warp, which are the threads of threadIdx.x, "
            f"{WARP_SIZE} of them; the kernel around it has {where}; compute it inside a kernel in "
            f"which a loop of {WARP_SIZE} iterations is bound to threadIdx.x",
        )
    members = [x.stage for i, x in bounds.stages.items() if bounds.kernels.get(i) is kernel]
    if any(m.tag == "vthread" for x in members for m in x.marks.values()):
        refuse(
            verb, t, f"{name} is that of a warp, and its kernel has virtual threads; unroll them"
        )


def _why_not_double(state: State, bounds: Bounds, sb: StageBounds) -> str:
    """Reason why a stage cannot be computed for later iterations; empty: it can."""
    stage, name = sb.stage, repr(state.label(sb.stage.id))
    if stage.attach.kind != "at":
        return (
            f"{name} is computed at root, once; compute it at a serial loop of a stage that uses it"
        )
    host, pos = attach_position(state, stage, bounds)
    mark, label = host.loops[pos].mark, repr(state.loop_label(host.stage, stage.attach.loop))
    if mark is not None:
        return (
            f"{name} is computed at loop {label}, which is {mark.kind} (step {mark.step}); two "
            "halves need a serial loop"
        )
    if stage.store is not None and store_position(state, stage) != (host.stage.id, pos):
        return (
            f"the buffer of {name} exists outside of loop {label} (step {stage.store.step}); store "
            "it where it is computed"
        )
    # The half is filled by the stage and by those that are computed inside it.
    inside = [
        x
        for x in bounds.stages.values()
        if x.stage is stage or any(sid == stage.id for sid, _ in loops_around(state, x.stage))
    ]
    reads = {r.source: x.stage.id for x in inside for r in x.op.reads()}
    for sid, reader in reads.items():
        other, source = state.stages[sid], repr(state.label(sid))
        place = (other.attach.kind, other.attach.stage, other.attach.loop)
        if place != ("at", stage.attach.stage, stage.attach.loop):
            continue
        inner = f"{state.label(reader)!r}, computed inside {name},"
        who = name if reader == stage.id else inner
        if other.double is None:
            return (
                f"{who} reads {source}, which is computed at loop {label} too, for the same "
                f"iteration only; double_buffer it as well, or compute it inside {name}"
            )
        if other.copies != stage.copies:
            return (
                f"{who} has {stage.copies} stages and reads {source}, which is computed at loop "
                f"{label} too and has {other.copies} (step {other.double}); give both the same "
                "number"
            )
    return ""

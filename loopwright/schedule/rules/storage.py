"""The primitives of a stage's buffer: its place, its memory and its strides."""

from __future__ import annotations

from dataclasses import replace

from loopwright.errors import did_you_mean
from loopwright.ir.kinds import SCOPES, WARP_SIZE, Scope
from loopwright.ir.sizes import Symbol
from loopwright.schedule.bounds.infer import attach_position
from loopwright.schedule.bounds.results import Bounds, LoopBound, StageBounds
from loopwright.schedule.names import Names
from loopwright.schedule.nesting import loops_around, store_position
from loopwright.schedule.rules.placement import movable
from loopwright.schedule.state import Attach, StageId, StageState, State, refuse
from loopwright.schedule.steps import Step, register


def check_scope(scope: str, who: str, t: int) -> None:
    if scope not in SCOPES:
        refuse(
            who,
            t,
            f"unknown scope {scope!r}{did_you_mean(str(scope), SCOPES)}; use {', '.join(SCOPES)}",
        )


def own_buffer(state: State, sid: StageId, who: str, t: int) -> StageState:
    stage = movable(state, sid, who, t)
    if stage.attach.kind == "inline":
        refuse(
            who,
            t,
            f"{state.label(sid)!r} is inlined and has no buffer; use compute_root or compute_at "
            "first",
        )
    return stage


@register("set_scope")
class SetScope(Step):
    """Put the stage's buffer into another memory scope."""

    scope: Scope

    def apply(self, state: State, t: int) -> State:
        stage = own_buffer(state, self.stage, "set_scope", t)
        check_scope(self.scope, "set_scope", t)
        return state.with_stage(replace(stage, scope=self.scope, since=stage.after("set_scope", t)))

    def as_python(self, names: Names) -> str:
        """Text such as ``s[B].set_scope('local')``."""
        return f"{names.stage(self.stage)}.set_scope({self.scope!r})"

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        """Refuse shared and local buffers that outlive their kernel, and warp buffers without
        one.
        """
        for sb in bounds.stages.values():
            if sb.scope == "warp":
                _check_warp(state, bounds, sb)
        kernels = [(sid, k.root) for sid, k in bounds.kernels.items() if sid in bounds.stages]
        for root, read in ((root, r) for sid, root in kernels for r in bounds.ops[sid].reads()):
            source = bounds.stages.get(read.source)
            if source is not None and not source.padded and source.scope != "global":
                _refuse_outside(state, source, root)


@register("storage_align")
class StorageAlign(Step):
    """Ask for strides of ``k * factor + offset`` elements in a dimension of the stage's buffer."""

    dim: int
    factor: int
    offset: int

    def apply(self, state: State, t: int) -> State:
        stage = own_buffer(state, self.stage, "storage_align", t)
        ndim = len(stage.layout) if stage.layout is not None else len(stage.op.shape)
        if not 0 <= self.dim < ndim:
            refuse(
                "storage_align",
                t,
                f"the buffer of {state.label(stage.id)!r} has {ndim} dimensions, there is no "
                f"dimension {self.dim}",
            )
        if not _at_least(self.factor, 1) or not _at_least(self.offset, 0):
            refuse(
                "storage_align",
                t,
                "factor must be positive and offset 0 or more (a stride is k * factor + offset), "
                f"got {self.factor!r} and {self.offset!r}",
            )
        kept = tuple(a for a in stage.align if a[0] != self.dim)
        align = (*kept, (self.dim, self.factor, self.offset))
        return state.with_stage(replace(stage, align=align, since=stage.after("storage_align", t)))

    def as_python(self, names: Names) -> str:
        """Text such as ``s[B].storage_align(0, 32, 1)``."""
        stride = f"{self.dim}, {self.factor}, {self.offset}"
        return f"{names.stage(self.stage)}.storage_align({stride})"

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


def _at_least(value: object, least: int) -> bool:
    if isinstance(value, Symbol):  # of many candidates; each is looked at when it is chosen
        return True
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


@register("store_at")
class StoreAt(Step):
    """Let the buffer exist inside a loop of ``parent``, around the loop where it is computed."""

    parent: StageId
    loop: str

    def apply(self, state: State, t: int) -> State:
        stage = _computed_at(state, self.stage, "store_at", t)
        parent = state.compute_stage(self.parent, "store_at")
        state.leaf(parent, self.loop, "store_at")
        new = state.with_stage(replace(stage, store=Attach("at", parent.id, self.loop, t)))
        store_position(new, new.stages[stage.id])
        return new

    def as_python(self, names: Names) -> str:
        """Text such as ``s[B].store_at(s[C], i)``."""
        parent, loop = names.stage(self.parent), names.loop(self.parent, self.loop)
        return f"{names.stage(self.stage)}.store_at({parent}, {loop})"

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        """Refuse a buffer shared by iterations that run at once; so for `StoreRoot`, too."""
        for sb in bounds.stages.values():
            if sb.stage.store is not None:
                _check_shared(state, bounds, sb, sb.stage.store)


@register("store_root")
class StoreRoot(Step):
    """Let the buffer exist around all loops of the stage in which it is computed."""

    def apply(self, state: State, t: int) -> State:
        stage = _computed_at(state, self.stage, "store_root", t)
        return state.with_stage(replace(stage, store=Attach("root", step=t)))

    def as_python(self, names: Names) -> str:
        return f"{names.stage(self.stage)}.store_root()"


def _computed_at(state: State, sid: StageId, who: str, t: int) -> StageState:
    stage = own_buffer(state, sid, who, t)
    if stage.attach.kind != "at":
        refuse(
            who,
            t,
            f"{state.label(sid)!r} is computed at root, where its buffer is; call compute_at first",
        )
    return stage


#: Most places that `double_buffer` gives a buffer: each is memory, and each but one a copy of what
#: fills it before the loop.
MAX_COPIES = 8


@register("double_buffer")
class DoubleBuffer(Step):
    """Fill places of the buffer for later iterations while one is read."""

    stages: int = 2

    def apply(self, state: State, t: int) -> State:
        stage = own_buffer(state, self.stage, "double_buffer", t)
        if not _at_least(self.stages, 2) or self.stages > MAX_COPIES:
            refuse(
                "double_buffer",
                t,
                "stages is how many iterations have a place in the buffer, from 2 to "
                f"{MAX_COPIES}, got {self.stages!r}",
            )
        return state.with_stage(replace(stage, double=t, copies=self.stages))

    def as_python(self, names: Names) -> str:
        """Text such as ``s[B].double_buffer()`` or ``s[B].double_buffer(stages=3)``."""
        stages = "" if self.stages == 2 else f"stages={self.stages}"
        return f"{names.stage(self.stage)}.double_buffer({stages})"

    @classmethod
    def check_bounds(cls, state: State, bounds: Bounds) -> None:
        """Check that the loop is serial, and that sources are there for later iterations."""
        for sb in bounds.stages.values():
            if sb.stage.double is not None:
                _check_double(state, bounds, sb, sb.stage.double)


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


# ---------------------------------------------------------------- rules that need extents


def _refuse_outside(state: State, source: StageBounds, root: StageId) -> None:
    since = source.stage.since
    verb = next(v for v in ("set_scope", "cache_read", "cache_write") if v in since)
    refuse(
        verb,
        since[verb],
        f"{state.label(source.stage.id)!r} is in {source.scope} memory but is computed outside of "
        f"the kernel of {state.label(root)!r} that reads it; compute it at a loop of "
        f"{state.label(root)!r}, or keep it in global memory",
    )


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


def _check_shared(state: State, bounds: Bounds, sb: StageBounds, store: Attach) -> None:
    around, end = loops_around(state, sb.stage), store_position(state, sb.stage)
    inside = around[: around.index(end)] if end in around else around
    for x in (bounds.stages[sid].loops[p] for sid, p in inside):
        if x.mark is not None and x.mark.kind != "unrolled":
            _refuse_shared(state, sb, store, x)


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
        if same and other.copies != stage.copies:
            refuse(
                "double_buffer",
                t,
                f"{who} has {stage.copies} stages and reads {state.label(sid)!r}, which is "
                f"computed at loop {label!r} too and has {other.copies} (step {other.double}); "
                "give both the same number",
            )


def _runs_in(state: State, stage: StageState, host: StageState) -> bool:
    while stage.id != host.id and stage.attach.kind == "at":
        stage = state.stages[stage.attach.stage]
    return stage.id == host.id

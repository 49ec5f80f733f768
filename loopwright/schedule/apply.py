"""``apply(state, step) -> state``: the structural rules and the effect of every primitive.

Pure: a state is never changed. Rules that need extents are in `loopwright.schedule.validate`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from loopwright.errors import did_you_mean
from loopwright.ir.expr import Expr, IterVar, Read, Reduce, Var, substitute
from loopwright.schedule import steps as st
from loopwright.schedule.state import (
    ROOT,
    Attach,
    FuseRel,
    Loop,
    Mark,
    SplitRel,
    StageId,
    StageState,
    State,
    initial_stage,
    refuse,
)
from loopwright.te.dag import OpNode

SCOPES = ("global", "local", "shared")
#: Pragmas that lowering or code generation knows.
PRAGMAS = ("auto_unroll_max_step", "unroll_explicit")


def apply(state: State, step: st.Step) -> State:
    """Apply one step.

    Raises:
        ScheduleError: the step is illegal in this state: which step, which loop, why, and what to
            do instead.
    """
    new = _APPLY[type(step)](state, step, state.steps)
    return replace(new, steps=state.steps + 1)


def _split(state: State, step: st.Split, t: int) -> State:
    stage = state.compute_stage(step.stage, "split")
    loop = state.leaf(stage, step.loop, "split")
    given = [v for v in (step.factor, step.nparts) if v is not None]
    if len(given) != 1:
        refuse("split", t, f"give one of factor= and nparts=, got {step.factor}, {step.nparts}")
    if isinstance(given[0], bool) or not isinstance(given[0], int) or given[0] < 1:
        what = "factor" if step.factor is not None else "nparts"
        refuse("split", t, f"{what} must be a positive integer, got {given[0]!r}")
    _check_free(state, stage, step.loop, "split", t)
    n = loop.nominal
    inner = min(step.factor, n) if step.factor is not None else -(-n // given[0])
    outer = -(-n // inner) if step.factor is not None else given[0]
    lo = Loop(f"{t}.0", f"{loop.name}.0", loop.kind, outer)
    li = Loop(f"{t}.1", f"{loop.name}.1", loop.kind, inner)
    rel = SplitRel(step.loop, lo.id, li.id, step.factor, step.nparts, t)
    return state.with_stage(
        stage,
        loops={**stage.loops, lo.id: lo, li.id: li},
        leaves=_put(stage.leaves, (step.loop,), (lo.id, li.id)),
        relations=(*stage.relations, rel),
    )


def _fuse(state: State, step: st.Fuse, t: int) -> State:
    stage = state.compute_stage(step.stage, "fuse")
    a = state.leaf(stage, step.outer, "fuse")
    b = state.leaf(stage, step.inner, "fuse")
    names = f"{state.loop_label(stage, a.id)} and {state.loop_label(stage, b.id)}"
    if a.kind != b.kind:
        refuse("fuse", t, f"{names} are of different kinds ({a.kind}, {b.kind}); fuse like kinds")
    pos = stage.leaves.index(a.id)
    if stage.leaves[pos + 1 : pos + 2] != (b.id,):
        refuse(
            "fuse",
            t,
            f"{names} are not adjacent, outer first; reorder them (loops: "
            f"{state.loop_list(stage)})",
        )
    for x in (a, b):
        _check_free(state, stage, x.id, "fuse", t)
    f = Loop(f"{t}.0", f"{a.name}.{b.name}", a.kind, a.nominal * b.nominal)
    return state.with_stage(
        stage,
        loops={**stage.loops, f.id: f},
        leaves=_put(stage.leaves, (a.id, b.id), (f.id,)),
        relations=(*stage.relations, FuseRel(a.id, b.id, f.id, t)),
    )


def _check_free(state: State, stage: StageState, loop: str, who: str, t: int) -> None:
    """A loop that carries a mark, a pragma or an attached stage cannot be taken apart."""
    name = state.loop_label(stage, loop)
    if loop in stage.marks:
        m = stage.marks[loop]
        refuse(who, t, f"loop {name} is already {m.kind} (step {m.step}); {who} it before that")
    if any(p[0] == loop for p in stage.pragmas):
        refuse(who, t, f"loop {name} carries a pragma; {who} it before that")
    inside = state.attached_at(stage.id, loop)
    if inside:
        refuse(
            who,
            t,
            f"stage {state.label(inside[0])!r} is computed at loop {name}; {who} the loop first "
            "and use compute_at afterwards",
        )


def _put(leaves: tuple[str, ...], old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    pos = leaves.index(old[0])
    return leaves[:pos] + new + leaves[pos + len(old) :]


def _reorder(state: State, step: st.Reorder, t: int) -> State:
    stage = state.compute_stage(step.stage, "reorder")
    for x in step.order:
        state.leaf(stage, x, "reorder")
    if len(set(step.order)) != len(step.order):
        twice = next(x for x in step.order if step.order.count(x) > 1)
        refuse("reorder", t, f"loop {state.loop_label(stage, twice)} is given twice")
    slots = iter(step.order)
    leaves = tuple(next(slots) if x in step.order else x for x in stage.leaves)
    return state.with_stage(stage, leaves=leaves, reordered=True)


def _annotate(state: State, step: st.Annotate, t: int) -> State:
    verb = {"vectorized": "vectorize", "unrolled": "unroll", "parallel": "parallel"}.get(step.kind)
    if verb is None:
        refuse("annotate", t, f"unknown kind {step.kind!r}; use vectorized, unrolled or parallel")
    stage = state.compute_stage(step.stage, verb)
    loop = state.leaf(stage, step.loop, verb)
    if loop.kind == "reduce" and verb != "unroll":
        refuse(
            verb,
            t,
            f"loop {state.loop_label(stage, loop.id)} is a reduction: its iterations add to one "
            "element; use a spatial loop",
        )
    return _mark(state, stage, loop.id, Mark(step.kind, t), verb, t)


def _mark(state: State, stage: StageState, loop: str, mark: Mark, who: str, t: int) -> State:
    old = stage.marks.get(loop)
    if old is not None and (old.kind, old.tag) != (mark.kind, mark.tag):
        refuse(
            who,
            t,
            f"loop {state.loop_label(stage, loop)} is already {old.kind} {old.tag}".rstrip()
            + f" (step {old.step})",
        )
    return state.with_stage(stage, marks={**stage.marks, loop: mark})


def _bind(state: State, step: st.Bind, t: int) -> State:
    stage = state.compute_stage(step.stage, "bind")
    loop = state.leaf(stage, step.loop, "bind")
    if loop.kind == "reduce":
        refuse(
            "bind",
            t,
            f"loop {state.loop_label(stage, loop.id)} is a reduction; binding it needs rfactor",
        )
    return _mark(state, stage, loop.id, Mark("thread", t, step.tag), "bind", t)


def _pragma(state: State, step: st.Pragma, t: int) -> State:
    stage = state.compute_stage(step.stage, "pragma")
    loop = state.leaf(stage, step.loop, "pragma")
    if step.key not in PRAGMAS:
        refuse(
            "pragma",
            t,
            f"unknown pragma {step.key!r}{did_you_mean(step.key, PRAGMAS)}; "
            f"known: {', '.join(PRAGMAS)}",
        )
    kept = tuple(p for p in stage.pragmas if p[:2] != (loop.id, step.key))
    return state.with_stage(stage, pragmas=(*kept, (loop.id, step.key, step.value)))


def _movable(state: State, sid: StageId, who: str, t: int) -> StageState:
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


def _compute_at(state: State, step: st.ComputeAt, t: int) -> State:
    stage = _movable(state, step.stage, "compute_at", t)
    parent = state.compute_stage(step.parent, "compute_at")
    state.leaf(parent, step.loop, "compute_at")
    if not _depends(state, parent.id, stage.id):
        users = ", ".join(state.label(c) for c in state.consumers(stage.id)) or "no stage"
        refuse(
            "compute_at",
            t,
            f"{state.label(parent.id)!r} does not use {state.label(stage.id)!r}, directly or "
            f"through others; it is used by {users}",
        )
    return state.with_stage(stage, attach=Attach("at", parent.id, step.loop, t))


def _depends(state: State, consumer: StageId, producer: StageId) -> bool:
    todo, seen = [consumer], set()
    while todo:
        cur = todo.pop()
        for r in state.stages[cur].op.reads():
            if r.source == producer:
                return True
            if r.source not in seen:
                seen.add(r.source)
                todo.append(r.source)
    return False


def _compute_inline(state: State, step: st.ComputeInline, t: int) -> State:
    stage = _movable(state, step.stage, "compute_inline", t)
    name = state.label(stage.id)
    if stage.op.reduction is not None:
        refuse(
            "compute_inline",
            t,
            f"{name!r} is a reduction and would be computed again at every use; use compute_at",
        )
    for loop in stage.leaves:
        if state.attached_at(stage.id, loop):
            inside = state.label(state.attached_at(stage.id, loop)[0])
            refuse("compute_inline", t, f"stage {inside!r} is computed inside {name!r}")
    return state.with_stage(stage, attach=Attach("inline", step=t))


def _compute_root(state: State, step: st.ComputeRoot, t: int) -> State:
    stage = state.compute_stage(step.stage, "compute_root")
    return state.with_stage(stage, attach=ROOT)


def _scope(scope: str, who: str, t: int) -> None:
    if scope not in SCOPES:
        refuse(
            who,
            t,
            f"unknown scope {scope!r}{did_you_mean(str(scope), SCOPES)}; use {', '.join(SCOPES)}",
        )


def _fresh_axes(op: OpNode) -> tuple[IterVar, ...]:
    names = [a.name for a in op.axes] or [f"ax{d}" for d in range(len(op.shape))]
    return tuple(
        IterVar(Var(n), e, "spatial") for n, e in zip(names, op.shape, strict=True)
    )


def _cache_read(state: State, step: st.CacheRead, t: int) -> State:
    src = state.stage(step.stage, "cache_read")
    _scope(step.scope, "cache_read", t)
    if not step.readers:
        refuse("cache_read", t, f"name at least one stage that reads {state.label(src.id)!r}")
    for r in step.readers:
        reader = state.stage(r, "cache_read")
        if not any(x.source == src.id for x in reader.op.reads()):
            refuse(
                "cache_read",
                t,
                f"stage {state.label(r)!r} does not read {state.label(src.id)!r}; its readers: "
                f"{', '.join(state.label(c) for c in state.consumers(src.id)) or 'none'}",
            )
    new_id = f"s{t}"
    axes = _fresh_axes(src.op)
    body = Read(src.id, tuple(a.var for a in axes), src.op.dtype)
    op = OpNode(f"{src.op.name}.{step.scope}", src.op.shape, src.op.dtype, axes, (), body)
    stages = {**state.stages, new_id: initial_stage(new_id, op, step.scope)}
    for r in step.readers:
        reader = state.stages[r]
        stages[r] = replace(reader, op=_redirect(reader.op, src.id, new_id))
    return replace(state, stages=stages, order=_after(state.order, src.id, new_id))


def _redirect(op: OpNode, old: StageId, new: StageId) -> OpNode:
    """The operation with every read of ``old`` turned into a read of ``new``."""

    def go(e: Any) -> Any:
        made = e.map_children(go)
        if isinstance(made, Read) and made.source == old:
            return Read(new, made.indices, made.dtype)
        return made

    return replace(op, body=go(op.body))


def _after(order: tuple[StageId, ...], at: StageId, new: StageId) -> tuple[StageId, ...]:
    pos = order.index(at) + 1
    return (*order[:pos], new, *order[pos:])


def _cache_write(state: State, step: st.CacheWrite, t: int) -> State:
    stage = state.compute_stage(step.stage, "cache_write")
    _scope(step.scope, "cache_write", t)
    name = state.label(stage.id)
    if stage.transformed or stage.layout is not None:
        refuse(
            "cache_write",
            t,
            f"the loops of {name!r} are already transformed (now {state.loop_list(stage)}); call "
            "cache_write before split, reorder and annotations",
        )
    if any(state.attached_at(stage.id, x) for x in stage.leaves):
        refuse("cache_write", t, f"a stage is already computed inside {name!r}; call it before")
    new_id = f"s{t}"
    op = stage.op
    axes = _fresh_axes(op)
    env: dict[Var, Expr] = {a.var: b.var for a, b in zip(op.axes, axes, strict=True)}
    cached = replace(
        op, name=f"{op.name}.{step.scope}", axes=axes, body=_rename(op.body, env), tag=""
    )
    copy = replace(
        op, reduce_axes=(), body=Read(new_id, tuple(a.var for a in op.axes), op.dtype)
    )
    stages = {
        **state.stages,
        new_id: initial_stage(new_id, cached, step.scope),
        stage.id: replace(initial_stage(stage.id, copy, stage.scope), attach=stage.attach),
    }
    pos = state.order.index(stage.id)
    order = (*state.order[:pos], new_id, *state.order[pos:])
    return replace(state, stages=stages, order=order)


def _rename(body: Any, env: dict[Var, Expr]) -> Any:
    """Substitute spatial variables; a reduction keeps its axes."""
    if not isinstance(body, Reduce):
        return substitute(body, env)
    return Reduce(
        body.combiner,
        substitute(body.source, env),
        body.axes,
        None if body.where is None else substitute(body.where, env),
        None if body.init is None else substitute(body.init, env),
        body.dtype,
    )


def _transform_layout(state: State, step: st.TransformLayout, t: int) -> State:
    stage = _movable(state, step.stage, "transform_layout", t)
    if stage.attach.kind == "inline":
        refuse("transform_layout", t, f"{state.label(stage.id)!r} is inlined and has no buffer")
    ndim = len(stage.op.shape)
    for d in range(ndim):
        digits = sorted((x[1], x[2]) for x in step.dims if x[0] == d)
        if not _covers(digits):
            shown = ", ".join(f"(i{x[0]} // {x[1]}) % {x[2]}" for x in step.dims)
            refuse(
                "transform_layout",
                t,
                f"the map is not a bijection in dimension {d} of {state.label(stage.id)!r}: "
                f"[{shown}]; split a dimension as i // f and i % f, each once",
            )
    return state.with_stage(stage, layout=step.dims)


def _covers(digits: list[Any]) -> bool:
    """Digits (div, mod), innermost first, rebuild an index exactly once."""
    weight = 1
    for i, (div, mod) in enumerate(digits):
        last = i == len(digits) - 1
        if div != weight or (mod is None) != last:
            return False
        weight *= mod or 1
    return bool(digits)


def layout_shape(shape: tuple[int, ...], dims: tuple[Any, ...]) -> tuple[int, ...]:
    """Shape of a buffer in a layout; partial blocks are padded."""
    return tuple(mod if mod is not None else -(-shape[d] // div) for d, div, mod in dims)




_APPLY: dict[type, Callable[[State, Any, int], State]] = {
    st.Split: _split,
    st.Fuse: _fuse,
    st.Reorder: _reorder,
    st.Annotate: _annotate,
    st.Bind: _bind,
    st.Pragma: _pragma,
    st.ComputeAt: _compute_at,
    st.ComputeInline: _compute_inline,
    st.ComputeRoot: _compute_root,
    st.CacheRead: _cache_read,
    st.CacheWrite: _cache_write,
    st.TransformLayout: _transform_layout,
}

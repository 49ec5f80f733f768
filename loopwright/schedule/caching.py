"""Rules and effects of the primitives that make stages, or order a stage's buffer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loopwright.errors import did_you_mean
from loopwright.ir.expr import Expr, IterVar, Read, Var
from loopwright.ir.reduction import Reduce
from loopwright.ir.traversal import substitute
from loopwright.schedule import steps as st
from loopwright.schedule.placement import movable
from loopwright.schedule.state import LayoutDim, StageId, State, initial_stage, refuse
from loopwright.te.dag import OpNode

SCOPES = ("global", "local", "shared")


def _scope(scope: str, who: str, t: int) -> None:
    if scope not in SCOPES:
        refuse(
            who,
            t,
            f"unknown scope {scope!r}{did_you_mean(str(scope), SCOPES)}; use {', '.join(SCOPES)}",
        )


def _fresh_axes(op: OpNode) -> tuple[IterVar, ...]:
    names = [a.name for a in op.axes] or [f"ax{d}" for d in range(len(op.shape))]
    return tuple(IterVar(Var(n), e, "spatial") for n, e in zip(names, op.shape, strict=True))


def cache_read(state: State, step: st.CacheRead, t: int) -> State:
    """Make a stage that copies a tensor, and let the readers read the copy."""
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


def cache_write(state: State, step: st.CacheWrite, t: int) -> State:
    """Make a stage that computes a tensor; the stage itself becomes a copy of it."""
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
    copy = replace(op, reduce_axes=(), body=Read(new_id, tuple(a.var for a in op.axes), op.dtype))
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


def transform_layout(state: State, step: st.TransformLayout, t: int) -> State:
    """Set the order of a stage's buffer: digits of the old indices, each used once."""
    stage = movable(state, step.stage, "transform_layout", t)
    if stage.attach.kind == "inline":
        refuse(
            "transform_layout",
            t,
            f"{state.label(stage.id)!r} is inlined and has no buffer; use compute_root or "
            "compute_at first",
        )
    ndim = len(stage.op.shape)
    for d in sorted({*range(ndim), *(dim for dim, _, _ in step.dims)}):
        digits = [(div, mod) for dim, div, mod in step.dims if dim == d]
        if d >= ndim or not _covers(sorted(digits, key=lambda x: x[0])):
            refuse(
                "transform_layout",
                t,
                f"the map is not a bijection in dimension {d} of {state.label(stage.id)!r} "
                f"({ndim} dimensions): ({layout_text(step.dims)}); split a dimension as i // f "
                "and i % f, each once",
            )
    return state.with_stage(stage, layout=step.dims)


def layout_text(dims: tuple[LayoutDim, ...]) -> str:
    """The new indices of a layout as Python: ``i1 // 16, i0, i1 % 16,``."""
    parts = []
    for d, div, mod in dims:
        e = f"i{d} // {div}" if div > 1 else f"i{d}"
        if mod is not None:
            e = f"{e} % {mod}" if div == 1 else f"({e}) % {mod}"
        parts.append(e)
    return "".join(f"{p}, " for p in parts).rstrip(" " if len(parts) == 1 else ", ")


def _covers(digits: list[tuple[int, int | None]]) -> bool:
    """Digits (div, mod), innermost first, rebuild an index exactly once."""
    weight = 1
    for i, (div, mod) in enumerate(digits):
        last = i == len(digits) - 1
        if div != weight or (mod is None) != last:
            return False
        weight *= mod or 1
    return bool(digits)


def layout_shape(shape: tuple[int, ...], dims: tuple[LayoutDim, ...]) -> tuple[int, ...]:
    """Shape of a buffer in a layout; partial blocks are padded."""
    return tuple(mod if mod is not None else -(-shape[d] // div) for d, div, mod in dims)

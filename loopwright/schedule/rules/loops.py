"""Rules and effects of the primitives that act on the loops of one stage."""

from __future__ import annotations

from typing import Any

from loopwright.errors import did_you_mean
from loopwright.ir.sizes import Sizes
from loopwright.ir.symbol import Symbol
from loopwright.schedule import steps as st
from loopwright.schedule.state import FuseRel, Loop, Mark, SplitRel, StageState, State, refuse

#: Pragmas that lowering or code generation knows.
PRAGMAS = ("auto_unroll_max_step", "unroll_explicit")
#: Pragmas whose names begin so belong to the user: passes of his own find them in `For.pragmas`.
USER_PRAGMA = "user."


def split(state: State, step: st.Split, t: int) -> State:
    """Replace a loop by an outer and an inner one."""
    stage = state.compute_stage(step.stage, "split")
    loop = state.leaf(stage, step.loop, "split")
    given = [v for v in (step.factor, step.nparts) if v is not None]
    if len(given) != 1:
        refuse("split", t, f"give one of factor= and nparts=, got {step.factor}, {step.nparts}")
    if not _is_size(given[0]):
        what = "factor" if step.factor is not None else "nparts"
        refuse("split", t, f"{what} must be a positive integer, got {given[0]!r}")
    _check_free(state, stage, step.loop, "split", t)
    outer, inner = _split_extents(loop.nominal, step.factor, step.nparts)
    lo = Loop(f"{t}.0", f"{loop.name}.0", loop.kind, outer)
    li = Loop(f"{t}.1", f"{loop.name}.1", loop.kind, inner)
    rel = SplitRel(step.loop, lo.id, li.id, step.factor, step.nparts, t)
    return state.with_stage(
        stage,
        loops={**stage.loops, lo.id: lo, li.id: li},
        leaves=_put(stage.leaves, (step.loop,), (lo.id, li.id)),
        relations=(*stage.relations, rel),
    )


def _is_size(v: Any) -> bool:
    """Whether a factor is a positive integer, or one that is not known."""
    known = isinstance(v, int) and not isinstance(v, bool)
    return v >= 1 if known else isinstance(v, Symbol)


def _split_extents(n: Any, factor: Any, nparts: Any) -> tuple[Any, Any]:
    """Extents of the outer and the inner loop, of a loop of n iterations, a number or not."""
    if factor is None:
        return nparts, (n + (nparts - 1)) // nparts
    if isinstance(n, int) and isinstance(factor, int):
        inner = min(factor, n)
    elif isinstance(n, Symbol):
        inner = n.at_most(factor)
    else:
        inner = factor.at_most(n) if isinstance(factor, Symbol) else factor
    return (n + (inner - 1)) // inner, inner


def check_even(state: State, stage: StageState, t: int) -> None:
    """Refuse the split that step ``t`` made where its loops run over the end."""
    rel = next(r for r in stage.relations if isinstance(r, SplitRel) and r.step == t)
    n, outer, inner = (stage.loops[x].nominal for x in (rel.parent, rel.outer, rel.inner))
    if Sizes().of(outer * inner - n) == 0:
        return
    given = f"factor {rel.factor}" if rel.factor is not None else f"nparts {rel.nparts}"
    refuse(
        "split",
        t,
        f"disable_predication needs an even split, and {given} does not divide the {n} iterations "
        f"of {state.loop_label(stage, rel.parent)!r}; take one that does, or let a test guard the "
        "tail",
    )


def fuse(state: State, step: st.Fuse, t: int) -> State:
    """Replace two adjacent loops of one kind by one."""
    stage = state.compute_stage(step.stage, "fuse")
    a = state.leaf(stage, step.outer, "fuse")
    b = state.leaf(stage, step.inner, "fuse")
    names = f"{state.loop_label(stage, a.id)!r} and {state.loop_label(stage, b.id)!r}"
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
        refuse(who, t, f"loop {name!r} is already {m.kind} (step {m.step}); {who} it before that")
    if any(p[0] == loop for p in stage.pragmas):
        refuse(who, t, f"loop {name!r} carries a pragma; {who} it before that")
    if any(p.loop == loop for p in stage.prefetches):
        refuse(who, t, f"loop {name!r} prefetches a tensor; {who} it before that")
    done = stage.tensorized
    if done is not None and done.loop == loop:
        refuse(who, t, f"loop {name!r} is tensorized (step {done.step}); {who} it before that")
    inside = state.attached_at(stage.id, loop)
    if inside:
        a = state.stages[inside[0]].attach
        computed = (a.stage, a.loop) == (stage.id, loop)
        refuse(
            who,
            t,
            f"stage {state.label(inside[0])!r} is {'computed' if computed else 'stored'} at loop "
            f"{name!r}; {who} the loop first and use {'compute' if computed else 'store'}_at "
            "afterwards",
        )


def _put(leaves: tuple[str, ...], old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    pos = leaves.index(old[0])
    return leaves[:pos] + new + leaves[pos + len(old) :]


def reorder(state: State, step: st.Reorder, t: int) -> State:
    """Permute loops within the places that they occupy together."""
    stage = state.compute_stage(step.stage, "reorder")
    for x in step.order:
        state.leaf(stage, x, "reorder")
    if len(set(step.order)) != len(step.order):
        twice = next(x for x in step.order if step.order.count(x) > 1)
        name = state.loop_label(stage, twice)
        refuse("reorder", t, f"loop {name!r} is given twice; name each loop once")
    slots = iter(step.order)
    leaves = tuple(next(slots) if x in step.order else x for x in stage.leaves)
    return state.with_stage(stage, leaves=leaves, reordered=True)


def annotate(state: State, step: st.Annotate, t: int) -> State:
    """Mark a loop as vectorized, unrolled or parallel."""
    verb = {"vectorized": "vectorize", "unrolled": "unroll", "parallel": "parallel"}.get(step.kind)
    if verb is None:
        refuse("annotate", t, f"unknown kind {step.kind!r}; use vectorized, unrolled or parallel")
    stage = state.compute_stage(step.stage, verb)
    loop = state.leaf(stage, step.loop, verb)
    if loop.kind == "reduce" and verb == "parallel":
        refuse(
            verb,
            t,
            f"loop {state.loop_label(stage, loop.id)!r} is a reduction: its iterations add to one "
            "element; use a spatial loop, or rfactor to make the loop one",
        )
    return put_mark(state, stage, loop.id, Mark(step.kind, t), verb, t)  # type: ignore[arg-type]


def put_mark(state: State, stage: StageState, loop: str, mark: Mark, who: str, t: int) -> State:
    """Mark a loop; it carries one mark."""
    old = stage.marks.get(loop)
    if old is not None and (old.kind, old.tag) != (mark.kind, mark.tag):
        refuse(
            who,
            t,
            f"loop {state.loop_label(stage, loop)!r} is already "
            f"{f'{old.kind} {old.tag}'.rstrip()} (step {old.step}); split it and mark the parts",
        )
    return state.with_stage(stage, marks={**stage.marks, loop: mark})


def pragma(state: State, step: st.Pragma, t: int) -> State:
    """Attach a hint to a loop; a later value of one key replaces the earlier."""
    stage = state.compute_stage(step.stage, "pragma")
    loop = state.leaf(stage, step.loop, "pragma")
    user = isinstance(step.key, str) and step.key.startswith(USER_PRAGMA)
    if step.key not in PRAGMAS and not (user and step.key != USER_PRAGMA):
        refuse(
            "pragma",
            t,
            f"unknown pragma {step.key!r}{did_you_mean(step.key, PRAGMAS)}; "
            f"known: {', '.join(PRAGMAS)}, and names of your own that begin with {USER_PRAGMA!r}",
        )
    value, is_bool = step.value, isinstance(step.value, bool)
    if step.key == "auto_unroll_max_step" and (is_bool or not isinstance(value, int) or value < 0):
        refuse("pragma", t, f"{step.key} takes a number of steps, 0 or more, got {value!r}")
    if step.key == "unroll_explicit" and not is_bool and value not in (0, 1):
        refuse("pragma", t, f"{step.key} takes True or False, got {value!r}")
    if user and not isinstance(value, str | int | float | bool | None):
        refuse("pragma", t, f"{step.key} takes a number, a text, a bool or None, got {value!r}")
    kept = tuple(p for p in stage.pragmas if p[:2] != (loop.id, step.key))
    return state.with_stage(stage, pragmas=(*kept, (loop.id, step.key, step.value)))

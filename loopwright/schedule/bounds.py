"""Bound inference: extents, index values, regions and guards of every stage.

Consumers first. A root stage covers its tensor. A stage attached at a loop covers the region that
its consumers read while that loop and those outside it stand still: every read index is affine over
the consumer's loops, the loops that stand still give the base, the others an interval. An index
that is not affine falls back to the whole dimension.

Guards. A split that does not divide over-runs; the over-run needs a guard ``value < extent``. A
root stage guards its statement. An attached stage is *padded*: its buffer covers the over-run, so
its loops run full tiles, stores need no guard, and only loads that could leave their buffer are
guarded (they yield zero there; such lanes are never used by a valid element). Guards of reduction
axes always stay: they decide what is accumulated. So do guards of splits inside a tile, where an
over-run would visit an element twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loopwright.errors import ScheduleError
from loopwright.ir.affine import Affine, Interval, div_mod, to_affine
from loopwright.ir.expr import Expr, Read, Var, cast
from loopwright.ir.reduction import outputs_of
from loopwright.ir.traversal import substitute
from loopwright.schedule.state import FuseRel, Loop, Mark, SplitRel, StageId, StageState, State
from loopwright.schedule.storage import store_position
from loopwright.te.dag import OpNode, reads_of


@dataclass(eq=False)
class LoopBound:
    """One leaf loop with its variable and extent."""

    loop: Loop
    var: Var
    extent: int
    mark: Mark | None


@dataclass(eq=False)
class Guard:
    """``value < extent`` and ``value >= 0``, where not proved."""

    value: Affine
    kind: str
    below: int | None
    nonnegative: bool = False


@dataclass(eq=False)
class StageBounds:
    """What lowering needs to know about one stage.

    Attributes:
        op: the operation after inlining.
        loops: leaf loops, outermost first.
        lets: definitions to make after loop p is entered, at index p + 1 (0: before any loop).
        values: each root axis variable as an affine form over loop and let variables.
        base, shape: first element and extents of the buffer (before the layout).
        guards: conditions under which the statement runs.
        domain: for padded stages, conditions of each spatial axis that an over-run violates.
        position: index of the loop after which a variable is known (-1: outside the stage).
        enclosing: variables of the loops around the stage.
    """

    stage: StageState
    op: OpNode
    padded: bool
    loops: list[LoopBound] = field(default_factory=list)
    lets: list[list[tuple[Var, Expr]]] = field(default_factory=list)
    values: dict[Var, Affine] = field(default_factory=dict)
    base: list[Affine] = field(default_factory=list)
    shape: list[int] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    domain: dict[int, list[Guard]] = field(default_factory=dict)
    position: dict[Var, int] = field(default_factory=dict)
    enclosing: set[Var] = field(default_factory=set)

    def visible(self, upto: int) -> set[Var]:
        """Variables known inside loop ``upto`` (those around the stage included)."""
        return self.enclosing | {v for v, p in self.position.items() if p <= upto}


@dataclass(eq=False)
class Bounds:
    """Bounds of all stages that are computed (inlined ones are gone), and ranges of variables."""

    stages: dict[StageId, StageBounds]
    ranges: dict[Var, Interval]
    ops: Mapping[StageId, OpNode]


def infer_bounds(state: State) -> Bounds:
    """Infer the bounds of a schedule.

    Raises:
        ScheduleError: a stage is attached where not all of its readers run, or at a loop that no
            longer exists.
    """
    ops = inline_ops(state)
    out = Bounds({}, {}, ops)
    for sid in reversed([i for i in state.order if i in ops]):
        stage = state.stages[sid]
        if not stage.op.is_placeholder:
            out.stages[sid] = _bound_stage(state, stage, out)
    return out


def inline_ops(state: State) -> dict[StageId, OpNode]:
    """Operations with inlined stages substituted into their readers, and those stages removed."""
    ops: dict[StageId, OpNode] = {}
    bodies: dict[StageId, OpNode] = {}
    for sid in state.order:
        stage = state.stages[sid]
        op = _inline_reads(stage.op, bodies)
        if stage.attach.kind == "inline":
            bodies[sid] = op
        else:
            ops[sid] = op
    return ops


def _inline_reads(op: OpNode, bodies: Mapping[StageId, OpNode]) -> OpNode:
    if op.body is None or not any(r.source in bodies for r in op.reads()):
        return op

    def go(e: Any) -> Any:
        made = e.map_children(go)
        if not (isinstance(made, Read) and made.source in bodies):
            return made
        src = bodies[made.source]
        axes = [a.var for a in src.axes]
        # An index of another dtype takes the axis's: it lies within the dimension.
        env = {v: cast(i, v.dtype) for v, i in zip(axes, made.indices, strict=True)}
        assert src.body is not None
        return substitute(outputs_of(src.body)[made.value_index], env)

    return OpNode(op.name, op.shape, op.dtype, op.axes, op.reduce_axes, go(op.body), op.tag)


def _bound_stage(state: State, stage: StageState, out: Bounds) -> StageBounds:
    at = stage.attach.kind == "at"
    sb = StageBounds(stage, out.ops[stage.id], padded=at)
    if at:
        sb.enclosing = _enclosing(state, stage, out)
        _region(state, sb, out)
    else:
        sb.base = [Affine(0) for _ in sb.op.shape]
        sb.shape = list(sb.op.shape)
    _loops(state, sb, out)
    if stage.store is not None:
        _storage(state, sb, out)
    return sb


def _storage(state: State, sb: StageBounds, out: Bounds) -> None:
    """Widen the region of a stage to that of all iterations of the loops inside its storage."""
    host, pos = store_position(state, sb.stage)
    known = out.stages[host].visible(pos)
    for d, base in enumerate(sb.base):
        fixed, rest = base.split(known)
        lo, hi = rest.bounds(out.ranges)
        sb.base[d], sb.shape[d] = fixed + lo, hi - lo + sb.shape[d]


def attach_position(state: State, stage: StageState, out: Bounds) -> tuple[StageBounds, int]:
    """The stage that an attached stage runs in, and the index of the loop."""
    a = stage.attach
    parent = out.stages.get(a.stage)
    if parent is None:
        raise ScheduleError(
            f"compute_at (step {a.step}): {state.label(stage.id)!r} is computed in "
            f"{state.label(a.stage)!r}, which is inlined and has no loops"
        )
    return parent, parent.stage.leaves.index(a.loop)


def _enclosing(state: State, stage: StageState, out: Bounds) -> set[Var]:
    parent, pos = attach_position(state, stage, out)
    _check_start(state, stage, parent, pos)
    for sid, reader in out.stages.items():
        if any(r.source == stage.id for r in reader.op.reads()) and not _inside(
            state, reader, parent, pos, out
        ):
            a = stage.attach
            raise ScheduleError(
                f"compute_at (step {a.step}): {state.label(stage.id)!r} is computed at loop "
                f"{state.loop_label(parent.stage, a.loop)!r}, but {state.label(sid)!r} reads it "
                "too and does not run inside that loop; compute both there, or this one at root"
            )
    return parent.visible(pos)


def _check_start(state: State, stage: StageState, parent: StageBounds, pos: int) -> None:
    """What a reduction starts from must exist before its reduction loops begin."""
    red = parent.op.reduction
    if red is None or red.init is None:
        return
    first = next(p for p, x in enumerate(parent.loops) if x.loop.kind == "reduce")
    if pos >= first and any(r.source == stage.id for e in red.init for r in reads_of(e)):
        a = stage.attach
        raise ScheduleError(
            f"compute_at (step {a.step}): {state.label(stage.id)!r} is read by init= of "
            f"{state.label(parent.stage.id)!r} before its reduction loops, so it cannot be "
            f"computed at loop {state.loop_label(parent.stage, a.loop)!r}; use a loop outside of "
            f"{state.loop_label(parent.stage, parent.loops[first].loop.id)!r}"
        )


def _inside(state: State, reader: StageBounds, parent: StageBounds, pos: int, out: Bounds) -> bool:
    while reader is not parent:
        if reader.stage.attach.kind != "at":
            return False
        host, p = attach_position(state, reader.stage, out)
        if host is parent:
            return p >= pos
        reader = host
    return True


def _region(state: State, sb: StageBounds, out: Bounds) -> None:
    """Base and extents that the readers of an attached stage need."""
    hulls: list[tuple[Affine, int, int] | None] = [None] * len(sb.op.shape)
    whole = [False] * len(sb.op.shape)
    over = False
    for reader in out.stages.values():
        for read in reader.op.reads():
            if read.source != sb.stage.id:
                continue
            over |= reader.padded
            for d, index in enumerate(read.indices):
                a = to_affine(index, reader.values, out.ranges)
                hulls[d], whole[d] = _widen(hulls[d], whole[d], a, sb, out)
    for d, extent in enumerate(sb.op.shape):
        hull = hulls[d]
        if whole[d] or hull is None:
            sb.base.append(Affine(0))
            sb.shape.append(extent)
            continue
        fixed, lo, hi = hull
        if hi - lo + 1 >= extent and not over:
            fixed, lo, hi = Affine(0), 0, extent - 1
        sb.base.append(fixed + lo)
        sb.shape.append(hi - lo + 1)


def _widen(
    hull: tuple[Affine, int, int] | None,
    whole: bool,
    index: Affine | None,
    sb: StageBounds,
    out: Bounds,
) -> tuple[tuple[Affine, int, int] | None, bool]:
    if whole or index is None:
        return hull, True
    fixed, rest = index.split(sb.enclosing)
    lo, hi = rest.bounds(out.ranges)
    if hull is None:
        return (fixed, lo, hi), False
    if hull[0] != fixed:
        return hull, True
    return (fixed, min(lo, hull[1]), max(hi, hull[2])), False


def _loops(state: State, sb: StageBounds, out: Bounds) -> None:
    stage, op = sb.stage, sb.op
    extents = _extents(sb)
    for pos, lid in enumerate(stage.leaves):
        var = Var(stage.loops[lid].name)
        sb.loops.append(LoopBound(stage.loops[lid], var, extents[lid], stage.marks.get(lid)))
        sb.position[var] = pos
        out.ranges[var] = (0, extents[lid] - 1)
    sb.lets = [[] for _ in range(len(sb.loops) + 1)]
    values = {x.loop.id: Affine.of(x.var) if x.extent > 1 else Affine(0) for x in sb.loops}
    for rel in reversed(stage.relations):
        _invert(rel, values, extents, sb, out)
    roots = {f"a{d}": a for d, a in enumerate(op.axes)}
    for d, axis in enumerate(op.axes):
        local = values[f"a{d}"]
        sb.values[axis.var] = sb.base[d] + local
        if sb.padded:
            sb.shape[d] = max(sb.shape[d], local.bounds(out.ranges)[1] + 1)
            _domain(sb, d, axis.var, out)
    for d, axis in enumerate(op.reduce_axes):
        sb.values[axis.var] = values[f"r{d}"]
    for rel in stage.relations:
        if isinstance(rel, SplitRel):
            _guard(rel, values, extents, sb, out, rel.parent in roots)


def _extents(sb: StageBounds) -> dict[str, int]:
    op = sb.op
    extents = {f"a{d}": e for d, e in enumerate(sb.shape)}
    extents |= {f"r{d}": a.extent for d, a in enumerate(op.reduce_axes)}
    for rel in sb.stage.relations:
        if isinstance(rel, FuseRel):
            extents[rel.fused] = extents[rel.outer] * extents[rel.inner]
            continue
        n = extents[rel.parent]
        if rel.factor is not None:
            extents[rel.inner] = min(rel.factor, n)
            extents[rel.outer] = -(-n // extents[rel.inner])
        else:
            assert rel.nparts is not None
            extents[rel.inner] = -(-n // rel.nparts)
            extents[rel.outer] = rel.nparts
    return extents


def _invert(
    rel: SplitRel | FuseRel,
    values: dict[str, Affine],
    extents: dict[str, int],
    sb: StageBounds,
    out: Bounds,
) -> None:
    """Values of the loops that a step consumed, from those that it made."""
    if isinstance(rel, SplitRel):
        values[rel.parent] = values[rel.outer] * extents[rel.inner] + values[rel.inner]
        return
    lets: list[tuple[Var, Expr]] = []
    fused, hint = values[rel.fused], sb.stage.loops[rel.fused].name
    q, r = div_mod(fused, extents[rel.inner], out.ranges, lets, hint)
    known = sb.position
    for var, value in lets:
        a = to_affine(value.a, {}, out.ranges)  # type: ignore[attr-defined]
        pos = max((known.get(v, -1) for v in (a.terms if a else ())), default=-1)
        known[var] = pos
        sb.lets[pos + 1].append((var, value))
    values[rel.outer], values[rel.inner] = q, r


def _domain(sb: StageBounds, d: int, var: Var, out: Bounds) -> None:
    value, extent = sb.values[var], sb.op.shape[d]
    lo, hi = value.bounds(out.ranges)
    if lo < 0 or hi >= extent:
        below = extent if hi >= extent else None
        sb.domain[d] = [Guard(value, "spatial", below, nonnegative=lo < 0)]


def _guard(
    rel: SplitRel,
    values: dict[str, Affine],
    extents: dict[str, int],
    sb: StageBounds,
    out: Bounds,
    root: bool,
) -> None:
    extent = extents[rel.parent]
    if values[rel.parent].bounds(out.ranges)[1] < extent:
        return
    kind = sb.stage.loops[rel.parent].kind
    if sb.padded and root and kind == "spatial":
        return
    sb.guards.append(Guard(values[rel.parent], kind, extent))

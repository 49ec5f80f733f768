"""Bound inference: extents, index values, regions and guards of every stage.

Consumers first. A root stage covers its tensor. A stage attached at a loop covers the region that
its consumers read while that loop and those outside it stand still: these give the base of an
affine index, the others an interval. An index that is not affine falls back to the whole dimension,
and so do two reads that cannot be related. (Estimates have another policy for regions, which does
not branch on values: `loopwright.cost.symbolic.loop_nest`.)

A split that does not divide over-runs, which needs a guard ``value < extent``. A root stage guards
its statement. An attached stage is *padded*: its buffer covers the over-run, so only loads that
could leave their buffer are guarded (they yield zero, which no valid element uses). Guards of
reduction axes stay, as they decide what is accumulated, and those of splits inside a tile, where an
over-run would visit an element twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from loopwright.errors import ScheduleError
from loopwright.ir.affine import Affine, Extent, to_affine
from loopwright.ir.expr import Dim, Expr, Var
from loopwright.ir.sizes import Sizes
from loopwright.schedule.bounds.inlining import inline_ops
from loopwright.schedule.bounds.launches import (
    bound_var,
    find_kernels,
    fixed_variables,
    memory_scope,
    thread_limits,
)
from loopwright.schedule.bounds.relations import ExactArithmetic, loop_extents, loop_values
from loopwright.schedule.bounds.results import Bounds, Guard, LoopBound, StageBounds
from loopwright.schedule.state import (
    FuseRel,
    SplitRel,
    StageState,
    State,
    loops_around,
    store_position,
)
from loopwright.te import reads_of


def beyond(value: Affine, extent: Extent, sizes: Sizes) -> tuple[bool, bool]:
    """Whether a value may be negative, and whether it may reach an extent."""
    return value.bounds(sizes.ranges)[0] < 0, (value - extent).bounds(sizes.ranges)[1] >= 0


def guard_splits(
    sb: StageBounds, extents: Mapping[str, Extent], values: Mapping[str, Affine]
) -> dict[str, int]:
    """Enter the guards that the splits of a stage need, given all of its loops by id.

    A guard of the outer part may be enough: below ``i < 250`` no ``i * 4 + j`` with ``j < 4``
    reaches 1000. So loops are walked from the innermost relation outwards, with the largest value
    of each in iterations that pass the guards found so far, which are returned if they are numbers.
    """
    last = {x.loop.id: x.extent - 1 for x in sb.loops if isinstance(x.extent, int)}
    guards: list[Guard] = []
    for rel in reversed(sb.stage.relations):
        match rel:
            case SplitRel():
                guards += _guard_split(rel, sb, extents, values, last)
            case FuseRel():
                length, largest = extents[rel.inner], last.get(rel.fused)
                if isinstance(length, int) and largest is not None:
                    last[rel.outer], last[rel.inner] = largest // length, min(largest, length - 1)
            case _:
                assert_never(rel)
    sb.guards += reversed(guards)
    return last


def _guard_split(
    rel: SplitRel,
    sb: StageBounds,
    extents: Mapping[str, Extent],
    values: Mapping[str, Affine],
    last: dict[str, int],
) -> list[Guard]:
    """The guard of one split, if it needs one; notes the last value of the loop that was split."""
    extent, value = extents[rel.parent], values[rel.parent]
    # Its last value, from its parts and its interval.
    length, outer, inner = extents[rel.inner], last.get(rel.outer), last.get(rel.inner)
    end, most = sb.sizes.span(value)[1], None
    if isinstance(length, int) and outer is not None and inner is not None and isinstance(end, int):
        most = min(outer * length + inner, end)
    past = beyond(value, extent, sb.sizes)[1]
    if isinstance(extent, int) and most is not None:
        past = most >= extent
    kind = sb.stage.loops[rel.parent].kind
    covered = sb.padded and rel.parent.startswith("a") and kind == "spatial"
    if past and not covered and isinstance(extent, int):
        most = extent - 1
    if most is not None:
        last[rel.parent] = most
    return [Guard(value, kind, extent)] if past and not covered else []


def stays_inside(sb: StageBounds, index: Expr, extent: Dim) -> bool:
    """Whether an index over a reader's axes lies in a dimension in all iterations that pass
    guards."""
    ranges = {**sb.sizes.ranges, **sb.guarded}
    form = to_affine(index, {}, ranges)
    if not isinstance(extent, int) or form is None or any(v not in ranges for v in form.terms):
        return False
    lo, hi = form.bounds(ranges)
    return lo >= 0 and hi < extent


def infer_bounds(state: State) -> Bounds:
    """Infer the bounds of a schedule.

    Raises:
        ScheduleError: a stage is attached where not all of its readers run, or at a loop that no
            longer exists.

    Example:
        >>> A = te.placeholder((30,), name="A")
        >>> B = te.compute((30,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> io, ii = s[B].split(B.op.axis[0], factor=8)
        >>> bounds = lw.schedule.infer_bounds(s.state)
        >>> print([(x.var.name, x.extent) for x in bounds.stages[1].loops])
        [('i.0', 4), ('i.1', 8)]
    """
    state, ops = inline_ops(state)
    every = [state.stages[i].op for i in state.order]
    sizes = Sizes(n for op in every for n in op.extents)
    for v in (v for op in every for v in op.sizes):
        sizes.declare(v)
    out = Bounds(state, {}, ops, sizes, find_kernels(state, ops))
    for sid in reversed([i for i in state.order if i in ops]):
        stage = state.stages[sid]
        if not stage.op.is_placeholder:
            out.stages[sid] = _bound_stage(state, stage, out)
    for sb in (x for x in out.stages.values() if x.kernel is not None):
        around = [out.stages[sid].loops[p] for sid, p in loops_around(state, sb.stage)]
        limits = thread_limits(sb, around)
        sb.guards += [Guard(Affine.of(v), kind, n) for v, kind, n in limits]
    return out


def _bound_stage(state: State, stage: StageState, out: Bounds) -> StageBounds:
    at = stage.attach.kind == "at"
    kernel = out.kernels.get(stage.id)
    sb = StageBounds(stage, out.ops[stage.id], padded=at, sizes=out.sizes, kernel=kernel)
    sb.scope = memory_scope(state, stage, kernel)
    if at:
        sb.enclosing = _enclosing(state, stage, out)
        _region(state, sb, out)
    else:
        sb.base = [Affine(0) for _ in sb.op.shape]
        sb.shape = [out.sizes.of(n) for n in sb.op.shape]
    _loops(state, sb, out)
    if stage.store is not None:
        # Widen the region to that of all iterations of the loops inside the storage.
        host, pos = store_position(state, stage)
        visible = out.stages[host].visible(pos)
        for d, base in enumerate(sb.base):
            fixed, rest = base.split(visible)
            lo, hi = sb.sizes.span(rest)
            sb.base[d], sb.shape[d] = fixed + lo, hi - lo + sb.shape[d]
    return sb


def attach_position(state: State, stage: StageState, out: Bounds) -> tuple[StageBounds, int]:
    """The stage that an attached stage runs in, and the index of its loop there."""
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
        if any(r.source == stage.id for r in reader.op.reads()) and not runs_inside(
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
    """Refuse to compute inside reduction loops a start value that they need before."""
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


def runs_inside(
    state: State, reader: StageBounds, parent: StageBounds, pos: int, out: Bounds
) -> bool:
    """Whether a stage runs inside loop ``pos`` of ``parent``, or is that one."""
    while reader is not parent:
        if reader.stage.attach.kind != "at":
            return False
        host, p = attach_position(state, reader.stage, out)
        if host is parent:
            return p >= pos
        reader = host
    return True


#: Part of a dimension that readers need: first element, least and largest distance from it.
_Hull = tuple[Affine, Extent, Extent]


def _region(state: State, sb: StageBounds, out: Bounds) -> None:
    """Base and extents that the readers of an attached stage need."""
    still, renamed = fixed_variables(sb)
    reads = [
        (reader, read)
        for reader in out.stages.values()
        for read in reader.op.distinct_reads
        if read.source == sb.stage.id
    ]
    for d, dim in enumerate(sb.op.shape):
        # No more is needed where guards of a padded reader keep it inside a dimension; tiles on
        # CPUs are covered whole all the same, so that loops which fill them need no guards.
        padded = any(
            r.padded and not (r.kernel is not None and stays_inside(r, read.indices[d], dim))
            for r, read in reads
        )
        indices = [to_affine(read.indices[d], r.values, out.ranges) for r, read in reads]
        hull, extent = _hull(indices, renamed, still, sb.sizes), out.sizes.of(dim)
        if hull is None:
            sb.base.append(Affine(0))
            sb.shape.append(extent)
            continue
        fixed, lo, hi = hull
        if not padded and out.sizes.most(hi - lo + 1, extent) == hi - lo + 1:
            fixed, lo, hi = Affine(0), 0, extent - 1
        sb.base.append(fixed + lo)
        sb.shape.append(hi - lo + 1)


def _hull(
    indices: Sequence[Affine | None], renamed: Mapping[Var, Affine], still: set[Var], sizes: Sizes
) -> _Hull | None:
    """Hull of all reads of a dimension; None where it is not known, or nothing is read."""
    hull: _Hull | None = None
    for index in indices:
        if index is None:
            return None
        fixed, rest = (index.substitute(renamed) if renamed else index).split(still)
        lo, hi = sizes.span(rest)
        if hull is None:
            hull = fixed, lo, hi
            continue
        least, most = sizes.least(lo, hull[1]), sizes.most(hi, hull[2])
        if hull[0] != fixed or least is None or most is None:
            return None
        hull = fixed, least, most
    return hull


def _loops(state: State, sb: StageBounds, out: Bounds) -> None:
    stage, op = sb.stage, sb.op
    arithmetic = ExactArithmetic(sb)
    reduce = [sb.sizes.of(a.extent) for a in op.reduce_axes]
    extents = loop_extents(stage, sb.shape, reduce, arithmetic)
    for pos, lid in enumerate(stage.leaves):
        var = bound_var(state, sb, lid, extents[lid])
        sb.loops.append(LoopBound(stage.loops[lid], var, extents[lid], stage.marks.get(lid)))
        sb.position[var] = pos
    sb.lets = [[] for _ in range(len(sb.loops) + 1)]
    leaves = {x.loop.id: Affine.of(x.var) if x.extent != 1 else Affine(0) for x in sb.loops}
    values = loop_values(stage, leaves, extents, arithmetic)
    last = guard_splits(sb, extents, values)
    for d, axis in enumerate(op.axes):
        local, most = values[f"a{d}"], last.get(f"a{d}")
        _enter_value(sb, axis.var, sb.base[d], local, most)
        if not sb.padded:
            continue
        # Its loops cover their over-run; where sizes cannot be compared, no less than the shape.
        end = sb.sizes.span(local)[1] + 1 if most is None else most + 1
        larger = sb.sizes.most(sb.shape[d], end)
        sb.shape[d] = end if larger is None else larger
        value, extent = sb.values[axis.var], sb.sizes.of(op.shape[d])
        low, past = beyond(value, extent, sb.sizes)
        if past and most is not None:
            past = beyond(sb.base[d] + most, extent, sb.sizes)[1]
        if low or past:
            sb.domain[d] = [Guard(value, "spatial", extent if past else None, nonnegative=low)]
    for d, axis in enumerate(op.reduce_axes):
        _enter_value(sb, axis.var, Affine(0), values[f"r{d}"], last.get(f"r{d}"))


def _enter_value(sb: StageBounds, var: Var, base: Affine, local: Affine, last: int | None) -> None:
    """Note the value of an axis, and its bounds in iterations that pass the guards."""
    sb.values[var] = value = base + local
    lo, hi = value.bounds(sb.sizes.ranges)
    if last is not None:
        hi = min(hi, base.bounds(sb.sizes.ranges)[1] + last)
    sb.guarded[var] = (lo, hi)

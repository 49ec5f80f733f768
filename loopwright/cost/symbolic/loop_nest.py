"""Loops, regions and accesses of a schedule whose factors need not be known.

What `loopwright.schedule.bounds` infers for lowering, as far as features need it, without a branch
on any value: extents of loops, the region that each attached stage covers, and for every access
how its address moves with each loop around it. Factors are ints, or `Sym` for a population.

Departures from the inferred bounds, all upwards: a region is the hull of what is read (bounds take
the whole dimension where they cannot relate two reads), and guards are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from loopwright import dtypes
from loopwright.cost.symbolic.index_steps import Index, LoopKey, Move, index_of, number_of, width
from loopwright.cost.symbolic.symbols import (
    Number,
    at_most,
    ceil_div,
    least,
    most,
    product,
    where,
)
from loopwright.ir.expr import Binary, Expr, IfThenElse, Read, Var
from loopwright.ir.node import Node
from loopwright.ir.reduction import outputs_of
from loopwright.ir.symbol import Symbol
from loopwright.schedule.bounds.infer import inline_ops
from loopwright.schedule.state import FuseRel, LayoutDim, SplitRel, StageId, StageState, State
from loopwright.te.op_node import OpNode


@dataclass(frozen=True, slots=True)
class NestLoop:
    """One loop around a statement.

    Attributes:
        key: the stage that it belongs to, and its id there.
        extent: iterations.
        kind: ``"spatial"`` or ``"reduce"``.
        mark: ``"vectorized"``, ``"unrolled"``, ``"parallel"``, ``"thread"``, or ``""``.
    """

    key: LoopKey
    extent: Number
    kind: str
    mark: str


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of a buffer: extent, stride in elements, and which digit of an index it is."""

    extent: Number
    stride: Number
    source: LayoutDim


@dataclass(frozen=True, slots=True)
class Buffer:
    """Where the elements of a stage, or of an input, lie.

    ``within`` are the loops outside of which it does not exist: they never move an address.
    """

    stage: StageId
    dims: tuple[Dim, ...]
    itemsize: int
    scope: str
    within: frozenset[LoopKey]

    @property
    def elements(self) -> Number:
        """Number of elements."""
        return product(d.extent for d in self.dims)


@dataclass(frozen=True, slots=True)
class Access:
    """A load or store of a stage.

    ``moves`` has, for each dimension of the buffer, how it moves with loops.
    """

    buffer: Buffer
    write: bool
    moves: tuple[tuple[Move, ...], ...]


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition under which alone something is read: for each comparison, what moves it."""

    tests: tuple[frozenset[LoopKey], ...]

    @property
    def loops(self) -> frozenset[LoopKey]:
        """The loops that move any of its comparisons."""
        return frozenset().union(*self.tests)


@dataclass(eq=False)
class StageNest:
    """One stage that is computed.

    Attributes:
        loops: all loops around the statement, outermost first.
        own: how many of them, from the inside, are its own.
        axes: each axis of the operation as a sum of steps of these loops.
        shape: extents of the region that it covers.
        buffer: where its results lie.
        accesses: its store, then its loads in the order of the expression, each once.
        guards: the conditions of its expression (inlined padding).
        attached: whether it is computed inside another stage.
    """

    stage: StageState
    op: OpNode
    attached: bool
    loops: tuple[NestLoop, ...] = ()
    own: int = 0
    axes: dict[Var, Index] = field(default_factory=dict)
    shape: list[Number] = field(default_factory=list)
    buffer: Buffer | None = None
    accesses: list[Access] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)

    @property
    def iterations(self) -> Number:
        """How often the statement runs in all."""
        return product(x.extent for x in self.loops)


def nests_of(state: State) -> list[StageNest]:
    """All stages that are computed, in topological order."""
    ops = inline_ops(state)
    found: dict[StageId, StageNest] = {}
    for sid in reversed([i for i in state.order if i in ops]):
        if not ops[sid].is_placeholder:
            found[sid] = _nest(state.stages[sid], ops[sid], found)
    out = [found[i] for i in state.order if i in found]
    for nest in out:
        within = _within(nest.stage, found)
        nest.buffer = _buffer(nest.stage, _stored(nest, within), nest.op, within)
    for nest in out:
        nest.accesses = list(_accesses(nest, found, ops))
        nest.guards = list(_guards(nest))
    return out


def _nest(stage: StageState, op: OpNode, found: Mapping[StageId, StageNest]) -> StageNest:
    nest = StageNest(stage, op, stage.attach.kind == "at")
    outside = _outside(stage.attach.stage, stage.attach.loop, found) if nest.attached else ()
    bases = [Index(0, ()) for _ in op.shape]
    nest.shape = list(op.shape)
    if nest.attached:
        _cover(nest, bases, outside, found)
    extents = _extents(nest)
    marks = {x: m.kind for x, m in stage.marks.items()}
    own = tuple(
        NestLoop((stage.id, x), extents[x], stage.loops[x].kind, marks.get(x, ""))
        for x in stage.leaves
    )
    nest.loops, nest.own = outside + own, len(own)
    values = _values(stage, extents)
    for d, axis in enumerate(op.axes):
        local = values[f"a{d}"]
        nest.axes[axis.var] = Index(0, bases[d].moves) + local
        if nest.attached:
            nest.shape[d] = most(nest.shape[d], width(local.moves))
    for d, axis in enumerate(op.reduce_axes):
        nest.axes[axis.var] = values[f"r{d}"]
    return nest


def _outside(sid: StageId, loop: str, found: Mapping[StageId, StageNest]) -> tuple[NestLoop, ...]:
    """The loops from the outermost to one of a stage."""
    host = found[sid]
    keys = [x.key for x in host.loops]
    return host.loops[: keys.index((sid, loop)) + 1]


def _cover(
    nest: StageNest,
    bases: list[Index],
    outside: tuple[NestLoop, ...],
    found: Mapping[StageId, StageNest],
) -> None:
    """The region of an attached stage: what its readers need while the loops outside stand."""
    still = {x.key for x in outside}
    readers = [(n, r) for n in found.values() for r in _reads(n.op, nest.stage.id)]
    padded = any(n.attached for n, _ in readers)
    for d, extent in enumerate(nest.op.shape):
        indices = [index_of(r.indices[d], n.axes) for n, r in readers]
        known = [x for x in indices if x is not None]
        if not known or len(known) < len(indices):
            continue
        fixed = [tuple(m for m in x.moves if m.loop in still) for x in known]
        if any(_alike(f) != _alike(fixed[0]) for f in fixed[1:]):
            continue
        spans = [
            Index(x.const, tuple(m for m in x.moves if m.loop not in still)).span() for x in known
        ]
        lo, hi = spans[0]
        for a, b in spans[1:]:
            lo, hi = least(lo, a), most(hi, b)
        wide = hi - lo + 1
        moving = fixed[0]
        if not padded:
            # A region that is the whole dimension stands at its beginning.
            part = at_most(wide, extent - 1)
            moving = tuple(Move(m.loop, m.step, where(part, m.count, 1)) for m in moving)
            wide = least(wide, extent)
        bases[d], nest.shape[d] = Index(0, moving), wide


def _alike(moves: Sequence[Move]) -> list[tuple[str, str]]:
    """Moves in a form in which two equal sets of them are equal."""
    return sorted((repr(m.loop), repr(m.step)) for m in moves)


def _reads(op: OpNode, source: StageId) -> list[Read]:
    return [r for r in op.reads() if r.source == source]


def _extents(nest: StageNest) -> dict[str, Number]:
    """Extents of all loops of a stage, those that later steps consumed included."""
    out: dict[str, Number] = {f"a{d}": n for d, n in enumerate(nest.shape)}
    out |= {f"r{d}": number_of(a.extent) for d, a in enumerate(nest.op.reduce_axes)}
    for rel in nest.stage.relations:
        if isinstance(rel, FuseRel):
            out[rel.fused] = out[rel.outer] * out[rel.inner]
            continue
        n = out[rel.parent]
        if rel.factor is not None:
            out[rel.inner] = least(rel.factor, n)
            out[rel.outer] = ceil_div(n, out[rel.inner])
        else:
            out[rel.inner] = ceil_div(n, rel.nparts)
            out[rel.outer] = rel.nparts
    return out


def _values(stage: StageState, extents: Mapping[str, Number]) -> dict[str, Index]:
    """Every loop of a stage as a sum of steps of those that remain."""
    values = {x: Index(0, (Move((stage.id, x), 1, extents[x]),)) for x in stage.leaves}
    for rel in reversed(stage.relations):
        if isinstance(rel, SplitRel):
            outer = values[rel.outer].times(extents[rel.inner])
            values[rel.parent] = outer + values[rel.inner]
            continue
        fused, length = values[rel.fused], extents[rel.inner]
        if len(fused.moves) == 1:
            (m,) = fused.moves
            values[rel.outer] = Index(0, (Move(m.loop, 1, extents[rel.outer]),))
            values[rel.inner] = Index(0, (Move(m.loop, 1, length),))
            continue
        values[rel.outer], values[rel.inner] = fused.digit(length, None), fused.digit(1, length)
    return values


def _within(stage: StageState, found: Mapping[StageId, StageNest]) -> frozenset[LoopKey]:
    """Loops outside of which the buffer of a stage does not exist."""
    place = stage.store or stage.attach
    if place.kind != "at":
        return frozenset()
    return frozenset(x.key for x in _outside(place.stage, place.loop, found))


def _stored(nest: StageNest, within: frozenset[LoopKey]) -> list[Number]:
    """Extents of the buffer: more than the region where it outlives one computation."""
    if nest.stage.store is None:
        return nest.shape
    indices = [nest.axes[a.var] for a in nest.op.axes]
    return [width([m for m in x.moves if m.loop not in within]) for x in indices]


def _buffer(
    stage: StageState, shape: Sequence[Number], op: OpNode, within: frozenset[LoopKey]
) -> Buffer:
    sources: Sequence[LayoutDim] = [(d, 1, None) for d in range(len(shape))]
    if stage.layout is not None:
        sources = stage.layout
    whole = [Index(0, (Move((stage.id, f"a{d}"), 1, n),)) for d, n in enumerate(shape)]
    dims: list[Dim] = []
    stride: Number = 1
    for source in reversed(sources):
        lo, hi = _placed(source, whole).span()
        extent = hi - lo + 1
        dims.insert(0, Dim(extent, stride, source))
        stride = stride * extent
    return Buffer(stage.id, tuple(dims), dtypes.nbytes(op.dtype), stage.scope, within)


def _placed(source: LayoutDim, indices: Sequence[Index]) -> Index:
    """A dimension of a layout, from the indices of an element."""
    match source:
        case int() | Symbol():
            return Index(source, ())
        case str():
            return indices[int(source[1:])]
        case ("+", a, b):
            return _placed(a, indices) + _placed(b, indices)
        case ("*", a, k):
            return _placed(a, indices).times(k)
        case ("//", a, k):
            return _placed(a, indices).digit(k, None)
        case ("%", a, k):
            return _placed(a, indices).digit(1, k)
        case (int(d), int(div), None) if div == 1:
            return indices[d]
    d, div, mod = source
    return indices[d].digit(div, mod)


def _accesses(
    nest: StageNest, found: Mapping[StageId, StageNest], ops: Mapping[StageId, OpNode]
) -> Iterator[Access]:
    assert nest.buffer is not None
    own = [nest.axes[a.var] for a in nest.op.axes]
    yield _access(nest.buffer, own, True)
    seen: list[Read] = []
    for read in nest.op.reads():
        if any(r is read or r == read for r in seen):
            continue
        seen.append(read)
        source = found[read.source].buffer if read.source in found else None
        if source is None:
            op = ops[read.source]
            source = _buffer(StageState(read.source, op, {}, ()), op.shape, op, frozenset())
        yield _access(source, [index_of(i, nest.axes) for i in read.indices], False)


def _guards(nest: StageNest) -> Iterator[Guard]:
    todo: list[Node] = [] if nest.op.body is None else [*outputs_of(nest.op.body)]
    while todo:
        e = todo.pop()
        todo += [e.a, e.b] if isinstance(e, IfThenElse) else e.children()
        if isinstance(e, IfThenElse):
            # Both ends of a range are one comparison, of an unsigned number.
            yield Guard(tuple(dict.fromkeys(_moved(test, nest) for test in _tests(e.cond))))


def _tests(cond: Expr) -> list[Expr]:
    """The comparisons of a condition."""
    if isinstance(cond, Binary) and cond.op in ("and", "or"):
        return [*_tests(cond.a), *_tests(cond.b)]
    return [cond]


def _moved(test: Expr, nest: StageNest) -> frozenset[LoopKey]:
    """The loops that move the sides of a comparison; those of its variables' axes."""
    found: set[LoopKey] = set()
    todo: list[Node] = [test]
    while todo:
        e = todo.pop()
        todo += e.children()
        if isinstance(e, Var) and e in nest.axes:
            found |= {m.loop for m in nest.axes[e].moves}
    return frozenset(found)


def _access(buffer: Buffer, indices: Sequence[Index | None], write: bool) -> Access:
    kept = [
        Index(0, () if x is None else tuple(m for m in x.moves if m.loop not in buffer.within))
        for x in indices
    ]
    return Access(buffer, write, tuple(_placed(dim.source, kept).moves for dim in buffer.dims))

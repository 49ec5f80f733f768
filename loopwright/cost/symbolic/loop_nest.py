"""Loops, regions and accesses of a schedule whose factors need not be known, for features.

Extents and values of loops are computed by the code that lowering uses
(`loopwright.schedule.bounds.relations`), without a branch on any value: factors are ints, or `Sym`
for a population. The region of an attached stage follows a policy of its own: the hull of what is
read, without guards and without the start of loops, since the decisions of
`loopwright.schedule.bounds.infer` would differ between candidates. So regions are never smaller
than the inferred ones where those are hulls too, and tails count as whole tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from loopwright import dtypes
from loopwright.cost.symbolic.index_steps import (
    LoopKey,
    Move,
    SteppedArithmetic,
    SteppedIndex,
    extent_of,
    index_of,
    width,
)
from loopwright.cost.symbolic.symbols import Number, Sym, at_most, least, most, product, where
from loopwright.ir.expr import Binary, Expr, IfThenElse, Var
from loopwright.ir.instructions import DOT_PRODUCTS, DotProduct
from loopwright.ir.kinds import Scope
from loopwright.ir.node import Node
from loopwright.ir.reduction import outputs_of
from loopwright.ir.stmt import IntrinsicCall
from loopwright.ir.visitor import free_vars, nodes
from loopwright.schedule import (
    LayoutDim,
    SplitRel,
    StageId,
    StageState,
    State,
    cross_tags,
    find_kernels,
    inline_ops,
    loop_extents,
    loop_values,
    memory_scope,
)
from loopwright.te import OpNode


@dataclass(frozen=True, slots=True)
class BufferDim:
    """One dimension of a buffer: extent, stride in elements, and its digit of an index."""

    extent: Number
    stride: Number
    source: LayoutDim


@dataclass(frozen=True, slots=True)
class NestBuffer:
    stage: StageId
    dims: tuple[BufferDim, ...]
    itemsize: int
    scope: Scope  # as `loopwright.schedule.bounds.launches.memory_scope` decides for kernels
    #: loops outside of which it does not exist: they never move an address
    within: frozenset[LoopKey]
    places: Number = 1  # iterations with a place of their own in it (`double_buffer`)
    all_bytes: int = 0  # bytes of an element, with those of the other outputs of the stage
    row_major: bool = False  # it lies as its tensor does, whatever factors are chosen
    #: it is an input, made by the caller: NumPy's arrays begin anywhere in a cache line
    given: bool = False

    def rows_apart(self) -> list[int]:
        """Bytes between neighbours in dimensions but the last; none where factors decide them."""
        dims = self.dims[:-1] if self.row_major else ()
        strides = [d.stride for d in dims if not (isinstance(d.extent, int) and d.extent == 1)]
        return [n * self.itemsize for n in strides if isinstance(n, int)]

    @property
    def elements(self) -> Number:
        return product(d.extent for d in self.dims)

    @property
    def allocated(self) -> Number:
        """Allocated bytes: gaps, places and the other outputs of its stage included."""
        whole = self.dims[0].stride * self.dims[0].extent if self.dims else 1
        return whole * self.places * self.all_bytes


@dataclass(frozen=True, slots=True)
class NestAccess:
    """Load or store of a stage; ``moves`` has the movement of each dimension of the buffer."""

    buffer: NestBuffer
    write: bool
    moves: tuple[tuple[Move, ...], ...]


def buffer_of(
    stage: StageState, shape: Sequence[Number], op: OpNode, within: frozenset[LoopKey]
) -> NestBuffer:
    """Buffer of a stage for a region of ``shape``, which lives inside the loops ``within``."""
    sources: Sequence[LayoutDim] = [(d, 1, None) for d in range(len(shape))]
    if stage.layout is not None:
        sources = stage.layout
    whole = [SteppedIndex(0, (Move((stage.id, f"a{d}"), 1, n),)) for d, n in enumerate(shape)]
    aligned = {dim: (factor, offset) for dim, factor, offset in stage.align}
    dims: list[BufferDim] = []
    stride: Number = 1
    for d, source in reversed(list(enumerate(sources))):
        lo, hi = _placed(source, whole).span()
        extent = hi - lo + 1
        if d in aligned:
            factor, offset = aligned[d]
            stride = stride + (offset - stride) % factor
        dims.insert(0, BufferDim(extent, stride, source))
        stride = stride * extent
    size, every = dtypes.nbytes(op.dtype), sum(map(dtypes.nbytes, op.dtypes))
    return NestBuffer(stage.id, tuple(dims), size, stage.scope, within, all_bytes=every)


def _placed(source: LayoutDim, indices: Sequence[SteppedIndex]) -> SteppedIndex:
    """Dimension of a layout, from the indices of an element."""
    match source:
        case int() | Sym():
            return SteppedIndex(source, ())
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
        case (int(d), div, mod):
            whole = mod is None and isinstance(div, int) and div == 1
            return indices[d] if whole else indices[d].digit(div, mod)


def access_of(
    buffer: NestBuffer, indices: Sequence[SteppedIndex | None], write: bool
) -> NestAccess:
    """Load or store at some indices; None where one is no sum of steps."""
    still = SteppedIndex(0, ())
    moving = [still if x is None else x.without(buffer.within) for x in indices]
    moves = tuple(_placed(dim.source, moving).moves for dim in buffer.dims)
    return NestAccess(buffer, write, moves)


_ARITHMETIC = SteppedArithmetic()
OWN = ("local", "warp")  #: memory that no other thread, or no other warp, has


@dataclass(frozen=True, slots=True)
class NestLoop:
    key: LoopKey  # its stage, and its id there
    extent: Number  # iterations
    kind: str  # ``"spatial"`` or ``"reduce"``
    mark: str  # ``"vectorized"``, ``"unrolled"``, ``"parallel"``, ``"thread"``, or ``""``
    tag: str = ""  # thread axis that it is bound to (``"blockIdx.x"``, ``"vthread"``), or ``""``

    @property
    def in_block(self) -> bool:
        """Whether its iterations are threads, or virtual threads, of one block."""
        return self.mark == "thread" and not self.tag.startswith("blockIdx")


@dataclass(frozen=True, slots=True)
class NestSplit:
    """A loop of ``extent`` iterations, split into two, which have ``slots``; ``loops`` remain.

    Where there are more slots than iterations, a guard stands in the innermost of these.
    """

    loops: frozenset[LoopKey]
    extent: Number
    slots: Number


@dataclass(frozen=True, slots=True)
class ReadCondition:
    """Condition of a read: for each comparison, the loops that move it."""

    tests: tuple[frozenset[LoopKey], ...]

    @property
    def loops(self) -> frozenset[LoopKey]:
        return frozenset().union(*self.tests)


@dataclass(eq=False)
class StageNest:
    stage: StageState
    op: OpNode
    attached: bool  # whether it is computed inside another stage
    scope: Scope = "global"  # memory scope of its results
    root: StageId = -1  # the stage at root that contains it
    kernel: bool = False  # whether it runs in a kernel, on threads of a GPU
    dot: DotProduct | None = None  # CPU instruction that replaces its vectorized loop's body
    loops: tuple[NestLoop, ...] = ()  # all loops around the statement, outermost first
    own: int = 0  # number of its own loops, counted from the inside
    splits: tuple[NestSplit, ...] = ()  # the splits of these loops
    #: each axis of the operation as a sum of steps of these loops
    axes: dict[Var, SteppedIndex] = field(default_factory=dict)
    shape: list[Number] = field(default_factory=list)  # extents of the region that it covers
    buffer: NestBuffer | None = None
    #: its store, then its loads in the order of the expression, each once
    accesses: list[NestAccess] = field(default_factory=list)
    #: conditions of its expression under which it reads (inlined padding)
    conditions: list[ReadCondition] = field(default_factory=list)

    @property
    def iterations(self) -> Number:
        """Runs of the statement in all."""
        return product(x.extent for x in self.loops)


def nests_of(state: State) -> list[StageNest]:
    state, ops = inline_ops(state)
    kernels = find_kernels(state, ops)
    nests: dict[StageId, StageNest] = {}
    for sid in reversed([i for i in state.order if i in ops]):
        if not ops[sid].is_placeholder:
            stage, kernel = state.stages[sid], kernels.get(sid)
            attached = stage.attach.kind == "at"
            scope = memory_scope(state, stage, kernel)
            root = nests[stage.attach.stage].root if attached else sid
            nest = StageNest(stage, ops[sid], attached, scope, root, kernel is not None)
            _fill_in(nest, nests)
            nests[sid] = nest
    out = [nests[i] for i in state.order if i in nests]
    for nest in out:
        stage, within, shape = nest.stage, _within(nest, nests), nest.shape
        if stage.store is not None:  # it outlives one computation of the region
            indices = [nest.axes[a.var] for a in nest.op.axes]
            shape = [width([m for m in x.moves if m.loop not in within]) for x in indices]
        places: Number = 1
        if stage.double is not None and stage.store is None and nest.attached:
            loop = _outside(stage.attach.stage, stage.attach.loop, nests)[-1]
            places = least(stage.copies, loop.extent)
        plain = not nest.attached and stage.layout is None and not stage.align
        buffer = buffer_of(stage, shape, nest.op, within)
        nest.buffer = replace(buffer, scope=nest.scope, places=places, row_major=plain)
    for nest in out:
        nest.accesses = list(_accesses(nest, nests, ops))
        nest.conditions = list(_conditions(nest))
    return out


def _fill_in(nest: StageNest, nests: Mapping[StageId, StageNest]) -> None:
    """Fill in loops, axes and shape of a nest, after those of its readers."""
    stage, op = nest.stage, nest.op
    outside = _around(nest, nests) if nest.attached else ()
    bases = [SteppedIndex(0, ()) for _ in op.shape]
    nest.shape = [extent_of(n) for n in op.shape]
    if nest.attached:
        _cover(nest, bases, outside, nests)
    reduce = [extent_of(a.extent) for a in op.reduce_axes]
    extents = loop_extents(stage, nest.shape, reduce, _ARITHMETIC)
    marks = {x: (m.kind, m.tag) for x, m in stage.marks.items()}
    nest.dot = None
    if stage.tensorized is not None and not stage.tensorized.intrin.of_warp:
        body = stage.tensorized.intrin.body
        calls = [] if body is None else [n for n in nodes(body) if isinstance(n, IntrinsicCall)]
        dots = [DOT_PRODUCTS[n.name] for n in calls if n.name in DOT_PRODUCTS]
        nest.dot = dots[0] if len(dots) == 1 else None
    if nest.dot is not None and stage.tensorized is not None:
        lanes, *inside = stage.leaves[stage.leaves.index(stage.tensorized.loop) :]
        marks |= {lanes: ("vectorized", ""), **dict.fromkeys(inside, ("unrolled", ""))}
    own = tuple(
        NestLoop((stage.id, x), extents[x], stage.loops[x].kind, *marks.get(x, ("", "")))
        for x in stage.leaves
    )
    nest.loops, nest.own = outside + own, len(own)
    leaves = {x.key[1]: SteppedIndex(0, (Move(x.key, 1, x.extent),)) for x in own}
    values = loop_values(stage, leaves, extents, _ARITHMETIC)
    nest.splits = tuple(
        NestSplit(
            frozenset(m.loop for m in values[rel.parent].moves),
            extents[rel.parent],
            extents[rel.outer] * extents[rel.inner],
        )
        for rel in stage.relations
        if isinstance(rel, SplitRel)
    )
    if nest.attached:
        around = {x.key for x in outside}
        nest.splits += tuple(x for x in nests[stage.attach.stage].splits if x.loops <= around)
    for d, axis in enumerate(op.axes):
        local = values[f"a{d}"]
        nest.axes[axis.var] = SteppedIndex(0, bases[d].moves) + local
        if nest.attached:
            nest.shape[d] = most(nest.shape[d], local.width)
    for d, axis in enumerate(op.reduce_axes):
        nest.axes[axis.var] = values[f"r{d}"]


def _around(nest: StageNest, nests: Mapping[StageId, StageNest]) -> tuple[NestLoop, ...]:
    """Loops around an attached stage, in each iteration of which it runs anew.

    Threads of a block compute shared data together, the lanes of a warp its data, and threads that
    share a reduction are its own: loops over these are none of them, and the region serves all.
    """
    outside = _outside(nest.stage.attach.stage, nest.stage.attach.loop, nests)
    if not nest.kernel:
        return outside
    if nest.scope not in OWN:
        return tuple(x for x in outside if not x.in_block)
    gone = {*cross_tags(nest.stage), *(("threadIdx.x",) if nest.scope == "warp" else ())}
    return tuple(x for x in outside if x.tag not in gone)


def _outside(sid: StageId, loop: str, nests: Mapping[StageId, StageNest]) -> tuple[NestLoop, ...]:
    """Loops from the outermost to one of a stage."""
    host = nests[sid]
    return host.loops[: [x.key for x in host.loops].index((sid, loop)) + 1]


def _cover(
    nest: StageNest,
    bases: list[SteppedIndex],
    outside: tuple[NestLoop, ...],
    nests: Mapping[StageId, StageNest],
) -> None:
    """Region of an attached stage: the need of its readers while the loops outside stand.

    ``bases`` gets how the region moves with the loops outside, ``nest.shape`` its extents.
    """
    still = {x.key for x in outside}
    sid = nest.stage.id
    readers = [(n, r) for n in nests.values() for r in n.op.distinct_reads if r.source == sid]
    padded = any(n.attached for n, _ in readers)
    same = {n.stage.id: _same_threads(n, outside) for n, _ in readers}
    for d, extent in enumerate(map(extent_of, nest.op.shape)):
        indices = [(index_of(r.indices[d], n.axes), same[n.stage.id]) for n, r in readers]
        hull = _hull([None if x is None else x.along(loops) for x, loops in indices], still)
        if hull is None:
            continue
        moving, wide = hull
        if not padded:
            # A region that is the whole dimension stands at its beginning.
            part = at_most(wide, extent - 1)
            moving = tuple(replace(m, count=where(part, m.count, 1)) for m in moving)
            wide = least(wide, extent)
        bases[d], nest.shape[d] = SteppedIndex(0, moving), wide


def _same_threads(reader: StageNest, outside: Sequence[NestLoop]) -> dict[LoopKey, LoopKey]:
    """Loops of a reader and outside loops bound to the same axis: a thread has one value."""
    tags = {x.tag: x.key for x in outside if x.mark == "thread" and x.tag != "vthread"}
    return {x.key: tags[x.tag] for x in reader.loops if x.tag in tags}


def _hull(
    indices: Sequence[SteppedIndex | None], still: set[LoopKey]
) -> tuple[tuple[Move, ...], Number] | None:
    """Movement of all reads of a dimension with fixed loops, and their spread; None: all of it."""
    steps = [x for x in indices if x is not None]
    if not steps or len(steps) < len(indices):
        return None
    moving = [tuple(m for m in x.moves if m.loop in still) for x in steps]
    if any(_alike(m) != _alike(moving[0]) for m in moving[1:]):
        return None
    spans = [x.without(still).span() for x in steps]
    lo, hi = spans[0]
    for a, b in spans[1:]:
        lo, hi = least(lo, a), most(hi, b)
    return moving[0], hi - lo + 1


def _alike(moves: Sequence[Move]) -> list[tuple[str, str]]:
    """Moves in a form in which two equal sets of them are equal."""
    return sorted((repr(m.loop), repr(m.step)) for m in moves)


def _within(nest: StageNest, nests: Mapping[StageId, StageNest]) -> frozenset[LoopKey]:
    """Loops outside of which the buffer of a stage does not exist.

    Threads of a block have one buffer where they share it. Loops of its kernel bound to the same
    axes are none of its buffer's either: a thread has one value of all of them.
    """
    place = nest.stage.store or nest.stage.attach
    if place.kind != "at":
        return frozenset()
    outside = _outside(place.stage, place.loop, nests)
    if not nest.kernel or nest.scope == "local":
        kept = outside
    elif nest.scope == "warp":
        kept = tuple(x for x in outside if x.tag != "threadIdx.x")
    else:
        kept = tuple(x for x in outside if not x.in_block)
    mates = [n for n in nests.values() if n.kernel and n.root == nest.root]
    return frozenset(x.key for x in kept).union(*(_same_threads(n, kept) for n in mates))


def _accesses(
    nest: StageNest, nests: Mapping[StageId, StageNest], ops: Mapping[StageId, OpNode]
) -> Iterator[NestAccess]:
    assert nest.buffer is not None
    yield access_of(nest.buffer, [nest.axes[a.var] for a in nest.op.axes], True)
    for read in nest.op.distinct_reads:
        source = nests[read.source].buffer if read.source in nests else None
        if source is None:
            op = ops[read.source]
            shape = [extent_of(n) for n in op.shape]
            source = buffer_of(StageState(read.source, op, {}, ()), shape, op, frozenset())
            source = replace(source, row_major=True, given=not op.constant)
        yield access_of(source, [index_of(i, nest.axes) for i in read.indices], False)


def _conditions(nest: StageNest) -> Iterator[ReadCondition]:
    todo: list[Node] = [] if nest.op.body is None else [*outputs_of(nest.op.body)]
    while todo:
        e = todo.pop()
        todo += [e.a, e.b] if isinstance(e, IfThenElse) else e.children()
        if isinstance(e, IfThenElse):
            # Both ends of a range are one comparison, of an unsigned number.
            tests = dict.fromkeys(
                frozenset(
                    m.loop for v in free_vars(test) if v in nest.axes for m in nest.axes[v].moves
                )
                for test in _tests(e.cond)
            )
            yield ReadCondition(tuple(tests))


def _tests(cond: Expr) -> list[Expr]:
    if isinstance(cond, Binary) and cond.op in ("and", "or"):
        return [*_tests(cond.a), *_tests(cond.b)]
    return [cond]

"""Reductions in the nest of a stage: their start, accumulation and end."""

# The nest that starts the elements stands just outside the outermost reduction loop and repeats
# only the loops over elements inside it. `VectorReduction` and `CrossThread` add into accumulators
# of their own, started and written by nests with the same loops.

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce as fold
from math import prod

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Dim, Expr, IfThenElse, Select, Var, as_expr, binary, const
from loopwright.ir.kinds import LoopKind
from loopwright.ir.reduction import Combiner, Reduce
from loopwright.ir.stmt import AllReduce, For, If, Let, Stmt, Store, seq
from loopwright.ir.visitor import contains, free_vars, substitute
from loopwright.lowering.nest.buffers import allocated
from loopwright.lowering.nest.tensorize import Tensorization
from loopwright.lowering.nest.values import StageValues
from loopwright.schedule import LoopBound, StageBounds, cross_tags

#: Most accumulators of a tile whose elements are combined together: it is kept in registers.
MAX_TILE = 1024


def vector_reduction_of(sb: StageBounds, label: str) -> VectorReduction | None:
    red = sb.op.reduction
    for p, x in enumerate(sb.loops):
        vectorized = x.mark is not None and x.mark.kind == "vectorized" and x.count > 1
        if red is not None and vectorized and x.loop.kind == "reduce":
            return VectorReduction(f"{label}.lanes", sb, p, red.combiner)
    return None


# ---------------------------------------------------------------- along vectors
#
# Reductions over a vectorized loop of n iterations: each element has n accumulators side by
# side, one for each lane. They start from the reducer's identity and are combined in halves,
# and with ``init``, after the outermost reduction loop: valid since a reducer is commutative
# and associative. Accumulators accessed at constant places, in pieces of the native vector
# length, become registers.


class VectorReduction:
    def __init__(self, name: str, sb: StageBounds, position: int, combiner: Combiner) -> None:
        #: Index of the vectorized reduction loop.
        self.position, self.name, self.combiner = position, name, combiner
        self.types = sb.op.dtypes
        #: Variable of the vectorized loop, and its extent ``count``.
        self.lane, self.count = sb.loops[position].var, sb.loops[position].count
        tile = tile_loops(sb)
        #: Variables and extents of the loops over elements inside the outermost reduction loop.
        self.element: tuple[Expr, ...] = tuple(x.var for x in tile)
        self.extents = tuple(sb.sizes.dim(x.extent) for x in tile)
        unrolled = all(x.mark is not None and x.mark.kind == "unrolled" for x in tile)
        #: Number of these elements where all their loops are unrolled, else 0.
        self.points = prod(x.count for x in tile) if unrolled else 0
        power_of_two = self.count & (self.count - 1) == 0
        #: Whether the elements are combined together (`fold_tile`), not one by one.
        self.whole_tile = power_of_two and 1 < self.points <= MAX_TILE // self.count
        self.begin()

    def begin(self) -> None:
        """Take new accumulators: each copy of a nest has its own."""
        shape = (self.points * self.count,) if self.whole_tile else (*self.extents, self.count)
        #: The accumulators of each output: flat where ``whole_tile``, else with a dimension for
        #: each loop over elements and one for the lanes.
        self.buffers = accumulators(self.name, shape, self.types)

    def _at(self, lane: Expr) -> tuple[Expr, ...]:
        return (self._flat_index(self.count, lane),) if self.whole_tile else (*self.element, lane)

    def _flat_index(self, count: int, lane: Expr) -> Expr:
        out: Expr = as_expr(0)
        for var, extent in zip(self.element, self.extents, strict=True):
            out = out * extent + var
        return out * count + lane

    def _load(self, lane: Expr) -> list[Expr]:
        return [Load(b, self._at(lane), b.dtype) for b in self.buffers]

    def start(self) -> Stmt:
        lane = Var(self.lane.name)
        set_lane = write_all(self.buffers, self._at(lane), self.combiner.identity)
        return For(lane, self.count, "vectorized", set_lane)

    def update(self, values: list[Expr], guards: list[Expr], where: Expr | None) -> Stmt:
        """Combine values, one for each output, into the accumulators of one lane."""
        # Where a guard or ``where`` does not hold, the old value is stored again: a masked store
        # would keep the accumulators in memory.
        old = self._load(self.lane)
        cond = _conjunction(guards, where)
        if cond is not None:
            values = [
                IfThenElse(cond, v, const(0, v.dtype), v.dtype) if contains(v, Load) else v
                for v in values
            ]

        def chosen(k: int, new: Expr) -> Expr:
            return new if cond is None else Select(cond, new, old[k], new.dtype)

        at = self._at(self.lane)
        return combine_into(self.buffers, at, self.combiner, old, values, self.name, chosen)

    def fold_tile(
        self,
        over_elements: Callable[[Stmt], Stmt],
        buffers: Sequence[Buffer],
        indices: tuple[Expr, ...],
        init: Sequence[Expr] | None,
    ) -> Stmt:
        """Combine the lanes of all elements of a tile together, then write the elements, which
        ``over_elements`` puts the loops over the tile around."""
        # Halves of two elements' lanes are interleaved and combined by one vector operation, and so
        # on with the results, so a tile of 16 elements of 16 lanes takes 15 vector operations
        # instead of 64.
        steps: list[Stmt] = []
        partial: list[Buffer] = []
        old, rows, width, mixed = self.buffers, self.points, self.count, 1
        while width > mixed:
            pairs = rows % 2 == 0
            rows, wide = (rows // 2, width) if pairs else (rows, width // 2)
            new = accumulators(self.name, (rows * wide,), self.types)
            steps.append(self._fold_level(old, new, rows, width, pairs))
            partial += new
            old, width, mixed = new, wide, mixed * 2 if pairs else mixed
        point = self._flat_index(1, as_expr(0))
        at = point % rows * width + point // rows
        values: list[Expr] = [Load(b, (at,), b.dtype) for b in old]
        write = write_all(buffers, indices, values)
        if init is not None:
            write = combine_into(buffers, indices, self.combiner, init, values, self.name)
        return allocated(partial, seq(*steps, over_elements(write)))

    def _fold_level(
        self, old: list[Buffer], new: list[Buffer], rows: int, width: int, pairs: bool
    ) -> Stmt:
        """Combine the upper halves of rows with the lower ones; of pairs of rows, interleaved."""
        lane, half = Var(self.lane.name), width // 2
        if pairs:
            row, at = lane // width + lane % 2 * rows, lane // 2 % half
        else:
            row, at = lane // half, lane % half
        near = row * width + at
        a, b = ([Load(x, (i,), x.dtype) for x in old] for i in (near, near + half))
        body = combine_into(new, (lane,), self.combiner, a, b, self.name)
        return For(lane, new[0].size, "vectorized", body)

    def end(
        self, buffers: Sequence[Buffer], indices: tuple[Expr, ...], init: Sequence[Expr] | None
    ) -> Stmt:
        steps: list[Stmt] = []
        count = self.count
        while count > 2:
            half = 1 << ((count - 1).bit_length() - 1)
            # Each of the first lanes is combined with the one at the distance of half of them.
            lane = Var(self.lane.name)
            at: Expr = lane if count - half > 1 else as_expr(0)
            near, far = self._load(at), self._load(binary("+", at, half))
            step = combine_into(self.buffers, self._at(at), self.combiner, near, far, self.name)
            if count - half > 1:
                step = For(lane, count - half, "vectorized", step)
            steps.append(step)
            count = half
        left, right = self._load(as_expr(0)), self._load(as_expr(1))
        if init is not None:
            left, right = list(init), list(self.combiner.combine(left, right))
        return seq(*steps, combine_into(buffers, indices, self.combiner, left, right, self.name))


def _conjunction(guards: list[Expr], where: Expr | None) -> Expr | None:
    """Guards and the reduction's own condition, which is evaluated only where the guards hold."""
    inside = fold(lambda a, b: Binary("and", a, b, "bool"), guards) if guards else None
    if where is None or inside is None:
        return where if inside is None else inside
    if contains(where, Load):
        return IfThenElse(inside, where, const(0, "bool"), "bool")
    return Binary("and", inside, where, "bool")


def cross_thread_of(sb: StageBounds, label: str) -> CrossThread | None:
    tags, reduces = tuple(cross_tags(sb.stage)), sb.op.reduction is not None
    return CrossThread(f"{label}.acc", sb, tags) if tags and reduces else None


# ---------------------------------------------------------------- across threads
#
# Reductions whose loops are bound to threads: each accumulates in a local buffer, `AllReduce`
# combines the results, and one thread stores them. Guards that differ between threads stand around
# accumulation and store only, so that every thread takes part in the combination.


class CrossThread:
    def __init__(self, name: str, sb: StageBounds, tags: tuple[str, ...]) -> None:
        assert sb.op.reduction is not None
        assert sb.kernel is not None
        self.tags, self.combiner, self.name = tags, sb.op.reduction.combiner, name
        tile = tile_loops(sb)
        #: The place of the element at hand in them.
        self.element: tuple[Expr, ...] = tuple(x.var for x in tile)
        #: The accumulators of one thread, one for each output.
        self.buffers = accumulators(name, tuple(sb.sizes.dim(x.extent) for x in tile), sb.op.dtypes)
        # In local memory every thread keeps the result; else one thread stores it.
        axes = [] if sb.scope == "local" else [sb.kernel.launches[t] for t in tags]
        chosen = dict(sb.stage.predicate or ())
        #: Thread axes with their values in the thread that stores the result.
        self.writer = [(x.var, chosen.get(x.tag, 0)) for x in axes if x.extent != 1]

    def _load(self) -> list[Expr]:
        return [Load(b, self.element, b.dtype) for b in self.buffers]

    def start(self) -> Stmt:
        return write_all(self.buffers, self.element, self.combiner.identity)

    def update(self, values: Sequence[Expr]) -> Stmt:
        return combine_into(
            self.buffers, self.element, self.combiner, self._load(), values, self.name
        )

    def combine(self) -> Stmt:
        return AllReduce(self.combiner, tuple(self.buffers), self.element, self.tags)

    def store(
        self, buffers: Sequence[Buffer], indices: tuple[Expr, ...], init: Sequence[Expr] | None
    ) -> Stmt:
        """Store the result as the element; where threads share the buffer, one thread does."""
        out = write_all(buffers, indices, self._load())
        if init is not None:
            out = combine_into(buffers, indices, self.combiner, init, self._load(), self.name)
        for var, n in reversed(self.writer):
            out = If(binary("==", var, n), out)
        return out


def first_reduction_loop(sb: StageBounds) -> int:
    return next(p for p, x in enumerate(sb.loops) if x.loop.kind == "reduce")


def tile_loops(sb: StageBounds) -> list[LoopBound]:
    """The loops over elements inside the outermost reduction loop, each a dimension of
    accumulators; without those over threads, which have accumulators of their own."""
    return [
        x
        for x in sb.loops[first_reduction_loop(sb) :]
        if x.loop.kind != "reduce" and x.extent != 1 and sb.launch_var(x) is None
    ]


def accumulators(name: str, shape: tuple[Dim, ...], types: Sequence[str]) -> list[Buffer]:
    names = [name] if len(types) == 1 else [f"{name}.v{k}" for k in range(len(types))]
    return [Buffer(n, shape, t, "local") for n, t in zip(names, types, strict=True)]


Indices = tuple[Expr, ...]


def write_all(
    buffers: Sequence[Buffer], indices: Indices, values: Sequence[Expr], nontemporal: bool = False
) -> Stmt:
    """A store for each output; no value may read what is stored."""
    return seq(*(Store(b, indices, v, nontemporal) for b, v in zip(buffers, values, strict=True)))


def combine_into(
    buffers: Sequence[Buffer],
    indices: Indices,
    combiner: Combiner,
    a: Sequence[Expr],
    b: Sequence[Expr],
    label: str,
    chosen: Callable[[int, Expr], Expr] = lambda _, value: value,
) -> Stmt:
    """Store the combination of ``a`` and ``b``, which have one expression for each output, as
    ``chosen(number of the output, value)``."""
    # Operands and results of several outputs are first bound to variables whose names begin with
    # ``label``, so that no store changes an operand of another output.
    if len(buffers) == 1:
        (whole,) = combiner.combine(a, b)
        return Store(buffers[0], indices, chosen(0, whole))
    lets: list[tuple[Var, Expr]] = []

    def named(name: str, items: Sequence[Expr]) -> list[Var]:
        variables = [Var(f"{label}.{name}{k}", e.dtype) for k, e in enumerate(items)]
        lets.extend(zip(variables, items, strict=True))
        return variables

    new = named("new", combiner.combine(named("old", a), named("x", b)))
    out = write_all(buffers, indices, [chosen(k, v) for k, v in enumerate(new)])
    for var, value in reversed(lets):
        out = Let(var, value, out)
    return out


class Reduction:
    def __init__(
        self,
        values: StageValues,
        vector: VectorReduction | None,
        cross: CrossThread | None,
        tensor: Tensorization | None,
    ) -> None:
        self.values, self.b, self.sb, self.guards = values, values.b, values.sb, values.guards
        assert self.sb.op.reduction is not None
        #: Reductions that are not by plain loops only; None for others.
        self.vector, self.cross, self.tensor = vector, cross, tensor
        self.red = self.sb.op.reduction
        self.buffers = self.b.of[self.sb.stage.id]
        #: The outermost reduction loop.
        self.first = first_reduction_loop(self.sb)

    def update(self, body: Reduce) -> Stmt:
        indices = self.values.own_element()
        values = [self.values.of(e) for e in body.source]
        asked = None if self.guards.reduces_all() else body.where
        if self.vector is not None:
            of_lanes = [g for g in self.sb.guards if self.guards.in_lanes(g)]
            conds = [c for g in of_lanes for c in self.guards.conditions(g)]
            where = None if asked is None else self.values.of(asked)
            return self.vector.update(values, conds, where)
        if self.cross is not None:
            update = self.cross.update(values)
        else:
            old = [Load(b, indices, b.dtype) for b in self.buffers]
            label = self.b.state.label(self.sb.stage.id)
            update = combine_into(self.buffers, indices, body.combiner, old, values, label)
        return update if asked is None else If(self.values.of(asked), update)

    def around(self, loops: Stmt) -> Stmt:
        """The outermost reduction loop between the nests that start and that end the reduction."""
        if self.cross is not None:
            store = self.cross.store(self.buffers, self.values.own_element(), self._init())
            whole = seq(
                self._over_elements(self.cross.start(), guarded=False),
                loops,
                self._over_elements(self.cross.combine(), guarded=False),
                self._over_elements(store),
            )
            return allocated(self.cross.buffers, whole)
        if self.vector is not None:
            init, own = self._init(), self.values.own_element()
            begin = self._over_elements(self.vector.start(), guarded=False)
            if self.vector.whole_tile:
                end = self.vector.fold_tile(self._over_elements, self.buffers, own, init)
            else:
                end = self._over_elements(self.vector.end(self.buffers, own, init))
            return allocated(self.vector.buffers, seq(begin, loops, end))
        return seq(self._start(), loops)

    def _start(self) -> Stmt:
        tensor, spatial = self.tensor, [g for g in self.sb.guards if g.kind != "reduce"]
        if tensor is not None and self.first < tensor.position and self.red.init is None:
            part = tensor.intrin.reset
            if part is not None and not any(self.guards.conditions(g) for g in spatial):
                return self._over_elements(tensor.operate(part, self.values), upto=tensor.position)
        start = [self.values.of(e) for e in self.red.start]
        return self._over_elements(write_all(self.buffers, self.values.own_element(), start))

    def _init(self) -> list[Expr] | None:
        init = self.red.init
        return None if init is None else [self.values.of(e) for e in init]

    def _over_elements(self, body: Stmt, guarded: bool = True, upto: int | None = None) -> Stmt:
        """``body``, the statement for one element, over the loops over elements inside ``first``,
        up to ``upto``; with ``guarded`` only for elements that the stage's guards let through."""
        assumed = self.guards.assumed
        spatial = [g for g in self.sb.guards if g.kind != "reduce" and g not in assumed]
        guards = spatial if guarded else []
        # Variables that the statement needs, and the new ones of this copy of their loops.
        needed = free_vars(body).union(*(g.value.terms for g in guards))
        renamed: dict[Var, Expr] = {}
        last = len(self.sb.loops) if upto is None else upto
        for p in range(last - 1, self.first - 1, -1):
            body = self.guards.around([g for g in guards if self.guards.position(g) == p], body)
            for var, value in reversed(self.sb.lets[p + 1]):
                if var in needed:
                    renamed[var] = fresh = Var(var.name, var.dtype)
                    body = Let(fresh, value, body)
                    needed |= free_vars(value)
            body = self._in_loop(self.sb.loops[p], body, renamed)
        return substitute(body, renamed)

    def _in_loop(self, x: LoopBound, body: Stmt, renamed: dict[Var, Expr]) -> Stmt:
        axis = self.sb.launch_var(x)
        if axis is not None:
            if axis is not x.var:
                renamed[x.var] = fresh = Var(x.var.name, x.var.dtype)
                body = Let(fresh, axis, body)
            return body
        if x.loop.kind == "reduce" or x.extent == 1:
            return body
        renamed[x.var] = fresh = Var(x.var.name, x.var.dtype)
        self.sb.sizes.ranges.enter(fresh, x.extent)
        kind: LoopKind = x.mark.kind if x.mark else "serial"
        tag = x.mark.tag if x.mark else ""
        return For(fresh, self.sb.sizes.dim(x.written), kind, body, (), tag)

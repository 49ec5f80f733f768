"""From bounds to loops: one nest a stage, producers inside the loops where they are attached.

Layout of a stage's nest at loop p, outermost first: definitions, guards that are decided there,
producers attached there, and the loops further in. A reduction's init nest stands just outside its
outermost reduction loop and repeats only the spatial loops inside it.

Partition: where guards remain, the nest below the outermost guarded loop is made twice, once for
the part where all guards hold for the whole tile (hot, no tests inside) and once as it is, and one
test a tile chooses. More copies are never made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce as fold
from typing import Any

from loopwright.errors import LowerError
from loopwright.ir.affine import Affine, fits, interval, to_affine
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    IfThenElse,
    Read,
    Select,
    Var,
    binary,
    cast,
    const,
)
from loopwright.ir.reduction import Reduce, outputs_of
from loopwright.ir.sizes import form_expr
from loopwright.ir.stmt import Allocate, For, If, Let, Seq, Stmt, seq
from loopwright.ir.traversal import free_vars, substitute
from loopwright.lower.cross_thread import CrossThread, cross_thread_of
from loopwright.lower.lanes import lanes_of
from loopwright.lower.launch import launch
from loopwright.lower.placing import as_index, padding_of, placed
from loopwright.lower.prefetch import prefetched
from loopwright.lower.size_lets import define_sizes
from loopwright.lower.tensorize import Tensorization
from loopwright.lower.together import combine_into, write_all
from loopwright.schedule.bounds import Bounds, Guard, LoopBound, StageBounds, attach_position
from loopwright.schedule.layout import layout_shape
from loopwright.schedule.state import StageId, State
from loopwright.schedule.storage import aligned_strides, store_position
from loopwright.schedule.validate import MAX_VECTOR

#: Largest product of unrolled extents for which a tail copy of the nest is made, by default.
PARTITION_CAP = 512


class NestBuilder:
    """Builds the statement of a whole schedule.

    ``params`` are the argument buffers by stage and output; ``buffers`` has one an output.
    """

    def __init__(
        self,
        state: State,
        bounds: Bounds,
        params: dict[tuple[StageId, int], Buffer],
        partition_cap: int = PARTITION_CAP,
    ) -> None:
        self.state, self.bounds = state, bounds
        self.partition_cap = partition_cap
        self.buffers: dict[StageId, tuple[Buffer, ...]] = {
            sid: (b,) for (sid, _), b in params.items() if state.stages[sid].op.is_placeholder
        }
        self.params = set(params.values())
        self._attached: dict[tuple[StageId, int], list[StageBounds]] = {}
        self._stored: dict[tuple[StageId, int], list[StageBounds]] = {}
        for sid in state.order:
            sb = bounds.stages.get(sid)
            if sb is None:
                continue
            self.buffers[sid] = tuple(
                params.get((sid, k)) or self._make_buffer(sb, k) for k in range(sb.op.num_outputs)
            )
            if sb.padded:
                host, pos = attach_position(state, sb.stage, bounds)
                self._attached.setdefault((host.stage.id, pos), []).append(sb)
            if sb.stage.store is not None:
                self._stored.setdefault(store_position(state, sb.stage), []).append(sb)

    def build(self) -> Stmt:
        """All root stages, in topological order."""
        order = [self.bounds.stages[i] for i in self.state.order if i in self.bounds.stages]
        body = self._produce([sb for sb in order if not sb.padded], Seq(()))
        return define_sizes(body, self.bounds.sizes)

    def _produce(
        self, group: Iterable[StageBounds], rest: Stmt, loop: LoopBound | None = None
    ) -> Stmt:
        """The nests of a group of stages, then ``rest``; buffers live as long as they are used."""
        for sb in reversed(list(group)):
            nest = _Nest(self, sb).build()
            if sb.kernel is not None and not sb.padded:
                nest = launch(self.state, self.bounds, sb.kernel, nest)
            if sb.stage.store is None:
                nest = seq(self._padding(sb), nest)
            own = [b for b in self.buffers[sb.stage.id] if b not in self.params]
            if sb.stage.store is not None or not own:
                rest = seq(nest, rest)
            elif sb.stage.double is not None and loop is not None and loop.extent != 1:
                rest = _in_halves(own, nest, rest, loop.var)
            else:
                rest = _allocated(own, seq(nest, rest))
        return rest

    def stored(self, sid: StageId, pos: int, body: Stmt) -> Stmt:
        """A statement with the buffers around it that exist inside loop ``pos`` of a stage."""
        for sb in self._stored.get((sid, pos), []):
            body = _allocated(self.buffers[sb.stage.id], seq(self._padding(sb), body))
        return body

    def _padding(self, sb: StageBounds) -> Stmt:
        """What fills the padding of a stage's buffers, if that was asked for."""
        pad = sb.stage.pad_value
        if pad is None:
            return Seq(())
        fill = padding_of(self.buffers[sb.stage.id], sb.shape, pad)
        if sb.kernel is None or sb.scope != "shared" or fill == Seq(()):
            return fill
        threads = [binary("<", x.var, 1) for x in sb.kernel.threads() if x.extent != 1]
        return If(_all(threads), fill) if threads else fill

    def attached(self, sid: StageId, pos: int) -> list[StageBounds]:
        """Stages computed at loop ``pos`` of a stage."""
        return self._attached.get((sid, pos), [])

    def _make_buffer(self, sb: StageBounds, k: int) -> Buffer:
        shape, sizes = tuple(sb.shape), self.bounds.sizes
        if sb.stage.layout is not None:
            shape = layout_shape(shape, sb.stage.layout, sizes)
        dims = tuple(sizes.dim(n) for n in shape)
        strides = aligned_strides(dims, sb.stage.align)
        name = self.state.output_label(sb.stage.id, k)
        return Buffer(name, dims, sb.op.dtypes[k], sb.scope, strides)

    def element(self, sid: StageId, indices: list[Affine | Expr]) -> tuple[Expr, ...]:
        """Indices into a stage's buffer for an element of its tensor."""
        sb = self.bounds.stages.get(sid)
        if sb is None:
            return tuple(as_index(i) for i in indices)
        local = [_minus(i, b) for i, b in zip(indices, sb.base, strict=True)]
        if sb.stage.layout is None:
            return tuple(as_index(i) for i in local)
        return placed(sb.stage.layout, local, tuple(sb.shape), self.bounds.ranges)

    def in_buffer(self, sid: StageId, indices: list[Affine | Expr]) -> list[bool]:
        """For each dimension, whether the index provably lies in the buffer."""
        sb = self.bounds.stages.get(sid)
        op = self.bounds.ops[sid]
        ranges, sizes = self.bounds.ranges, self.bounds.sizes
        shape = sb.shape if sb is not None else [sizes.of(n) for n in op.shape]
        out = []
        for d, i in enumerate(indices):
            local = _minus(i, sb.base[d]) if sb is not None else i
            if isinstance(local, Affine):
                past = (local - shape[d]).bounds(ranges)[1]
                out.append(local.bounds(ranges)[0] >= 0 and past < 0)
                continue
            b = interval(local, {}, ranges) or (-1, -1)
            out.append(b[0] >= 0 and (Affine(b[1]) - shape[d]).bounds(ranges)[1] < 0)
        return out


def _allocated(buffers: Sequence[Buffer], body: Stmt) -> Stmt:
    for b in reversed(buffers):
        body = Allocate(b, body)
    return body


def _in_halves(buffers: Sequence[Buffer], fill: Stmt, rest: Stmt, var: Var) -> Stmt:
    """Marked allocations; what fills all buffers stands in the innermost."""
    for b in reversed(buffers):
        rest, fill = Allocate(b, Seq((fill, rest)), var), Seq(())
    return rest


def _minus(i: Affine | Expr, base: Affine) -> Affine | Expr:
    if isinstance(i, Affine):
        return i - base
    return i if base == Affine(0) else binary("-", i, base.to_expr())


class _Nest:
    """The nest of one stage. ``assumed`` are guards that hold in the copy being built."""

    def __init__(self, builder: NestBuilder, sb: StageBounds) -> None:
        self.b, self.sb = builder, sb
        self.ranges = builder.bounds.ranges
        self.buffers = builder.buffers[sb.stage.id]
        self.assumed: set[Guard] = set()
        self.tested: set[Guard] = set()
        self.facts: list[tuple[Affine, int]] = []
        kinds = [x.loop.kind for x in sb.loops]
        has_reduce = sb.op.reduction is not None
        self.first_reduce = kinds.index("reduce") if has_reduce else -1
        self.lanes = lanes_of(builder, sb)
        self.cross = cross_thread_of(builder, sb)
        self.tensor = Tensorization(builder, sb) if sb.stage.tensorized is not None else None
        self.late = self._late_position()
        self.split_at = self._partition_point()

    def build(self) -> Stmt:
        return self._entered(-1)

    # ------------------------------------------------------------ the loops

    def _loop(self, i: int) -> Stmt:
        """Loop i and everything in it."""
        if self.tensor is not None and i == self.tensor.position:
            return self._tensorized(self.tensor)
        return self._plain_loop(i)

    def _plain_loop(self, i: int) -> Stmt:
        if i == len(self.sb.loops):
            return self._statement()
        x = self.sb.loops[i]
        if i == self.first_reduce and self.lanes is not None:
            self.lanes.begin()
        inner = self._entered(i)
        body = inner
        axis = self.sb.launch_var(x)
        if axis is not None:
            body = inner if axis is x.var else Let(x.var, axis, inner)
        elif x.extent != 1:
            pragmas = tuple((k, v) for lid, k, v in self.sb.stage.pragmas if lid == x.loop.id)
            kind = x.mark.kind if x.mark else self._unmarked(i)
            extent, tag = self.sb.sizes.dim(x.extent), x.mark.tag if x.mark else ""
            body = For(x.var, extent, kind, inner, pragmas, tag)
        if i != self.first_reduce:
            return body
        if self.cross is not None:
            return self._reduce_threads(self.cross, i, body)
        return self._init(i, body) if self.lanes is None else self._reduce_lanes(i, body)

    def _entered(self, p: int) -> Stmt:
        """What stands directly inside loop p (-1: outside all loops)."""
        if p == self.split_at and not self.assumed:
            inner = self._two_copies(p)
        else:
            inner = self._loop(p + 1)
        here = [g for g in self.sb.guards if self._tested_at(g, p)]
        inner = self._guarded([g for g in here if self._differs(g)], inner)
        if p >= 0:
            attached = self.b.attached(self.sb.stage.id, p)
            inner = self.b._produce(attached, inner, self.sb.loops[p])
            inner = prefetched(self.b, self.sb, p, inner)
        inner = self.b.stored(self.sb.stage.id, p, inner)
        inner = self._guarded([g for g in here if not self._differs(g)], inner)
        for var, value in reversed(self.sb.lets[p + 1]):
            inner = Let(var, value, inner)
        return inner

    def _tested_at(self, g: Guard, p: int) -> bool:
        """Whether a guard is tested on entering loop p; those of lanes are tested a lane."""
        return self._position(g) == p and not self._in_lanes(g)

    def _in_lanes(self, g: Guard) -> bool:
        lanes = self.lanes
        return lanes is not None and g.kind == "reduce" and self._position(g) >= lanes.position

    def _guarded(self, guards: list[Guard], body: Stmt) -> Stmt:
        conds = [c for g in guards for c in self._conditions(g)]
        return If(_all(conds), body) if conds else body

    def _position(self, g: Guard) -> int:
        known = max((self.sb.position.get(v, -1) for v in g.value.terms), default=-1)
        return max(known, self.late) if self._differs(g) else known

    def _differs(self, g: Guard) -> bool:
        """Whether the threads of a block may differ about a guard."""
        kernel = self.sb.kernel
        return kernel is not None and any(v in kernel.varying for v in g.value.terms)

    def _late_position(self) -> int:
        """The loop inside which guards that differ between threads are tested.

        All threads fill the shared buffers of stages computed inside, and reduce together.
        """
        if self.sb.kernel is None:
            return -1
        loops = range(len(self.sb.loops))
        attached = [p for p in loops if self.b.attached(self.sb.stage.id, p)]
        meet = self.cross is not None or self.sb.scope == "shared"
        return max([-1, *attached, *([self.first_reduce] if meet else [])])

    def _conditions(self, g: Guard) -> list[Expr]:
        if g in self.assumed:
            return []
        value, out = g.value.to_expr(), []
        if g.nonnegative and not self._known(g.value * -1, 0):
            out.append(binary(">=", value, 0))
        if g.below is not None and not self._known(g.value - g.below, -1):
            out.append(binary("<", value, self.sb.sizes.dim(g.below)))
        if out:
            self.tested.add(g)
        return out

    def _init(self, first: int, loops: Stmt) -> Stmt:
        """The reduction after a nest that sets its elements to the reducer's start."""
        red = self.sb.op.reduction
        assert red is not None
        reset = None
        if self.tensor is not None and first < self.tensor.position:
            reset = self._reset(first, self.tensor)
        if reset is not None:
            return seq(reset, loops)
        start = [self._value(e) for e in red.start]
        begin = write_all(self.buffers, self._own_element(), start)
        return seq(self._each_element(first, begin), loops)

    def _tensorized(self, tensor: Tensorization) -> Stmt:
        """The intrinsic; the nest as it is where a guard is left, as in the copy for tails."""
        outer, self.tested = self.tested, set()
        plain = self._plain_loop(tensor.position)
        guarded, self.tested = bool(self.tested), outer | self.tested
        part = tensor.intrin.body if tensor.match.whole else tensor.intrin.update
        made = self._operands(tensor, part)
        return plain if guarded else made

    def _unmarked(self, i: int) -> str:
        """Kind of a loop without a mark; a tensorized one is a vector in tails, where it can be.

        So accumulators stay in registers though tails touch them as well.
        """
        loops = self.sb.loops
        if self.tensor is None or i != self.tensor.position or loops[i].loop.kind == "reduce":
            return "serial"
        alone = all(x.loop.kind == "reduce" or x.extent == 1 for x in loops[i + 1 :])
        return "vectorized" if alone and loops[i].count <= MAX_VECTOR else "serial"

    def _operands(self, tensor: Tensorization, part: Any) -> Stmt:
        """A body of the intrinsic over the buffers of the stage."""
        tested = set(self.tested)
        reads = {k: self._element_of(r) for k, r in tensor.match.reads.items()}
        self.tested = tested
        return tensor.statement(part, self._own_element(), reads)

    def _reset(self, first: int, tensor: Tensorization) -> Stmt | None:
        """What starts a reduction by the intrinsic's own means, where nothing is guarded."""
        red, part = self.sb.op.reduction, tensor.intrin.reset
        assert red is not None
        spatial = [g for g in self.sb.guards if g.kind != "reduce"]
        if part is None or red.init is not None or any(self._conditions(g) for g in spatial):
            return None
        return self._each_element(first, self._operands(tensor, part), upto=tensor.position)

    def _reduce_lanes(self, first: int, loops: Stmt) -> Stmt:
        """A reduction in lanes: accumulators of their own, combined into the elements after it."""
        lanes, red = self.lanes, self.sb.op.reduction
        assert lanes is not None
        assert red is not None
        init = None if red.init is None else [self._value(e) for e in red.init]
        own = self._own_element()
        begin = self._each_element(first, lanes.start(), guarded=False)
        if lanes.together:
            end = lanes.folded(lambda x: self._each_element(first, x), self.buffers, own, init)
        else:
            end = self._each_element(first, lanes.end(self.buffers, own, init))
        whole = seq(begin, loops, end)
        for buffer in reversed(lanes.buffers):
            whole = Allocate(buffer, whole)
        return whole

    def _reduce_threads(self, cross: CrossThread, first: int, loops: Stmt) -> Stmt:
        """A reduction by several threads; see `loopwright.lower.cross_thread`."""
        red = self.sb.op.reduction
        assert red is not None
        init = None if red.init is None else [self._value(e) for e in red.init]
        store = cross.store(self.buffers, self._own_element(), init)
        whole = seq(
            self._each_element(first, cross.start(), guarded=False),
            loops,
            self._each_element(first, cross.combine(), guarded=False),
            self._each_element(first, store),
        )
        for buffer in reversed(cross.buffers):
            whole = Allocate(buffer, whole)
        return whole

    def _each_element(
        self, first: int, body: Stmt, guarded: bool = True, upto: int | None = None
    ) -> Stmt:
        """A statement over the spatial loops inside ``first``, where their guards hold.

        ``upto`` is the first of the loops that the statement runs through by itself.
        """
        needed = free_vars(body)
        spatial = [g for g in self.sb.guards if g.kind != "reduce" and g not in self.assumed]
        spatial = spatial if guarded else []
        for g in spatial:
            needed |= set(g.value.terms)
        renamed: dict[Var, Expr] = {}
        for p in range(len(self.sb.loops) - 1 if upto is None else upto - 1, first - 1, -1):
            x = self.sb.loops[p]
            conds = [c for g in spatial if self._position(g) == p for c in self._conditions(g)]
            body = If(_all(conds), body) if conds else body
            for var, value in reversed(self.sb.lets[p + 1]):
                if var in needed:
                    renamed[var] = fresh = Var(var.name, var.dtype)
                    body = Let(fresh, value, body)
                    needed |= free_vars(value)
            axis = self.sb.launch_var(x)
            if axis is not None and axis is not x.var:
                renamed[x.var] = fresh = Var(x.var.name)
                body = Let(fresh, axis, body)
            if x.loop.kind == "reduce" or x.extent == 1 or axis is not None:
                continue
            renamed[x.var] = fresh = Var(x.var.name, x.var.dtype)
            self.ranges.enter(fresh, x.extent)
            kind = x.mark.kind if x.mark else "serial"
            extent, tag = self.sb.sizes.dim(x.extent), x.mark.tag if x.mark else ""
            body = For(fresh, extent, kind, body, (), tag)
        out: Stmt = substitute(body, renamed)
        return out

    # ------------------------------------------------------------ partition

    def _partition_point(self) -> int | None:
        """The loop below which two copies are made, or None."""
        guards = self._all_guards()
        if not guards or self.sb.kernel is not None:
            return None
        sizes = self.sb.sizes.known
        outermost = [
            min((self.sb.position.get(v, -1) for v in g.value.terms if v not in sizes), default=-1)
            for g in guards
        ]
        attached = [p for p in range(len(self.sb.loops)) if self.b.attached(self.sb.stage.id, p)]
        point = max([*outermost, *attached])
        inside = self.sb.loops[point + 1 :]
        marks = [x.mark.kind if x.mark else "" for x in self.sb.loops]
        copies = 1
        for x in inside:
            if x.mark and x.mark.kind == "unrolled" and isinstance(x.extent, int):
                copies *= x.extent
        big = any(x.extent != 1 for x in inside)
        if not big or copies > self.b.partition_cap or "vectorized" in marks[: point + 1]:
            return None
        return point

    def _all_guards(self) -> list[Guard]:
        return [*self.sb.guards, *(g for gs in self.sb.domain.values() for g in gs)]

    def _two_copies(self, p: int) -> Stmt:
        tests: dict[Guard, list[Expr]] = {}
        for g in self._all_guards():
            if self._position(g) <= p and g in self.sb.guards:
                continue
            test = self._holds_inside(g, p)
            if test is not None:
                tests[g] = test
        self.tested = set()
        cold = self._loop(p + 1)
        # A guard that the nest does not test, such as one of padding, is no reason to leave it.
        held = [g for g in tests if g in self.tested]
        if not held:
            return cold
        self.assumed = set(held)
        hot = self._loop(p + 1)
        self.assumed = set()
        conds = [c for g in held for c in tests[g]]
        return If(_all(conds), hot, cold) if conds else hot

    def _holds_inside(self, g: Guard, p: int) -> list[Expr] | None:
        """Conditions on the loops up to p under which ``g`` holds for all inner iterations."""
        outer, rest = g.value.split(self.sb.visible(p))
        lo, hi = self.sb.sizes.span(rest)
        out: list[Expr] = []
        if g.below is not None:
            value = outer + hi
            least, most = (value - g.below).bounds(self.ranges)
            if least >= 0:
                return None
            if most >= 0:
                below = self.sb.sizes.dim(g.below)
                out.append(binary("<", form_expr(value, self.ranges), below))
        if g.nonnegative:
            value = outer + lo
            least, most = value.bounds(self.ranges)
            if most < 0:
                return None
            if least < 0:
                out.append(binary(">=", form_expr(value, self.ranges), 0))
        return out

    # ------------------------------------------------------------ the statement

    def _own_element(self) -> tuple[Expr, ...]:
        values: list[Affine | Expr] = [self.sb.values[a.var] for a in self.sb.op.axes]
        return self.b.element(self.sb.stage.id, values)

    def _statement(self) -> Stmt:
        indices = self._own_element()
        body = self.sb.op.body
        assert body is not None
        values = [self._value(e) for e in outputs_of(body)]
        if not isinstance(body, Reduce):
            return write_all(self.buffers, indices, values)
        if self.lanes is not None:
            conds = [c for g in self.sb.guards if self._in_lanes(g) for c in self._conditions(g)]
            where = None if body.where is None else self._value(body.where)
            return self.lanes.update(values, conds, where)
        if self.cross is not None:
            update = self.cross.update(values)
            return update if body.where is None else If(self._value(body.where), update)
        old = [Load(b, indices, b.dtype) for b in self.buffers]
        label = self.b.state.label(self.sb.stage.id)
        update = combine_into(self.buffers, indices, body.combiner, old, values, label)
        return update if body.where is None else If(self._value(body.where), update)

    def _value(self, e: Any) -> Expr:
        """An expression over the tensor's axes as one over loops and buffers."""
        if isinstance(e, Var):
            return cast(self.sb.values[e].to_expr(), e.dtype) if e in self.sb.values else e
        if isinstance(e, Read):
            return self._load(e)
        if isinstance(e, IfThenElse):
            return self._choice(e)
        out: Expr = e.map_children(self._value)
        if isinstance(out, Binary) and out.op in ("//", "%", "tdiv", "tmod"):
            return self._safe_division(out)
        return out

    def _choice(self, e: IfThenElse) -> Expr:
        """A guarded value; what its condition says need not be tested again inside."""
        cond, outside = self._value(e.cond), self.facts
        self.facts = [*outside, *self._facts(e.cond)]
        taken = self._value(e.a)
        self.facts = outside
        return IfThenElse(cond, taken, self._value(e.b), e.dtype)

    def _facts(self, cond: Expr) -> list[tuple[Affine, int]]:
        """Forms and their largest values where a condition holds."""
        match cond:
            case Binary(op="and", a=a, b=b):
                return [*self._facts(a), *self._facts(b)]
            case Binary(op="<" | "<=" | ">" | ">=" as op, a=a, b=b):
                x, y = (to_affine(s, self.sb.values, self.ranges) for s in (a, b))
                sure = all(fits(s, self.sb.values, self.ranges) for s in (a, b))
                if x is not None and y is not None and sure:
                    return [(x - y if op[0] == "<" else y - x, 0 if "=" in op else -1)]
        return []

    def _known(self, value: Affine, most: int) -> bool:
        """Whether ``value <= most`` follows from one of the conditions around."""
        gaps = ((value - form, limit) for form, limit in self.facts)
        return any(not gap.terms and gap.const + limit <= most for gap, limit in gaps)

    def _safe_division(self, e: Binary) -> Expr:
        """In lanes that over-run, zeros were read: a division must not trap there."""
        if isinstance(e.b, Const):
            return e
        conds = [c for gs in self.sb.domain.values() for g in gs for c in self._conditions(g)]
        if not conds:
            return e
        return Binary(e.op, e.a, Select(_all(conds), e.b, const(1, e.b.dtype), e.b.dtype), e.dtype)

    def _indices_of(self, e: Read) -> list[Affine | Expr]:
        """Indices of a read over the loops."""
        forms = [(i, to_affine(i, self.sb.values, self.ranges)) for i in e.indices]
        return [a if a is not None else self._index(i) for i, a in forms]

    def _element_of(self, e: Read, indices: list[Affine | Expr] | None = None) -> Load:
        """The load of a read, whether or not the element exists."""
        sid = e.source
        if sid not in self.b.buffers:
            raise LowerError(
                f"lower: {self.b.state.label(sid)!r} is read but is not among the arguments"
            )
        buffer = self.b.buffers[sid][e.value_index]
        at = self._indices_of(e) if indices is None else indices
        return Load(buffer, self.b.element(sid, at), buffer.dtype)

    def _load(self, e: Read) -> Expr:
        indices = self._indices_of(e)
        load = self._element_of(e, indices)
        conds = self._load_guard(e, e.source, indices)
        if not conds:
            return load
        return IfThenElse(_all(conds), load, const(0, load.dtype), load.dtype)

    def _index(self, i: Expr) -> Expr:
        e = self._value(i)
        return e if e.dtype == "int32" else Cast(e, "int64") if e.dtype != "int64" else e

    def _load_guard(self, e: Read, sid: StageId, indices: list[Affine | Expr]) -> list[Expr]:
        """Conditions under which an over-running lane may touch this element."""
        if not self.sb.domain:
            return []
        inside = self.b.in_buffer(sid, indices)
        axes = {a.var: d for d, a in enumerate(self.sb.op.axes)}
        needed: set[int] = set()
        for i, ok in zip(e.indices, inside, strict=True):
            if not ok:
                needed |= {axes[v] for v in free_vars(i) if v in axes}
        return [
            c
            for d in sorted(needed)
            for g in self.sb.domain.get(d, ())
            for c in self._conditions(g)
        ]


def _all(conds: list[Expr]) -> Expr:
    return fold(lambda a, b: Binary("and", a, b, "bool"), dict.fromkeys(conds))

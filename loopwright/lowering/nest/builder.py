"""From bounds to loops: a nest for each stage, with the producers attached to its loops inside."""

# Inside loop p stand, outermost first: definitions, the guards decided there, producers attached
# there, and the loops further in.

from __future__ import annotations

from collections.abc import Container, Iterable

from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, Var
from loopwright.ir.kinds import SHARED, LoopKind
from loopwright.ir.reduction import Reduce, outputs_of
from loopwright.ir.sizes import Sizes
from loopwright.ir.stmt import Allocate, For, Let, Seq, Stmt
from loopwright.ir.visitor import free_vars, nodes
from loopwright.lowering.nest.buffers import Buffers
from loopwright.lowering.nest.prefetch import prefetched
from loopwright.lowering.nest.reductions import (
    Reduction,
    cross_thread_of,
    vector_reduction_of,
    write_all,
)
from loopwright.lowering.nest.tensorize import Tensorization
from loopwright.lowering.nest.tiles import PARTITION_CAP, NestPartition, needless_guards
from loopwright.lowering.nest.values import StageGuards, StageValues
from loopwright.schedule import (
    MAX_VECTOR,
    NONTEMPORAL,
    PARTITION_HINT,
    Bounds,
    KernelLaunch,
    LoopBound,
    StageBounds,
    StageId,
    attach_position,
    launch_tag,
)


def define_sizes(body: Stmt, sizes: Sizes) -> Stmt:
    """A body inside the definitions that it needs, also for the shapes of its buffers."""
    if not sizes.lets:
        return body
    shapes = [n.buffer.shape for n in nodes(body) if isinstance(n, Allocate)]
    needed = free_vars(body).union(
        *(free_vars(e) for shape in shapes for e in shape if isinstance(e, Expr))
    )
    used: list[tuple[Var, Expr]] = []
    for v, e in reversed(sizes.lets):
        if v in needed:
            used.append((v, e))
            needed |= free_vars(e)
    for v, e in used:
        body = Let(v, e, body)
    return body


def launch(bounds: Bounds, kernel: KernelLaunch, body: Stmt) -> Stmt:
    """The launch loops of a kernel around its nest; each names the loops that are bound to it."""
    for axis in reversed(kernel.launches.values()):
        loops = [
            bounds.state.loop_label(sb.stage, x.loop.id)
            for sb in bounds.stages.values()
            if sb.kernel is kernel
            for x in sb.loops
            if launch_tag(x.mark) == axis.tag
        ]
        text = ", ".join(loops) or f"env_threads of {bounds.state.label(kernel.root)}"
        extent = bounds.sizes.dim(axis.extent)
        body = For(axis.var, extent, "thread", body, (("bound", text),), axis.tag)
    return body


class NestBuilder:
    def __init__(
        self,
        bounds: Bounds,
        params: dict[tuple[StageId, int], Buffer],
        partition_cap: int = PARTITION_CAP,
    ) -> None:
        self.bounds, self.partition_cap = bounds, partition_cap
        self.buffers = Buffers(bounds, params)
        self.attached: dict[tuple[StageId, int], list[StageBounds]] = {}
        for sid in bounds.state.order:
            sb = bounds.stages.get(sid)
            if sb is not None and sb.padded:
                host, pos = attach_position(bounds.state, sb.stage, bounds)
                self.attached.setdefault((host.stage.id, pos), []).append(sb)

    def build(self, chosen: Container[StageId] | None = None) -> Stmt:
        order = [self.bounds.stages[i] for i in self.bounds.state.order if i in self.bounds.stages]
        root = [sb for sb in order if not sb.padded and (chosen is None or sb.stage.id in chosen)]
        return define_sizes(self.produce(root, Seq(())), self.bounds.sizes)

    def produce(
        self, group: Iterable[StageBounds], rest: Stmt, loop: LoopBound | None = None
    ) -> Stmt:
        """The nests of a group of stages, producers first, each inside its buffers, then ``rest``;
        ``loop`` stands directly around."""
        for sb in reversed(list(group)):
            nest = _Nest(self, sb).inside(-1)
            if sb.kernel is not None and not sb.padded:
                nest = launch(self.bounds, sb.kernel, nest)
            rest = self.buffers.used(sb, nest, rest, loop)
        return rest


class _Nest:
    def __init__(self, builder: NestBuilder, sb: StageBounds) -> None:
        self.builder, self.sb = builder, sb
        self.buffers = builder.buffers
        sid, loops = sb.stage.id, range(len(sb.loops))
        attached = [p for p in loops if (sid, p) in builder.attached]
        label = builder.bounds.state.label(sb.stage.id)
        vector, cross = vector_reduction_of(sb, label), cross_thread_of(sb, label)
        self.tensor = Tensorization(self.buffers, sb) if sb.stage.tensorized is not None else None
        first = next((p for p in loops if sb.loops[p].loop.kind == "reduce"), -1)
        # Guards that differ between threads are tested inside all places where every thread of a
        # block is needed: to fill the shared buffers of stages computed there, and to reduce with
        # the others (-1: none asks for it).
        needed = [*attached, *([first] if cross is not None or sb.scope in SHARED else [])]
        late = -1 if sb.kernel is None else max([-1, *needed])
        self.guards = StageGuards(sb, late, None if vector is None else vector.position)
        self.values = StageValues(self.buffers, sb, self.guards)
        if self.tensor is not None:
            self.guards.needless = needless_guards(self.values, self.tensor)
        self.reduction = None
        if sb.op.reduction is not None:
            self.reduction = Reduction(self.values, vector, cross, self.tensor)
        self.partition = NestPartition(self.values, attached, builder.partition_cap)

    def inside(self, p: int) -> Stmt:
        """The contents of loop p (-1: outside all loops), built from the innermost outwards."""
        if p in (self.partition.point, self.partition.short_point):
            inner = self.partition.copies(p, lambda: self._loop(p + 1))
        else:
            inner = self._loop(p + 1)
        equal, differing = self.guards.at(p)
        inner = self.guards.around(differing, inner)
        if p >= 0:
            attached = self.builder.attached.get((self.sb.stage.id, p), ())
            inner = self.builder.produce(attached, inner, self.sb.loops[p])
            inner = prefetched(self.buffers, self.sb, p, inner)
        inner = self.buffers.stored(self.sb.stage.id, p, inner)
        inner = self.guards.around(equal, inner)
        for var, value in reversed(self.sb.lets[p + 1]):
            inner = Let(var, value, inner)
        return inner

    def _loop(self, i: int) -> Stmt:
        """Loop i; an intrinsic, unless plain loops test a guard, as the copy for tails does."""
        tensor, guards = self.tensor, self.guards
        if tensor is None or i != tensor.position:
            return self._plain_loop(i)
        outer, guards.tested = guards.tested, set()
        plain = self._plain_loop(i)
        # An intrinsic has all iterations of its loops.
        short = any(x.shortened is not None for x in self.sb.loops[i:])
        guarded, guards.tested = short or bool(guards.tested), outer | guards.tested
        part = tensor.intrin.body if tensor.match.whole else tensor.intrin.update
        assert part is not None
        instead = tensor.operate(part, self.values)
        if guarded and tensor.intrin.of_warp:
            tensor.refuse_guard()
        return plain if guarded else instead

    def _plain_loop(self, i: int) -> Stmt:
        if i == len(self.sb.loops):
            body = self.sb.op.body
            assert body is not None
            if isinstance(body, Reduce):
                assert self.reduction is not None
                return self.reduction.update(body)
            values = [self.values.of(e) for e in outputs_of(body)]
            buffers, past = self.buffers.of[self.sb.stage.id], bool(self.sb.stage.nontemporal)
            return write_all(buffers, self.values.own_element(), values, past)
        red = self.reduction
        if red is None or i != red.first:
            return self._around_inside(i)
        if red.vector is not None:
            red.vector.begin()
        return red.around(self._around_inside(i))

    def _around_inside(self, i: int) -> Stmt:
        """Loop i around what stands inside it; no loop where it has one iteration."""
        inner, x = self.inside(i), self.sb.loops[i]
        axis = self.sb.launch_var(x)
        if axis is not None:
            return inner if axis is x.var else Let(x.var, axis, inner)
        if x.extent == 1:
            return inner
        own = [(k, v) for lid, k, v in self.sb.stage.pragmas if lid == x.loop.id]
        # Pragmas on stores or on the last tile have done their work here.
        pragmas = tuple((k, v) for k, v in own if k not in (NONTEMPORAL, PARTITION_HINT))
        kind = x.mark.kind if x.mark else self._unmarked(i)
        extent, tag = self.sb.sizes.dim(x.written), x.mark.tag if x.mark else ""
        return For(x.var, extent, kind, inner, pragmas, tag)

    def _unmarked(self, i: int) -> LoopKind:
        # A tensorized loop is vectorized in tails where it can be, so that accumulators, which
        # tails touch as well, stay in registers.
        loops = self.sb.loops
        if self.tensor is None or i != self.tensor.position or loops[i].loop.kind == "reduce":
            return "serial"
        alone = all(x.loop.kind == "reduce" or x.extent == 1 for x in loops[i + 1 :])
        return "vectorized" if alone and loops[i].count <= MAX_VECTOR else "serial"

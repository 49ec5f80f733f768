"""The moves of random schedules: each tries a step, or a few that go together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from fuzzing.random.expr import Draw
from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.ir.affine import SizeRanges, to_affine
from loopwright.ir.expr import Expr, IterVar, Read, Var
from loopwright.ir.kinds import AxisKind, LoopKind, MarkKind, Scope
from loopwright.ir.node import StructuralKey
from loopwright.ir.reduction import Reduce, scan_of
from loopwright.ir.stmt import For, Stmt, Store, seq
from loopwright.ir.visitor import free_vars, substitute
from loopwright.schedule import primitives
from loopwright.schedule.apply import apply, validate_bounds
from loopwright.schedule.bounds.infer import attach_position, infer_bounds
from loopwright.schedule.bounds.results import Bounds, LoopBound, StageBounds
from loopwright.schedule.primitives.layout import trace_map
from loopwright.schedule.primitives.placement import members
from loopwright.schedule.primitives.sampling import Place, perfect_tiles
from loopwright.schedule.primitives.tensorize import region
from loopwright.schedule.state import Sampled, SplitRel, StageId, StageState, State, loops_around
from loopwright.schedule.steps import Step
from loopwright.te.dag import Dag
from loopwright.te.tensor_intrin import TensorIntrin


def costs(state: State, bounds: Bounds) -> tuple[int, int]:
    """Executions of statements, and copies of them in the code, of the worst stage."""
    work, copies = 0, 0
    for sb in bounds.stages.values():
        loops, stage = list(sb.loops), sb.stage
        while stage.attach.kind == "at":
            host, pos = attach_position(state, stage, bounds)
            loops += host.loops[: pos + 1]
            stage = host.stage
        work = max(work, prod(x.count for x in loops))
        copies = max(copies, prod(_copies(x) for x in loops))
    return work, copies


def _copies(x: LoopBound) -> int:
    kind = x.mark.kind if x.mark else ""
    return x.count if kind == "unrolled" else -(-x.count // 8) if kind == "vectorized" else 1


#: Most executions of statements, and most copies of a statement, in a schedule that is kept.
MAX_WORK = 20_000
MAX_COPIES = 600


@dataclass
class RandomSchedule:
    trace: list[list[Any]]
    applied: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def __repr__(self) -> str:
        return "RandomSchedule([\n" + "".join(f"  {t!r},\n" for t in self.trace) + "])"


class Attempts:
    #: Whether rules that need extents are asked after each step.
    validating = False

    def __init__(self, d: Draw, dag: Dag) -> None:
        self.d = d
        self.state = State.initial(dag)
        self.out = RandomSchedule([])

    def do(self, step: Step) -> bool:
        """Apply a step if the rules, and the limits of testing, allow it."""
        name = step.primitive
        try:
            new = apply(self.state, step)
            if not self.d.chance(2):
                self._limit(new)
        except ScheduleError:
            self.out.refused[name] += 1
            return False
        self.state = new
        self.out.trace.append(step.to_json())
        self.out.applied[name] += 1
        return True

    def _limit(self, new: State) -> None:
        bounds = infer_bounds(new)
        if self.validating or any(map(_refused_late, new.stages.values())):
            validate_bounds(new, bounds)
        work, copies = costs(new, bounds)
        if work > MAX_WORK or copies > MAX_COPIES:
            raise ScheduleError(f"too costly to test: {work} statements, {copies} copies")

    def stage(self) -> StageState:
        return self.d.pick([s for s in self.state.stages.values() if not s.op.is_placeholder])

    def refresh(self, stage: StageState) -> StageState:
        return self.state.stages[stage.id]

    def loop(self, stage: StageState, kind: str | None = None, last: bool = False) -> str | None:
        """One of the loops of a stage, of this kind if it has one; mostly the last, if asked."""
        fit = [x for x in stage.leaves if kind is None or stage.loops[x].kind == kind]
        fit = fit or list(stage.leaves)
        if not fit:
            return None
        if last and self.d.chance(70):
            return fit[-1]
        return str(self.d.pick(fit))


def _refused_late(x: StageState) -> bool:
    """Whether it has features that are mostly refused when extents are known."""
    bound = any(m.kind == "thread" for m in x.marks.values())
    asked = x.store or x.layout or x.double is not None or x.prefetches or x.notes or x.tensorized
    return bool(asked or bound)


FACTORS = (2, 3, 4, 5, 8, 16, 1, 7)


class Moves(Attempts):
    def split(self) -> None:
        stage = self.stage()
        if x := self.loop(stage):
            self.split_loop(stage, x)

    def split_loop(
        self, stage: StageState, x: str, factor: int | None = None
    ) -> tuple[str, str] | None:
        t = self.state.steps
        n = factor or self.d.pick(FACTORS)
        by_parts = factor is None and self.d.chance(25)
        step = primitives.Split(stage.id, x, None if by_parts else n, n if by_parts else None)
        return (f"{t}.0", f"{t}.1") if self.do(step) else None

    def follow(self) -> None:
        """Split a loop as one of some stage was split, which may first be split once more."""
        stage, source = self.stage(), self.stage()
        x = self.loop(stage)
        if x is None:
            return
        if source.leaves and self.d.chance(50):
            self.split_loop(source, self.d.pick(source.leaves), self.d.pick(FACTORS))
        split = [r.parent for r in self.refresh(source).relations if isinstance(r, SplitRel)]
        if not split:
            return
        many, first = self.d.integer(1, 2), self.d.pick(split)
        if self.d.chance(50):
            self.do(primitives.FollowSplit(stage.id, x, source.id, first, many))
            return
        followed = tuple((source.id, y) for y in dict.fromkeys((first, self.d.pick(split))))
        inner = self.d.chance(70)
        self.do(primitives.FollowFusedSplit(stage.id, x, followed, many - 1, inner))

    def sample(self) -> None:
        stage, t = self.stage(), self.state.steps
        x = self.loop(stage)
        if x is None:
            return
        extent = stage.loops[x].nominal
        chosen, part = self.d.pick(FACTORS), 0
        step: Step = primitives.SampleCategorical(stage.id, FACTORS, chosen)
        if isinstance(extent, int) and self.d.chance(50):
            tile = self.d.pick(list(perfect_tiles(extent, 2, 16)))
            step, chosen, part = primitives.SamplePerfectTile(stage.id, x, 2, 16, tile), tile[1], 1
        if self.do(step):
            self.do(primitives.Split(stage.id, x, Sampled(chosen, t, part), None))

    def sample_place(self) -> None:
        stage = self.stage()
        places: list[Place] = [("root",), ("inline",)]
        for sid in self.state.consumers(stage.id):
            places += [("at", sid, x) for x in self.state.stages[sid].leaves]
        self.do(primitives.SampleComputeLocation(stage.id, self.d.pick(places)))

    def fuse(self) -> None:
        stage = self.stage()
        if len(stage.leaves) < 2:
            return
        pairs = list(zip(stage.leaves, stage.leaves[1:], strict=False))
        like = [p for p in pairs if stage.loops[p[0]].kind == stage.loops[p[1]].kind]
        a, b = self.d.pick(like or pairs)
        self.do(primitives.Fuse(stage.id, a, b))

    def reorder(self) -> None:
        self.shuffle(self.stage())

    def shuffle(self, stage: StageState) -> None:
        leaves = list(self.refresh(stage).leaves)
        chosen = self.d.shuffled([x for x in leaves if self.d.chance(70)])
        if len(chosen) > 1:
            self.do(primitives.Reorder(stage.id, tuple(chosen)))

    def mark(self, stage: StageState, verb: MarkKind, kind: AxisKind | None, last: bool) -> None:
        if x := self.loop(self.refresh(stage), kind, last):
            self.do(primitives.Annotate(stage.id, x, verb))

    def vectorize(self) -> None:
        stage = self.stage()
        self.mark(stage, "vectorized", "reduce" if self.d.chance(30) else "spatial", last=True)

    def unroll(self) -> None:
        self.mark(self.stage(), "unrolled", None, last=self.d.chance(50))

    def parallel(self) -> None:
        self.mark(self.stage(), "parallel", "spatial", last=False)

    def pragma(self) -> None:
        stage = self.stage()
        if x := self.loop(stage):
            n = self.d.pick((4, 16, 64))
            if self.d.chance(75):
                self.do(primitives.Pragma(stage.id, x, "auto_unroll_max_step", n))
            if self.d.chance(25):
                self.do(primitives.Pragma(stage.id, x, "unroll_explicit", self.d.chance(50)))
            if self.d.chance(25):
                self.do(primitives.Pragma(stage.id, x, "nontemporal", self.d.chance(75)))

    def inline(self) -> None:
        stage = self.stage()
        if self.d.chance(80):
            fitting = [x for x in self.state.stages.values() if self._can_inline(x)]
            if not fitting:
                return
            stage = self.d.pick(fitting)
        self.do(primitives.ComputeInline(stage.id))

    def _can_inline(self, stage: StageState) -> bool:
        return (
            stage.op.body is not None
            and stage.op.reduction is None
            and stage.id not in self.state.outputs
        )

    def root(self) -> None:
        self.do(primitives.ComputeRoot(self.stage().id))

    def attach(self) -> None:
        stage = self.stage()
        if users := self.state.consumers(stage.id):
            self.attach_at(stage.id, self.d.pick(users))

    def attach_at(self, sid: StageId, user: StageId) -> bool:
        host = self.state.stages[user]
        while host.attach.kind == "at" and self.d.chance(40):
            host = self.state.stages[host.attach.stage]
        x = self.loop(host)
        if x is None or not self.do(primitives.ComputeAt(sid, host.id, x)):
            return False
        if self.d.chance(15):
            self.mark(host, "unrolled", None, last=False)
        return True

    def attach_all(self) -> None:
        stage = self.stage()
        x = self.loop(stage)
        if x is None:
            return
        for sid in reversed(self.state.order):
            movable = sid not in (stage.id, *self.state.outputs)
            if movable and self.state.stages[sid].op.body is not None and self.d.chance(80):
                self.do(primitives.ComputeAt(sid, stage.id, x))

    def group(self) -> None:
        stage = self.stage()
        output = stage.id
        if stage.id in self.state.outputs and self.d.chance(85):
            output = next((r.source for r in stage.op.reads()), output)
        behind = [sid for sid in self.state.order if self._needs(output, sid)]
        if behind:
            inputs = tuple(sid for sid in behind if self.d.chance(40)) or (behind[0],)
            self.do(primitives.CreateGroup(output, (), inputs, self.d.chance(40)))
        while self.state.groups and self.d.chance(60):
            self.move_group()

    def _needs(self, user: StageId, sid: StageId) -> bool:
        reads = {r.source for r in self.state.stages[user].op.reads()}
        return sid in reads or any(self._needs(r, sid) for r in reads)

    def move_group(self) -> None:
        gid = self.d.pick(tuple(self.state.groups))
        group = members(self.state, gid)
        if self.d.chance(15):
            self.do(primitives.ComputeRoot(gid))
        elif self.d.chance(15):
            self.do(primitives.ComputeRoot(self.d.pick(group)))
        users = [u for sid in group for u in self.state.consumers(sid) if u not in group]
        if users:
            self.attach_at(gid, self.d.pick(users))

    def cache_read(self) -> None:
        sid = self.d.pick(self.state.order)
        k = self.d.integer(0, self.state.stages[sid].op.num_outputs - 1)
        users = [u for u in self.state.consumers(sid, k) if self.d.chance(75)]
        self.read_cache(sid, users, k)

    def read_cache(self, sid: StageId, users: list[StageId], k: int = 0) -> None:
        t = self.state.steps
        scopes: tuple[Scope, ...] = ("local", "global", "shared")
        scope = self.d.pick(scopes)
        step = primitives.CacheRead(sid, scope, tuple(users), k)
        if not users or not self.do(step):
            return
        if self.d.chance(75):
            self.attach_at(f"s{t}", self.d.pick(users))
        if self.d.chance(35):
            self.layout_of(self.state.stages[f"s{t}"])
        if self.d.chance(15):
            self.storage_of(self.state.stages[f"s{t}"])
        if self.d.chance(35):
            self.tune(self.state.stages[f"s{t}"])

    def cache_write(self) -> None:
        self.do(primitives.CacheWrite(self.stage().id, self.d.pick(("local", "global"))))

    def rfactor(self) -> None:
        fitting = [s for s in self.state.stages.values() if s.op.reduction is not None]
        stage = self.d.pick(fitting) if fitting else None
        if stage is None:
            return
        if self.d.chance(60):
            x = self.loop(stage, "reduce")
            self.split_loop(stage, x or "r0")
        leaves, n = self.refresh(stage).leaves, len(stage.op.shape)
        fit = [x for x in leaves if self.refresh(stage).loops[x].kind == "reduce"]
        t = self.state.steps
        x = self.d.pick(fit if self.d.chance(95) else leaves)
        if not self.do(primitives.RFactor(stage.id, x, self.d.integer(0, n))):
            return
        if self.d.chance(40):
            self.attach_at(f"s{t}", stage.id)
        for sid in (f"s{t}", stage.id):
            if self.d.chance(50):
                self.tune(self.state.stages[sid])

    def blocked_scan(self) -> None:
        fitting = [
            (s, loop)
            for s in self.state.stages.values()
            if (red := s.op.reduction) is not None
            for loop, x in enumerate(s.op.reduce_axes)
            if scan_of(s.op.axes, red, x) is not None
        ]
        if not fitting or not self.d.chance(60):
            return
        stage, loop = self.d.pick(fitting)
        t = self.state.steps
        if not self.do(primitives.BlockedScan(stage.id, f"r{loop}", self.d.pick((2, 3, 4, 8)))):
            return
        for sid in (f"s{t}", f"s{t}.0", stage.id):
            if self.d.chance(40):
                self.tune(self.state.stages[sid])

    def layout(self) -> None:
        self.layout_of(self.stage())

    def layout_of(self, stage: StageState) -> None:
        pad = self.d.pick((None, None, None, 0, 1))
        if self.d.chance(60):
            self.digits_of(stage, pad)
            return
        gap, reverse = self.d.integer(0, 2), self.d.chance(20)
        f, kind = self.d.pick((2, 3, 4, 8, 16)), self.d.pick(("fuse", "split", "swap", "skew"))
        shape = stage.op.shape

        def index_map(*axes: Expr) -> Expr | Sequence[Expr]:
            parts = [n - 1 - x if reverse else x for x, n in zip(axes, shape, strict=True)]
            flat = parts[0]
            for x, n in zip(parts[1:], shape[1:], strict=True):
                flat = flat * (n + gap) + x
            if kind == "skew" and len(axes) == 2:
                return parts[0] + parts[1], axes[0]
            split = [flat // f, flat % f]
            return flat + gap if kind == "fuse" else split[:: -1 if kind == "swap" else 1]

        if shape:
            dims = trace_map(index_map, len(shape), "fuzz")
            self.do(primitives.TransformLayout(stage.id, dims, pad))

    def pack_constant(self) -> None:
        constants = [s for s in self.state.stages.values() if s.op.constant]
        source, t = self.d.pick(constants), self.state.steps
        if not self.do(
            primitives.CacheRead(source.id, "global", tuple(self.state.consumers(source.id)))
        ):
            return
        self.layout_of(self.state.stages[f"s{t}"])
        if self.d.chance(35):
            self.tune(self.state.stages[f"s{t}"])

    def digits_of(self, stage: StageState, pad: int | None) -> None:
        dims: list[tuple[int, int, int | None]] = []
        for d in range(len(stage.op.shape)):
            if not self.d.chance(50):
                dims.append((d, 1, None))
                continue
            f = self.d.pick((2, 3, 4, 8))
            dims += [(d, 1, f)]
            if self.d.chance(25):
                g = self.d.pick((2, 3))
                dims += [(d, f, g), (d, f * g, None)]
            else:
                dims += [(d, f, None)]
        if dims:
            self.do(primitives.TransformLayout(stage.id, tuple(self.d.shuffled(dims)), pad))

    def storage(self) -> None:
        self.storage_of(self.stage())

    def halves(self) -> None:
        places = [(x, x.attach) for x in self.state.stages.values() if x.attach.kind == "at"]
        fitting = [x for x, at in places if at.loop not in self.state.stages[at.stage].marks]
        stage = self.d.pick(fitting) if fitting and self.d.chance(90) else self.stage()
        self.do(primitives.DoubleBuffer(stage.id, self.d.pick((2, 2, 3, 4))))

    def storage_outside(self) -> None:
        fitting = [x for x in self.state.stages.values() if x.attach.kind == "at"]
        stage = self.d.pick(fitting) if fitting and self.d.chance(95) else self.stage()
        around = loops_around(self.state, stage)
        if self.d.chance(30) or not around:
            self.do(primitives.StoreRoot(stage.id))
            return
        sid, pos = self.d.pick(around)
        self.do(primitives.StoreAt(stage.id, sid, self.state.stages[sid].leaves[pos]))

    def storage_of(self, stage: StageState) -> None:
        stage = self.refresh(stage)
        if self.d.chance(30):
            self.do(primitives.SetScope(stage.id, self.d.pick(("local", "global", "shared"))))
            return
        ndim = len(stage.layout if stage.layout is not None else stage.op.shape)
        factor = self.d.pick((1, 2, 4, 8, 16))
        offset = self.d.integer(0, factor)
        self.do(
            primitives.StorageAlign(stage.id, self.d.integer(0, max(ndim - 1, 0)), factor, offset)
        )

    def tune(self, stage: StageState) -> None:
        for x in self.refresh(stage).leaves:
            if self.d.chance(50):
                self.split_loop(stage, x)
        if self.d.chance(60):
            self.shuffle(stage)
        if self.d.chance(60):
            self.mark(stage, "vectorized", "reduce" if self.d.chance(30) else "spatial", last=True)
        if self.d.chance(40):
            self.mark(stage, "unrolled", None, last=True)
        if self.d.chance(25):
            self.mark(stage, "parallel", "spatial", last=False)
        if self.d.chance(30):  # the last tiles of inner loops get a copy of their own
            for x in self.refresh(stage).leaves[-3:]:
                multiple = self.d.pick((True, True, 2, 4))
                self.do(primitives.Pragma(stage.id, x, "loop_partition_hint", multiple))


class _Unfit(Exception):
    """The nest cannot be described as an intrinsic."""


def random_intrinsic(d: Draw, sb: StageBounds, loop: str) -> TensorIntrin | None:
    try:
        return _Drawing(d, sb, sb.stage.leaves.index(loop)).run()
    except _Unfit:
        return None


class _Drawing:
    def __init__(self, d: Draw, sb: StageBounds, position: int) -> None:
        self.d, self.sb, self.position = d, sb, position
        self.tensors: dict[StructuralKey, te.Tensor] = {}

    def run(self) -> TensorIntrin:
        op, red = self.sb.op, self.sb.op.reduction
        plain = red is None or (red.where is None and red.init is None)
        if (
            op.num_outputs != 1
            or not plain
            or any(not isinstance(x.extent, int) for x in self.sb.loops[self.position :])
        ):
            raise _Unfit
        spatial, reduced = self._axes(op.axes), self._axes(op.reduce_axes)
        if not spatial:
            raise _Unfit
        self.old = {**spatial, **reduced}
        over = [te.reduce_axis((0, n), a.name) for a, n in reduced.items()]
        source = red.source[0] if red is not None else op.body
        assert source is not None

        def element(*axes: Var) -> Expr:
            new = [*axes, *(a.var for a in over)]
            e = self._described(source, dict(zip((a.var for a in self.old), new, strict=True)))
            if red is None:
                return e
            return Reduce(red.combiner, (e,), tuple(over), None, None, red.dtype)

        if (red is None) != (not over):
            raise _Unfit
        names = [a.name for a in spatial]
        T = te.compute(tuple(spatial.values()), element, name="T", varargs_names=names)
        ins = T.op.input_tensors
        free = {t: te.decl_buffer(t.shape, t.dtype, t.name, [None] * t.ndim) for t in (*ins, T)}
        return te.decl_tensor_intrin(T.op, lambda i, o: self._statements(T, i, o), "drawn", free)

    def _axes(self, axes: Sequence[IterVar]) -> dict[IterVar, int]:
        regions = {a: region(self.sb, self.position, a) for a in axes}
        if any(isinstance(x, str) for x in regions.values()):
            raise _Unfit
        return {a: x.extent for a, x in regions.items() if not isinstance(x, str) and x.extent != 1}

    def _described(self, e: Any, env: dict[Var, Expr]) -> Any:
        """The expression with an operand for each read, moved along the axes that it uses."""
        if isinstance(e, Var):
            raise _Unfit
        if not isinstance(e, Read):
            return e.map_children(lambda c: self._described(c, env))
        used = {v for i in e.indices for v in free_vars(i)}
        if any(to_affine(i, {}, SizeRanges()) is None for i in e.indices):
            raise _Unfit
        axes = [a for a in self.old if a.var in used]
        key = StructuralKey(e)
        if key not in self.tensors:
            shape = tuple(self.old[a] for a in axes) or (1,)
            self.tensors[key] = te.placeholder(shape, e.dtype, name=f"x{len(self.tensors)}")
        at = tuple(env[a.var] for a in axes)
        return self.tensors[key][at or (0,)]

    def _statements(self, T: te.Tensor, ins: Any, outs: Any) -> Any:
        op, (out,) = T.op, outs
        assert isinstance(op, te.ComputeOp)
        body = op.body
        views = dict(zip(op.input_tensors, ins, strict=True))

        def loads(e: Any) -> Any:
            loaded = e.map_children(loads)
            return views[loaded.source][loaded.indices] if isinstance(loaded, Read) else loaded

        place = tuple(a.var for a in op.axis)
        if not isinstance(body, Reduce):
            return self._nest(op.axis, Store(out.buffer, place, loads(body)))
        source, start = loads(body.source[0]), body.combiner.identity[0]
        (added,) = body.combiner.combine((out[place],), (source,))
        reset = self._nest(op.axis, Store(out.buffer, place, start))
        axes = [*op.axis, *op.reduce_axis]
        update = self._nest(axes, Store(out.buffer, place, added))
        whole = seq(reset, self._nest(axes, Store(out.buffer, place, added)))
        if self.d.chance(20):
            return whole
        return whole, (reset if self.d.chance(70) else None), update

    def _nest(self, axes: Sequence[IterVar], store: Stmt) -> Stmt:
        order = self.d.shuffled(axes)
        fresh: dict[Var, Expr] = {a.var: Var(a.name) for a in axes}
        out: Stmt = substitute(store, fresh)
        vector = False
        for a in reversed(order):
            kinds: tuple[LoopKind, ...] = ("serial", "serial", "unrolled", "vectorized")
            kind = self.d.pick(kinds)
            if kind == "vectorized" and (vector or a.kind == "reduce"):
                kind = "serial"
            if kind == "unrolled" and a.extent > 8:
                kind = "serial"
            vector |= kind == "vectorized"
            var = fresh[a.var]
            assert isinstance(var, Var)
            out = For(var, a.extent, kind, out)
        return out

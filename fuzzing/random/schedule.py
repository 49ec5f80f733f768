"""Random schedules: primitives and recipes (tile, cache, attach, vectorize) drawn by Hypothesis.

Most schedules validate; a few keep a step that only `validate` can refuse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import takewhile

from hypothesis import strategies as st

from fuzzing.random.expr import Draw
from fuzzing.random.moves import Moves, RandomSchedule, random_intrinsic
from fuzzing.random.program import Program
from loopwright.codegen.gpu.split import split_host_device
from loopwright.errors import LowerError, ScheduleError
from loopwright.ir.kinds import Scope
from loopwright.lowering import lower_ids
from loopwright.lowering.gpu_limits import limits_of, verify_gpu_limits
from loopwright.schedule import primitives
from loopwright.schedule.bounds.infer import infer_bounds
from loopwright.schedule.bounds.launches import LAUNCH_TAGS, cross_tags
from loopwright.schedule.bounds.results import launch_tag
from loopwright.schedule.state import StageId, StageState, loops_around
from loopwright.space import structures
from loopwright.target import Target
from loopwright.task.space import ConfigSpace
from loopwright.te.dag import Dag


def random_schedule(d: Draw, dag: Dag, max_moves: int = 10) -> RandomSchedule:
    return Drawing(d, dag).run(max_moves)


@st.composite
def schedules(draw: st.DrawFn, dag: Dag, max_moves: int = 10) -> RandomSchedule:
    return random_schedule(Draw.hypothesis(draw), dag, max_moves)


class Drawing(Moves):
    def run(self, max_moves: int) -> RandomSchedule:
        moves: list[Callable[[], object]] = [
            self.split, self.recipe_tile, self.attach, self.recipe_cache, self.vectorize,
            self.reorder, self.fuse, self.unroll, self.parallel, self.cache_read,
            self.cache_write, self.inline, self.layout, self.pragma, self.root, self.attach,
            self.recipe_cache, self.split, self.recipe_flat, self.attach_all, self.bind,
            self.storage, self.halves, self.storage_outside, self.rfactor, self.prefetch,
            self.group, self.recipe_tail, self.follow, self.follow, self.sample, self.sample_place,
            self.storage_outside, self.prefetch_next,
        ]  # fmt: skip
        self.blocked_scan()
        for _ in range(self.d.integer(0, max_moves)):
            self.d.pick(moves)()
        while self.d.chance(60):
            self.tensorize()
        if any(s.op.constant for s in self.state.stages.values()) and self.d.chance(50):
            self.pack_constant()
        return self.out

    def recipe_tile(self) -> None:
        self.tune(self.stage())

    def bind(self) -> None:
        """Bind some loops of a root stage to a launch, and of a stage inside it to its threads."""
        stage = self.stage()
        tags = ["blockIdx.x", "threadIdx.x", "threadIdx.y", "vthread"]
        if stage.attach.kind == "at":
            tags = ["threadIdx.x", "threadIdx.y", "vthread"]
        for x in self.refresh(stage).leaves:
            if tags and self.d.chance(60):
                tag = self.d.pick(tags)
                tags.remove(tag)
                self.do(primitives.Bind(stage.id, x, tag))

    def recipe_flat(self) -> None:
        stage = self.stage()
        self.flatten(stage, 80)
        leaves = self.refresh(stage).leaves
        loops = self.split_loop(stage, leaves[0]) if leaves else None
        if loops and self.d.chance(60):
            self.do(primitives.Annotate(stage.id, loops[1], "vectorized"))
        if loops and self.d.chance(40):
            self.do(primitives.Annotate(stage.id, loops[0], "parallel"))

    def recipe_tail(self) -> None:
        """Few whole vectors and a last one of few lanes, known when compiling if unrolled."""
        stage = self.stage()
        self.flatten(stage, 80)
        stage = self.refresh(stage)
        extent = stage.loops[stage.leaves[0]].nominal if stage.leaves else None
        if not isinstance(extent, int) or extent < 3:
            return
        factor = max(2, (extent - self.d.integer(1, 3)) // self.d.integer(1, 3))
        loops = self.split_loop(stage, stage.leaves[0], factor)
        if loops and self.do(primitives.Annotate(stage.id, loops[1], "vectorized")):
            self.do(primitives.Annotate(stage.id, loops[0], "unrolled"))

    def flatten(self, stage: StageState, percent: int, kind: str = "") -> None:
        """Fuse the outer loops of a stage, those of one kind, with a chance for each."""
        while self.d.chance(percent):
            stage = self.refresh(stage)
            kinds = [stage.loops[x].kind for x in stage.leaves[:2]]
            if len(kinds) < 2 or kinds[1] != (kind or kinds[0]):
                return
            if not self.do(primitives.Fuse(stage.id, *stage.leaves[:2])):
                return

    def recipe_cache(self) -> None:
        stage = self.stage()
        t = self.state.steps
        if not self.do(primitives.CacheWrite(stage.id, "local")):
            return
        sid = f"s{t}"
        self.tune(stage)
        self.attach_at(sid, stage.id)
        self.tune(self.state.stages[sid])
        if not self.d.chance(50):
            return
        reads = self.state.stages[sid].op.reads()
        for source, k in dict.fromkeys((r.source, r.value_index) for r in reads):
            if self.d.chance(60):
                self.read_cache(source, [sid], k)

    def prefetch(self) -> None:
        stage = self.stage()
        x = self.loop(stage)
        if x is None:
            return
        reads = list(dict.fromkeys((r.source, r.value_index) for r in stage.op.reads()))
        if not reads or self.d.chance(10):
            reads = [(sid, 0) for sid in self.state.order]
        sid, k = self.d.pick(reads)
        self.do(primitives.Prefetch(stage.id, x, sid, self.d.integer(1, 5), k))

    def prefetch_next(self) -> None:
        """Prefetch a tensor in shares for a loop around one of a stage that reads it, mostly."""
        stage = self.stage()
        x = self.loop(stage, last=True)
        if x is None:
            return
        outer_loops = [(stage.id, p) for p in range(stage.leaves.index(x))]
        around = [*outer_loops, *loops_around(self.state, stage)]
        if not around or self.d.chance(10):
            around = [(s.id, 0) for s in self.state.stages.values() if s.leaves]
        host, p = self.d.pick(around)
        reads = list(dict.fromkeys((r.source, r.value_index) for r in stage.op.reads()))
        if not reads:
            return
        sid, k = self.d.pick(reads)
        outer, offset = self.state.stages[host].leaves[p], self.d.integer(0, 3)
        self.do(primitives.PrefetchNext(stage.id, x, sid, host, outer, offset, k))

    def tensorize(self) -> None:
        stage = self.stage()
        free = list(takewhile(lambda x: x not in stage.marks, reversed(stage.leaves)))[:4]
        if not free:
            return
        loop = self.d.pick(free)
        try:
            bounds = infer_bounds(self.state).stages.get(stage.id)
        except ScheduleError:
            return
        intrin = random_intrinsic(self.d, bounds, loop) if bounds is not None else None
        if intrin is not None:
            self.do(primitives.Tensorize(stage.id, loop, intrin))


BLOCKS = tuple(t for t in LAUNCH_TAGS if t.startswith("blockIdx"))
THREADS = tuple(t for t in LAUNCH_TAGS if t.startswith("threadIdx"))


def random_kernel(d: Draw, dag: Dag) -> RandomSchedule:
    """A random schedule of a DAG in which most root stages are kernels."""
    return _Kernels(d, dag).draw()


class _Kernels(Drawing):
    validating = True

    def draw(self) -> RandomSchedule:
        self.caches()
        if self.d.chance(15):
            self.rfactor()
        for sid in reversed(self.state.order):
            if not self.state.stages[sid].op.is_placeholder:
                self.place(sid)
        extras = (
            self.storage, self.halves, self.storage_outside, self.unroll, self.vectorize,
            self.layout, self.pragma, self.bind,
        )  # fmt: skip
        for _ in range(self.d.integer(0, 4)):
            self.d.pick(extras)()
        for _ in range(self.d.integer(0, 2)):
            self.lanes()
        return self.out

    def lanes(self) -> None:
        stage = self.stage()
        x = self.loop(stage, "spatial", last=True)
        parts = self.split_loop(stage, x, self.d.pick((2, 4))) if x else None
        if parts:
            self.do(primitives.Annotate(stage.id, parts[1], "vectorized"))

    def caches(self) -> None:
        for sid in self.state.order:
            stage = self.state.stages[sid]
            if sid in self.state.outputs and self.d.chance(35):
                self.do(primitives.CacheWrite(sid, self.d.pick(("local", "local", "shared"))))
            users = [u for u in self.state.consumers(sid) if self.d.chance(80)]
            if not users or not self.d.chance(45):
                continue
            t, k = self.state.steps, self.d.integer(0, stage.op.num_outputs - 1)
            users = [u for u in users if u in self.state.consumers(sid, k)]
            scopes: tuple[Scope, ...] = ("shared", "shared", "local")
            if not users or not self.do(
                primitives.CacheRead(sid, self.d.pick(scopes), tuple(users), k)
            ):
                continue
            again = [u for u in users if self.d.chance(50)]
            if again and self.d.chance(30):
                self.do(primitives.CacheRead(f"s{t}", "local", tuple(again)))

    def place(self, sid: StageId) -> None:
        stage = self.state.stages[sid]
        if sid in self.state.outputs or self.d.chance(12):
            self.launch(stage)
        elif self._can_inline(stage) and self.d.chance(12):
            self.do(primitives.ComputeInline(sid))
        elif self.inside(stage):
            self.share(self.refresh(stage))
        else:
            if stage.scope != "global":
                self.do(primitives.SetScope(sid, "global"))
            self.launch(stage)

    def inside(self, stage: StageState) -> bool:
        users = self.state.consumers(stage.id)
        if users and self.d.chance(35) and self.in_threads(stage, self.d.pick(users)):
            return True
        attached = users and any(self.attach_at(stage.id, self.d.pick(users)) for _ in range(3))
        if attached and self.d.chance(45):
            scopes: tuple[Scope, ...] = ("shared", "shared.dyn", "local", "global")
            scope = self.d.pick(scopes)
            self.do(primitives.SetScope(stage.id, scope))
        return bool(attached)

    def in_threads(self, stage: StageState, user: StageId) -> bool:
        host = self.state.stages[user]
        marks = [(x, launch_tag(host.marks.get(x))) for x in host.leaves]
        bound = [x for x, tag in marks if tag in THREADS]
        if not bound or not self.do(primitives.ComputeAt(stage.id, host.id, self.d.pick(bound))):
            return False
        return self.do(primitives.SetScope(stage.id, "shared"))

    def launch(self, stage: StageState) -> None:
        if self.d.chance(30):
            self.flatten(stage, 75, "spatial")
        if self.d.chance(25):
            self.env(stage, self.d.chance(90))
        for x in self.refresh(stage).leaves:
            if self.d.chance(50):
                self.split_loop(stage, x)
        if self.d.chance(60):
            self.shuffle(stage)
        self.bind_loops(stage, [*BLOCKS[::-1], *THREADS[::-1], "vthread"])
        if self.d.chance(15):
            self.env(stage, True)
        self.predicate(stage)

    def env(self, stage: StageState, sized: bool) -> None:
        axes = tuple(
            (t, self.d.pick((1, 2, 3, 4, 8)) if sized else None)
            for t in LAUNCH_TAGS
            if self.d.chance(20)
        )
        if axes:
            self.do(primitives.EnvThreads(stage.id, axes))

    def bind_loops(self, stage: StageState, tags: list[str]) -> None:
        for pos, x in enumerate(self.refresh(stage).leaves):
            reduce = self.refresh(stage).loops[x].kind == "reduce"
            fit = [t for t in tags if t in THREADS or not reduce]
            if pos > 1 and self.d.chance(80):
                fit = [t for t in fit if t not in BLOCKS]
            if not fit or not self.d.chance(45 if reduce else 70):
                continue
            tag = self.d.pick(fit[:3])
            extent = self.d.pick((None, None, None, None, 4))
            if self.do(primitives.Bind(stage.id, x, tag, extent)):
                tags.remove(tag)

    def predicate(self, stage: StageState) -> None:
        bound = cross_tags(self.refresh(stage))
        chosen = tuple((t, self.d.integer(0, 3)) for t in bound if self.d.chance(85))
        if chosen and self.d.chance(85):
            self.do(primitives.SetStorePredicate(stage.id, chosen))

    def share(self, stage: StageState) -> None:
        if self.d.chance(50):
            self.flatten(stage, 75, "spatial")
        extents = self.extents(stage)
        for x in self.refresh(stage).leaves:
            self._split_by_threads(stage.id, x, list(extents.values()))
        if self.d.chance(30):
            self.shuffle(stage)
        if self.d.chance(80):
            tags = [t for t in extents if t in THREADS] or list(THREADS[::-1])
            self.bind_loops(stage, [*tags, *(["vthread"] if self.d.chance(20) else [])])
        self.predicate(stage)
        if self.d.chance(35):
            self.mark(stage, "vectorized", "spatial", last=True)
        if self.d.chance(20):
            self.mark(stage, "unrolled", None, last=True)

    def _split_by_threads(self, sid: StageId, loop: str, extents: list[int]) -> None:
        factor = self.d.pick([*extents, 2, 3, 4])
        while self.d.chance(45):
            t = self.state.steps
            if not self.do(primitives.Split(sid, loop, factor, None)):
                return
            loop, factor = f"{t}.0", self.d.pick([*extents, 2, 4])

    def extents(self, stage: StageState) -> dict[str, int]:
        try:
            kernel = infer_bounds(self.state).kernels.get(stage.id)
        except ScheduleError:  # an illegal step is kept now and then
            return {}
        axes = [] if kernel is None else kernel.threads()
        return {x.tag: x.extent for x in axes if isinstance(x.extent, int) and x.extent > 1}


#: Points that are drawn at most until a device can launch one; then the default is taken.
_DRAWN = 64


def random_structure(d: Draw, program: Program, target: str) -> RandomSchedule:
    """The schedule of a random point of one of the structures of a program; a point beyond the
    limits of a device, or with a stage that is not bound, is a `LowerError`."""
    with Target(target):
        structure = d.pick(structures(program.outputs, program.tensors))
    index = _random_index(d, structure.config_space)
    schedule, args = structure.instantiate(structure.config_space.get(index))
    if "gpu" in structure.target.keys:
        with structure.target:
            func = lower_ids(schedule, schedule.arg_ids(args))
        verify_gpu_limits(func, limits_of(structure.target.options), schedule)
        for kernel in split_host_device(func, structure.target.kind.name).kernels:
            if not kernel.threads:
                raise LowerError(f"gpu limits: {kernel.name} runs unbound:\n{func}")
    trace = schedule.trace_json()
    return RandomSchedule(trace, Counter(step[0] for step in trace))


def _random_index(d: Draw, space: ConfigSpace) -> int:
    index = _drawn_index(d, space)
    if d.chance(25):
        return space.default_index
    for _ in range(_DRAWN):
        if space.is_valid(index):
            return index
        index = _drawn_index(d, space)
    return space.default_index


def _drawn_index(d: Draw, space: ConfigSpace) -> int:
    return space.knob2point([d.integer(0, len(knob) - 1) for knob in space.knobs.values()])

"""Random kernels: schedules that put most stages on GPU threads, for the interpreter to run.

As in `loopwright.testing.random.schedule`, a step that the rules refuse is counted and left out;
here that holds for the rules that need extents too, so that nearly every schedule lowers.
"""

from __future__ import annotations

from loopwright.errors import ScheduleError
from loopwright.ir.kinds import Scope
from loopwright.schedule import primitives
from loopwright.schedule.bounds.infer import infer_bounds
from loopwright.schedule.bounds.launches import LAUNCH_TAGS, cross_tags
from loopwright.schedule.bounds.results import launch_tag
from loopwright.schedule.state import StageId, StageState
from loopwright.te.dag import Dag
from loopwright.testing.random.attempts import RandomSchedule
from loopwright.testing.random.schedule import Drawing
from loopwright.testing.random.values import Draw

BLOCKS = tuple(t for t in LAUNCH_TAGS if t.startswith("blockIdx"))
THREADS = tuple(t for t in LAUNCH_TAGS if t.startswith("threadIdx"))


def random_kernel(d: Draw, dag: Dag) -> RandomSchedule:
    """A random schedule of a DAG in which most root stages are kernels."""
    return _Kernels(d, dag).draw()


class _Kernels(Drawing):
    validating = True

    def draw(self) -> RandomSchedule:
        """Caches first, then every stage from the outputs upwards, then some extras."""
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
        """Let a thread move or compute a few neighbouring elements at once."""
        stage = self.stage()
        x = self.loop(stage, "spatial", last=True) if stage else None
        parts = self.split_loop(stage, x, self.d.pick((2, 4))) if stage and x else None
        if stage and parts:
            self.do(primitives.Annotate(stage.id, parts[1], "vectorized"))

    # ------------------------------------------------------------ which stages

    def caches(self) -> None:
        """Caches in shared and local memory, some of them one behind the other."""
        for sid in self.state.order:
            stage = self.state.stages[sid]
            if sid in self.state.outputs and self.d.chance(35):
                self.do(primitives.CacheWrite(sid, self.d.pick(("local", "local", "shared"))))
            users = [u for u in self.readers(sid) if self.d.chance(80)]
            if not users or not self.d.chance(45):
                continue
            t, k = self.state.steps, self.d.integer(0, stage.op.num_outputs - 1)
            users = [u for u in users if u in self.state.consumers(sid, k)]
            if not users or not self.do(self.copied(sid, users, k)):
                continue
            again = [u for u in users if self.d.chance(50)]
            if again and self.d.chance(30):
                self.do(primitives.CacheRead(f"s{t}", "local", tuple(again)))

    def copied(self, sid: StageId, users: list[StageId], k: int) -> primitives.CacheRead:
        """A cache of one output of a stage."""
        return primitives.CacheRead(
            sid, self.d.pick(("shared", "shared", "local")), tuple(users), k
        )

    def place(self, sid: StageId) -> None:
        """Make a stage a kernel of its own, a stage inside one, or an inlined one."""
        stage = self.state.stages[sid]
        if sid in self.state.outputs or self.d.chance(12):
            self.launch(stage)
        elif self._can_inline(stage) and self.d.chance(12):
            self.do(primitives.ComputeInline(sid))
        elif self.inside(stage):
            self.share(self.refresh(stage))
        elif stage.scope == "global":
            self.launch(stage)
        else:
            self.do(primitives.SetScope(sid, "global"))
            self.launch(stage)

    def inside(self, stage: StageState) -> bool:
        """Compute a stage in a loop of one that reads it, or of one around that."""
        users = self.readers(stage.id)
        if users and self.d.chance(35) and self.in_threads(stage, self.d.pick(users)):
            return True
        attached = users and any(self.attach_at(stage.id, self.d.pick(users)) for _ in range(3))
        if attached and self.d.chance(45):
            scopes: tuple[Scope, ...] = ("shared", "shared.dyn", "local", "global")
            scope = self.d.pick(scopes)
            self.do(primitives.SetScope(stage.id, scope))
        return bool(attached)

    def in_threads(self, stage: StageState, user: StageId) -> bool:
        """Compute a stage in a loop of threads, in memory that all of them share."""
        host = self.state.stages[user]
        marks = [(x, launch_tag(host.marks.get(x))) for x in host.leaves]
        bound = [x for x, tag in marks if tag in THREADS]
        if not bound or not self.do(primitives.ComputeAt(stage.id, host.id, self.d.pick(bound))):
            return False
        return self.do(primitives.SetScope(stage.id, "shared"))

    # ------------------------------------------------------------ a launch

    def launch(self, stage: StageState) -> None:
        """Split the loops of a root stage and bind them to blocks and threads."""
        if self.d.chance(30):
            self.flatten(stage)
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

    def flatten(self, stage: StageState) -> None:
        """Fuse adjacent spatial loops from the outermost on."""
        while self.d.chance(75):
            stage = self.refresh(stage)
            if len(stage.leaves) < 2:
                return
            a, b = stage.leaves[:2]
            if stage.loops[b].kind != "spatial" or not self.do(primitives.Fuse(stage.id, a, b)):
                return

    def env(self, stage: StageState, sized: bool) -> None:
        """Axes of the launch that no loop of the stage need use."""
        axes = tuple(
            (t, self.d.pick((1, 2, 3, 4, 8)) if sized else None)
            for t in LAUNCH_TAGS
            if self.d.chance(20)
        )
        if axes:
            self.do(primitives.EnvThreads(stage.id, axes))

    def bind_loops(self, stage: StageState, tags: list[str]) -> None:
        """Bind loops to some of the axes, outer loops rather to blocks."""
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
        """Another thread stores the result of a reduction across threads."""
        bound = cross_tags(self.refresh(stage))
        chosen = tuple((t, self.d.integer(0, 3)) for t in bound if self.d.chance(85))
        if chosen and self.d.chance(85):
            self.do(primitives.SetStorePredicate(stage.id, chosen))

    # ------------------------------------------------------------ a stage inside

    def share(self, stage: StageState) -> None:
        """Let the threads of the kernel share the loops of a stage."""
        if self.d.chance(50):
            self.flatten(stage)
        extents = self.extents(stage)
        for x in self.refresh(stage).leaves:
            self._split_by_threads(stage, x, list(extents.values()))
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

    def _split_by_threads(self, stage: StageState, loop: str, extents: list[int]) -> None:
        """Split a loop some times, mostly by the extents of thread axes."""
        factor = self.d.pick([*extents, 2, 3, 4])
        while self.d.chance(45):
            t = self.state.steps
            if not self.do(primitives.Split(stage.id, loop, factor, None)):
                return
            loop, factor = f"{t}.0", self.d.pick([*extents, 2, 4])

    def extents(self, stage: StageState) -> dict[str, int]:
        try:
            kernel = infer_bounds(self.state).kernels.get(stage.id)
        except ScheduleError:  # an illegal step is kept now and then
            return {}
        axes = [] if kernel is None else kernel.threads()
        return {x.tag: x.extent for x in axes if isinstance(x.extent, int) and x.extent > 1}

"""Random schedules: primitives and recipes (tile, cache, attach, vectorize) drawn by Hypothesis.

Most schedules validate; a few keep a step that only `validate` can refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from hypothesis import strategies as st

from loopwright.errors import ScheduleError
from loopwright.schedule import primitives
from loopwright.schedule.bounds.infer import infer_bounds
from loopwright.schedule.state import StageState, loops_around
from loopwright.te.dag import Dag
from loopwright.testing.random.attempts import RandomSchedule
from loopwright.testing.random.intrinsic import random_intrinsic
from loopwright.testing.random.moves import Moves
from loopwright.testing.random.values import Draw


def random_schedule(d: Draw, dag: Dag, max_moves: int = 10) -> RandomSchedule:
    """A random schedule of a DAG: up to ``max_moves`` primitives or recipes."""
    return Drawing(d, dag).run(max_moves)


@st.composite
def schedules(draw: st.DrawFn, dag: Dag, max_moves: int = 10) -> RandomSchedule:
    return random_schedule(Draw.hypothesis(draw), dag, max_moves)


class Drawing(Moves):
    """A schedule being drawn: single primitives and recipes."""

    def run(self, max_moves: int) -> RandomSchedule:
        """Up to ``max_moves`` moves of any kind."""
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

    # ------------------------------------------------------------ recipes

    def recipe_tile(self) -> None:
        """Split, reorder and mark the loops of a stage."""
        stage = self.stage()
        if stage:
            self.tune(stage)

    def bind(self) -> None:
        """Bind some loops of a root stage to a launch, and of a stage inside it to its threads."""
        stage = self.stage()
        if not stage:
            return
        tags = ["blockIdx.x", "threadIdx.x", "threadIdx.y", "vthread"]
        if stage.attach.kind == "at":
            tags = ["threadIdx.x", "threadIdx.y", "vthread"]
        for x in self.refresh(stage).leaves:
            if tags and self.d.chance(60):
                tag = self.d.pick(tags)
                tags.remove(tag)
                self.do(primitives.Bind(stage.id, x, tag))

    def recipe_flat(self) -> None:
        """Fuse all loops that can be fused, split again, vectorize."""
        stage = self.stage()
        if not stage:
            return
        self._flatten(stage)
        leaves = self.refresh(stage).leaves
        loops = self.split_loop(stage, leaves[0]) if leaves else None
        if loops and self.d.chance(60):
            self.do(primitives.Annotate(stage.id, loops[1], "vectorized"))
        if loops and self.d.chance(40):
            self.do(primitives.Annotate(stage.id, loops[0], "parallel"))

    def recipe_tail(self) -> None:
        """Few whole vectors and a last one of few lanes, known when compiling if unrolled."""
        stage = self.stage()
        if not stage:
            return
        self._flatten(stage)
        stage = self.refresh(stage)
        extent = stage.loops[stage.leaves[0]].nominal if stage.leaves else None
        if not isinstance(extent, int) or extent < 3:
            return
        factor = max(2, (extent - self.d.integer(1, 3)) // self.d.integer(1, 3))
        loops = self.split_loop(stage, stage.leaves[0], factor)
        if loops and self.do(primitives.Annotate(stage.id, loops[1], "vectorized")):
            self.do(primitives.Annotate(stage.id, loops[0], "unrolled"))

    def _flatten(self, stage: StageState) -> None:
        """Fuse the outer loops of a stage, mostly all that can be."""
        while self.d.chance(80):
            leaves = self.refresh(stage).leaves
            kinds = [self.refresh(stage).loops[x].kind for x in leaves]
            if len(leaves) < 2 or kinds[0] != kinds[1]:
                break
            if not self.do(primitives.Fuse(stage.id, leaves[0], leaves[1])):
                break

    def recipe_cache(self) -> None:
        """Compute a stage in a tile of its copy, as a matmul's register tile is."""
        stage = self.stage()
        if not stage:
            return
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
        """Prefetch a tensor that a stage reads, mostly, at one of its loops."""
        stage = self.stage()
        x = self.loop(stage) if stage else None
        if not stage or not x:
            return
        reads = list(dict.fromkeys((r.source, r.value_index) for r in stage.op.reads()))
        if not reads or self.d.chance(10):
            reads = [(sid, 0) for sid in self.state.order]
        sid, k = self.d.pick(reads)
        self.do(primitives.Prefetch(stage.id, x, sid, self.d.integer(1, 5), k))

    def prefetch_next(self) -> None:
        """Prefetch a tensor in shares for a loop around one of a stage that reads it, mostly."""
        stage = self.stage()
        x = self.loop(stage, last=True) if stage else None
        if not stage or not x:
            return
        own = [(stage.id, p) for p in range(stage.leaves.index(x))]
        around = [*own, *loops_around(self.state, stage)]
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
        """Replace some of the inner loops by a drawn intrinsic."""
        stage = self.stage()
        if not stage or not stage.leaves:
            return
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

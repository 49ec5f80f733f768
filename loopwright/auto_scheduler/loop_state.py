"""``auto_scheduler.loop_state``: unfinished schedules, with Ansor's names of the primitives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from loopwright import te
from loopwright.auto_scheduler.state_steps import apply_step
from loopwright.errors import ScheduleError
from loopwright.lowering import lower
from loopwright.schedule import Schedule, Stage
from loopwright.te.dag import arg_id

if TYPE_CHECKING:
    from loopwright.ir.affine import Affine
    from loopwright.space import Sketch
    from loopwright.task import ConfigEntity
    from loopwright.task.template import Scheduled

__all__ = ["State", "StateStage"]

#: A stage: its number among the stages, its tensor or its operation.
StageLike: TypeAlias = "int | te.Tensor | te.Operation"
#: A loop: an axis among ``state[stage].iters``, or its number there.
IterLike: TypeAlias = Any


class StateStage:
    """A stage of a `State`.

    Attributes:
        op: its operation.
        iters: its loops, outermost first.
    """

    def __init__(self, stage: Stage, schedule: Schedule) -> None:
        self._stage, self._schedule = stage, schedule
        self.op = stage.op
        self.iters = list(stage.leaf_iter_vars)

    @property
    def extents(self) -> list[int | Affine]:
        """Trip count of each loop per iteration of the loops around it, after bound inference."""
        bounds = self._schedule.bounds().stages[self._stage.id]
        return [n for n in (loop.extent for loop in bounds.loops) if isinstance(n, int)]

    def __str__(self) -> str:
        return f"{self.op.name}: {', '.join(axis.name for axis in self.iters)}"


class State:
    """An unfinished schedule, changed in place by primitives under Ansor's names.

    Made by `ComputeDAG.get_init_state` and by `SketchPolicy`. A stage is named by its number, its
    tensor or its operation; a loop by its axis among ``state[stage].iters``, or its number there.

    Args:
        base: function that returns the schedule that steps are applied to, and its arguments.
        places: number of each operation of the user's tensors in the expression.
        config: the configuration of ``base``, or None.
        sketch: the sketch of ``base``, or None; with one, lengths of splits may be left open.

    Example:
        >>> from loopwright import auto_scheduler
        >>> A = te.placeholder((16, 8), name="A")
        >>> B = te.compute((16, 8), lambda i, j: A[i, j] + 1, name="B")
        >>> dag = auto_scheduler.ComputeDAG([A, B])
        >>> state = dag.get_init_state()
        >>> i, j = state[B].iters
        >>> outer, inner = state.split(B, i, [4])
        >>> _ = state.parallel(B, outer)
        >>> _ = state.vectorize(B, j)
        >>> print(state)
        def main(A: float32[16, 8], B: out float32[16, 8]):
          for i.0 in parallel(4):
            for i.1 in range(4):
              for j in vectorized(8):
                B[i.0 * 4 + i.1, j] = A[i.0 * 4 + i.1, j] + 1.0
    """

    def __init__(
        self,
        base: Callable[[], Scheduled],
        places: Mapping[te.Operation, int] | None = None,
        config: ConfigEntity | None = None,
        sketch: Callable[[], Sketch] | None = None,
    ) -> None:
        self._base, self._places, self._config = base, dict(places or {}), config
        self._make_sketch = sketch
        self._calls: list[tuple[str, tuple[Any, ...]]] = []

    # -- what it is -----------------------------------------------------------------------------

    @cached_property
    def sketch(self) -> Sketch | None:
        """The sketch that steps are applied to, or None."""
        return None if self._make_sketch is None else self._make_sketch()

    @cached_property
    def _scheduled(self) -> Scheduled:
        if self.sketch is not None:
            return self.sketch.s, []
        return self._base()

    @property
    def schedule(self) -> Schedule:
        """The schedule."""
        return self._scheduled[0]

    @property
    def args(self) -> list[te.Tensor]:
        """The arguments in calling order, as tensors of the schedule."""
        return self._scheduled[1]

    @property
    def config(self) -> ConfigEntity | None:
        """The configuration of a structure; None if steps were added since."""
        return None if self._calls else self._config

    @property
    def state_object(self) -> State:
        """The state itself, for scripts of TVM."""
        return self

    @property
    def transform_steps(self) -> list[list[Any]]:
        """The steps so far as JSON-able lists."""
        return self.schedule.trace_json()

    @property
    def stages(self) -> list[StateStage]:
        """The stages, producers first."""
        return [StateStage(stage, self.schedule) for stage in self.schedule.stages]

    @property
    def stage_ops(self) -> list[te.Operation]:
        """The operations of the stages."""
        return [stage.op for stage in self.schedule.stages]

    def __getitem__(self, stage: StageLike) -> StateStage:
        return StateStage(self._stage(stage), self.schedule)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and (
            self.schedule.dag.hash == other.schedule.dag.hash
            and self.transform_steps == other.transform_steps
        )

    def __hash__(self) -> int:
        return hash((self.schedule.dag.hash, str(self.transform_steps)))

    def __str__(self) -> str:
        if self.sketch is not None:
            return self.schedule.as_python()
        return str(lower(self.schedule, self.args))

    def copy(self) -> State:
        """Another state with the same steps."""
        new = State(self._base, self._places, self._config, self._make_sketch)
        for name, args in self._calls:
            new._do(name, args)
        return new

    # -- primitives -----------------------------------------------------------------------------

    def split(
        self,
        stage_id: StageLike,
        iterator: IterLike,
        lengths: Sequence[int | None],
        inner_to_outer: bool = True,
    ) -> list[te.IterVar]:
        """Split a loop into ``len(lengths) + 1``.

        Args:
            stage_id: the stage.
            iterator: the loop.
            lengths: extents of the inner loops, outer ones first; in a rule of
                `PreloadCustomSketchRule` all of them may be None: a knob then chooses.
            inner_to_outer: False: ``lengths`` are of the outer loops, the rest is the innermost.

        Returns:
            The new loops, outermost first.

        Raises:
            ScheduleError: a length is open without a sketch to choose it; or as of `Stage.split`.
        """
        args = (*self._loop(stage_id, iterator), tuple(lengths), inner_to_outer)
        return list(self._do("split", args))

    def fuse(self, stage_id: StageLike, iters: Sequence[IterLike]) -> te.IterVar:
        """Fuse adjacent loops; returns the new one."""
        stage = self._number(stage_id)
        loops = tuple(self._loop(stage_id, it)[1] for it in iters)
        fused: te.IterVar = self._do("fuse", (stage, loops))
        return fused

    def reorder(self, stage_id: StageLike, order: Sequence[IterLike]) -> None:
        """Put loops into an order, outermost first."""
        stage = self._number(stage_id)
        self._do("reorder", (stage, tuple(self._loop(stage_id, it)[1] for it in order)))

    def parallel(self, stage_id: StageLike, iterator: IterLike) -> te.IterVar:
        """Run a loop on all threads; returns the loop."""
        return self._mark("parallel", *self._loop(stage_id, iterator))

    def vectorize(self, stage_id: StageLike, iterator: IterLike) -> te.IterVar:
        """Run a loop as vectors; returns the loop."""
        return self._mark("vectorize", *self._loop(stage_id, iterator))

    def unroll(
        self, stage_id: StageLike, iterator: IterLike, max_unroll: int | None = None
    ) -> te.IterVar:
        """Unroll a loop, unless it runs more than ``max_unroll`` times; returns the loop."""
        stage, loop = self._loop(stage_id, iterator)
        if max_unroll is not None and self.sketch is not None:
            raise ScheduleError(
                "unroll: what a loop of a sketch runs is chosen by knobs; leave max_unroll out"
            )
        extent = self[stage].extents[loop] if max_unroll is not None else 0
        if max_unroll is not None and (not isinstance(extent, int) or extent > max_unroll):
            return self[stage].iters[loop]
        return self._mark("unroll", stage, loop)

    def bind(self, stage_id: StageLike, iterator: IterLike, thread_name: str) -> te.IterVar:
        """Run a loop as threads of a kernel, such as ``"threadIdx.x"``; returns the loop."""
        return self._mark("bind", *self._loop(stage_id, iterator), thread_name)

    def pragma(self, stage_id: StageLike, iterator: IterLike, pragma_type: str) -> None:
        """Annotate a loop: ``"auto_unroll_max_step$16"`` has a value behind the ``$``."""
        self._do("pragma", (*self._loop(stage_id, iterator), pragma_type))

    def compute_at(
        self, stage_id: StageLike, target_stage_id: StageLike, target_iter: IterLike
    ) -> None:
        """Compute a stage inside a loop of one that reads it."""
        at = self._loop(target_stage_id, target_iter)
        self._do("compute_at", (self._number(stage_id), *at))

    def compute_inline(self, stage_id: StageLike) -> None:
        """Compute the elements of a stage where they are read."""
        self._do("compute_inline", (self._number(stage_id),))

    def compute_root(self, stage_id: StageLike) -> None:
        """Compute a stage before all that read it."""
        self._do("compute_root", (self._number(stage_id),))

    def storage_align(
        self, stage_id: StageLike, iterator: IterLike, factor: int, offset: int
    ) -> None:
        """Pad the rows of a stage's result, see `Stage.storage_align`."""
        self._do("storage_align", (*self._loop(stage_id, iterator), factor, offset))

    def cache_read(
        self, stage_id: StageLike, scope_name: str, reader_stage_ids: Sequence[StageLike]
    ) -> te.Operation:
        """Copy a tensor for the stages that read it; returns the operation of the new stage."""
        readers = tuple(map(self._number, reader_stage_ids))
        new: te.Tensor = self._do("cache_read", (self._number(stage_id), scope_name, readers))
        return new.op

    def cache_write(self, stage_id: StageLike, scope_name: str) -> te.Operation:
        """Compute a stage in a copy of its result; returns the operation of the new stage."""
        new: te.Tensor = self._do("cache_write", (self._number(stage_id), scope_name))
        return new.op

    def rfactor(self, stage_id: StageLike, iterator: IterLike, factor_iter_id: int) -> te.Operation:
        """Split a reduction into partial ones; returns the operation of the new stage."""
        new: te.Tensor = self._do("rfactor", (*self._loop(stage_id, iterator), factor_iter_id))
        return new.op

    # -- how steps are applied ------------------------------------------------------------------

    def _stage(self, stage: StageLike) -> Stage:
        stages = self.schedule.stages
        if isinstance(stage, int):
            if not 0 <= stage < len(stages):
                raise ScheduleError(f"there is no stage {stage}; there are {len(stages)}")
            return stages[stage]
        op = stage.op if isinstance(stage, te.Tensor) else stage
        if op in self._places and op not in self.stage_ops:
            return self.schedule[self.schedule.tensor(arg_id(self._places[op]))]
        return self.schedule[op]

    def _number(self, stage: StageLike) -> int:
        ids = [one.id for one in self.schedule.stages]
        return ids.index(self._stage(stage).id)

    def _loop(self, stage: StageLike, loop: IterLike) -> tuple[int, int]:
        """The numbers of a stage and of one of its loops."""
        found = self._stage(stage)
        leaves = list(found.leaf_iter_vars)
        if isinstance(loop, int):
            number = loop if loop >= 0 else len(leaves) + loop
        else:
            number = next((n for n, leaf in enumerate(leaves) if leaf is loop), -1)
        if not 0 <= number < len(leaves):
            names = ", ".join(leaf.name for leaf in leaves)
            raise ScheduleError(f"{found} has no loop {loop!r:.40}; its loops are {names}")
        return self._number(stage), number

    def _mark(self, name: str, *args: Any) -> te.IterVar:
        marked: te.IterVar = self._do(name, args)
        return marked

    def _do(self, name: str, args: tuple[Any, ...]) -> Any:
        made = apply_step(self.schedule, self.sketch, name, args)
        self._calls.append((name, args))
        return made

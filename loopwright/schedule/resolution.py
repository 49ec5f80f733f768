"""State and trace of a schedule, and the stages and loops that the user's objects mean.

Axes and tensors are looked up by identity, so they stay valid across steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from random import Random
from weakref import WeakKeyDictionary

from loopwright.errors import ScheduleError, did_you_mean
from loopwright.ir.expr import Expr, IterVar, Var
from loopwright.schedule.apply import apply
from loopwright.schedule.state import IllegalStep, StageId, State
from loopwright.schedule.steps import Step, resolved
from loopwright.te import Dag, Operation, PlaceholderOp, Tensor


class ScheduleBase:
    """A schedule without its primitives; see `loopwright.schedule.schedule.Schedule`."""

    def __init__(self, dag: Dag, index: dict[Operation, int]) -> None:
        self.dag = dag
        self.state = State.initial(dag)
        self.trace: tuple[Step, ...] = ()
        self.random = Random(0)  #: generator of the sampling primitives
        self._stage_of_op: dict[Operation, StageId] = dict(index)
        self._operations: dict[StageId, Operation] = {i: op for op, i in index.items()}
        #: The loop that an axis means; without a stage, why it means none any more.
        self._loop_of_axis: dict[IterVar, tuple[StageId | None, str]] = {}
        self._axis_of_loop: dict[tuple[StageId, str], IterVar] = {}
        self._thread_vars: dict[Var, str] = {}
        #: Stages that this schedule has in common with those it was copied from.
        self._common: WeakKeyDictionary[ScheduleBase, frozenset[StageId]] = WeakKeyDictionary()
        for i, op in enumerate(dag.ops):
            self._enter_axes(i, op.axes, op.reduce_axes)

    def _detach(self, source: ScheduleBase) -> None:
        """Give a schedule that was copied from ``source`` its own mutable state.

        Axes mean the same loops in both. Operations that steps made are made again; those of the
        source still name their stages.
        """
        for sid, stage in self.state.stages.items():
            for loop in stage.loops:
                source._axis(sid, loop)
        self._common = WeakKeyDictionary(self._common)
        self._common[source] = frozenset(self.state.stages)
        self.random = copy(self.random)
        original = {i: op for i, op in self._operations.items() if not isinstance(op, StageOp)}
        self._operations = original
        self._stage_of_op = {op: i for i, op in original.items()}
        self._loop_of_axis = dict(self._loop_of_axis)
        self._axis_of_loop = dict(self._axis_of_loop)
        self._thread_vars = dict(self._thread_vars)

    # ------------------------------------------------------------ looking things up

    def stage_id(self, key: object, who: str) -> StageId:
        """The stage of a tensor, an operation or a stage (or a ScheduleError, by ``who``)."""
        if isinstance(key, StageRef):
            if key.schedule is not self:
                raise ScheduleError(f"{who}: {key!r} belongs to another schedule")
            return key.id
        op = key.op if isinstance(key, Tensor) else key
        if isinstance(op, StageOp):
            source, sid = op._schedule, op._sid
            if source is self or sid in self._common.get(source, ()):
                return sid
        if isinstance(op, Operation) and op in self._stage_of_op:
            return self._stage_of_op[op]
        names = [self.state.label(i) for i in self.state.order]
        stages = f"stages: {', '.join(names)}"
        if not isinstance(op, Operation):
            raise ScheduleError(
                f"{who}: expected a tensor, an operation or a stage, got {key!r}; {stages}"
            )
        same = f" (its own {op.name!r} is another tensor)" if op.name in names else ""
        near = same or did_you_mean(op.name, names)
        raise ScheduleError(f"{who}: {key!r} is not part of this schedule{near}; {stages}")

    def _operation(self, sid: StageId) -> Operation:
        """Operation of a stage as the user defined it, or as the step made it."""
        if sid not in self._operations:
            op = self.state.stages[sid].op
            new: Operation
            if op.is_placeholder:
                new = PlaceholderOp(op.name, op.shape, op.dtypes)
                new.constant = op.constant
            else:
                new = StageOp(self, sid)
            self._operations[sid] = new
            self._stage_of_op[new] = sid
        return self._operations[sid]

    def _tensor(self, sid: StageId, output: int = 0) -> Tensor:
        return self._operation(sid).output(output)

    def _enter_axes(self, sid: StageId, axes: Sequence[IterVar], reduce: Sequence[IterVar]) -> None:
        """Let axes of an operation mean the first loops of a stage."""
        loops = [f"a{d}" for d in range(len(axes))] + [f"r{d}" for d in range(len(reduce))]
        for loop, axis in zip(loops, (*axes, *reduce), strict=True):
            self._loop_of_axis[axis] = (sid, loop)
            self._axis_of_loop[sid, loop] = axis

    def _axis(self, sid: StageId, loop: str) -> IterVar:
        key = (sid, loop)
        if key not in self._axis_of_loop:
            x = self.state.stages[sid].loops[loop]
            axis = IterVar.named(x.name, x.nominal, x.kind)
            self._axis_of_loop[key] = axis
            self._loop_of_axis[axis] = key
        return self._axis_of_loop[key]

    def loop_id(self, sid: StageId, axis: object, who: str) -> str:
        """The loop of a stage that an axis means (or a ScheduleError, by ``who``)."""
        if not isinstance(axis, IterVar):
            raise ScheduleError(f"{who}: expected an axis of the stage, got {axis!r}")
        stage = self.state.stages[sid]
        owner, loop = self._loop_of_axis.get(axis, (None, ""))
        if owner == sid:
            return loop
        # Several stages may reduce over one axis: it means the loop of the stage that is asked.
        for (other, candidate), known_axis in self._axis_of_loop.items():
            if other == sid and known_axis is axis and candidate in stage.loops:
                return candidate
        if owner is None and loop:
            text = loop
        elif owner is None:
            names = [x.name for x in stage.loops.values()]
            text = f"is not known in this schedule{did_you_mean(axis.name, names)}"
        else:
            text = f"belongs to stage {self.state.label(owner)!r}, not to {self.state.label(sid)!r}"
        raise ScheduleError(
            f"{who}: axis {axis.name!r} {text}; the loops of {self.state.label(sid)!r} are "
            f"{self.state.loop_list(stage)}"
        )

    def any_loop_id(self, axis: object, who: str) -> tuple[StageId, str]:
        """The stage and the loop that an axis means, also one that was split or fused since; a
        ScheduleError, by ``who``, if it means none."""
        what, owner, loop = repr(axis), None, ""
        if isinstance(axis, IterVar):
            what = f"axis {axis.name!r}"
            owner, loop = self._loop_of_axis.get(axis, (None, ""))
        if owner is None:
            text = loop or "is no loop of this schedule; give an axis of a stage"
            raise ScheduleError(f"{who}: {what} {text}")
        return owner, loop

    # ------------------------------------------------------------ steps

    def _who(self, verb: str) -> str:
        """Primitive and index that its step would get, for messages."""
        return f"{verb} (step {self.state.steps})"

    @contextmanager
    def _naming(self, verb: str) -> Iterator[None]:
        """Context in which `IllegalStep` is an error of the primitive ``verb``."""
        try:
            yield
        except IllegalStep as reason:
            raise ScheduleError(f"{self._who(verb)}: {reason}") from None

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Context of steps that all succeed or are all undone, with the axes that they made."""
        before = self.state, self.trace, dict(self._loop_of_axis), dict(self._axis_of_loop)
        try:
            yield
        except ScheduleError:
            self.state, self.trace, self._loop_of_axis, self._axis_of_loop = before
            raise

    def apply_step(self, step: Step) -> int:
        """Apply a step and record it, as every primitive does; returns its index.

        Raises:
            ScheduleError: the step is illegal here; nothing has changed.
        """
        before = self.state
        step = resolved(before, step)
        self.state = apply(before, step)
        self.trace = (*self.trace, step)
        new_id = f"s{before.steps}"
        if (moves := step.moved_loops(before)) is not None:
            self._move_axes(before, step, new_id, moves)
        elif new_id in self.state.stages:
            op = self.state.stages[new_id].op
            self._enter_axes(new_id, op.axes, op.reduce_axes)
        return before.steps

    def _move_axes(
        self, before: State, step: Step, new_id: StageId, moves: Mapping[str, str]
    ) -> None:
        """Let axes of reduction loops follow these to the stage that the step made."""
        sid = step.stage
        loops = before.stages[sid].loops
        axes = [(x, loop) for x, (owner, loop) in self._loop_of_axis.items() if owner == sid]
        self._axis_of_loop = {
            (i, x): axis
            for (i, x), axis in self._axis_of_loop.items()
            if i != sid or loops[x].kind != "reduce"
        }
        new, old = self.state.stages[new_id].op, self.state.stages[sid].op
        self._enter_axes(new_id, new.axes, new.reduce_axes)
        self._enter_axes(sid, (), old.reduce_axes)
        for axis, loop in axes:
            there = moves.get(loop)
            if there is not None:
                self._loop_of_axis[axis] = (new_id, there)
            elif loops[loop].kind == "reduce":
                gone = f"went into the partial results of {step.primitive} (step {before.steps})"
                self._loop_of_axis[axis] = (None, gone)
            if there is not None and there[0] != "a":
                self._axis_of_loop[new_id, there] = axis


class StageRef:
    """A stage of a schedule, as users hold it; `loopwright.schedule.stage` has more."""

    def __init__(self, schedule: ScheduleBase, sid: StageId) -> None:
        self.schedule, self.id = schedule, sid


StageLike = Tensor | Operation | StageRef  #: objects that name a stage in a call of a primitive


class StageOp(Operation):
    """The present operation of a stage: `axis`, `reduce_axis`, `input_tensors`, ``output(k)``."""

    def __init__(
        self, schedule: ScheduleBase, sid: StageId, tensors: tuple[Tensor, ...] | None = None
    ) -> None:
        op = schedule.state.stages[sid].op
        super().__init__(op.name, op.shape, op.dtypes, op.tag)
        self._schedule, self._sid = schedule, sid
        self._outputs = tensors or self._outputs
        self.axis = [schedule._axis(sid, f"a{d}") for d in range(len(op.axes))]
        self.reduce_axis = [schedule._axis(sid, f"r{d}") for d in range(len(op.reduce_axes))]

    @property
    def body(self) -> Expr | None:
        """The expression of an element, as a `ComputeOp` has it; reads name stages by id."""
        return self._schedule.state.stages[self._sid].op.body

    @property
    def input_tensors(self) -> list[Tensor]:
        reads = self._schedule.state.stages[self._sid].op.reads()
        ids = dict.fromkeys((r.source, r.value_index) for r in reads)
        return [self._schedule._tensor(*i) for i in ids]

"""What a schedule knows: its state and trace, and what handles of users stand for.

Handles (axes, tensors) are looked up by identity, so they stay valid across steps, and the axes of
an operation that was cached resolve to the stage that carries them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from loopwright.errors import ScheduleError, did_you_mean
from loopwright.ir.expr import IterVar, Var
from loopwright.schedule.apply import apply
from loopwright.schedule.rules import CacheRead, CacheWrite, RFactor
from loopwright.schedule.rules.rfactor import factoring
from loopwright.schedule.state import Loop, StageId, State
from loopwright.schedule.steps import Step
from loopwright.schedule.surface.view import StageOp, StageView
from loopwright.te.dag import Dag
from loopwright.te.tensor import Operation, PlaceholderOp, Tensor


class Handles:
    """A schedule without its primitives; see `loopwright.schedule.surface.schedule.Schedule`."""

    def __init__(self, dag: Dag, index: dict[Operation, int]) -> None:
        self.dag = dag
        self.state = State.initial(dag)
        self.trace: tuple[Step, ...] = ()
        self._ops: dict[Operation, StageId] = dict(index)
        self._made: dict[StageId, Operation] = {i: op for op, i in index.items()}
        #: The loop that a handle stands for; without a stage, why there is none any more.
        self._by_axis: dict[IterVar, tuple[StageId | None, str]] = {}
        self._handles: dict[tuple[StageId, str], IterVar] = {}
        self._thread_vars: dict[Var, str] = {}
        for i, op in enumerate(dag.ops):
            self._own_axes(i, op.axes, op.reduce_axes)

    # ------------------------------------------------------------ looking things up

    def _stage_id(self, key: Any, who: str) -> StageId:
        if isinstance(key, StageView):
            if key.schedule is not self:
                raise ScheduleError(f"{who}: {key!r} belongs to another schedule")
            return key.id
        op = key.op if isinstance(key, Tensor) else key
        if isinstance(op, StageOp) and op._schedule is self:
            return op._sid
        if isinstance(op, Operation) and op in self._ops:
            return self._ops[op]
        known = [self.state.label(i) for i in self.state.order]
        if not isinstance(op, Operation):
            raise ScheduleError(
                f"{who}: expected a tensor, an operation or a stage, got {key!r}; stages: "
                f"{', '.join(known)}"
            )
        same = f" (its own {op.name!r} is another tensor)" if op.name in known else ""
        near = same or did_you_mean(op.name, known)
        raise ScheduleError(
            f"{who}: {key!r} is not part of this schedule{near}; stages: {', '.join(known)}"
        )

    def _stage(self, sid: StageId) -> StageView:
        """What users hold of a stage."""
        return StageView(self, sid)

    def _operation(self, sid: StageId) -> Operation:
        """The operation of a stage as the user defined it, or as the step made it."""
        if sid not in self._made:
            op = self.state.stages[sid].op
            made: Operation = (
                PlaceholderOp(op.name, op.shape, op.dtypes)
                if op.is_placeholder
                else StageOp(self, sid)
            )
            self._made[sid] = made
            self._ops[made] = sid
        return self._made[sid]

    def _tensor(self, sid: StageId, output: int = 0) -> Tensor:
        return self._operation(sid).output(output)

    def _own_axes(self, sid: StageId, axes: Sequence[IterVar], reduce: Sequence[IterVar]) -> None:
        for kind, group in (("a", axes), ("r", reduce)):
            for d, axis in enumerate(group):
                self._by_axis[axis] = (sid, f"{kind}{d}")
                self._handles[sid, f"{kind}{d}"] = axis

    def _handle(self, sid: StageId, loop: str) -> IterVar:
        key = (sid, loop)
        if key not in self._handles:
            x: Loop = self.state.stages[sid].loops[loop]
            axis = IterVar(Var(x.name), x.nominal, x.kind)
            self._handles[key] = axis
            self._by_axis[axis] = key
        return self._handles[key]

    def _loop_id(self, sid: StageId, axis: Any, who: str) -> str:
        if not isinstance(axis, IterVar):
            raise ScheduleError(f"{who}: expected an axis of the stage, got {axis!r}")
        stage = self.state.stages[sid]
        owner, loop = self._by_axis.get(axis, (None, ""))
        if owner == sid:
            return loop
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

    # ------------------------------------------------------------ steps

    def _who(self, verb: str) -> str:
        """A primitive and the index that its step would get, for messages."""
        return f"{verb} (step {self.state.steps})"

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Several steps that stand or fall together; handles made on the way go as well."""
        before = self.state, self.trace, dict(self._by_axis), dict(self._handles)
        try:
            yield
        except ScheduleError:
            self.state, self.trace, self._by_axis, self._handles = before
            raise

    def _move_axes(self, before: State, step: RFactor) -> None:
        """Handles of reduction loops follow these to the stage that rfactor made."""
        sid, new_id = step.stage, f"s{before.steps}"
        moves = factoring(before.stages[sid], step.loop, step.factor_axis).moves
        mine = [(x, own) for x, own in self._by_axis.items() if own[0] == sid]
        loops = before.stages[sid].loops
        self._handles = {
            (i, x): v
            for (i, x), v in self._handles.items()
            if i != sid or loops[x].kind != "reduce"
        }
        for op_sid in (new_id, sid):
            op = self.state.stages[op_sid].op
            self._own_axes(op_sid, op.axes if op_sid == new_id else (), op.reduce_axes)
        for handle, (_, loop) in mine:
            if loop in moves:
                self._by_axis[handle] = (new_id, moves[loop])
                if moves[loop][0] != "a":
                    self._handles[new_id, moves[loop]] = handle
            elif loops[loop].kind == "reduce":
                gone = f"went into the partial results of rfactor (step {before.steps})"
                self._by_axis[handle] = (None, gone)

    def _do(self, step: Step) -> int:
        """Apply a step; returns its index."""
        before = self.state
        self.state = apply(before, step)
        self.trace = (*self.trace, step)
        if isinstance(step, RFactor):
            self._move_axes(before, step)
        elif isinstance(step, CacheRead | CacheWrite):
            new_id = f"s{before.steps}"
            op = self.state.stages[new_id].op
            self._own_axes(new_id, op.axes, op.reduce_axes)
        return before.steps

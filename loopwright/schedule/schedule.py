"""The mutable surface, as in TVM's te: `Schedule`, and `Stage` beside this file.

Each call builds a frozen step, applies it to the immutable state and appends it to ``trace``. A
call that is refused changes nothing. Handles (axes, tensors) are looked up by identity, so they
stay valid across steps, and the axes of an operation that was cached resolve to the stage that
carries them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from loopwright.errors import ScheduleError, did_you_mean
from loopwright.ir.expr import IterVar, Var
from loopwright.schedule import steps as st
from loopwright.schedule.apply import apply
from loopwright.schedule.bounds import Bounds, infer_bounds
from loopwright.schedule.rfactor import factoring
from loopwright.schedule.stage import Stage
from loopwright.schedule.stage_memory import plain
from loopwright.schedule.stage_view import StageOp, output_of
from loopwright.schedule.state import Loop, StageId, State
from loopwright.schedule.trace import trace_as_python
from loopwright.schedule.validate import validate_bounds
from loopwright.te.dag import ArgId, Dag, arg_id, read_arg_id
from loopwright.te.tensor import Operation, PlaceholderOp, Tensor


def create_schedule(ops: Operation | Tensor | Sequence[Operation | Tensor]) -> Schedule:
    """A schedule of everything that ``ops`` need: each stage at root, loops in the order given.

    Args:
        ops: an operation, a tensor, or a list of them: the outputs.
    """
    given = ops if isinstance(ops, list | tuple) else [ops]
    outs = []
    for x in given:
        op = x.op if isinstance(x, Tensor) else x
        if not isinstance(op, Operation):
            raise ScheduleError(f"create_schedule: expected operations or tensors, got {x!r}")
        if isinstance(op, PlaceholderOp):
            raise ScheduleError(f"create_schedule: {op.name!r} is an input; give what is computed")
        outs.append(op)
    if not outs or len(set(given)) != len(given):
        raise ScheduleError("create_schedule: expected one or more distinct operations")
    dag, index = Dag.from_ops(list(dict.fromkeys(outs)))
    return Schedule(dag, {op: i for op, i in index.items()})


def replay(dag: Dag, trace: Sequence[Any]) -> Schedule:
    """A fresh schedule of ``dag`` with a recorded trace (steps or their JSON) applied.

    Raises:
        ScheduleError: the trace is malformed, or a step is illegal for this DAG.
    """
    s = Schedule(dag, {})
    for x in trace:
        s._do(x if isinstance(x, st.Step) else st.Step.from_json(x))
    return s


class Schedule:
    """A schedule under construction.

    Attributes:
        dag: the program as it was before any step.
        state: the present immutable state.
        trace: the steps applied so far.
    """

    def __init__(self, dag: Dag, index: dict[Operation, int]) -> None:
        self.dag = dag
        self.state = State.initial(dag)
        self.trace: tuple[st.Step, ...] = ()
        self._ops: dict[Operation, StageId] = dict(index)
        self._made: dict[StageId, Operation] = {i: op for op, i in index.items()}
        #: The loop that a handle stands for; without a stage, why there is none any more.
        self._by_axis: dict[IterVar, tuple[StageId | None, str]] = {}
        self._handles: dict[tuple[StageId, str], IterVar] = {}
        self._thread_vars: dict[Var, str] = {}
        self._bounds: tuple[State, Bounds] | None = None
        for i, op in enumerate(dag.ops):
            self._own_axes(i, op.axes, op.reduce_axes)

    # ------------------------------------------------------------ looking things up

    def __getitem__(self, key: Any) -> Stage:
        """The stage of a tensor or operation.

        Raises:
            ScheduleError: it does not belong to this schedule.
        """
        return Stage(self, self._stage_id(key, "schedule"))

    @property
    def stages(self) -> list[Stage]:
        """All stages in topological order."""
        return [Stage(self, i) for i in self.state.order]

    @property
    def outputs(self) -> list[Operation]:
        """Operations of the outputs."""
        return [self._operation(i) for i in self.state.outputs]

    @property
    def tensors(self) -> list[Tensor]:
        """The tensor (of several outputs the first) of each operation of the original DAG."""
        return [self._tensor(i) for i in range(len(self.dag.ops))]

    def tensor(self, arg_id: ArgId) -> Tensor:
        """The tensor of the original DAG with an id as in `arg_ids`."""
        return self._tensor(*read_arg_id(arg_id))

    def _stage_id(self, key: Any, who: str) -> StageId:
        if isinstance(key, Stage):
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

    def _move_axes(self, before: State, step: st.RFactor) -> None:
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

    def _do(self, step: st.Step) -> int:
        """Apply a step; returns its index."""
        before = self.state
        self.state = apply(before, step)
        self.trace = (*self.trace, step)
        if isinstance(step, st.RFactor):
            self._move_axes(before, step)
        elif isinstance(step, st.CacheRead | st.CacheWrite):
            new_id = f"s{before.steps}"
            op = self.state.stages[new_id].op
            self._own_axes(new_id, op.axes, op.reduce_axes)
        return before.steps

    def cache_read(self, tensor: Any, scope: str, readers: Any) -> Tensor:
        """Copy ``tensor`` into a buffer of ``scope`` which the ``readers`` use instead.

        Before::

            for i, k: C[i] += A[i, k]

        After ``AL = s.cache_read(A, "local", [C])``::

            for i, k: A.local[i, k] = A[i, k]
            for i, k: C[i] += A.local[i, k]

        With ``s[AL].compute_at(s[C], i)`` the copy shrinks to what one i needs.

        Args:
            tensor: the tensor to copy (an input, or a tensor that a stage makes).
            scope: ``"global"``, ``"shared"`` or ``"local"``.
            readers: a tensor, operation or stage that reads it, or a list of them.

        Returns:
            The tensor of the new stage.

        Raises:
            ScheduleError: a reader does not read the tensor; unknown scope.
        """
        group = readers if isinstance(readers, list | tuple) else [readers]
        who = self._who("cache_read")
        ids = tuple(self._stage_id(r, who) for r in group)
        t = self._do(st.CacheRead(self._stage_id(tensor, who), scope, ids, output_of(tensor, who)))
        return self._tensor(f"s{t}")

    def cache_write(self, tensor: Any, scope: str) -> Any:
        """Compute ``tensor`` in a buffer of ``scope`` and copy the result.

        Before::

            for i, j, k: C[i, j] += A[i, k] * B[k, j]

        After ``CL = s.cache_write(C, "local")``::

            for i, j, k: C.local[i, j] += A[i, k] * B[k, j]
            for i, j:    C[i, j] = C.local[i, j]

        ``C.op.axis`` stay axes of C; ``C.op.reduce_axis`` now belong to the new stage.

        Args:
            tensor: the tensor to cache; its loops must be untouched. Of an operation with several
                outputs a list of all of them (or the operation): one stage caches them together.
            scope: ``"global"``, ``"shared"`` or ``"local"``.

        Returns:
            The tensor of the new stage; a list of them where there are several, or a list was
            given.

        Raises:
            ScheduleError: the loops of the stage are transformed already; it is a placeholder; of
                several outputs only some are given.
        """
        who = self._who("cache_write")
        given = list(tensor) if isinstance(tensor, list | tuple) else [tensor]
        if not given:
            raise ScheduleError(f"{who}: expected a tensor or all outputs of an operation")
        sid = self._stage_id(given[0], who)
        self._check_outputs(sid, given, who)
        new = self._operation(f"s{self._do(st.CacheWrite(sid, scope))}")
        many = new.num_outputs > 1 or given[0] is not tensor
        return list(new._outputs) if many else new.output(0)

    def _check_outputs(self, sid: StageId, given: list[Any], who: str) -> None:
        """Refuse a part of the outputs of an operation, or outputs of several."""
        for x in given[1:]:
            if self._stage_id(x, who) != sid:
                raise ScheduleError(
                    f"{who}: {self.state.label(sid)!r} and {x.name!r} are not outputs of one "
                    "operation; cache them one after the other"
                )
        n = self.state.stages[sid].op.num_outputs
        whole = len(given) == 1 and not isinstance(given[0], Tensor)
        if not whole and {x.value_index for x in given} != set(range(n)):
            names = ", ".join(self.state.output_label(sid, k) for k in range(n))
            raise ScheduleError(
                f"{who}: {self.state.label(sid)!r} makes {n} outputs in one nest; give all of "
                f"them: cache_write([{names}], scope)"
            )

    def rfactor(self, tensor: Any, axis: IterVar, factor_axis: int = 0) -> Tensor | list[Tensor]:
        """Compute partial results along a reduction loop in a new stage, then combine them.

        The loop becomes a spatial axis of the new stage, so that it can be parallel, bound or
        vectorized there; what is left of the reduction stays a reduction of the new stage.

        Before::

            for i: for ko: for ki in range(8): B[i] += A[i, ko * 8 + ki]

        After ``BF = s.rfactor(B, ki)``::

            for ki in range(8): for i: for ko: B.rf[ki, i] += A[i, ko * 8 + ki]
            for i: for ki in range(8):         B[i] += B.rf[ki, i]

        Where the split has a tail, the points beyond the axis are left out of the partial results.
        ``init=`` of the reduction enters when they are combined. The spatial loops of ``tensor``
        stay as they are (TE takes splits of them back). Reduction loops move to the new stage:
        ``ko`` and, as a spatial one, ``ki``; ``s[B].op.reduce_axis[0]`` runs over the results.
        Elements are combined in another order than before.

        Args:
            tensor: a reduction, or any output of one of tuples; its reduction loops may be split,
                fused and reordered, not marked.
            axis: the reduction loop to factor.
            factor_axis: where its axis stands among those of the new stage; negative ones count
                from the end, as in TE.

        Returns:
            The tensor of the new stage; a list of its outputs for a reduction of tuples.

        Raises:
            ScheduleError: the stage is no reduction, the loop is no reduction loop of it,
                ``factor_axis`` is out of range, a reduction loop is marked or has a stage computed
                at it.
        """
        who = self._who("rfactor")
        sid = self._stage_id(tensor, who)
        self.state.compute_stage(sid, "rfactor")
        loop = self._loop_id(sid, axis, who)
        at = plain(factor_axis)
        if isinstance(at, bool) or not isinstance(at, int):
            raise ScheduleError(f"{who}: factor_axis must be an integer, got {factor_axis!r}")
        n = len(self.state.stages[sid].op.shape) + 1
        t = self._do(st.RFactor(sid, loop, at + n if -n <= at < 0 else at))
        new = self._operation(f"s{t}")
        return new.output(0) if new.num_outputs == 1 else list(new._outputs)

    # ------------------------------------------------------------ results

    def bounds(self) -> Bounds:
        """Bounds of all stages in the present state (inferred once a state)."""
        if self._bounds is None or self._bounds[0] is not self.state:
            self._bounds = (self.state, infer_bounds(self.state))
        return self._bounds[1]

    def validate(self) -> Bounds:
        """Check the rules that need extents; returns the bounds.

        Raises:
            ScheduleError: a stage is attached where its readers do not run, a vector is too long,
                unrolling makes too many copies.
        """
        bounds = self.bounds()
        validate_bounds(self.state, bounds)
        return bounds

    def trace_json(self) -> list[list[Any]]:
        """The trace as JSON-able lists; `replay` applies it to the DAG again."""
        return [step.to_json() for step in self.trace]

    def as_python(self) -> str:
        """The trace as a Python function of a fresh schedule and its tensors."""
        return trace_as_python(self.dag, self.trace)

    def arg_ids(self, args: Sequence[Tensor]) -> list[ArgId]:
        """Indices in the DAG of the tensors ``args``; ``(index, k)`` for output k > 0.

        Raises:
            ScheduleError: one of them is not a tensor of the original DAG.
        """
        out: list[ArgId] = []
        for t in args:
            sid = self._stage_id(t, "arguments")
            if not isinstance(sid, int):
                raise ScheduleError(
                    f"arguments: {t.name!r} was made by a schedule primitive; arguments are "
                    "tensors of the program"
                )
            out.append(arg_id(sid, output_of(t, "arguments")))
        return out

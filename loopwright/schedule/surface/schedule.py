"""The mutable surface, as in TVM's te: `Schedule`, and `Stage` beside this file.

Each call builds a frozen step, applies it to the immutable state and appends it to ``trace``. A
call that is refused changes nothing. `resolution` looks up what axes and tensors mean, `new_stages`
has the primitives that make stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from loopwright.errors import ScheduleError
from loopwright.schedule.bounds.infer import infer_bounds
from loopwright.schedule.bounds.results import Bounds
from loopwright.schedule.json_limits import check_trace
from loopwright.schedule.state import StageId, State
from loopwright.schedule.steps import Step
from loopwright.schedule.surface.group import Group
from loopwright.schedule.surface.new_stages import SchedulePrimitives
from loopwright.schedule.surface.resolution import StageLike
from loopwright.schedule.surface.stage import Stage
from loopwright.schedule.surface.view import output_of
from loopwright.schedule.trace import trace_as_python
from loopwright.schedule.validate import validate_bounds
from loopwright.te.dag import ArgId, Dag, arg_id, read_arg_id
from loopwright.te.tensor import Operation, PlaceholderOp, Tensor


def create_schedule(ops: Operation | Tensor | Sequence[Operation | Tensor]) -> Schedule:
    """A schedule of everything that ``ops`` need: each stage at root, loops in the order given.

    Args:
        ops: an operation, a tensor, or a list of them: the outputs.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> C = te.compute((4,), lambda i: B[i] * 2, name="C")
        >>> s = lw.create_schedule(C.op)
        >>> print(s)
        Schedule(stages A, B, C; 0 step(s))
        >>> print(lw.lower(s, [A, C]))
        def main(A: float32[4], C: out float32[4]):
          B = alloc(float32[4], global)
          for i in range(4):
            B[i] = A[i] + 1.0
          for i_1 in range(4):
            C[i_1] = B[i_1] * 2.0
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


def replay(dag: Dag, trace: Sequence[Step | list[Any]]) -> Schedule:
    """A fresh schedule of ``dag`` with a recorded trace (steps or their JSON) applied.

    JSON may come from a log that somebody else wrote: it has limits (`loopwright.schedule.
    json_limits`), and an intrinsic in it is used only if this program has declared it or if it is
    proved harmless (`loopwright.te.intrin_proof`).

    Raises:
        ScheduleError: the trace is malformed, a step is illegal for this DAG, or an intrinsic is
            refused.

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].parallel(B.op.axis[0])
        >>> again = lw.schedule.replay(s.dag, s.trace_json())
        >>> print(again, again.trace == s.trace)
        Schedule(stages A, B; 1 step(s)) True
    """
    check_trace([x for x in trace if not isinstance(x, Step)] if _is_list(trace) else trace)
    s = Schedule(dag, {})
    for x in trace:
        s.apply_step(x if isinstance(x, Step) else Step.from_json(x))
    return s


def _is_list(x: object) -> bool:
    return isinstance(x, list | tuple)


class Schedule(SchedulePrimitives):
    """A schedule under construction.

    Attributes:
        dag: the program as it was before any step.
        state: the present immutable state.
        trace: the steps applied so far.
        origin: its source, such as the history of a log; None: it is written by hand.

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].vectorize(B.op.axis[0])
        >>> print(s)
        Schedule(stages A, B; 1 step(s))
        >>> print(s.trace)
        (Annotate(stage=1, loop='a0', kind='vectorized'),)
    """

    def __init__(self, dag: Dag, index: dict[Operation, int]) -> None:
        super().__init__(dag, index)
        self.origin: object | None = None
        self._bounds: tuple[State, Bounds] | None = None

    def __repr__(self) -> str:
        names = ", ".join(self.state.label(i) for i in self.state.order)
        return f"Schedule(stages {names}; {len(self.trace)} step(s))"

    def _repr_html_(self) -> str:
        from loopwright.presenting import html_block, html_folded, html_text

        count = f"{len(self.trace)} step{'s' * (len(self.trace) != 1)}"
        names = ", ".join(self.state.label(i) for i in self.state.order)
        expression = html_folded("Tensor expression", html_text(self.dag.as_python()))
        return html_block(f"Schedule of {names}: {count}", html_text(self.as_python()), expression)

    def __getitem__(self, key: StageLike) -> Stage:
        """The stage of a tensor or operation.

        Raises:
            ScheduleError: it does not belong to this schedule.
        """
        return Stage(self, self.stage_id(key, "schedule"))

    def copy(self) -> Schedule:
        """An independent copy: steps of one of the two are not steps of the other.

        Tensors of the expression name stages of both, tensors that steps made only of their own.

        Example:
            >>> A = te.placeholder((8,), name="A")
            >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> other = s.copy()
            >>> other[B].vectorize(B.op.axis[0])
            >>> print(s, other)
            Schedule(stages A, B; 0 step(s)) Schedule(stages A, B; 1 step(s))
        """
        made = copy(self)
        made._go_apart()
        return made

    @property
    def stages(self) -> list[Stage]:
        """All stages in topological order."""
        return [self._stage(i) for i in self.state.order]

    @property
    def groups(self) -> list[Group]:
        """All groups of stages, in the order in which they were made."""
        return [Group(self, i, self._stage) for i in self.state.groups]

    def _stage(self, sid: StageId) -> Stage:
        return Stage(self, sid)

    @property
    def outputs(self) -> list[Operation]:
        """Operations of the outputs."""
        return [self._operation(i) for i in self.state.outputs]

    @property
    def tensors(self) -> list[Tensor]:
        """The tensor (of several outputs the first) of each operation of the original DAG."""
        return [self._tensor(i) for i in range(len(self.dag.ops))]

    def tensor(self, arg_id: ArgId) -> Tensor:
        """The tensor of the original DAG with an id as in `arg_ids`.

        Example:
            >>> A = te.placeholder((8,), name="A")
            >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(s.tensor(0), s.tensor(1))
            Tensor(A: float32[8]) Tensor(B: float32[8])
        """
        return self._tensor(*read_arg_id(arg_id))

    def seed(self, number: int) -> None:
        """Seed the generator of the sampling primitives; the seed is 0 at first.

        Example:
            >>> A = te.placeholder((8,), name="A")
            >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> drawn = []
            >>> for _ in range(2):
            ...     s.seed(7)
            ...     drawn.append([s[B].sample_categorical(range(100)) for _ in range(5)])
            ...
            >>> print(drawn[0] == drawn[1])
            True
        """
        self.random.seed(number)

    # ------------------------------------------------------------ results

    def bounds(self) -> Bounds:
        """Bounds of all stages in the present state (inferred once for each state).

        Example:
            >>> A = te.placeholder((30,), name="A")
            >>> B = te.compute((30,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> io, ii = s[B].split(B.op.axis[0], factor=8)
            >>> print([(x.var.name, x.extent) for x in s.bounds().stages[1].loops])
            [('i.0', 4), ('i.1', 8)]
        """
        if self._bounds is None or self._bounds[0] is not self.state:
            self._bounds = (self.state, infer_bounds(self.state))
        return self._bounds[1]

    def validate(self) -> Bounds:
        """Check the rules that need extents; returns the bounds.

        Raises:
            ScheduleError: a stage is attached where its readers do not run, a vector is too long,
                unrolling makes too many copies.

        Example:
            >>> A = te.placeholder((2048,), name="A")
            >>> B = te.compute((2048,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> s[B].vectorize(B.op.axis[0])
            >>> try:
            ...     s.validate()
            ... except lw.LoopwrightError as error:
            ...     print(str(error).partition(";")[0])
            ...
            vectorize (step 0): loop 'B.i' has 2048 iterations, the longest vector is 1024
        """
        bounds = self.bounds()
        validate_bounds(self.state, bounds)
        return bounds

    def trace_json(self) -> list[list[Any]]:
        """The trace as JSON-able lists; `replay` applies it to the DAG again.

        Example:
            >>> A = te.placeholder((8,), name="A")
            >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> io, ii = s[B].split(B.op.axis[0], factor=4)
            >>> s[B].vectorize(ii)
            >>> print(s.trace_json())
            [['split', 1, 'a0', 4, None], ['annotate', 1, '0.1', 'vectorized']]
        """
        return [step.to_json() for step in self.trace]

    def as_python(self) -> str:
        """The trace as a Python function of a fresh schedule and its tensors.

        Example:
            >>> A = te.placeholder((8,), name="A")
            >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> io, ii = s[B].split(B.op.axis[0], factor=4)
            >>> s[B].vectorize(ii)
            >>> print(s.as_python())
            def schedule(s, A, B):
                [i] = s[B].op.axis
                i_0, i_1 = s[B].split(i, factor=4)
                s[B].vectorize(i_1)
                return s
            <BLANKLINE>
        """
        return trace_as_python(self.dag, self.trace)

    def arg_ids(self, args: Sequence[Tensor]) -> list[ArgId]:
        """Indices in the DAG of the tensors ``args``; ``(index, k)`` for output k > 0.

        Raises:
            ScheduleError: one of them is not a tensor of the original DAG.

        Example:
            >>> A = te.placeholder((8,), name="A")
            >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
            >>> s = te.create_schedule(B.op)
            >>> print(s.arg_ids([A, B]))
            [0, 1]
        """
        out: list[ArgId] = []
        for t in args:
            sid = self.stage_id(t, "arguments")
            if not isinstance(sid, int):
                raise ScheduleError(
                    f"arguments: {t.name!r} was made by a schedule primitive; arguments are "
                    "tensors of the program"
                )
            out.append(arg_id(sid, output_of(t, "arguments")))
        return out

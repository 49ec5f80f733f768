"""``auto_scheduler.compute_dag``: what is computed, and schedules of it from states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from loopwright.auto_scheduler.loop_state import State
from loopwright.auto_scheduler.workload_registry import workload_key_to_tensors
from loopwright.errors import UsageError
from loopwright.schedule import Schedule, create_schedule, replay
from loopwright.space.expression import tensor_program
from loopwright.te import Dag, Tensor

if TYPE_CHECKING:
    from loopwright.task.template import Scheduled
    from loopwright.te import Operation

__all__ = ["ComputeDAG", "LayoutRewriteOption"]


class LayoutRewriteOption:
    """What may be done with the layout of operands: ``NO_REWRITE`` or ``INSERT_TRANSFORM_STAGE``.

    Rules choose for themselves which operands a kernel packs, in a stage of the kernel, which
    counts in its time; both options mean this. Kernels whose operands come packed already
    (``REWRITE_FOR_PRE_TRANSFORMED``) belong to networks, and are refused.

    Example:
        >>> from loopwright import auto_scheduler
        >>> print(auto_scheduler.LayoutRewriteOption.INSERT_TRANSFORM_STAGE)
        1
    """

    NO_REWRITE = 0
    INSERT_TRANSFORM_STAGE = 1
    REWRITE_FOR_PRE_TRANSFORMED = 2


def check_layout_rewrite(option: int | None) -> None:
    """Accept the options that mean what rules do.

    Raises:
        UsageError: it is another one.
    """
    if option not in (
        None,
        LayoutRewriteOption.NO_REWRITE,
        LayoutRewriteOption.INSERT_TRANSFORM_STAGE,
    ):
        raise UsageError(
            f"layout_rewrite_option={option!r} is not there: kernels take operands as they are "
            "declared, and pack them themselves; leave it out, or declare the packed operand"
        )


class ComputeDAG:
    """What is computed: inputs, operations and results.

    Args:
        compute_or_sche: inputs and results in calling order, or results alone; the key of a
            workload; or a schedule, whose expression is meant.

    Attributes:
        tensors: inputs and results in calling order.
        places: for each operation its number, producers first.

    Raises:
        UsageError: it is something else.
        TaskError: no workload has the key.
        TensorError: the tensors are no expression; see `loopwright.space.tensor_program`.

    Example:
        >>> from loopwright import auto_scheduler
        >>> A = te.placeholder((16, 8), name="A")
        >>> k = te.reduce_axis((0, 8), name="k")
        >>> B = te.compute((16,), lambda i: te.sum(A[i, k], axis=k), name="B")
        >>> dag = auto_scheduler.ComputeDAG([A, B])
        >>> print(dag.flop_ct, [op.name for op in dag.ops])
        128.0 ['A', 'B']
        >>> print(dag)
        A = te.placeholder((16, 8), "float32", name="A")
        k = te.reduce_axis((0, 8), name="k")
        B = te.compute((16,), lambda i: te.sum(A[i, k], axis=[k]), name="B")
    """

    _fresh: Callable[[], Scheduled]

    def __init__(self, compute_or_sche: str | Tensor | Sequence[Tensor] | Schedule) -> None:
        if isinstance(compute_or_sche, str):
            given: Tensor | Sequence[Tensor] = workload_key_to_tensors(compute_or_sche)
        elif isinstance(compute_or_sche, Schedule):
            given = [op.output(0) for op in compute_or_sche.outputs]
        elif isinstance(compute_or_sche, (Tensor, list, tuple)):
            given = compute_or_sche
        else:
            raise UsageError(
                "ComputeDAG takes tensors, the key of a workload or a schedule; it got a "
                f"{type(compute_or_sche).__name__}"
            )
        program = tensor_program(given)
        self.tensors = list(program.args)
        outputs = [t.op for t in program.outputs]
        self._dag, self.places = Dag.from_ops(outputs)
        self._fresh = lambda: (create_schedule(outputs), list(self.tensors))

    @classmethod
    def of_schedule(cls, schedule: Schedule, args: Sequence[Tensor]) -> ComputeDAG:
        """The expression of a schedule that was replayed, whose tensors are its own.

        Args:
            schedule: the schedule.
            args: its arguments in calling order.
        """
        made = cls.__new__(cls)
        ids = schedule.arg_ids(args)

        def fresh() -> Scheduled:
            new = replay(schedule.dag, [])
            return new, [new.tensor(a) for a in ids]

        made._dag, made.places, made._fresh = schedule.dag, {}, fresh
        made.tensors = fresh()[1]
        return made

    @property
    def ops(self) -> list[Operation]:
        """The operations, inputs included, each before those that read it."""
        return [stage.op for stage in self._fresh()[0].stages]

    @property
    def flop_ct(self) -> float:
        """Arithmetic operations of one evaluation; a multiply and an add count one each."""
        return float(self._dag.flop)

    @cached_property
    def init_state(self) -> State:
        """The state without steps."""
        return self.get_init_state()

    def hash_key(self) -> str:
        """Hash of what is computed, whatever it is called: 16 hex digits; records have it, too.

        Example:
            >>> from loopwright import auto_scheduler
            >>> A = te.placeholder((16,), name="A")
            >>> B = te.compute((16,), lambda i: A[i] + 1, name="B")
            >>> C = te.compute((16,), lambda i: A[i] + 1, name="C")
            >>> one, other = (auto_scheduler.ComputeDAG([A, T]) for T in (B, C))
            >>> print(len(one.hash_key()), one.hash_key() == other.hash_key())
            16 True
        """
        return self._dag.hash

    def get_init_state(self) -> State:
        """A new state without steps.

        Example:
            >>> from loopwright import auto_scheduler
            >>> A = te.placeholder((16,), name="A")
            >>> B = te.compute((16,), lambda i: A[i] + 1, name="B")
            >>> state = auto_scheduler.ComputeDAG([A, B]).get_init_state()
            >>> print(state.transform_steps, [str(stage) for stage in state.stages])
            [] ['A: ', 'B: i']
        """
        return State(self._fresh, self.places)

    def apply_steps_from_state(
        self, state: State, layout_rewrite: int | None = LayoutRewriteOption.NO_REWRITE
    ) -> Scheduled:
        """A schedule with the steps of a state.

        Args:
            state: the state; it stays as it is.
            layout_rewrite: see `LayoutRewriteOption`.

        Returns:
            ``(schedule, [tensors])`` as `loopwright.build` takes it.

        Raises:
            UsageError: the state is of another expression, or the option is refused.

        Example:
            >>> from loopwright import auto_scheduler
            >>> A = te.placeholder((16,), name="A")
            >>> B = te.compute((16,), lambda i: A[i] + 1, name="B")
            >>> dag = auto_scheduler.ComputeDAG([A, B])
            >>> state = dag.get_init_state()
            >>> _ = state.vectorize(B, 0)
            >>> s, args = dag.apply_steps_from_state(state)
            >>> f = lw.build(s, args, "llvm")
            >>> b = np.empty(16, "float32")
            >>> f(np.zeros(16, "float32"), b)
            >>> print(b[0])
            1.0
        """
        check_layout_rewrite(layout_rewrite)
        self._check(state)
        fresh = state.copy()
        return fresh.schedule, fresh.args

    def print_python_code_from_state(self, state: State) -> str:
        """The steps of a state as a Python function.

        Raises:
            UsageError: the state is of another expression.

        Example:
            >>> from loopwright import auto_scheduler
            >>> A = te.placeholder((16,), name="A")
            >>> B = te.compute((16,), lambda i: A[i] + 1, name="B")
            >>> dag = auto_scheduler.ComputeDAG([A, B])
            >>> state = dag.get_init_state()
            >>> _ = state.split(B, 0, [4])
            >>> print(dag.print_python_code_from_state(state))
            def schedule(s, A, B):
                [i] = s[B].op.axis
                i_0, i_1 = s[B].split(i, factor=4)
                return s
            <BLANKLINE>
        """
        self._check(state)
        return state.schedule.as_python()

    def infer_bound_from_state(self, state: State) -> State:
        """A copy of a state whose bounds are known to be sound: ``state[stage].extents`` tells how
        often every loop runs.

        Raises:
            ScheduleError: an extent does not allow what a step says of the loop.
            UsageError: the state is of another expression.

        Example:
            >>> from loopwright import auto_scheduler
            >>> A = te.placeholder((16,), name="A")
            >>> B = te.compute((16,), lambda i: A[i] + 1, name="B")
            >>> C = te.compute((16,), lambda i: B[i] * 2, name="C")
            >>> dag = auto_scheduler.ComputeDAG([A, C])
            >>> state = dag.get_init_state()
            >>> outer, inner = state.split(C, 0, [4])
            >>> state.compute_at(B, C, outer)
            >>> print(dag.infer_bound_from_state(state)[B].extents)
            [4]
        """
        self._check(state)
        copy = state.copy()
        if copy.sketch is None:
            copy.schedule.validate()
        return copy

    def __str__(self) -> str:
        lines = self._dag.as_python().splitlines()
        return "\n".join(line for line in lines[2:] if not line.startswith("outputs = "))

    def _check(self, state: State) -> None:
        if not isinstance(state, State) or state.schedule.dag.hash != self.hash_key():
            raise UsageError(
                f"the state is of another expression than {', '.join(t.name for t in self.tensors)}"
                "; take one of dag.get_init_state(), of a SketchPolicy or of a log"
            )

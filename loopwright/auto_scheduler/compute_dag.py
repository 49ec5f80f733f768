"""``auto_scheduler.compute_dag``: expressions, and schedules of them from states."""

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
    """Options for the layout of operands: ``NO_REWRITE`` or ``INSERT_TRANSFORM_STAGE``.

    Both options mean the same: rules choose the operands that a kernel packs, in a stage whose
    time is part of the kernel's. ``REWRITE_FOR_PRE_TRANSFORMED``, for kernels whose operands come
    packed already, belongs to networks, and is refused.

    Example:
        >>> from loopwright import auto_scheduler
        >>> print(auto_scheduler.LayoutRewriteOption.INSERT_TRANSFORM_STAGE)
        1
    """

    NO_REWRITE = 0
    INSERT_TRANSFORM_STAGE = 1
    REWRITE_FOR_PRE_TRANSFORMED = 2


def check_layout_rewrite(option: int | None) -> None:
    """Refuse all options but `NO_REWRITE` and `INSERT_TRANSFORM_STAGE`, with a `UsageError`."""
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
    """An expression: inputs, operations and results.

    Args:
        compute_or_sche: inputs and results in calling order, or results alone; the key of a
            workload; or a schedule, for its expression.

    Attributes:
        tensors: inputs and results in calling order.
        places: number of each operation, producers first.

    Raises:
        UsageError: the argument is of another kind.
        TaskError: no workload has the key.
        TensorError: the tensors do not form an expression; see `loopwright.space.tensor_program`.

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
        >>> state = dag.get_init_state()
        >>> _ = state.split(B, 0, [4])
        >>> print(dag.print_python_code_from_state(state).splitlines()[3])
            i_0, i_1 = s[B].split(i, factor=4)
        >>> s, args = dag.apply_steps_from_state(state)
        >>> f = lw.build(s, args, "llvm")
        >>> b = np.empty(16, "float32")
        >>> f(np.ones((16, 8), "float32"), b)
        >>> print(b[0])
        8.0
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
        """The expression of a replayed schedule, with arguments in calling order."""
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
        """Hash of the expression, independent of names: 16 hex digits; records have it, too."""
        return self._dag.hash

    def get_init_state(self) -> State:
        """A new state without steps."""
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
        """
        check_layout_rewrite(layout_rewrite)
        self._check(state)
        fresh = state.copy()
        return fresh.schedule, fresh.args

    def print_python_code_from_state(self, state: State) -> str:
        """The steps of a state as a Python function.

        Raises:
            UsageError: the state is of another expression.
        """
        self._check(state)
        return state.schedule.as_python()

    def infer_bound_from_state(self, state: State) -> State:
        """A copy of a state after bound inference: ``state[stage].extents`` holds the trip count of
        every loop.

        Raises:
            ScheduleError: an extent contradicts a step.
            UsageError: the state is of another expression.
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

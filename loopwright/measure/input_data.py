"""Input data of a task's kernels: arrays that its template makes, and plans for seeded ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from loopwright.errors import UsageError
from loopwright.ir.visitor import free_vars
from loopwright.measure.candidate import Candidate, instantiate
from loopwright.measure.comparison import Array
from loopwright.measure.inputs import DataPlan, input_set
from loopwright.measure.result import TaskLike
from loopwright.measure.runner import PREPARE_S
from loopwright.runtime import Arg
from loopwright.te import Dag, exactness, index_operands, index_spans, read_arg_id
from loopwright.time_limit import limited

if TYPE_CHECKING:
    from loopwright.measure.runner import ArgKey
    from loopwright.task import Task


class InputData:
    """Inputs that the template makes itself, for operators that need real data."""

    def __init__(self, task: TaskLike) -> None:
        self._task = task

    @property
    def owner(self) -> str:
        return "" if self._task.make_inputs is None else repr((self._task.name, self._task.args))

    def __call__(self, args: Sequence[Arg]) -> list[Array] | None:
        """One array per input among these arguments, of its shape and dtype; None: use a seed.

        Raises a UsageError where the template's arrays do not fit, a TimeLimitError after
        `PREPARE_S`.
        """
        if self._task.make_inputs is None:
            return None
        inputs = [arg for arg in args if not arg.output]
        values = limited(PREPARE_S, f"make_inputs of {self._task.name}", self._task.make_inputs)
        arrays = [np.asarray(a) for a in values]
        if [a.shape for a in arrays] != [arg.shape for arg in inputs]:
            raise UsageError(
                f"make_inputs of {self._task.name} must return one array per input, with shapes "
                f"{[list(arg.shape) for arg in inputs]}; it returned "
                f"{[list(a.shape) for a in arrays]}"
            )
        return [a.astype(arg.dtype) for a, arg in zip(arrays, inputs, strict=True)]


def plan_of(candidate: Candidate, *, given: bool) -> tuple[list[ArgKey], DataPlan]:
    """Arguments of a candidate and their data plan; ``given``: the template makes the inputs.

    Raises a UsageError where an operand is used as an index, and its safe values are not known.
    """
    dag = candidate.dag
    places = [read_arg_id(i) for i in candidate.arg_ids]
    ops = [dag.ops[op] for op, _ in places]
    args = [
        (op.static_shape, op.dtypes[output], not op.is_placeholder)
        for op, (_, output) in zip(ops, places, strict=True)
    ]
    # What the template makes is in range, but must not be put into another order.
    spans = dict.fromkeys(index_operands(dag), (0, 0)) if given else index_spans(dag)
    exact = None if given else exactness(dag)
    used = tuple(spans.get(op) for op, _ in places) if spans else ()
    lines = tuple(_line(dag, op) for op, _ in places)
    return args, DataPlan(used, exact.largest if exact else 0, lines)


def _line(dag: Dag, placeholder: int) -> int | None:
    """The last dimension of an input that moves with an axis of its readers alone, or None."""
    lines = [
        d
        for op in dag.ops
        for read in op.reads()
        if read.source == placeholder
        for d, index in enumerate(read.indices)
        if (used := free_vars(index)) and used <= {a.var for a in op.axes}
    ]
    return max(lines, default=None)


def task_inputs(task: Task, args: Sequence[Arg], seed: int = 0) -> list[Array]:
    """Inputs for a kernel of a task, made as for measuring, to run it elsewhere; errors as of
    `plan_of`.

    The template may make them itself; else its default configuration shows their use.
    """
    arrays = InputData(task)(args)
    candidate = instantiate(task, task.config_space.get(task.config_space.default_index))
    plan = DataPlan()
    if arrays is None and isinstance(candidate, Candidate):
        keys, all_args = plan_of(candidate, given=False)
        spans = iter(all_args.span(i) for i, (_, _, output) in enumerate(keys) if not output)
        plan = DataPlan(tuple(None if arg.output else next(spans, None) for arg in args))
    return input_set(plan, args, seed, arrays, 0)

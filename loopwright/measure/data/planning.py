"""Data plans of the kernels of an expression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from loopwright.ir.visitor import free_vars
from loopwright.measure.building import Candidate, instantiate
from loopwright.measure.checking.check import Array
from loopwright.measure.checking.reference import InputData
from loopwright.measure.data.plan import DataPlan, input_set
from loopwright.runtime import Arg
from loopwright.te.dag import Dag, read_arg_id
from loopwright.te.exactness import exactness
from loopwright.te.index_ranges import index_operands, index_spans

if TYPE_CHECKING:
    from loopwright.measure.running import ArgKey
    from loopwright.task import Task


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
    """Inputs for a kernel of a task, made as for measuring, to run it elsewhere.

    The template may make them itself; else its default configuration shows their use. ``args`` are
    in calling order, outputs included. Errors are those of `plan_of`, or a UsageError where the
    arrays of the template do not fit.
    """
    given = InputData(task)(args)
    candidate = instantiate(task, task.config_space.get(task.config_space.default_index))
    plan = DataPlan()
    if given is None and isinstance(candidate, Candidate):
        keys, whole = plan_of(candidate, given=False)
        spans = iter(whole.span(i) for i, (_, _, output) in enumerate(keys) if not output)
        plan = DataPlan(tuple(None if arg.output else next(spans, None) for arg in args))
    return input_set(plan, args, seed, given, 0)

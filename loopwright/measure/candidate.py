"""Configurations as plain data: what builders compile, and the expressions for their records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from loopwright.errors import InstantiationError, TimeLimitError, UsageError
from loopwright.ir.visitor import free_vars
from loopwright.measure.comparison import Array
from loopwright.measure.inputs import DataPlan, input_set
from loopwright.measure.result import ErrorKind, MeasureError, TaskLike
from loopwright.measure.runner import PREPARE_S
from loopwright.records import Expression, Json
from loopwright.runtime import Arg
from loopwright.te import Dag, exactness, index_operands, index_spans, read_arg_id
from loopwright.time_limit import TEMPLATE_S, limited

if TYPE_CHECKING:
    from loopwright.measure.runner import ArgKey
    from loopwright.task import ConfigEntity, Task
    from loopwright.te import ArgId


#: Characters of the text of an error at most.
_TEXT = 2000


@dataclass(frozen=True, eq=False)
class Candidate:
    """A schedule as data for builders, which never see the template that made it."""

    dag: Dag
    trace: Json  # steps as in a record
    arg_ids: tuple[ArgId, ...]  # in calling order, as ids of the DAG
    name: str  # of the function
    #: Settings of the `PassContext`; empty: the default ones.
    passes: Mapping[str, Json] = field(default_factory=dict)
    target: Mapping[str, Json] | None = None  # canonical form; None: that of the task

    @cached_property
    def key(self) -> str:
        """Equal for candidates that give equal code."""
        parts = [self.dag.hash, self.trace, self.arg_ids, self.name, self.passes, self.target]
        return json.dumps(parts, separators=(",", ":"))


def instantiate(
    task: TaskLike,
    config: ConfigEntity,
    name: str = "main",
    passes: Mapping[str, Json] | None = None,
    seconds: float = TEMPLATE_S,
) -> Candidate | MeasureError:
    """Run a template, here and for at most ``seconds``, unless compiled code never returns."""
    try:
        schedule, args = limited(seconds, "the template", task.instantiate, config)
        ids = tuple(schedule.arg_ids(args))
        return Candidate(schedule.dag, schedule.trace_json(), ids, name, passes or {})
    except (InstantiationError, TimeLimitError) as e:
        return MeasureError(ErrorKind.INSTANTIATION, str(e)[:_TEXT])
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # a template of a user: one that calls sys.exit costs its own trial
        text = str(e).strip()
        return MeasureError(ErrorKind.INSTANTIATION, f"{type(e).__name__}: {text}"[:_TEXT])


def describe(task: TaskLike, candidate: Candidate, seed: int) -> Expression:
    """The expression for a log; ``seed`` is that of inputs that the template does not make."""
    made_by_seed: dict[str, Json] = {"made_by": "seed", "seed": seed}
    return Expression(
        hash=candidate.dag.hash,
        dag=candidate.dag.to_json(),
        arg_ids=list(candidate.arg_ids),
        op=task.name,
        args=list(task.args),
        passes=dict(candidate.passes),
        inputs=made_by_seed if task.make_inputs is None else {"made_by": "template"},
    )


def template_inputs(task: TaskLike, args: Sequence[Arg]) -> list[Array] | None:
    """Input arrays that the template makes, after at most `PREPARE_S`; None: use a seed."""
    if task.make_inputs is None:
        return None
    inputs = [arg for arg in args if not arg.output]
    arrays = [
        np.asarray(a) for a in limited(PREPARE_S, f"make_inputs of {task.name}", task.make_inputs)
    ]
    if [a.shape for a in arrays] != [arg.shape for arg in inputs]:
        raise UsageError(
            f"make_inputs of {task.name} must return one array per input, with shapes "
            f"{[list(arg.shape) for arg in inputs]}; it returned {[list(a.shape) for a in arrays]}"
        )
    return [a.astype(arg.dtype) for a, arg in zip(arrays, inputs, strict=True)]


def plan_of(candidate: Candidate, *, from_template: bool) -> tuple[list[ArgKey], DataPlan]:
    """Arguments and their data plan; a UsageError for an index without known safe values."""
    dag = candidate.dag
    places = [read_arg_id(i) for i in candidate.arg_ids]
    ops = [dag.ops[op] for op, _ in places]
    args = [
        (op.static_shape, op.dtypes[output], not op.is_placeholder)
        for op, (_, output) in zip(ops, places, strict=True)
    ]
    # What the template makes is in range, but must not be put into another order.
    spans = dict.fromkeys(index_operands(dag), (0, 0)) if from_template else index_spans(dag)
    exact = None if from_template else exactness(dag)
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
    """Inputs for a kernel of a task, made as for measuring; errors as of `plan_of`."""
    arrays = template_inputs(task, args)
    candidate = instantiate(task, task.config_space.get(task.config_space.default_index))
    plan = DataPlan()
    if arrays is None and isinstance(candidate, Candidate):
        keys, all_args = plan_of(candidate, from_template=False)
        spans = iter(all_args.span(i) for i, (_, _, output) in enumerate(keys) if not output)
        plan = DataPlan(tuple(None if arg.output else next(spans, None) for arg in args))
    return input_set(plan, args, seed, arrays, 0)

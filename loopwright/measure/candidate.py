"""Configurations as plain data: what builders compile, and the expressions for their records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loopwright.errors import InstantiationError, TimeLimitError
from loopwright.measure.result import ErrorKind, MeasureError, TaskLike
from loopwright.records import Expression, Json
from loopwright.time_limit import TEMPLATE_S, limited

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity
    from loopwright.te import ArgId, Dag


#: Characters of the text of an error at most.
_TEXT = 2000


@dataclass(frozen=True, eq=False)
class Candidate:
    """A schedule as data for builders, which never see the template that made it."""

    dag: Dag
    trace: Json  # steps as in a record
    arg_ids: tuple[ArgId, ...]  # in calling order, as ids of the DAG
    name: str  # of the function
    key: str  # equal for candidates that give equal code
    #: Settings of the `PassContext`; empty: the default ones.
    passes: Mapping[str, Json] = field(default_factory=dict)
    target: Mapping[str, Json] | None = None  # canonical form; None: that of the task


def make_candidate(
    dag: Dag,
    trace: Json,
    arg_ids: Sequence[ArgId],
    name: str,
    passes: Mapping[str, Json] | None = None,
    target: Mapping[str, Json] | None = None,
) -> Candidate:
    ids, passes = tuple(arg_ids), dict(passes or {})
    key = json.dumps([dag.hash, trace, ids, name, passes, target], separators=(",", ":"))
    return Candidate(dag, trace, ids, name, key, passes, target)


def instantiate(
    task: TaskLike,
    config: ConfigEntity,
    name: str = "main",
    passes: Mapping[str, Json] | None = None,
    seconds: float = TEMPLATE_S,
) -> Candidate | MeasureError:
    """Run the template of a task with a configuration, in this process and for at most ``seconds``.

    Whatever it raises becomes an ``INSTANTIATION`` error, even ``sys.exit(5)``; only Ctrl-C passes.
    One that takes too long is ended, unless in compiled code that does not come back to Python.
    """
    try:
        schedule, args = limited(seconds, "the template", task.instantiate, config)
        ids = schedule.arg_ids(args)
        return make_candidate(schedule.dag, schedule.trace_json(), ids, name, passes)
    except (InstantiationError, TimeLimitError) as e:
        return MeasureError(ErrorKind.INSTANTIATION, str(e)[:_TEXT])
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # a template of a user: one that calls sys.exit costs its own trial
        text = str(e).strip()
        return MeasureError(ErrorKind.INSTANTIATION, f"{type(e).__name__}: {text}"[:_TEXT])


def describe(
    task: TaskLike, dag: Dag, arg_ids: Sequence[ArgId], passes: Mapping[str, Json], seed: int
) -> Expression:
    """The expression for a log; ``seed`` is that of inputs that the template does not make."""
    return Expression(
        hash=dag.hash,
        dag=dag.to_json(),
        arg_ids=list(arg_ids),
        op=task.name,
        args=list(task.args),
        passes=dict(passes),
        inputs={"made_by": "seed", "seed": seed}
        if task.make_inputs is None
        else {"made_by": "template"},
    )


class Descriptions:
    """Describes the expressions of a task, each once; ``seed`` is that of random inputs."""

    def __init__(self, task: TaskLike, seed: int) -> None:
        self.task, self.seed = task, seed
        self._expressions: dict[tuple[object, ...], Expression] = {}

    def of(self, candidate: Candidate) -> Expression:
        """The expression of a candidate; the same object for all of one DAG."""
        c = candidate
        key = (c.dag.hash, c.arg_ids, str(c.passes))
        if key not in self._expressions:
            self._expressions[key] = describe(self.task, c.dag, c.arg_ids, c.passes, self.seed)
        return self._expressions[key]

"""Tensor expressions in the form of a log, so that its records need no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from loopwright.measure.building import Candidate
from loopwright.measure.result import TaskLike
from loopwright.records import Expression, Json

if TYPE_CHECKING:
    from loopwright.te.dag import ArgId, Dag


def describe(
    task: TaskLike, dag: Dag, arg_ids: Sequence[ArgId], passes: Mapping[str, Json], seed: int
) -> Expression:
    """The expression for a log; ``seed`` is that of inputs that the template does not make."""
    made_by_template = task.make_inputs is not None
    return Expression(
        hash=dag.hash,
        dag=dag.to_json(),
        arg_ids=list(arg_ids),
        op=task.name,
        args=list(task.args),
        passes=dict(passes),
        inputs={"made_by": "template"} if made_by_template else {"made_by": "seed", "seed": seed},
    )


class Descriptions:
    """Describes the expressions of a task, each once; ``seed`` is that of random inputs."""

    def __init__(self, task: TaskLike, seed: int) -> None:
        self.task, self.seed = task, seed
        self._known: dict[tuple[object, ...], Expression] = {}

    def of(self, candidate: Candidate) -> Expression:
        """The expression of a candidate; the same object for all of one DAG."""
        c = candidate
        key = (c.dag.hash, c.arg_ids, str(c.passes))
        if key not in self._known:
            self._known[key] = describe(self.task, c.dag, c.arg_ids, c.passes, self.seed)
        return self._known[key]

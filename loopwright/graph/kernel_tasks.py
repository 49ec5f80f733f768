"""Tasks of the kernels of a program: the very expressions that are built for a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from loopwright.graph.ir.expr import Function
from loopwright.graph.ir.visitor import called, post_order
from loopwright.graph.kernels import expression_of, ways
from loopwright.graph.strategy import DEFINITION, Implementation
from loopwright.records import Checked
from loopwright.space import AutomaticTask, Workload

if TYPE_CHECKING:
    from loopwright.graph.plan import Planned
    from loopwright.history import ApplyHistoryBest
    from loopwright.target import Target

#: Operators and shapes that the name of a task tells, at most.
_TOLD = 4


def operators_of(function: Function) -> tuple[str, ...]:
    """The operators that a function calls, in order."""
    return tuple(name for name in map(called, post_order(function.body)) if name is not None)


class KernelTask:
    """One implementation of a kernel, and its task, which is derived on demand."""

    def __init__(
        self,
        function: Function,
        constants: tuple[int, ...],
        target: Target,
        way: Implementation | None = None,
    ) -> None:
        # constants: indices of constant parameters; way None: the operator's definition
        self._function, self._constants, self._target, self._way = function, constants, target, way
        self.implementation = DEFINITION if way is None else way.name

    @cached_property
    def task(self) -> AutomaticTask:
        """The task, whose key is the hash of the kernel's expression.

        Its name and arguments are for display: operators, implementation, shapes of the first
        inputs.
        """
        expression = expression_of(self._function, self._constants, self._way)
        args = expression.args
        operators = [name.rpartition(".")[2] for name in operators_of(self._function)]
        more = [f"and_{len(operators) - _TOLD}"] if len(operators) > _TOLD else []
        name = "_".join([*operators[:_TOLD], *more])
        by = "" if self._way is None else f"/{self._way.name}"
        shapes = [t.static_shape for t in expression.inputs if t.shape] or [()]
        workload = Workload(f"graph/{name}{by}", lambda *_: args)
        task = AutomaticTask(workload, shapes[:_TOLD], self._target)
        task.of_model = True
        return task


#: For each kernel of a program, by its name, the tasks of the ways to compute it, those of high
#: priority first.
KernelTasks = Mapping[str, Sequence[KernelTask]]


def kernel_tasks(planned: Planned, target: Target) -> KernelTasks:
    """The tasks of the kernels of a program: one for each implementation."""
    return {
        name: [
            KernelTask(function, constants, target, way)
            for way in ways(function, constants, target)
        ]
        for name, (function, constants) in planned.kernels.items()
    }


def fastest(candidates: Sequence[KernelTask], history: ApplyHistoryBest | None) -> KernelTask:
    """The candidate with the fastest record; without one, the first: that of the highest priority.

    Records that were checked go before others.
    """
    if history is None or len(candidates) == 1:
        return candidates[0]
    found = [(history.choose(one.task)[0], one) for one in candidates]
    timed = [(c, one) for c, one in found if c.expected is not None]
    if not timed:
        return candidates[0]
    return min(timed, key=lambda it: (it[0].checked is not Checked.YES, it[0].expected))[1]

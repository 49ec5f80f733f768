"""The tasks of the kernels of a program: the very expressions that are built, for a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from loopwright.graph.ir.expr import Function
from loopwright.graph.ir.visitor import called, post_order
from loopwright.graph.kernels import expression_of
from loopwright.space import AutomaticTask, Workload

if TYPE_CHECKING:
    from loopwright.graph.plan import Planned
    from loopwright.target import Target

#: Operators and shapes that the name of a task tells, at most.
_TOLD = 4


def operators_of(function: Function) -> tuple[str, ...]:
    """The operators that a function calls, in order."""
    return tuple(name for name in map(called, post_order(function.body)) if name is not None)


def kernel_task(function: Function, constants: tuple[int, ...], target: Target) -> AutomaticTask:
    """The task of a kernel.

    Args:
        function: what it computes.
        constants: the places of its parameters that are constant.
        target: what it is for.

    Returns:
        A task whose key is the hash of the kernel's expression. Name and arguments only tell people
        which operators it has, and the shapes of its first inputs.
    """
    expression = expression_of(function, constants)
    args = expression.args
    operators = [name.rpartition(".")[2] for name in operators_of(function)]
    more = [f"and_{len(operators) - _TOLD}"] if len(operators) > _TOLD else []
    shapes = [t.static_shape for t in expression.inputs if t.shape] or [()]
    workload = Workload(f"graph/{'_'.join([*operators[:_TOLD], *more])}", lambda *_: args)
    return AutomaticTask(workload, shapes[:_TOLD], target)


def kernel_tasks(planned: Planned, target: Target) -> Mapping[str, AutomaticTask]:
    """The task of each kernel of a program, by the kernel's name."""
    return {
        name: kernel_task(function, constants, target)
        for name, (function, constants) in planned.kernels.items()
    }

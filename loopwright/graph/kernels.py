"""Kernels: from a function of one kernel to its expression, and to the tasks that build it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from loopwright import driver, te
from loopwright.errors import GraphError, InternalError
from loopwright.executors import GraphExecutor
from loopwright.graph.fuse_ops import FuseOps
from loopwright.graph.ir.expr import Call, Constant, Expr, Function, OpRef, TensorType, Tuple, Var
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import called, post_order
from loopwright.graph.plan import Planned, plan
from loopwright.graph.registry import (
    DEFINITION,
    Implementation,
    applicable,
    get_op,
    implementations,
    workload_form,
)
from loopwright.history import ApplyHistoryBest
from loopwright.ops import compute
from loopwright.records import Checked
from loopwright.space import AutomaticTask, Workload
from loopwright.target import Target


@dataclass(frozen=True)
class KernelExpression:
    inputs: tuple[te.Tensor, ...]  # a placeholder for each parameter of the function, in order
    outputs: tuple[te.Tensor, ...]

    @property
    def args(self) -> list[te.Tensor]:
        """Inputs and results in calling order."""
        return [*self.inputs, *self.outputs]


def expression_of(
    function: Function,
    constants: Collection[int] = (),
    implementation: Implementation | None = None,
) -> KernelExpression:
    """The expression of a function of one kernel, with one output for each part of its result.

    ``constants`` are indices of constant parameters: what depends on them alone is computed once,
    when they are known. Without an implementation, the anchor is computed by its operator's
    definition.
    """
    known = _computed(function, constants, implementation)
    inputs = tuple(known[p][0] for p in function.params)
    return KernelExpression(inputs, tuple(known[function.body]))


def anchor_of(function: Function) -> Call | None:
    """The call of a function that fuses least; the others are its producers and consumers.

    None where the function calls nothing.
    """
    calls = [e for e in post_order(function.body) if isinstance(e, Call) and called(e) is not None]
    return max(calls, key=lambda e: get_op(called(e) or "").pattern, default=None)


def tasks_of(function: Function, constants: tuple[int, ...], target: Target) -> list[KernelTask]:
    """A task for each implementation of a function's anchor, those of high priority first.

    ``constants`` are indices of constant parameters. There is at least one task.
    """
    anchor = anchor_of(function)
    name = called(anchor) if anchor is not None else None
    if anchor is None or name is None or len(implementations(name)) == 1:
        return [KernelTask(function, constants, target, None)]
    tensors = _computed(function, constants, None)
    inputs = [_one(tensors[a], name) for a in anchor.args]
    return [
        KernelTask(function, constants, target, None if one.name == DEFINITION else one)
        for one in applicable(name, inputs, get_op(name).complete(anchor.attrs), target)
    ]


def _computed(
    function: Function, constants: Collection[int], implementation: Implementation | None
) -> dict[Expr, list[te.Tensor]]:
    known: dict[Expr, list[te.Tensor]] = {}
    for n, p in enumerate(function.params):
        known[p] = [_placeholder(p, n in constants)]
    anchor = None if implementation is None else anchor_of(function)
    for e in post_order(function.body):
        if e not in known and not isinstance(e, OpRef):
            known[e] = _tensors(e, known, implementation if e is anchor else None)
    return known


def _placeholder(p: Var, constant: bool) -> te.Tensor:
    if not isinstance(p.type, TensorType):
        raise GraphError(f"parameter {p.name!r} of a kernel is {p.type}; kernels take tensors")
    return te.placeholder(p.type.shape, p.type.dtype, name=p.name, constant=constant)


def _tensors(
    e: Expr, known: dict[Expr, list[te.Tensor]], implementation: Implementation | None
) -> list[te.Tensor]:
    if isinstance(e, Constant):
        return [_scalar(e)]
    if isinstance(e, Tuple):
        return [t for f in e.fields for t in known[f]]
    name = called(e)
    if name is None or not isinstance(e, Call):
        raise GraphError(f"a kernel holds a {type(e).__name__}; it is made of calls of operators")
    op = get_op(name)
    args = [_one(known[a], name) for a in e.args]
    return (implementation or op).tensors(args, op.complete(e.attrs))


def _one(tensors: Sequence[te.Tensor], name: str) -> te.Tensor:
    if len(tensors) != 1:
        raise GraphError(f"{name} reads {len(tensors)} tensors where one is needed")
    return tensors[0]


def _scalar(e: Constant) -> te.Tensor:
    if e.data.ndim:
        raise InternalError(f"a kernel holds an array of shape {e.data.shape}; make it a parameter")
    value = te.const(e.data.item(), e.type.dtype)
    return compute((), lambda: value, name="scalar")


#: Operators and shapes in the name of a task, at most.
_SHOWN = 4


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
        anchor: Implementation | None,
    ) -> None:
        # constants: indices of constant parameters; anchor None: the operator's definition
        self._function, self._constants, self._target = function, constants, target
        self._anchor = anchor
        self.implementation = DEFINITION if anchor is None else anchor.name

    def expression_of(self, function: Function) -> KernelExpression:
        """The expression of a function of one kernel by this implementation."""
        return expression_of(function, self._constants, self._anchor)

    @cached_property
    def task(self) -> AutomaticTask:
        """The task, whose key is the hash of the kernel's expression.

        Its name and arguments are for display: operators, implementation, shapes of the first
        inputs.
        """
        expression = self.expression_of(self._function)
        args = expression.args
        operators = [name.rpartition(".")[2] for name in operators_of(self._function)]
        more = [f"and_{len(operators) - _SHOWN}"] if len(operators) > _SHOWN else []
        name = "_".join([*operators[:_SHOWN], *more])
        by = "" if self._anchor is None else f"/{self._anchor.name}"
        shapes = [t.static_shape for t in expression.inputs if t.shape] or [()]
        workload = Workload(f"graph/{name}{by}", lambda *_: args)
        if len(operators) == 1 and self._anchor is None:
            workload.former = self._workload_form
        task = AutomaticTask(workload, shapes[:_SHOWN], self._target)
        task.of_model = True
        return task

    def _workload_form(self, *_: Any) -> list[te.Tensor]:
        """The kernel as a workload of `loopwright.ops` computes it, whose records apply.

        Weights are inputs like others there.
        """
        (name,) = operators_of(self._function)
        return expression_of(self._function, (), workload_form(name)).args


#: For each kernel of a program, by its name, the tasks of its implementations, those of high
#: priority first.
KernelTasks = Mapping[str, Sequence[KernelTask]]


def kernel_tasks(planned: Planned, target: Target) -> KernelTasks:
    """The tasks of the kernels of a program: one for each implementation."""
    return {name: tasks_of(f, n, target) for name, (f, n) in planned.kernels.items()}


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


def evaluate(exprs: Sequence[Expr]) -> list[np.ndarray[Any, Any]]:
    """The values of expressions of constants.

    Args:
        exprs: calls of operators over constants; each has one tensor as its value.

    Returns:
        An array for each.

    Raises:
        GraphError: a type does not fit, or something else than constants is read.

    Example:
        >>> e = lw.graph.op.add(lw.graph.const([1.0, 2.0]), lw.graph.const(3.0))
        >>> print(lw.graph.evaluate([e])[0])
        [4. 5.]
    """
    planned = plan(FuseOps(IRModule.from_expr(Function((), Tuple(tuple(exprs))))))
    kernels = {}
    with Target("llvm"):
        for name, (function, _) in planned.kernels.items():
            args = expression_of(function)
            s = te.create_schedule([t.op for t in args.outputs])
            kernels[name] = driver.build(s, args.args, name=name)
    executor = GraphExecutor(planned.program, kernels, planned.constants)
    executor.run()
    return [np.asarray(executor.get_output(n)) for n in range(len(exprs))]

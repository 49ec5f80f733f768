"""Kernels: from a function of one kernel to its expression, and to the tasks that build it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from loopwright import te
from loopwright.codegen import BuildQueue
from loopwright.errors import GraphError, InternalError
from loopwright.executors import GraphExecutor
from loopwright.graph import registry
from loopwright.graph.fuse_ops import FuseOps
from loopwright.graph.ir.expr import Call, Constant, Expr, Function, OpRef, TensorType, Tuple
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import called, post_order
from loopwright.graph.plan import Planned, joined_names, plan
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
        return [*self.inputs, *self.outputs]


def expression_of(
    function: Function,
    constants: Collection[int] = (),
    implementation: registry.Implementation | None = None,
) -> KernelExpression:
    """The expression of a kernel, with one output for each part of its result.

    What depends on ``constants``, indices of parameters, alone is computed once, when these are
    known. Without an implementation the anchor has its operator's definition.
    """
    tensors = _computed(function, constants, implementation)
    inputs = tuple(tensors[p][0] for p in function.params)
    return KernelExpression(inputs, tuple(tensors[function.body]))


def anchor_of(function: Function) -> Call | None:
    """The call that fuses least, beside producers and consumers; None without calls."""
    calls = [e for e in post_order(function.body) if isinstance(e, Call) and called(e) is not None]
    return max(calls, key=lambda e: registry.get_op(called(e) or "").pattern, default=None)


def tasks_of(function: Function, constants: tuple[int, ...], target: Target) -> list[KernelTask]:
    """A task for each implementation of the anchor, at least one, those of high priority first."""
    anchor = anchor_of(function)
    name = called(anchor) if anchor is not None else None
    if anchor is None or name is None or len(registry.implementations(name)) == 1:
        return [KernelTask(function, constants, target, None)]
    tensors = _computed(function, constants, None)
    inputs = [_one(tensors[a], name) for a in anchor.args]
    return [
        KernelTask(function, constants, target, None if one.name == registry.DEFINITION else one)
        for one in registry.applicable(
            name, inputs, registry.get_op(name).complete(anchor.attrs), target
        )
    ]


def _computed(
    function: Function, constants: Collection[int], implementation: registry.Implementation | None
) -> dict[Expr, list[te.Tensor]]:
    tensors: dict[Expr, list[te.Tensor]] = {}
    for n, p in enumerate(function.params):
        if not isinstance(p.type, TensorType):
            raise GraphError(f"parameter {p.name!r} of a kernel is {p.type}; kernels take tensors")
        t, constant = p.type, n in constants
        tensors[p] = [te.placeholder(t.shape, t.dtype, name=p.name, constant=constant)]
    anchor = None if implementation is None else anchor_of(function)
    for e in post_order(function.body):
        if e not in tensors and not isinstance(e, OpRef):
            tensors[e] = _tensors(e, tensors, implementation if e is anchor else None)
    return tensors


def _tensors(
    e: Expr, tensors: dict[Expr, list[te.Tensor]], implementation: registry.Implementation | None
) -> list[te.Tensor]:
    if isinstance(e, Constant):
        if e.data.ndim:
            raise InternalError(
                f"a kernel holds an array of shape {e.data.shape}; make it a parameter"
            )
        value = te.const(e.data.item(), e.type.dtype)
        return [compute((), lambda: value, name="scalar")]
    if isinstance(e, Tuple):
        return [t for f in e.fields for t in tensors[f]]
    name = called(e)
    if name is None or not isinstance(e, Call):
        raise GraphError(f"a kernel holds a {type(e).__name__}; it is made of calls of operators")
    op = registry.get_op(name)
    args = [_one(tensors[a], name) for a in e.args]
    return (implementation or op).tensors(args, op.complete(e.attrs))


def _one(tensors: Sequence[te.Tensor], name: str) -> te.Tensor:
    if len(tensors) != 1:
        raise GraphError(f"{name} reads {len(tensors)} tensors where one is needed")
    return tensors[0]


def operators_of(function: Function) -> tuple[str, ...]:
    return tuple(name for name in map(called, post_order(function.body)) if name is not None)


@dataclass(eq=False)
class KernelTask:
    """One implementation of a kernel, and its task, which is derived on demand."""

    function: Function
    constants: tuple[int, ...]  # indices of constant parameters
    target: Target
    anchor: registry.Implementation | None  # None: the operator's definition

    @property
    def implementation(self) -> str:
        return registry.DEFINITION if self.anchor is None else self.anchor.name

    def expression_of(self, function: Function) -> KernelExpression:
        return expression_of(function, self.constants, self.anchor)

    @cached_property
    def task(self) -> AutomaticTask:
        """The task, whose key is the hash of the expression; name and arguments are for display."""
        expression = self.expression_of(self.function)
        args = expression.args
        operators = operators_of(self.function)
        by = "" if self.anchor is None else f"/{self.anchor.name}"
        shapes = [t.static_shape for t in expression.inputs if t.shape] or [()]
        workload = Workload(f"graph/{joined_names(operators)}{by}", lambda *_: args)
        if len(operators) == 1 and self.anchor is None:
            workload.former = self._workload_form
        task = AutomaticTask(workload, shapes[:4], self.target)
        task.of_model = True
        return task

    def _workload_form(self, *_: Any) -> list[te.Tensor]:
        """The kernel as a workload of `loopwright.ops`, whose records apply; weights are inputs."""
        (name,) = operators_of(self.function)
        return expression_of(self.function, (), registry.workload_form(name)).args


#: For each kernel of a program, by its name, the tasks of its implementations, those of high
#: priority first.
KernelTasks = Mapping[str, Sequence[KernelTask]]


def kernel_tasks(planned: Planned, target: Target) -> KernelTasks:
    return {name: tasks_of(f, n, target) for name, (f, n) in planned.kernels.items()}


def fastest(candidates: Sequence[KernelTask], history: ApplyHistoryBest | None) -> KernelTask:
    """The candidate of the fastest record, checked ones before others; else of highest priority."""
    if history is None or len(candidates) == 1:
        return candidates[0]
    choices = [(history.choose(one.task)[0], one) for one in candidates]
    timed = [(c, one) for c, one in choices if c.expected is not None]
    if not timed:
        return candidates[0]
    return min(timed, key=lambda it: (it[0].checked is not Checked.YES, it[0].expected))[1]


def evaluate(exprs: Sequence[Expr]) -> list[np.ndarray[Any, Any]]:
    """The values of expressions of constants; each is one tensor.

    Raises:
        GraphError: a type does not fit, or something else than constants is read.

    Example:
        >>> e = lw.graph.op.add(lw.graph.const([1.0, 2.0]), lw.graph.const(3.0))
        >>> print(lw.graph.evaluate([e])[0])
        [4. 5.]
    """
    planned = plan(FuseOps(IRModule.from_expr(Function((), Tuple(tuple(exprs))))))
    building, target = {}, Target("llvm")
    with target, BuildQueue() as queue:
        for name, (function, _) in planned.kernels.items():
            args = expression_of(function)
            s = te.create_schedule([t.op for t in args.outputs])
            building[name] = queue.build(s, args.args, target, name)
    kernels = {name: future.result() for name, future in building.items()}
    executor = GraphExecutor(planned.program, kernels, planned.constants)
    executor.run()
    return [np.asarray(executor.get_output(n)) for n in range(len(exprs))]

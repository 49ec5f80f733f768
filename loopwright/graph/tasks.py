"""Tunable tasks of a model: one for each of its kernels, weighted by its calls."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loopwright.errors import GraphError, UsageError, did_you_mean
from loopwright.graph.batches.source import BatchSource, checked_batches, one_batch, source_of
from loopwright.graph.frontend.source import ModelLike, module_of
from loopwright.graph.kernel_tasks import KernelTasks, kernel_tasks, operators_of
from loopwright.graph.layout.choice import LayoutChoice, chosen_layouts
from loopwright.graph.op.channels_blocked import CHANNELS_BLOCKED
from loopwright.graph.op.channels_last import CHANNELS_LAST
from loopwright.graph.pipeline import prepared
from loopwright.graph.plan import Planned
from loopwright.graph.registry import Pattern, get_op, op_names
from loopwright.graph.strategy import DEFINITION
from loopwright.task import Task
from loopwright.task.task import TargetLike, resolve_target


@dataclass(frozen=True)
class ModelTask:
    """A task of a model.

    Attributes:
        task: the tuning task; its key is the hash of the expression and the kind of target.
        weight: number of calls of its kernels in a run of the model.
        kernels: their names in the compiled model; of several batches with the batch appended, such
            as ``"dense_0@8"``.
        ops: the operators that they are made of, in order.
        implementation: of their anchor, see `Implementation`.
        group: equal for tasks that compute the same kernels in different ways: the fastest counts.
        rank: number of tasks of its group that have a higher priority.
        constant_bytes: bytes of the constants that one call of its kernels reads.

    Example:
        >>> x = lw.graph.var("x", (1, 64))
        >>> y = lw.graph.op.nn.dense(x, np.ones((64, 64), "float32"))
        >>> y = lw.graph.op.nn.dense(y, np.ones((64, 64), "float32"))
        >>> module = lw.graph.IRModule.from_expr(y)
        >>> print([(t.weight, t.ops) for t in lw.graph.extract_tasks(module, "llvm")])
        [(2, ('nn.dense',))]
    """

    task: Task
    weight: int
    kernels: tuple[str, ...]
    ops: tuple[str, ...]
    implementation: str = DEFINITION
    group: str = ""
    rank: int = 0
    constant_bytes: int = 0

    @property
    def is_simple(self) -> bool:
        """Whether it only moves and maps elements.

        No operator of it sums or multiplies along an axis.
        """
        return all(get_op(name).pattern <= Pattern.INJECTIVE for name in self.ops)


def extract_tasks(
    model: ModelLike | BatchSource,
    target: TargetLike = None,
    *,
    ops: Collection[str] | None = None,
    include_simple_tasks: bool = False,
    example_inputs: Sequence[Any] | None = None,
    layouts: LayoutChoice | str | os.PathLike[str] | None = None,
    batches: Iterable[int] | None = None,
) -> list[ModelTask]:
    """The tasks of a model, each once, in the order in which the model first needs them.

    They are of the kernels that `compile` builds for the same target: what is tuned is what runs. A
    kernel whose operator has several implementations has a task for each that can compute it.

    Args:
        model: a module, an ONNX model as `from_onnx` takes it, or a model of PyTorch as
            `from_torch` does. Nodes without a kernel have no task.
        target: None is the current target, or the default one.
        ops: only tasks that contain one of these operators, such as ``["nn.conv"]``, in any layout;
            None: all.
        include_simple_tasks: also tasks that only move and map elements, whose default mostly runs
            at memory speed; they are left out unless ``ops`` names one of their operators.
        example_inputs: what a ``torch.nn.Module`` is called with.
        layouts: what `tune_layouts` chose for the model, or the file that this was saved to; None:
            as `ConvertLayout` has it.
        batches: as of `compile`: the tasks of all these batches, each expression once; its weight
            is the sum of its calls in a run of each batch.

    Raises:
        GraphError: there is no such operator, this is no model, or `compile` would refuse it.
        UsageError: ``batches`` is empty, or given with layouts; or the layouts are invalid.

    Example:
        >>> x = lw.graph.var("x", (1, 64))
        >>> y = lw.graph.op.nn.softmax(lw.graph.op.nn.dense(x, np.ones((10, 64), "float32")))
        >>> module = lw.graph.IRModule.from_expr(y)
        >>> for found in lw.graph.extract_tasks(module, "llvm"):
        ...     print(found.weight, found.task, found.kernels)
        ...
        1 graph/dense((1, 64), (10, 64)) ('dense_0',)
        1 graph/softmax((1, 10)) ('softmax_1',)
    """
    _check(ops)
    resolved = resolve_target(target)
    if batches is None:
        module = module_of(one_batch(model), example_inputs=example_inputs)
        planned = prepared(module, chosen_layouts(layouts), resolved)
        found = grouped(planned, kernel_tasks(planned, resolved))
    else:
        if layouts is not None:
            raise UsageError("layouts are chosen for known sizes; give them or batches, not both")
        source = source_of(model, example_inputs=example_inputs)
        found = _merged(
            (batch, grouped(planned, kernel_tasks(planned, resolved)))
            for batch in checked_batches(batches)
            for planned in [prepared(source.at(batch), target=resolved)]
        )
    if ops is not None:
        return [
            one
            for one in found
            if not set(ops).isdisjoint([*one.ops, *map(_of_any_layout, one.ops)])
        ]
    return [one for one in found if include_simple_tasks or not one.is_simple]


def grouped(planned: Planned, tasks: KernelTasks) -> list[ModelTask]:
    """The tasks of a program's kernels, each once: kernels of one expression have one task."""
    found: dict[str, ModelTask] = {}
    for name, candidates in tasks.items():
        group = candidates[0].task.key
        for rank, one in enumerate(candidates):
            key, calls = one.task.key, planned.calls[name]
            before = found.get(key)
            if before is not None:
                kernels = (*before.kernels, name)
                found[key] = replace(before, weight=before.weight + calls, kernels=kernels)
                continue
            operators = operators_of(planned.kernels[name][0])
            read = _constant_bytes(planned, name)
            found[key] = ModelTask(
                one.task, calls, (name,), operators, one.implementation, group, rank, read
            )
    return list(found.values())


def _constant_bytes(planned: Planned, kernel: str) -> int:
    program = planned.program
    step = next(step for step in program.steps if step.kernel == kernel)
    values = [program.values[n] for n in step.args]
    return sum(v.nbytes for v in values if v.kind == "constant")


def _merged(found: Iterable[tuple[int, list[ModelTask]]]) -> list[ModelTask]:
    """The tasks of several batches, each once."""
    merged: dict[str, ModelTask] = {}
    for batch, tasks in found:
        for one in tasks:
            kernels = tuple(f"{name}@{batch}" for name in one.kernels)
            before = merged.get(one.task.key)
            if before is not None:
                kernels = (*before.kernels, *kernels)
                one = replace(before, weight=before.weight + one.weight)
            merged[one.task.key] = replace(one, kernels=kernels)
    return list(merged.values())


def _of_any_layout(op: str) -> str:
    """The name that an operator had before `ConvertLayout` or `AlterOpLayout`."""
    return op.removesuffix(CHANNELS_LAST).removesuffix(CHANNELS_BLOCKED)


def _check(ops: Collection[str] | None) -> None:
    if isinstance(ops, str):
        raise GraphError(f"ops are given as a list of names: [{ops!r}]")
    known: Sequence[str] = op_names()
    for name in ops or ():
        if name not in known:
            hint = did_you_mean(str(name), known)
            raise GraphError(f"there is no operator {name!r}{hint}; see lw.graph.op_names()")

"""`compile` and `compile_partitioned`: executable models, for one device or several."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

from loopwright import driver
from loopwright.errors import UsageError
from loopwright.graph.batches import (
    BatchSource,
    CompiledBatches,
    checked_batches,
    compile_batches,
    one_batch,
    source_of,
)
from loopwright.graph.building import (
    CompiledModel,
    applied_history,
    compile_module,
    records_in_force,
)
from loopwright.graph.finalists import check_count
from loopwright.graph.frontend.source import ModelLike, module_of
from loopwright.graph.kernels import fastest, kernel_tasks
from loopwright.graph.layout.choice import MEASURED, LayoutChoice, chosen_layouts
from loopwright.graph.layout_tuning import tune_layouts
from loopwright.graph.plan import Planned
from loopwright.graph.transform.pipeline import prepared
from loopwright.runtime import Device, Module
from loopwright.runtime.artifacts.kinds import artifact_kind, device_of_target
from loopwright.runtime.executors import PartitionedExecutor, partition
from loopwright.target import Target
from loopwright.task import ApplyHistoryBest, apply_history_best
from loopwright.task.applying.sources import Source
from loopwright.task.dispatch import schedule_of
from loopwright.task.task import TargetLike, Task, resolve_target
from loopwright.tuner.run.state import flop_of


@overload
def compile(
    model: ModelLike | BatchSource,
    target: TargetLike = None,
    history: Source | Any = None,
    *,
    finalists: int | None = None,
    layouts: LayoutChoice | str | os.PathLike[str] | None = None,
    example_inputs: Sequence[Any] | None = None,
    fallback: bool = True,
    batches: None = None,
) -> CompiledModel: ...


@overload
def compile(
    model: ModelLike | BatchSource,
    target: TargetLike = None,
    history: Source | Any = None,
    *,
    finalists: int | None = None,
    example_inputs: Sequence[Any] | None = None,
    fallback: bool = True,
    batches: Iterable[int],
) -> CompiledBatches: ...


def compile(
    model: ModelLike | BatchSource,
    target: TargetLike = None,
    history: Source | Any = None,
    *,
    finalists: int | None = None,
    layouts: LayoutChoice | str | os.PathLike[str] | None = None,
    example_inputs: Sequence[Any] | None = None,
    fallback: bool = True,
    batches: Iterable[int] | None = None,
) -> CompiledModel | CompiledBatches:
    """Build a model: simplify its graph, fuse, plan memory, and build each kernel once.

    Args:
        model: a module, whose ``main`` is built; an ONNX model as `from_onnx` takes it; or a model
            of PyTorch as `from_torch` does.
        target: None is the current target, or the default one. Of ``"cuda"`` or ``"opencl"`` the
            model runs on such a device, see `CompiledModel.executor`.
        history: a log, or whatever else `loopwright.apply_history_best` takes. A kernel is built
            from the best record of its expression, if a playoff found that faster than the default,
            else as without a history; `CompiledModel.report` says which. Of several implementations
            of an operator the one with the fastest record is built, without records the one of the
            highest priority; `CompiledModel.implementations` says which. None: as the
            ``apply_history_best`` around the call says, if there is one.
        finalists: number of the fastest records of each kernel that, with its default, take turns
            inside runs of the model on random inputs: a kernel that wins by itself may lose there.
            Records that no playoff compared with the default take part, too. A kernel that is
            measurably faster than the one the records choose is built in its place;
            `CompiledModel.inside` tells. None: the choice of the records is built.
        layouts: what `tune_layouts` chose for the same model, or the file that this was saved to;
            ``"measured"`` calls it with this history, and measures what that does not hold. None:
            as `ConvertLayout` has it.
        example_inputs: what a ``torch.nn.Module`` is called with.
        fallback: whether unsupported nodes of an ONNX model are computed by ``onnx.reference``,
            those of a PyTorch model by PyTorch. `CompiledModel.report` lists them. False refuses
            them, all in one message.
        batches: for a model one of whose extents is a size variable, such as the first of each
            input: the values for which a program with kernels of its own is built. Inputs of any
            other value are taken by a program whose kernels have a size variable, scheduled as for
            the largest of these; where an operator needs to know the size, by a program that is
            built on its first use. None: all extents are numbers.

    Returns:
        A `CompiledModel`; with ``batches`` a `CompiledBatches`.

    Raises:
        GraphError: this is no model, nodes are not supported, a type does not fit, ``main`` has
            branches, or the layouts are of another model; with ``batches``, the inputs have no size
            variable, or several.
        RecordError: a log is missing or cannot be read.
        UsageError: ``finalists`` is no whole number above zero, or with it, there is no device of
            the target here; or ``batches`` is empty, or given with ``layouts``; or either is given
            for a target that is no CPU.

    Example:
        >>> x = lw.graph.var("x", (4,))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(lw.graph.op.negative(x)))
        >>> model = lw.graph.compile(module, "llvm")
        >>> print(model(np.array([1, -2, 3, -4], "float32"))[0])
        [0. 2. 0. 4.]
    """
    if finalists is not None:
        check_count(finalists)
    declared = None if batches is None else checked_batches(batches)
    resolved = resolve_target(target)
    _check_device(resolved, {"finalists": finalists, "batches": declared})
    measured = isinstance(layouts, str) and layouts == MEASURED
    choice = None if measured else chosen_layouts(layouts)
    if layouts is not None and declared is not None:
        raise UsageError(
            "layouts are chosen for known sizes, and batches are declared; give one of the two, or "
            "compile the model of each batch by itself"
        )
    if history is not None and not isinstance(history, ApplyHistoryBest):
        history = apply_history_best(history)
    if declared is not None:
        source = source_of(model, example_inputs=example_inputs, fallback=fallback)
        return compile_batches(source, declared, resolved, history, finalists)
    module = module_of(one_batch(model), example_inputs=example_inputs, fallback=fallback)
    if measured:
        choice = tune_layouts(module, resolved, history)
    return compile_module(module, resolved, history, finalists, layouts=choice)


def _check_device(target: Target, options: Mapping[str, object]) -> None:
    if device_of_target(target.kind) in (None, "cpu"):
        return
    given = next((name for name, value in options.items() if value is not None), None)
    if given is not None:
        raise UsageError(
            f"{given}: models for {target.kind} are built without, since it is for CPUs; leave it "
            "out"
        )


def compile_partitioned(
    model: ModelLike,
    targets: Sequence[TargetLike],
    capacities: Sequence[float] | None = None,
    devices: Sequence[Device] | None = None,
    history: Source | Any = None,
) -> PartitionedExecutor:
    """Build a model for several devices, each of which runs a part of it.

    The program is cut where few bytes go from one device to another, into parts whose work is about
    proportional to the capacity of the devices (`loopwright.runtime.executors.partition`). The work
    of a kernel is the sum of its arithmetic operations and of the elements that it reads and
    writes.

    Args:
        model: as of `compile`.
        targets: of each part, such as ``["llvm", "opencl"]``.
        capacities: relative capacities of the devices; None: all the same.
        devices: of each part; None: the first device of each target's kind.
        history: as of `compile`.

    Raises:
        GraphError, RecordError: as of `compile`.
        UsageError: the numbers of targets, capacities and devices differ, or a capacity is not
            above zero.

    Example:
        >>> x = lw.graph.var("x", (1, 4))
        >>> y = lw.graph.op.nn.softmax(lw.graph.op.nn.softmax(x))
        >>> module = lw.graph.IRModule.from_expr(y)
        >>> executor = lw.graph.compile_partitioned(module, ["llvm", "llvm -num-threads=1"])
        >>> executor.run(x=np.zeros((1, 4), "float32"))
        >>> print(executor.cut.devices, executor.get_output(0).numpy())
        (0, 1) [[0.25 0.25 0.25 0.25]]
    """
    resolved = [resolve_target(t) for t in targets]
    shares = [1.0] * len(resolved) if capacities is None else list(capacities)
    for what, given in (("capacities", shares), ("devices", devices)):
        if given is not None and len(given) != len(resolved):
            raise UsageError(
                f"compile_partitioned: there are {len(resolved)} targets and {len(given)} {what}"
            )
    planned = prepared(module_of(model))
    ways = [kernel_tasks(planned, t) for t in resolved]
    kernels: list[dict[str, Module]] = [{} for _ in resolved]
    with applied_history(history):
        records = records_in_force()
        tasks = [{n: fastest(c, records).task for n, c in each.items()} for each in ways]
        cut = partition(planned.program, _loads(planned, tasks[0]), shares)
        steps = zip(planned.program.steps, cut.devices, strict=True)
        used = sorted({(device, step.kernel) for step, device in steps})
        for device, name in used:
            kernels[device][name] = _built(tasks[device][name], resolved[device], name)
    homes = devices or [_first_device(k) for k in kernels]
    return PartitionedExecutor(cut, kernels, homes, planned.constants)


def _loads(planned: Planned, tasks: Mapping[str, Task]) -> list[float]:
    values = planned.program.values
    return [
        flop_of(tasks[step.kernel]) + sum(values[n].nbytes / 4.0 for n in step.args)
        for step in planned.program.steps
    ]


def _built(task: Task, target: Target, name: str) -> Module:
    schedule, args = schedule_of(task)
    return driver.build(schedule, args, target, name=name)


def _first_device(kernels: Mapping[str, Module]) -> Device:
    """The first device of the kind that some kernels are for; the host where there are none."""
    kinds = [artifact_kind(module.artifact.kind).device for module in kernels.values()]
    return Device(kinds[0] if kinds else "cpu")

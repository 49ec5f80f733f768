"""`compile` and `compile_partitioned`: executable models, for one device or several."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any, overload

from loopwright.codegen import BuildQueue
from loopwright.errors import UsageError
from loopwright.executors import PartitionedExecutor, partition
from loopwright.graph.batches import (
    BatchSource,
    CompiledBatches,
    checked_batches,
    compile_batches,
    one_batch,
    source_of,
)
from loopwright.graph.building import CompiledModel, ModelBuilder, records_in_force, records_of
from loopwright.graph.frontend.source import ModelLike, module_of
from loopwright.graph.kernels import fastest, kernel_tasks
from loopwright.graph.layout.choice import MEASURED, LayoutChoice, chosen_layouts
from loopwright.graph.transform.pipeline import prepared
from loopwright.history import Source
from loopwright.runtime import Device, Module, artifact_kind, device_of_target
from loopwright.task import TargetLike, resolve_target


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

    Kernels are kept on disk, where ``LOOPWRIGHT_CACHE`` says, and are not compiled again.

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
    if finalists is not None and (type(finalists) is not int or finalists < 1):
        raise UsageError(
            f"finalists is {finalists!r}; give the number of records of each kernel that take "
            "turns, such as 3"
        )
    declared = None if batches is None else checked_batches(batches)
    builder = ModelBuilder(resolve_target(target), records_of(history), finalists)
    for name, value in (("finalists", finalists), ("batches", declared)):
        if value is not None and device_of_target(builder.target.kind) not in (None, "cpu"):
            raise UsageError(
                f"{name}= is supported only for CPU targets, not for {builder.target.kind}; "
                "remove it"
            )
    if declared is not None:
        if layouts is not None:
            raise UsageError(
                "layouts are chosen for known sizes, and batches are declared; give one of the "
                "two, or compile the model of each batch by itself"
            )
        source = source_of(model, example_inputs=example_inputs, fallback=fallback)
        return compile_batches(source, declared, builder)
    measured = isinstance(layouts, str) and layouts == MEASURED
    choice = None if measured else chosen_layouts(layouts)
    module = module_of(one_batch(model), example_inputs=example_inputs, fallback=fallback)
    if measured:
        from loopwright.graph.layout_tuning import tune_layouts  # with all tuners

        choice = tune_layouts(module, builder.target, builder.history)
    return builder.model(module, choice)


def compile_partitioned(
    model: ModelLike,
    targets: Sequence[TargetLike],
    capacities: Sequence[float] | None = None,
    devices: Sequence[Device] | None = None,
    history: Source | Any = None,
) -> PartitionedExecutor:
    """Build a model for several devices, each of which runs a part of it.

    The program is cut where few bytes go from one device to another, into parts whose work is about
    proportional to the capacity of the devices. The work of a kernel is the sum of its arithmetic
    operations and of the elements that it reads and writes.

    Args:
        model, history: as of `compile`.
        targets: of each part, such as ``["llvm", "opencl"]``.
        capacities: relative capacities of the devices; None: all the same.
        devices: of each part; None: the first device of each target's kind, the host for none.

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
    from loopwright.tuner import flop_of

    resolved = [resolve_target(t) for t in targets]
    shares = [1.0] * len(resolved) if capacities is None else list(capacities)
    for what, items in (("capacities", shares), ("devices", devices)):
        if items is not None and len(items) != len(resolved):
            raise UsageError(
                f"compile_partitioned: there are {len(resolved)} targets and {len(items)} {what}"
            )
    planned = prepared(module_of(model))
    values, steps = planned.program.values, planned.program.steps
    history_records = records_of(history)
    builders = [ModelBuilder(t, history_records) for t in resolved]
    each = [kernel_tasks(planned, t) for t in resolved]
    building: list[dict[str, Future[Module]]] = [{} for _ in resolved]
    with builders[0].applied(), BuildQueue() as queue:
        records = records_in_force()
        chosen = [{n: fastest(c, records) for n, c in tasks.items()} for tasks in each]
        loads = [
            flop_of(chosen[0][step.kernel].task) + sum(values[n].nbytes / 4.0 for n in step.args)
            for step in steps
        ]
        cut = partition(planned.program, loads, shares)
        pairs = zip(steps, cut.devices, strict=True)
        for device, name in sorted({(device, step.kernel) for step, device in pairs}):
            one = chosen[device][name]
            building[device][name] = builders[device].kernel(one, name, queue)
    kernels = [{name: f.result() for name, f in part.items()} for part in building]
    if devices is None:
        # A part without kernels is on the host.
        kinds = [
            next((artifact_kind(m.artifact.kind).device for m in part.values()), "cpu")
            for part in kernels
        ]
        devices = [Device(kind) for kind in kinds]
    return PartitionedExecutor(cut, kernels, devices, planned.constants)
